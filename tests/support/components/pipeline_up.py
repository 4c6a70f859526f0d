"""`logpipeline up` as a user starts it, in a folder of its own, and other commands beside it."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterable
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

import warm
from components.contents import Content, contents_below
from logpipeline.codecs import GZIP
from logpipeline.layout import Component as RunningPart
from logpipeline.layout import Layout, RunRecord
from logpipeline_collector.files.intents import TEMPORARY_SUFFIX
from specs import KEEPS_ALL, merged
from waiting import WITHIN_S, eventually

COMMAND = [sys.executable, "-m", "logpipeline_cli"]
LOG_CHARACTERS_MAX = 6000


class PipelineUp:
    """A LogPipeline with one shipper of ``logs/*.log``, as host ``web1``; an asynchronous context
    manager. *spec* is put over the small one that is its default.
    """

    def __init__(self, folder: Path, *words: str, name: str = "test", **spec: Any) -> None:
        self.folder = folder
        self.name = name
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True)
        self.file = folder / "pipeline.yaml"
        self.layout = Layout(folder / "data")
        self.words = words
        self._log = folder / "up.log"
        self._process: warm.AnyProcess | None = None
        self.spec: dict[str, Any] = {
            "partitions": 2,
            "collectors": {"replicas": 1},
            # A Spark beside each of so many pipelines is for tests of tables.
            "table": {"enabled": False},
            "local": {
                "shippers": [
                    {"name": "web", "host": "web1", "files": [{"include": [f"{self.logs}/*.log"]}]}
                ]
            },
            **spec,
        }
        self.write()

    async def __aenter__(self) -> Self:
        self.start()
        try:
            await self.running()
        except BaseException:
            # Nobody else would end it: it is not entered.
            self.crash()
            print(self.log())
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self.is_running:
                await self.stop()
        finally:
            self.crash()
            if kind is not None:
                print(self.log())

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def write(self, **spec: Any) -> None:
        """Write the resource, with *spec* put over what it was."""
        self.spec.update(spec)
        resource = {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": self.name},
            "spec": merged(KEEPS_ALL, self.spec),
        }
        temporary = self.file.with_suffix(".new")
        temporary.write_text(yaml.safe_dump(resource))
        temporary.replace(self.file)

    def start(self) -> None:
        """Start it, and return at once."""
        words = ["up", "-f", str(self.file), "--data", str(self.layout.data), *self.words]
        with self._log.open("ab") as log:
            self._process = warm.start(words, stdout=log, stderr=log)

    async def running(self) -> None:
        """Return once every part says that it is ready."""

        async def all_run() -> bool:
            assert self.is_running, self.log()
            record = RunRecord.read(self.layout)
            parts = [part for part in record.components if part.http] if record else []
            ready = await asyncio.gather(*(asyncio.to_thread(_is_ready, part) for part in parts))
            return bool(parts) and all(ready)

        await eventually(all_run, what="up runs")

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop, and return its exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        return await asyncio.to_thread(self._process.wait, WITHIN_S)

    def pids(self) -> dict[str, int]:
        """Return the process of each part, as ``run.json`` says it."""
        record = RunRecord.read(self.layout)
        return {part.name: part.pid for part in record.components} if record else {}

    async def kill(self, part: str) -> None:
        """Kill a part as a crash would, and return when another process has taken its place. One
        that is just started again is waited for.
        """
        before = await eventually(
            lambda: self.send_signal(part, signal.SIGKILL), what=f"{part} runs"
        )
        await eventually(lambda: self.pids()[part] not in (0, before), what=f"{part} is back")

    def freeze(self, part: str) -> None:
        """Stop a part where it stands: its connections stay open, and nothing answers."""
        self.send_signal(part, signal.SIGSTOP)

    def thaw(self, part: str) -> None:
        """Let a frozen part go on."""
        self.send_signal(part, signal.SIGCONT)

    def send_signal(self, part: str, number: int) -> int:
        """Send the signal *number* to a part, which must be running, and return its process."""
        pid = self.pids()[part]
        # To 0 would be to all processes of our own group: to pytest itself.
        assert pid > 0, f"{part} is not running"
        os.kill(pid, number)
        return pid

    async def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run another command on this pipeline's data, and return how it ended."""
        return await run_command(*words, "--data", str(self.layout.data))

    async def run_bytes(self, *words: str) -> bytes:
        """Return what another command prints, byte for byte; it must succeed."""
        given = [*words, "--data", str(self.layout.data)]
        done = await asyncio.to_thread(warm.run, given, timeout_s=WITHIN_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def json(self, *words: str) -> Any:
        """Return what another command prints as JSON."""
        done = await self.run(*words, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def append(self, lines: Iterable[str], name: str = "app.log") -> None:
        """Append *lines* to one of the log files."""
        with (self.logs / name).open("ab") as file:
            file.write("".join(f"{line}\n" for line in lines).encode())

    def append_bytes(self, content: bytes, name: str = "app.log") -> None:
        """Append *content* to one of the log files."""
        with (self.logs / name).open("ab") as file:
            file.write(content)

    def written(self, name: str = "app.log") -> list[str]:
        """Return the lines of one of the log files."""
        return (self.logs / name).read_text().splitlines()

    def collected_bytes(self) -> bytes:
        """Return what stands in all files of the collectors, packed ones as they are."""
        return b"".join(each.data for each in self._contents())

    def collected(self, name: str = "app.log") -> list[str]:
        """Return the lines in the files of all collectors, in the order of the files' ages; what
        was rotated may be packed by now, or be so in a moment.
        """
        files = [each for each in self._contents() if each.path.name.startswith(name)]
        there = {each.path for each in files}
        ours = [
            (age, gzip.decompress(data) if path.suffix == GZIP.suffix else data)
            for path, age, data in files
            # One that is packed is there twice for a moment.
            if path.suffix != TEMPORARY_SUFFIX
            and not (path.suffix == GZIP.suffix and path.with_suffix("") in there)
        ]
        return [line for _, data in sorted(ours) for line in data.decode().splitlines()]

    def _contents(self) -> list[Content]:
        return list(contents_below(*sorted(self.layout.data.glob("collectors/*/logs"))))

    async def arrived(self, lines: Iterable[str], name: str = "app.log") -> None:
        """Return when exactly *lines* are collected, in any distribution over collectors' files."""
        wanted = list(lines)
        await eventually(
            lambda: len(self.collected(name)) >= len(wanted),
            what=f"{len(wanted)} lines arrive",
        )
        assert self.collected(name) == wanted

    def log(self) -> str:
        """Return the end of what it told."""
        return self._log.read_text(errors="replace")[-LOG_CHARACTERS_MAX:]

    def full_log(self) -> str:
        """Return all that it told."""
        return self._log.read_text(errors="replace")

    def record(self) -> RunRecord:
        """Return what it says of itself to other commands."""
        record = RunRecord.read(self.layout)
        assert record is not None, self.log()
        return record

    def crash(self) -> None:
        """End the supervisor as a crash would; its parts and its server die with it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _is_ready(part: RunningPart) -> bool:
    if part.name == "nats-server":
        return bool(part.pid)
    try:
        with urllib.request.urlopen(f"http://{part.http}/readyz", timeout=1):
            return bool(part.pid)
    except HTTPException:
        # Another program took the port before the part listened on it: it starts again on another.
        return False
    except OSError:
        return False


async def run_command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command ``logpipeline *words*``, and return how it ended."""
    return await asyncio.to_thread(warm.run_text, words, timeout_s=WITHIN_S)
