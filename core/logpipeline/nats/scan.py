"""Reads a stream, or some subjects of it, in order and to an end, whatever happens to the
connection: a consumer that is lost is made again behind the last message.

For commands that show messages: no position is kept, and none of a reader is touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

from logpipeline.nats.connection import (
    Denied,
    Listener,
    NoResponders,
    NotSent,
    OutcomeUnknown,
)
from logpipeline.nats.jetstream import (
    CONSUMER_EXISTS,
    CONSUMER_NOT_FOUND,
    STREAM_NOT_FOUND,
    UNAVAILABLE,
    ApiError,
    JetStream,
    StoredMessage,
    header_fields,
    rfc3339_of,
    stored_of,
)
from logpipeline.nats.pull import Delivered, PullReader, ReaderClosed
from logpipeline.nats.session import RawMessage

# What a server sends for one question; a larger message comes alone.
BYTES_MAX = 2 * 1024 * 1024
MESSAGES_MAX = 1000
# Nothing came for so long: the answer, or its end, was lost.
SILENCE_S = 10.0

_END, _NONE, _NO_RESPONDERS = 204, 404, 503

# A consumer that is no longer read is removed by the server.
INACTIVE_NS = 60 * 1_000_000_000
# One whose name is given is in the way of the next one of that name.
NAMED_INACTIVE_NS = 10 * 1_000_000_000
PULL_BYTES = 2 * 1024 * 1024
TAKE_TIMEOUT_S = 1.0
REOPEN_AFTER_S = 0.5
# After so many empty reads, messages that were sent and have not arrived count as lost.
SILENT_MAX = 60


class DirectGets:
    """Asks *stream* for several messages at once, one question after the other."""

    def __init__(self, js: JetStream, stream: str) -> None:
        self._js = js
        self._stream = stream
        self._inbox = js.connection.new_inbox()
        self._listener: Listener | None = None
        self._number = 0
        self._came: list[RawMessage] = []
        self._changed = asyncio.Event()

    async def open(self) -> None:
        """Listen for answers."""
        self._js.connection.on_change(self._changed.set)
        self._listener = await self._js.connection.listen(f"{self._inbox}.*", self._arrived)

    async def close(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            await self._js.connection.unlisten(self._listener)

    async def ask(self, query: Mapping[str, object]) -> list[RawMessage]:
        """Return the messages that the server sends for *query*, in its order; nothing where it has
        none.

        Raises:
            ApiError: the server refuses.
            NotSent, OutcomeUnknown: there was no answer, or a part of it is missing.
        """
        self._number += 1
        self._came = []
        connection = self._js.connection
        session = connection.sessions
        await connection.publish(
            f"{self._js.prefix}.DIRECT.GET.{self._stream}",
            json.dumps(query).encode(),
            reply=f"{self._inbox}.{self._number}",
        )
        await self._until_ended(session)
        return self._messages()

    async def _until_ended(self, session: int) -> None:
        connection = self._js.connection
        seen = -1
        while not (self._came and self._came[-1].status):
            if not connection.is_connected or session != connection.sessions:
                raise OutcomeUnknown("the connection broke while a stream was read")
            if seen == len(self._came):
                raise OutcomeUnknown(f"nothing came from {self._stream} for {SILENCE_S:g} s")
            seen = len(self._came)
            self._changed.clear()
            try:
                async with asyncio.timeout(SILENCE_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _arrived(self, message: RawMessage) -> None:
        # What belongs to a question that was given up comes too late.
        if message.subject.rsplit(b".", 1)[1] == b"%d" % self._number:
            self._came.append(message)
            # The loop wakes up for the end only: the rest is here then.
            if message.status:
                self._changed.set()

    def _messages(self) -> list[RawMessage]:
        *found, end = self._came
        self._came = []
        if end.status == _NONE:
            return []
        request = f"DIRECT.GET.{self._stream}"
        if end.status == _NO_RESPONDERS:
            raise NoResponders(f"no server answers the request {request}")
        if end.status != _END:
            raise ApiError(request, end.status, 0, end.description)
        last = stored_of(found[-1]).sequence if found else 0
        if b"Nats-Last-Sequence: %d\r\n" % last not in end.headers:
            raise OutcomeUnknown(f"messages of {self._stream} were lost on the way")
        return found


class DirectReader:
    """Reads the messages of *stream* whose subjects *subject* matches, some at a time."""

    def __init__(self, js: JetStream, stream: str, subject: str) -> None:
        self._gets = DirectGets(js, stream)
        self._subject = subject

    async def open(self) -> None:
        """Listen for answers."""
        await self._gets.open()

    async def close(self) -> None:
        """Stop listening."""
        await self._gets.close()

    async def take(
        self,
        sequence: int,
        *,
        since_ns: int | None = None,
        messages_max: int = MESSAGES_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> list[StoredMessage]:
        """Return the next messages from *sequence* on, or from the server's time *since_ns* on;
        nothing where there are none yet.

        Raises:
            ApiError: the server refuses to read.
            NotSent, OutcomeUnknown: there was no answer, or a part of it is missing.
        """
        begin: dict[str, object] = {"seq": sequence}
        if since_ns is not None:
            begin = {"start_time": rfc3339_of(since_ns)}
        limits = {"batch": messages_max, "max_bytes": bytes_max}
        found = await self._gets.ask({"next_by_subj": self._subject, **begin, **limits})
        return [stored_of(message) for message in found]


@dataclass(frozen=True, slots=True)
class Following:
    """The next message of a filter, and how many *messages* of it there are from there on."""

    messages: int
    time_ns: int


async def following(gets: DirectGets, subject: str, sequence: int) -> Following | None:
    """Return what a stream holds of *subject*, a filter, from *sequence* on; None if nothing.

    Raises:
        ApiError: the server refuses to read.
        NotSent, OutcomeUnknown: there was no answer.
    """
    found = await gets.ask({"next_by_subj": subject, "seq": sequence, "batch": 1})
    if not found:
        return None
    behind = int(header_fields(found[0].headers)["Nats-Num-Pending"])
    return Following(1 + behind, stored_of(found[0]).time_ns)


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
    message that was given. *name* is that of the consumer it reads by, for those whose rights name
    it; one scan of a name waits for the other.
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
        name: str = "",
    ) -> None:
        self.sequence = 0
        self._name = name
        self._is_made = False
        self._js = js
        self._stream = stream
        self._wanted = wanted
        self._subject = subject
        self._headers_only = headers_only
        self._pull_bytes = pull_bytes
        self._created = created
        self._is_done = False

    async def batches(self) -> AsyncGenerator[list[Delivered], None]:
        """Yield the messages in order; an empty list about once a second while none comes.

        Raises:
            StreamChanged: what follows does not continue it.
            ApiError: the server refuses to read.
            Denied: we lack a right, and no time helps.
        """
        while not self._is_done:
            await self._js.connection.wait_connected()
            name = self._name or f"scan-{secrets.token_hex(8)}"
            try:
                pending = await self._open(name)
                if pending or self._wanted.last is None:
                    async with contextlib.aclosing(self._read(name)) as parts:
                        async for taken in parts:
                            yield taken
                else:
                    self._is_done = True
            except Denied:
                raise
            except (NotSent, OutcomeUnknown, ReaderClosed, _Interrupted):
                pass
            finally:
                if self._is_made:
                    with contextlib.suppress(NotSent, OutcomeUnknown, ApiError):
                        await self._js.consumer_delete(self._stream, name)
            if not self._is_done:
                yield []
                await asyncio.sleep(REOPEN_AFTER_S)

    async def _open(self, name: str) -> int:
        try:
            await self._check_stream()
            # Or it is not known whether it is.
            self._is_made = True
            info = await self._js.consumer_create(self._stream, self._config(name), action="create")
        except ApiError as error:
            if error.err_code == CONSUMER_EXISTS:
                self._is_made = False
                await self._check_is_scan(name)
                raise _Interrupted from error
            if error.code == UNAVAILABLE:
                raise _Interrupted from error
            raise
        return int(info["num_pending"])

    async def _check_is_scan(self, name: str) -> None:
        """Raise an error where the consumer *name* is not one of a scan, which will be gone."""
        try:
            info = await self._js.call(f"CONSUMER.INFO.{self._stream}.{name}")
        except ApiError as error:
            if error.err_code == CONSUMER_NOT_FOUND:
                return
            raise
        if info["config"].get("durable_name"):
            raise ApiError(
                f"CONSUMER.CREATE.{self._stream}.{name}",
                400,
                CONSUMER_EXISTS,
                f"consumer {name} is in the way of a reader's own: rename it",
            )

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
            "inactive_threshold": NAMED_INACTIVE_NS if self._name else INACTIVE_NS,
            "deliver_policy": "by_start_sequence",
            # The server takes the making of a consumer like one that is there for the same request,
            # and two scans of a name would share its messages.
            "metadata": {"scan": secrets.token_hex(8)},
        }
        if self._subject is not None:
            config["filter_subject"] = self._subject
        if self.sequence or self._wanted.since_ns is None:
            config["opt_start_seq"] = max(self.sequence + 1, self._wanted.first)
        else:
            since = rfc3339_of(self._wanted.since_ns)
            config.update(deliver_policy="by_start_time", opt_start_time=since)
        return config
