"""Follows the lines of a pipeline as they pass. It creates no consumer, so that read access is
enough, and touches no reader's position.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from logpipeline import cri, wire
from logpipeline.authority import READERS_DOMAIN
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream, StoredMessage
from logpipeline.nats.scan import BYTES_MAX, MESSAGES_MAX, DirectReader
from logpipeline.spec import LogPipeline
from logpipeline.subjects import Subjects
from logpipeline_cli.errors import CliError

# A line appears soon after it was stored. Each look is a request for each partition: with many
# partitions looks are rarer, so that they are no load for the server.
LOOK_EVERY_S = 0.5
REQUESTS_A_SECOND_MAX = 200
# After so many looks that found nothing, the stream is checked: it may have been replaced.
LOOKS_MAX = 20
REOPEN_AFTER_S = 0.5


class Line(NamedTuple):
    """One line of *host*, and where it stood: in a *generation* of its *source*, and of a
    container's log in one *stream* of its program; *label* names its container or file. Where a
    message could not be read, *text* says why, and the line *is damaged*.
    """

    host: str
    label: str
    text: bytes
    source: str = ""
    is_damaged: bool = False
    generation: str = ""
    stream: str = ""


@dataclass(slots=True)
class Filter:
    """The lines that are wanted."""

    namespace: str | None = None
    pod: str | None = None
    pattern: re.Pattern[bytes] | None = None

    def wants(self, batch: wire.Batch | None) -> bool:
        """Return whether lines of *batch* may be wanted; None is a message of another program."""
        if self.namespace is None and self.pod is None:
            return True
        if batch is None:
            return False
        namespace, pod = _pod_of(batch)
        return self.namespace in (None, namespace) and self.pod in (None, pod)

    def lines_of(self, message: StoredMessage, subjects: Subjects) -> Iterator[Line]:
        """Yield the wanted lines of *message*; one that cannot be read is one damaged line."""
        host = ""
        try:
            _, host = subjects.read(message.subject)
            batch = (
                wire.decode_headers(wire.parse_headers(message.headers))
                if message.headers
                else None
            )
            if not self.wants(batch):
                return
            data = (
                message.data + b"\n" if batch is None else wire.decode_payload(batch, message.data)
            )
        except ValueError as error:
            why = f"[message {message.sequence} cannot be read: {error}]"
            yield Line(host, "", why.encode(), is_damaged=True)
            return
        label = _label(batch)
        source, generation = (batch.source, batch.generation) if batch is not None else ("", "")
        for text, stream in _texts(batch, data):
            if self.pattern is None or self.pattern.search(text):
                yield Line(host, label, text, source, generation=generation, stream=stream)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one look at a stream fetches at most. A *paced* follower waits after each look, also
    where there is more to fetch.
    """

    messages: int = MESSAGES_MAX
    bytes: int = BYTES_MAX
    paced: bool = False


def followers(
    js: JetStream,
    pipeline: LogPipeline,
    host: str | None,
    since_ns: int | None,
    limits: Limits | None = None,
) -> list[Follower]:
    """Return followers of all streams that hold lines of *host*, or of any host."""
    names = pipeline.names
    wanted = [pipeline.stream_number_of(host)] if host else range(pipeline.stream_count)
    every_s = look_every_s(len(wanted))
    subject = pipeline.filter_of_host(host) if host else pipeline.subjects.of_all()
    return [
        Follower(js, names.stream(number), subject, since_ns, every_s, limits or Limits())
        for number in wanted
    ]


def look_every_s(streams: int) -> float:
    """Return the seconds between two looks at each of *streams* streams."""
    return max(LOOK_EVERY_S, streams / REQUESTS_A_SECOND_MAX)


class Follower:
    """Follows one stream from a time on, or from now on, by reading stored messages."""

    def __init__(
        self,
        js: JetStream,
        stream: str,
        subject: str,
        since_ns: int | None,
        every_s: float,
        limits: Limits,
    ) -> None:
        self._js = js
        self._every_s = every_s
        self._stream = stream
        self._subject = subject
        self._since_ns = since_ns
        self._limits = limits
        # The next sequence to read; None where a time says where to begin.
        self._next: int | None = None
        self._is_direct = True
        self._skips = False

    def skip(self) -> None:
        """Go on at the end of the stream: the one who looks cannot read so much."""
        self._skips = True

    async def follow(
        self,
        show: Callable[[list[StoredMessage]], None],
        skipped: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Call *show* with the messages of each look, for ever, and *skipped* with the number of
        messages that `skip` left out; of those some may be other hosts'.
        """
        reader = DirectReader(self._js, self._stream, self._subject)
        await reader.open()
        try:
            while True:
                with suppress(NotSent, OutcomeUnknown):
                    await self._js.connection.wait_connected()
                    skipped(await self._look_at_stream())
                    await self._read(reader, show)
                await asyncio.sleep(REOPEN_AFTER_S)
        finally:
            with suppress(NotSent, OutcomeUnknown):
                await reader.close()

    async def _look_at_stream(self) -> int:
        """Find where to read on, and return how many messages were skipped."""
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
        left_out = 0
        if self._next is not None:
            left_out = max(0, end - self._next) if self._skips else 0
            # A server that lost the end of a stream uses its sequences again.
            self._next = end if self._skips else min(self._next, end)
        elif self._since_ns is None:
            self._next = end
        self._skips = False
        return left_out

    async def _read(
        self, reader: DirectReader, show: Callable[[list[StoredMessage]], None]
    ) -> None:
        idle = 0
        while idle < LOOKS_MAX:
            found = await self._take(reader)
            if found:
                self._next = found[-1].sequence + 1
            show(found)
            if self._skips:
                return
            idle += not found
            if not found or self._limits.paced:
                await asyncio.sleep(self._every_s)

    async def _take(self, reader: DirectReader) -> list[StoredMessage]:
        try:
            if self._is_direct:
                since_ns = self._since_ns if self._next is None else None
                return await reader.take(
                    self._next or 1,
                    since_ns=since_ns,
                    messages_max=self._limits.messages,
                    bytes_max=self._limits.bytes,
                )
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


def _texts(batch: wire.Batch | None, data: bytes) -> Iterator[tuple[bytes, str]]:
    """Yield each line, and the stream that its program wrote it to."""
    if batch is not None and batch.format == "cri":
        for line in cri.join(data):
            yield line.text, line.stream.decode()
        return
    *texts, rest = data.split(b"\n")
    for text in [*texts, rest] if rest else texts:
        yield text, ""


def _label(batch: wire.Batch | None) -> str:
    if batch is None:
        return ""
    namespace, pod = _pod_of(batch)
    if not pod:
        return batch.source
    # A publisher writes any headers that it likes: a pod's source may lack the container.
    container = batch.container or "".join(batch.source.split("/")[3:4])
    return f"{namespace}/{pod}/{container}"


def _pod_of(batch: wire.Batch) -> tuple[str, str]:
    if batch.pod:
        return batch.namespace, batch.pod
    parts = batch.source.split("/")
    return (parts[0], parts[1]) if batch.format == "cri" and len(parts) == 5 else ("", "")
