"""``logpipeline tail``: lines as they pass, without touching any reader's position."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from logpipeline import cri, wire
from logpipeline.authority import READERS_DOMAIN
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream, StoredMessage
from logpipeline.nats.scan import DirectReader
from logpipeline.partition import partition_of
from logpipeline.subjects import Subjects, check_host
from logpipeline_cli.errors import EXIT_OK, CliError, UsageError
from logpipeline_cli.output import escaped_name, write_line
from logpipeline_cli.target import Target, connected, find_target
from logpipeline_cli.time_arguments import moment_ns

# A line appears soon after it was stored. Each look is a request for each partition: with many
# partitions looks are rarer, so that they are no load for the server.
LOOK_EVERY_S = 0.5
REQUESTS_A_SECOND_MAX = 200
# After so many looks that found nothing, the stream is checked: it may have been replaced.
LOOKS_MAX = 20
REOPEN_AFTER_S = 0.5


@dataclass(slots=True)
class Filter:
    """The lines that are wanted, and how many of them still (None: all)."""

    namespace: str | None
    pod: str | None
    pattern: re.Pattern[bytes] | None
    left: int | None

    def wants(self, batch: wire.Batch | None) -> bool:
        """Return whether lines of *batch* may be wanted; None is a message of another program."""
        if self.namespace is None and self.pod is None:
            return True
        if batch is None:
            return False
        namespace, pod = _pod_of(batch)
        return self.namespace in (None, namespace) and self.pod in (None, pod)


def run(args: argparse.Namespace) -> int:
    """Print lines, as many as asked for, or until Ctrl-C."""
    return show(find_target(file=args.file, data=args.data, nats=args.nats), args)


def show(target: Target, args: argparse.Namespace) -> int:
    """Print the lines of *target* that *args* choose."""
    lines = Filter(args.pod_namespace, args.pod, _pattern(args.grep), args.lines)
    since_ns = moment_ns("--since", args.since) if args.since else None
    host = check_host(args.host) if args.host else None
    asyncio.run(tail(target, host, since_ns, lines, raw=args.raw))
    return EXIT_OK


async def tail(
    target: Target, host: str | None, since_ns: int | None, lines: Filter, *, raw: bool
) -> None:
    """Print lines of *host*, or of all, from *since_ns* on, until there were enough."""
    names, partitions = target.pipeline.names, target.pipeline.spec.partitions
    subjects = Subjects(names.subject, partitions)
    wanted = [partition_of(host, partitions)] if host else range(max(partitions, 1))
    every_s = max(LOOK_EVERY_S, len(wanted) / REQUESTS_A_SECOND_MAX)
    enough = asyncio.Event()

    def show(message: StoredMessage) -> None:
        if enough.is_set():
            return
        for text in _lines_of(message, subjects, lines, raw=raw):
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
                    every_s,
                ).follow(show)
            )
            for partition in wanted
        ]
        await enough.wait()
        for follower in followers:
            follower.cancel()


class _Follower:
    """Follows one stream from a time on, or from now on, by reading stored messages. It creates no
    consumer, so that read access is enough.
    """

    def __init__(
        self, js: JetStream, stream: str, subject: str, since_ns: int | None, every_s: float
    ) -> None:
        self._js = js
        self._every_s = every_s
        self._stream = stream
        self._subject = subject
        self._since_ns = since_ns
        # The next sequence to read; None where a time says where to begin.
        self._next: int | None = None
        self._is_direct = True

    async def follow(self, show: Callable[[StoredMessage], None]) -> None:
        """Call *show* for each message, for ever."""
        reader = DirectReader(self._js, self._stream, self._subject)
        await reader.open()
        try:
            while True:
                with suppress(NotSent, OutcomeUnknown):
                    await self._js.connection.wait_connected()
                    await self._look_at_stream()
                    await self._read(reader, show)
                await asyncio.sleep(REOPEN_AFTER_S)
        finally:
            with suppress(NotSent, OutcomeUnknown):
                await reader.close()

    async def _look_at_stream(self) -> None:
        try:
            info = await self._js.stream_info(self._stream)
        except ApiError as error:
            raise self._unreadable(error.description) from error
        if info is None:
            raise self._unreadable("stream not found")
        self._is_direct = bool(info["config"].get("allow_direct"))
        if not self._is_direct and self._js.connection.options.js_domain == READERS_DOMAIN:
            raise CliError(
                f"stream {self._stream} has no allowDirect, which a login with read access needs: "
                "set spec.stream.allowDirect, or tail with the right to get the operator's Secret"
            )
        end = int(info["state"]["last_seq"]) + 1
        if self._next is not None:
            # A server that lost the end of a stream uses its sequences again.
            self._next = min(self._next, end)
        elif self._since_ns is None:
            self._next = end

    async def _read(self, reader: DirectReader, show: Callable[[StoredMessage], None]) -> None:
        idle = 0
        while idle < LOOKS_MAX:
            found = await self._take(reader)
            for message in found:
                self._next = message.sequence + 1
                show(message)
            # A reader behind a pipe, too, gets lines as they pass.
            sys.stdout.flush()
            if not found:
                idle += 1
                await asyncio.sleep(self._every_s)

    async def _take(self, reader: DirectReader) -> list[StoredMessage]:
        try:
            if self._is_direct:
                since_ns = self._since_ns if self._next is None else None
                return await reader.take(self._next or 1, since_ns=since_ns)
            return await self._from_leader()
        except ApiError as error:
            raise self._unreadable(error.description) from error

    async def _from_leader(self) -> list[StoredMessage]:
        """Return the next message of a stream that allows no direct get: one by one."""
        while True:
            start = self._next or 1
            found = await self._js.next_from_leader(self._stream, start, self._subject)
            if found is None or found.time_ns >= (self._since_ns or 0):
                return [found] if found is not None else []
            self._next = found.sequence + 1

    def _unreadable(self, why: str) -> CliError:
        return CliError(
            f"cannot read stream {self._stream}: {why}; was the pipeline applied (`logpipeline "
            "apply`), and to this server?"
        )


def _lines_of(
    message: StoredMessage, subjects: Subjects, lines: Filter, *, raw: bool
) -> Iterator[bytes]:
    """Yield the lines to print of one message; one that cannot be read is shown as such."""
    try:
        _, host = subjects.read(message.subject)
        batch = (
            wire.decode_headers(wire.parse_headers(message.headers)) if message.headers else None
        )
        if not lines.wants(batch):
            return
        data = message.data + b"\n" if batch is None else wire.decode_payload(batch, message.data)
    except ValueError as error:
        if not raw:
            yield f"[message {message.sequence} cannot be read: {error}]".encode()
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
        return re.compile(os.fsencode(text))
    except re.error as error:
        raise UsageError(f"--grep {escaped_name(text)!r}: {error}") from error
