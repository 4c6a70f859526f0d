"""Reads a stream, or some subjects of it, in order and to an end, whatever happens to the
connection: a consumer that is lost is made again behind the last message.

For those who look: no position is kept anywhere, and nobody else's is touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import (
    CONSUMER_NOT_FOUND,
    STREAM_NOT_FOUND,
    UNAVAILABLE,
    ApiError,
    JetStream,
    rfc3339_of,
)
from logpipeline.nats.pull import Delivered, PullReader, ReaderClosed

# A consumer that nobody reads any more goes away by itself.
INACTIVE_NS = 60 * 1_000_000_000
PULL_BYTES = 2 * 1024 * 1024
TAKE_TIMEOUT_S = 1.0
REOPEN_AFTER_S = 0.5
# After so many empty reads, messages that were sent and have not arrived count as lost.
SILENT_MAX = 60


class StreamChanged(Exception):
    """The stream is no longer the one that was begun: gone, made anew, or it lost its end."""


class _Interrupted(Exception):
    """Deliveries were lost on the way; the consumer is made again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """From the sequence *first*, or from the server's time *since_ns*, to the sequence *last*, or
    to what is there by then; None goes on for ever.
    """

    first: int = 1
    since_ns: int | None = None
    last: int | None = None


class Scan:
    """One reading of *stream*, which was *created* then, if that matters; *sequence* is the last
    message that was given.
    """

    def __init__(
        self,
        js: JetStream,
        stream: str,
        wanted: Range,
        *,
        created: str = "",
        subject: str | None = None,
        headers_only: bool = False,
        pull_bytes: int = PULL_BYTES,
    ) -> None:
        self.sequence = 0
        self._js = js
        self._stream = stream
        self._wanted = wanted
        self._subject = subject
        self._headers_only = headers_only
        self._pull_bytes = pull_bytes
        self._created = created
        self._is_done = False

    async def batches(self) -> AsyncGenerator[list[Delivered], None]:
        """Yield what comes, in order; an empty list about once a second while nothing does.

        Raises:
            StreamChanged: what follows is no continuation.
            ApiError: the server refuses to read.
        """
        while not self._is_done:
            await self._js.connection.wait_connected()
            name = f"scan-{secrets.token_hex(8)}"
            with contextlib.suppress(NotSent, OutcomeUnknown, ReaderClosed, _Interrupted):
                try:
                    pending = await self._open(name)
                    if pending or self._wanted.last is None:
                        async with contextlib.aclosing(self._read(name)) as parts:
                            async for taken in parts:
                                yield taken
                    else:
                        self._is_done = True
                finally:
                    with contextlib.suppress(NotSent, OutcomeUnknown, ApiError):
                        await self._js.consumer_delete(self._stream, name)
            if not self._is_done:
                yield []
                await asyncio.sleep(REOPEN_AFTER_S)

    async def _open(self, name: str) -> int:
        try:
            await self._check_stream()
            info = await self._js.consumer_create(self._stream, self._config(name), action="create")
        except ApiError as error:
            if error.code == UNAVAILABLE:
                raise _Interrupted from error
            raise
        return int(info["num_pending"])

    async def _check_stream(self) -> None:
        info = await self._js.stream_info(self._stream)
        if info is None:
            raise StreamChanged(f"stream {self._stream} is gone")
        if self._created not in ("", info["created"]):
            raise StreamChanged(f"stream {self._stream} was made anew meanwhile")
        if int(info["state"]["last_seq"]) < self.sequence:
            raise StreamChanged(f"stream {self._stream} lost its end meanwhile")
        self._created = info["created"]

    async def _read(self, name: str) -> AsyncGenerator[list[Delivered], None]:
        reader = PullReader(self._js, self._stream, name, pull_bytes=self._pull_bytes)
        await reader.open()
        delivery = silent = 0
        try:
            while not self._is_done:
                taken = await reader.take(timeout_s=TAKE_TIMEOUT_S)
                for delivered in taken:
                    delivery += 1
                    if delivered.delivery != delivery:
                        raise _Interrupted
                wanted = self._until_end(taken)
                if taken:
                    self.sequence = taken[-1].sequence
                    silent = 0
                elif self._wanted.last is not None:
                    # What was still to come may have been deleted meanwhile.
                    pending, sent = await self._state(name)
                    self._is_done = not pending and sent == delivery
                    silent += not pending
                    if silent > SILENT_MAX and not self._is_done:
                        raise _Interrupted
                yield wanted
        finally:
            await reader.close()

    def _until_end(self, taken: list[Delivered]) -> list[Delivered]:
        last = self._wanted.last
        if last is None or not taken:
            return taken
        self._is_done = taken[-1].sequence >= last or taken[-1].pending == 0
        return [delivered for delivered in taken if delivered.sequence <= last]

    async def _state(self, name: str) -> tuple[int, int]:
        """Return how many messages are still to be sent, and how many were sent: the last of these
        may not have arrived yet.
        """
        try:
            info = await self._js.call(f"CONSUMER.INFO.{self._stream}.{name}")
        except ApiError as error:
            if error.err_code in (CONSUMER_NOT_FOUND, STREAM_NOT_FOUND):
                raise _Interrupted from error
            raise
        return int(info["num_pending"]), int(info["delivered"]["consumer_seq"])

    def _config(self, name: str) -> dict[str, Any]:
        config: dict[str, Any] = {
            "name": name,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "headers_only": self._headers_only,
            "inactive_threshold": INACTIVE_NS,
            "deliver_policy": "by_start_sequence",
        }
        if self._subject is not None:
            config["filter_subject"] = self._subject
        if self.sequence or self._wanted.since_ns is None:
            config["opt_start_seq"] = max(self.sequence + 1, self._wanted.first)
        else:
            since = rfc3339_of(self._wanted.since_ns)
            config.update(deliver_policy="by_start_time", opt_start_time=since)
        return config
