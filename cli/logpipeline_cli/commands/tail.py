"""``logpipeline tail``: lines as they pass, without touching any reader's position."""

from __future__ import annotations

import argparse
import asyncio
import re
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from logpipeline import cri, wire
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream, rfc3339_of
from logpipeline.nats.pull import Delivered, PullReader, ReaderClosed
from logpipeline.partition import partition_of
from logpipeline.subjects import Subjects, check_host
from logpipeline_cli.errors import CliError
from logpipeline_cli.exits import EXIT_OK
from logpipeline_cli.moments import moment_ns
from logpipeline_cli.output import escaped, write_line
from logpipeline_cli.target import Target, connected, find_target

# A consumer that nobody reads any more goes away by itself.
INACTIVE_NS = 60 * 1_000_000_000
PULL_BYTES = 2 * 1024 * 1024
TAKE_TIMEOUT_S = 1.0
REOPEN_AFTER_S = 0.5


@dataclass(slots=True)
class Filter:
    """Which lines are wanted, and how many still are (None: all)."""

    namespace: str | None
    pod: str | None
    pattern: re.Pattern[bytes] | None
    left: int | None

    def wants(self, batch: wire.Batch | None) -> bool:
        """Whether lines of *batch* (None: a foreign message) can be wanted at all."""
        if self.namespace is None and self.pod is None:
            return True
        if batch is None:
            return False
        namespace, pod = _pod_of(batch)
        return self.namespace in (None, namespace) and self.pod in (None, pod)


def run(args: argparse.Namespace) -> int:
    """Print lines until enough came, or till Ctrl-C."""
    return show(find_target(file=args.file, data=args.data, nats=args.nats), args)


def show(target: Target, args: argparse.Namespace) -> int:
    """Print lines of *target* as *args* say."""
    lines = Filter(args.pod_namespace, args.pod, _pattern(args.grep), args.lines)
    since_ns = moment_ns("--since", args.since) if args.since else None
    host = check_host(args.host) if args.host else None
    asyncio.run(_tail(target, host, since_ns, lines, raw=args.raw))
    return EXIT_OK


async def _tail(
    target: Target, host: str | None, since_ns: int | None, lines: Filter, *, raw: bool
) -> None:
    names, partitions = target.pipeline.names, target.pipeline.spec.partitions
    subjects = Subjects(names.subject, partitions)
    wanted = [partition_of(host, partitions)] if host else range(max(partitions, 1))
    enough = asyncio.Event()

    def show(delivered: Delivered) -> None:
        if enough.is_set():
            return
        for text in _lines_of(delivered, subjects, lines, raw=raw):
            write_line(text, raw=raw)
            if lines.left is not None:
                lines.left -= 1
                if lines.left <= 0:
                    enough.set()
                    return

    async with connected(target, "tail") as js, asyncio.TaskGroup() as tasks:
        followers = [
            tasks.create_task(
                _Follower(
                    js,
                    names.stream(partition),
                    subjects.of_host(host) if host else subjects.of_all(),
                    since_ns,
                ).follow(show)
            )
            for partition in wanted
        ]
        await enough.wait()
        for follower in followers:
            follower.cancel()


class _Follower:
    """Follows one stream from a time on; when its consumer is lost, from behind what was shown."""

    def __init__(self, js: JetStream, stream: str, subject: str, since_ns: int | None) -> None:
        self._js = js
        self._stream = stream
        self._subject = subject
        self._since_ns = since_ns
        self._sequence: int | None = None

    async def follow(self, show: Callable[[Delivered], None]) -> None:
        """Call *show* for each message, for ever."""
        while True:
            name = f"tail-{secrets.token_hex(8)}"
            with suppress(NotSent, OutcomeUnknown, ReaderClosed):
                await self._js.connection.wait_connected()
                await self._open(name)
                try:
                    await self._read(name, show)
                finally:
                    with suppress(NotSent, OutcomeUnknown, ApiError):
                        await self._js.consumer_delete(self._stream, name)
            await asyncio.sleep(REOPEN_AFTER_S)

    async def _open(self, name: str) -> None:
        try:
            info = await self._js.consumer_create(self._stream, self._config(name), action="create")
        except ApiError as error:
            raise CliError(
                f"cannot read stream {self._stream}: {error.description}; was the pipeline "
                "applied (`logpipeline apply`), and to this server?"
            ) from error
        if self._sequence is None:
            # What passes while a connection is lost is shown afterwards, also before the first.
            self._sequence = int(info["delivered"]["stream_seq"])

    async def _read(self, name: str, show: Callable[[Delivered], None]) -> None:
        reader = PullReader(self._js, self._stream, name, pull_bytes=PULL_BYTES)
        await reader.open()
        try:
            while True:
                for delivered in await reader.take(timeout_s=TAKE_TIMEOUT_S):
                    self._sequence = delivered.sequence
                    show(delivered)
                # A reader behind a pipe wants to see lines as they pass, too.
                sys.stdout.flush()
        finally:
            await reader.close()

    def _config(self, name: str) -> dict[str, object]:
        config: dict[str, object] = {
            "name": name,
            "ack_policy": "none",
            "filter_subject": self._subject,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": INACTIVE_NS,
            "deliver_policy": "new",
        }
        if self._sequence is not None:
            config.update(deliver_policy="by_start_sequence", opt_start_seq=self._sequence + 1)
        elif self._since_ns is not None:
            config.update(deliver_policy="by_start_time", opt_start_time=rfc3339_of(self._since_ns))
        return config


def _lines_of(
    delivered: Delivered, subjects: Subjects, lines: Filter, *, raw: bool
) -> Iterator[bytes]:
    """Yield what to print of one message; a message that cannot be read is shown as such."""
    message = delivered.message
    try:
        _, host = subjects.read(message.subject.decode("utf-8", "replace"))
        batch = (
            wire.decode_headers(wire.parse_headers(message.headers)) if message.headers else None
        )
        if not lines.wants(batch):
            return
        data = message.data + b"\n" if batch is None else wire.decode_payload(batch, message.data)
    except ValueError as error:
        if not raw:
            yield f"[message {delivered.sequence} cannot be read: {error}]".encode()
        return
    prefix = b"" if raw else f"{host} {_label(batch)}| ".encode("utf-8", "backslashreplace")
    for text in _texts(batch, data):
        if lines.pattern is None or lines.pattern.search(text):
            yield prefix + text


def _texts(batch: wire.Batch | None, data: bytes) -> Iterator[bytes]:
    if batch is not None and batch.format == "cri":
        for line in cri.join(data):
            yield line.text
        return
    texts = data.split(b"\n")
    yield from texts if texts[-1] else texts[:-1]


def _label(batch: wire.Batch | None) -> str:
    if batch is None:
        return ""
    namespace, pod = _pod_of(batch)
    if not pod:
        return batch.source + " "
    container = batch.container or batch.source.split("/")[3]
    return f"{namespace}/{pod}/{container} "


def _pod_of(batch: wire.Batch) -> tuple[str, str]:
    if batch.pod:
        return batch.namespace, batch.pod
    parts = batch.source.split("/")
    return (parts[0], parts[1]) if batch.format == "cri" and len(parts) == 5 else ("", "")


def _pattern(text: str | None) -> re.Pattern[bytes] | None:
    if text is None:
        return None
    try:
        return re.compile(text.encode())
    except re.error as error:
        raise CliError(f"--grep {escaped(text.encode())!r}: {error}") from error
