"""Runs a reader in fshipper's way: from messages to files, at most once, with or without JetStream.

Nothing is acknowledged and no position is kept, as in fshipper: what is published while no reader
listens is lost, unless a push consumer keeps it. The collector is the reader that loses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Callable

from logpipeline.nats.connection import Connection, NotSent
from logpipeline.nats.pull import read_reply
from logpipeline.nats.session import RawMessage
from logpipeline.observe import http
from logpipeline.observe.metrics import Metrics
from logpipeline.subjects import BadHost, check_host
from logpipeline.wire import BadMessage, decode_headers, decode_payload, parse_headers
from logpipeline_collector.fshipper.config import (
    CONSUMERS_MAX,
    HOSTS_MAX,
    LINE_OVERHEAD_BYTES,
    LINGER_S,
    RETRY_S,
    SYNC_INTERVAL_S,
    ReaderConfig,
    midnight,
)
from logpipeline_collector.fshipper.files import DayFiles, SyncFailed

log = logging.getLogger(__name__)

# Status of a push consumer's own messages: it is idle, or asks whether we still listen.
STATUS_CONTROL = 100
_STREAM_REPLY = b"$JS.ACK."

EXIT_FINE = 0
EXIT_CANNOT_START = 1
EXIT_BROKEN = 3


# In this way of reading no line is sent again. So two losses are counted: lines that are dropped
# here because the disk is slower than the network, and, with push consumers, gaps in their numbers.
class Intake:
    """The lines that wait to be written, in the order in which they came, at most *bytes_max*."""

    def __init__(
        self, subject: str, *, bytes_max: int, clock: Callable[[], float] = time.time
    ) -> None:
        self.lines = 0
        self.dropped = 0
        self.undelivered = 0
        self.refused: Counter[str] = Counter()
        self.refused_today: Counter[str] = Counter()
        self.size = 0
        self._bytes_max = bytes_max
        self._waiting: list[tuple[str, bytes]] = []
        self._clock = clock
        self._day: time.struct_time | None = None
        self._hosts: set[str] = set()
        self._last: dict[bytes, int] = {}
        self._subject = re.compile(rf"{re.escape(subject)}\.p\d+\.(.+)")

    def take(self, message: RawMessage) -> bytes | None:
        """Take *message* in; return a subject that wants an empty answer, if it does."""
        if message.status:
            is_asking = message.status == STATUS_CONTROL and message.reply
            return message.reply if is_asking else None
        self._note_gap(message)
        try:
            host, data = self._host(message.subject), _data(message)
        except BadMessage as error:
            self._refuse(error.reason, str(error))
            return None
        size = len(data) + LINE_OVERHEAD_BYTES
        if self.size + size > self._bytes_max:
            self.dropped += 1
            return None
        self.size += size
        self.lines += 1
        self._waiting.append((host, data))
        return None

    def give(self) -> dict[str, bytes]:
        """Return what waits, by host; it is to be written now."""
        taken: dict[str, list[bytes]] = {}
        for host, data in self._waiting:
            taken.setdefault(host, []).append(data)
        self._waiting, self.size = [], 0
        return {host: b"".join(parts) for host, parts in taken.items()}

    def _host(self, subject: bytes) -> str:
        found = self._subject.fullmatch(subject.decode("utf-8", "surrogateescape"))
        if found is None:
            raise BadMessage("bad-subject", f"subject {subject[:80]!r} names no host")
        host = found[1]
        if host not in self._hosts:
            try:
                check_host(host)
            except BadHost as error:
                raise BadMessage("bad-host", str(error)) from error
            self._turn_to(midnight(self._clock()))
            if len(self._hosts) >= HOSTS_MAX:
                raise BadMessage(
                    "too-many-hosts", f"{HOSTS_MAX} hosts have files of this day already"
                )
            self._hosts.add(host)
        return host

    def _turn_to(self, day: time.struct_time) -> None:
        """Forget the hosts of another day: nodes come and go, under ever new names."""
        if day != self._day:
            self._day = day
            self._hosts.clear()
            # Logged once a day.
            self.refused_today.clear()

    def _note_gap(self, message: RawMessage) -> None:
        if not message.reply.startswith(_STREAM_REPLY):
            return
        try:
            delivered = read_reply(message)
        except (ValueError, IndexError):
            return  # of another program, which published where the server delivers
        tokens = message.reply.split(b".")
        consumer = b".".join(tokens[: 4 if len(tokens) == 9 else 6])
        if consumer not in self._last and len(self._last) >= CONSUMERS_MAX:
            return
        # A new consumer begins at 1, and has missed nothing yet.
        last = self._last.get(consumer, delivered.delivery - 1)
        if delivered.delivery > last + 1:
            missed = delivered.delivery - last - 1
            self.undelivered += missed
            log.error(
                "messages were sent that did not reach us; they are lost here",
                extra={"messages": missed, "sequence": delivered.sequence},
            )
        self._last[consumer] = delivered.delivery

    def _refuse(self, reason: str, detail: str) -> None:
        self.refused[reason] += 1
        self.refused_today[reason] += 1
        if self.refused_today[reason] == 1:
            log.error(
                "a message is not a line of a host; further ones are only counted",
                extra={"reason": reason, "detail": detail},
            )


def _data(message: RawMessage) -> bytes:
    """Return the lines of *message*, each with its end; a batch of ours is unpacked."""
    data = message.data
    if message.headers:
        batch = decode_headers(parse_headers(message.headers))
        if batch is not None:
            data = decode_payload(batch, data)
            # One that names bytes as lost has no lines.
            return data if batch.lost or data.endswith(b"\n") else data + b"\n"
    return data + b"\n"


class Writer:
    """Writes what *intake* has into *files*. While the disk is full it tries again, and the intake
    fills up. `problem` says why nothing is written.
    """

    def __init__(self, intake: Intake, files: DayFiles) -> None:
        self.problem: str | None = None
        self.bytes = 0
        self._intake = intake
        self._files = files
        self._left: dict[str, bytes] = {}
        self._came = asyncio.Event()
        self._is_stopping = False
        self._logged_dropped = 0

    def wake(self) -> None:
        """Note that there is something to write."""
        self._came.set()

    def stop(self) -> None:
        """Let `run` end when everything is written, or cannot be."""
        self._is_stopping = True
        self._came.set()

    async def run(self) -> None:
        """Write until `stop`.

        Raises:
            SyncFailed: what was written may be gone, and cannot be read again.
        """
        synced_s, is_dirty = time.monotonic(), False
        while not self._is_stopping:
            due_s = synced_s + SYNC_INTERVAL_S - time.monotonic()
            await self._wait(max(due_s, 0.0) if is_dirty else None)
            is_dirty = await self._write() or is_dirty
            if is_dirty and time.monotonic() - synced_s >= SYNC_INTERVAL_S:
                await asyncio.to_thread(self._files.sync)
                synced_s, is_dirty = time.monotonic(), False
            self._log_dropped()
            if not self._is_stopping:
                await asyncio.sleep(RETRY_S if self._left else LINGER_S)
        had_left = bool(self._left)
        await self._write()
        if had_left and not self._left:
            await self._write()
        if self._left:
            log.error("lines are lost: they cannot be written", extra={"reason": self.problem})
        await asyncio.to_thread(self._files.close)

    async def _wait(self, timeout_s: float | None) -> None:
        # The event for lines that came while the disk was full was cleared long ago.
        if not self._left and not self._intake.size:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._came.wait()
        self._came.clear()

    async def _write(self) -> bool:
        """Write what waits; return whether anything was written."""
        waiting = self._left or self._intake.give()
        if not waiting:
            return False
        before = self.bytes
        self._left = await asyncio.to_thread(self._append, waiting)
        return self.bytes > before

    def _append(self, waiting: dict[str, bytes]) -> dict[str, bytes]:
        """Append *waiting*, and return what could not be appended."""
        left: dict[str, bytes] = {}
        problem = None
        for host, data in waiting.items():
            try:
                self._files.append(host, data, time.time())
                self.bytes += len(data)
            except OSError as error:
                left[host] = data
                problem = f"lines cannot be written: {os.strerror(error.errno or 0)}: {host}"
        if problem != self.problem:
            log.log(
                logging.ERROR if problem else logging.INFO,
                "lines cannot be written; it is tried again" if problem else "lines are written",
                extra={"reason": problem},
            )
        self.problem = problem
        return left

    def _log_dropped(self) -> None:
        more = self._intake.dropped - self._logged_dropped
        if more:
            self._logged_dropped += more
            log.error(
                "lines are dropped: they come faster than the disk takes them",
                extra={"lines": more},
            )


async def run(config: ReaderConfig, stop: asyncio.Event) -> int:
    """Write until *stop* is set, then the lines that have come; return the process's exit code."""
    try:
        config.directory.mkdir(parents=True, exist_ok=True)
        return await Reader(config).run(stop)
    except OSError as error:
        log.error("the reader cannot start", extra={"reason": str(error)})
        return EXIT_CANNOT_START
    except SyncFailed as error:
        log.critical("lines cannot be made durable", extra={"reason": str(error)})
        return EXIT_BROKEN


class Reader:
    """The parts of one reader."""

    def __init__(self, config: ReaderConfig) -> None:
        self._config = config
        self._connection = Connection(config.nats)
        self._intake = Intake(config.subject, bytes_max=config.buffer_bytes_max)
        self._files = DayFiles(
            config.directory, config.pattern, open_files_max=config.open_files_max
        )
        self._writer = Writer(self._intake, self._files)
        self._answers: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> int:
        """Write until *stop* is set, then all that has come.

        Raises:
            SyncFailed: the disk does not keep what it took.
            OSError: metrics cannot be served.
        """
        async with contextlib.AsyncExitStack() as stack:
            if self._config.http_port is not None:
                stack.push_async_callback((await self._serve_http(self._config.http_port)).close)
            for subject in self._config.subscriptions():
                await self._connection.listen(subject, self._take)
                log.info("waiting for lines", extra={"subject": subject})
            await self._connection.start()
            stack.push_async_callback(self._connection.close)
            writing = asyncio.create_task(self._writer.run())
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait([writing, stopping], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            # Everything that came until the connection ended is written.
            await self._connection.close()
            self._writer.stop()
            await writing
        log.info("the reader has stopped", extra={"lines": self._intake.lines})
        return EXIT_FINE

    def _take(self, message: RawMessage) -> None:
        asking = self._intake.take(message)
        self._writer.wake()
        if asking is not None:
            answer = asyncio.create_task(self._answer(asking.decode("utf-8", "replace")))
            self._answers.add(answer)
            answer.add_done_callback(self._answers.discard)

    async def _answer(self, subject: str) -> None:
        # A consumer with flow control waits for the answer; no line depends on it.
        with contextlib.suppress(NotSent):
            await self._connection.publish(subject, b"")

    async def _serve_http(self, port: int) -> http.HttpServer:
        server = await http.serve(
            self._config.http_host, port, self._metrics(), lambda: None, self._ready
        )
        log.info("metrics and probes are served", extra={"port": server.port})
        return server

    def _ready(self) -> str | None:
        if not self._connection.is_connected:
            return self._connection.problem or "not connected to NATS yet"
        return self._connection.problem or self._writer.problem

    def _metrics(self) -> Metrics:
        intake = self._intake
        reads: list[tuple[str, str, Callable[[], float]]] = [
            ("lines", "Messages taken in.", lambda: intake.lines),
            ("bytes", "Bytes written to files.", lambda: self._writer.bytes),
            ("waiting_bytes", "Bytes that wait for the disk.", lambda: intake.size),
            ("dropped", "Messages dropped: too fast for the disk.", lambda: intake.dropped),
            ("undelivered", "Messages sent that did not reach us.", lambda: intake.undelivered),
            ("refused", "Messages of no host.", lambda: sum(intake.refused.values())),
            ("removed_files", "Old files removed.", lambda: self._files.removed),
            ("sessions", "Connections made.", lambda: self._connection.sessions),
        ]
        made = Metrics("fshipper")
        for name, text, read in reads:
            made.watch(name, text, read)
        return made
