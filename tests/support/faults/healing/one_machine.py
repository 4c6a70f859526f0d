"""A pipeline on one machine that faults are made on, and what is counted of it afterwards."""

from __future__ import annotations

import errno
import shutil
import signal
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from components.pipeline_up import PipelineUp
from faults.small_disk import SmallDisk, small_disk
from logpipeline.authority import OPERATOR
from logpipeline.credentials import nats_options
from logpipeline.nats.connection import Connection
from logpipeline.nats.jetstream import JetStream
from logpipeline.spec import load
from waiting import WITHIN_S, eventually

# Every wait for healing has this limit. It is generous: what is promised is that it ends.
HEALED_WITHIN_S = 150.0
# The server takes three quarters of what is free, and each stream reserves its greatest size.
DISK_BYTES = 1536 * 1024 * 1024
LOUD, QUIET = "app.log", "quiet.log"
COLLECTOR, SHIPPER, SERVER = "collector-0", "shipper-web", "nats-server"
# Streams reserve their greatest size, and a small disk gives a server little.
SMALL: dict[str, Any] = {
    "partitions": 2,
    "stream": {"maxBytes": "8Mi", "trim": "never"},
    "collectors": {"replicas": 1, "snapshotEvery": "1s"},
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a fault came to: the time from its end until all was collected, and what was counted."""

    seconds: float
    lost: int
    twice: int


class Machine:
    """A running pipeline with a log that is written on, and one that falls silent before the
    fault; *on_small_disk* names the folder of its data that has a disk of its own.
    """

    def __init__(self, folder: Path, on_small_disk: str = "") -> None:
        self.up = PipelineUp(folder / "machine", **SMALL)
        self.layout = self.up.layout
        self.aside = folder / "aside"
        self.held: object = None
        self._small = on_small_disk
        self._disks = ExitStack()
        self._disk: SmallDisk | None = None
        self._log_start = 0

    async def __aenter__(self) -> Self:
        if self._small:
            path = self.layout.data / self._small
            self._disk = self._disks.enter_context(small_disk(path, size_bytes=DISK_BYTES))
        try:
            await self.up.__aenter__()
        except BaseException:
            self._disks.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._disks:
            await self.up.__aexit__(kind, error, trace)

    @property
    def disk(self) -> SmallDisk:
        """The small disk."""
        assert self._disk is not None
        return self._disk

    def write(self, name: str, lines: int) -> None:
        """Append so many lines to a log, all of them different."""
        path = self.up.logs / name
        first = len(self.up.written(name)) if path.exists() else 0
        self.up.append((f"{name} line {n} of this log" for n in range(first, first + lines)), name)

    async def collected(self) -> None:
        """Return when every line of every log is collected.

        Raises:
            AssertionError: that did not come to pass.
        """
        await eventually(
            lambda: all(not self._lost(name) for name in (LOUD, QUIET)),
            within_s=HEALED_WITHIN_S,
            what="every line is collected",
        )

    async def snapshot(self) -> None:
        """Return when the collector has stored a snapshot: without one a group has no past."""
        async with self.jetstream() as js:
            (name,) = await self.streams("snapshots")

            async def is_there() -> bool:
                info = await js.stream_info(name)
                return info is not None and info["state"]["messages"] > 0

            await eventually(is_there, what="a snapshot is stored")

    def count(self) -> tuple[int, int]:
        """Return how many lines are lost, and how many are collected more than once."""
        lost = sum(len(self._lost(name)) for name in (LOUD, QUIET))
        found = [self.up.collected(name) for name in (LOUD, QUIET)]
        return lost, sum(len(lines) - len(set(lines)) for lines in found)

    def _lost(self, name: str) -> set[str]:
        return set(self.up.written(name)) - set(self.up.collected(name))

    def mark(self) -> None:
        """Have `said` begin here."""
        self._log_start = len(self.up.full_log())

    def said(self) -> str:
        """Return what `up` logged since `mark`."""
        return self.up.full_log()[self._log_start :]

    async def problems(self) -> str:
        """Return what ``logpipeline status --check`` says now."""
        done = await self.up.run("status", "--check")
        return done.stdout + done.stderr

    @asynccontextmanager
    async def jetstream(self) -> AsyncIterator[JetStream]:
        """Connect as someone with all rights of the operator."""
        record = self.up.record()
        options = nats_options(
            load(self.up.file), servers=(record.nats,), login=self.layout.login(OPERATOR)
        )
        connection = Connection(options.named("fault"))
        await connection.start(patience_s=WITHIN_S)
        try:
            yield JetStream(connection)
        finally:
            await connection.close()

    async def streams(self, kind: str) -> list[str]:
        """Return the pipeline's streams: ``logs``, ``state``, ``snapshots``, ``letters`` or
        ``all``.
        """
        pipeline = load(self.up.file)
        names = pipeline.names
        kinds = {
            "logs": [names.stream(n) for n in range(pipeline.spec.partitions)],
            "state": [f"KV_{names.state_bucket}"],
            "snapshots": [names.snapshot_stream],
            "letters": [names.dead_letter_stream],
        }
        if kind != "all":
            return kinds[kind]
        return [name for some in kinds.values() for name in some]

    def freeze(self, *parts: str) -> None:
        """Stop parts where they stand."""
        for part in parts:
            self.up.freeze(part)

    def kill(self, *parts: str) -> None:
        """Kill parts, and leave it to `up` to see that."""
        for part in parts:
            self.up.send_signal(part, signal.SIGKILL)

    def set_aside(self, folder: Path) -> None:
        """Keep a copy of *folder* as it is now."""
        shutil.copytree(folder, self.aside, dirs_exist_ok=False)

    def put_back(self, folder: Path) -> None:
        """Give *folder* the content that `set_aside` kept, in place of its own."""
        empty(folder)
        shutil.copytree(self.aside, folder, dirs_exist_ok=True)


def empty(folder: Path, *, but: str = "") -> None:
    """Remove what *folder* holds, but for the file *but*."""
    for path in folder.iterdir():
        if path.name != but:
            remove(path)


def remove(path: Path) -> None:
    """Remove *path* with all that it holds, while whoever works there may make and rename files."""
    while True:
        try:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
                raise
        else:
            return


def since(start: float) -> float:
    """Return the seconds since *start*."""
    return time.monotonic() - start
