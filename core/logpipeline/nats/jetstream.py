"""JetStream's API as raw JSON: nats-py's typed configurations drop the fields that they do not
know.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from logpipeline import json_text
from logpipeline.nats.connection import (
    Connection,
    Denied,
    NoResponders,
    NotSent,
    OutcomeUnknown,
)
from logpipeline.nats.session import RawMessage

Answer = TypeVar("Answer")

# Error codes of nats-server (its errors.json).
STREAM_NOT_FOUND = 10059
CONSUMER_NOT_FOUND = 10014
CONSUMER_EXISTS = 10148
MESSAGE_NOT_FOUND = 10037
SEQUENCE_NOT_FOUND = 10043
MESSAGE_NOT_DELETED = 10057
WRONG_LAST_SEQUENCE = 10071
WRONG_LAST_SEQUENCE_CONSTANT = 10164
STREAM_STORE_FAILED = 10077
STILL_IN_PROCESS = 10158

log = logging.getLogger(__name__)

API_TIMEOUT_S = 5.0
# After an answer that did not come, or one that a server in trouble gave.
ASK_AGAIN_S = 0.2
# Of one answer. A server names up to 100,000 subjects at a time, and a value takes some 100 bytes
# here, thirty times what its text may have: a hostile server could fill the memory by one answer.
ANSWER_VALUES_MAX = 500_000
# Of one message; whoever published it wrote them.
HEADER_LINES_MAX = 10_000
# A code from here on means trouble of the server, as in HTTP.
SERVER_TROUBLE = 500
# While a stream has no leader.
UNAVAILABLE = 503


class ApiError(Exception):
    """JetStream refused a request."""

    def __init__(self, request: str, code: int, err_code: int, description: str) -> None:
        self.request = request
        self.code = code
        self.err_code = err_code
        self.description = description
        super().__init__(f"JetStream refused {request}: {description} ({err_code or code})")

    @property
    def is_trouble(self) -> bool:
        """Whether the server is in trouble; otherwise the request is wrong."""
        return self.code >= SERVER_TROUBLE


class NoStream(NotSent):
    """The stream of a request does not exist."""


@dataclass(frozen=True, slots=True)
class PubAck:
    """JetStream's word that a message is stored; *duplicate* means that its id already was."""

    stream: str
    sequence: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as it stands in a stream; *time_ns* is the server's, in nanoseconds since 1970."""

    subject: str
    sequence: int
    time_ns: int
    headers: bytes
    data: bytes


class JetStream:
    """Requests to JetStream over a connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        domain = connection.options.js_domain
        self.prefix = f"$JS.{domain}.API" if domain else "$JS.API"

    async def wait_after(self, error: Exception) -> None:
        """Wait until it is worth to ask once more after *error*; raise it where that is in vain,
        since a right is lacking, or the request is wrong.
        """
        if isinstance(error, Denied) or (isinstance(error, ApiError) and not error.is_trouble):
            raise error
        log.debug("asked in vain", extra={"reason": str(error)})
        await self.connection.wait_connected()
        await asyncio.sleep(ASK_AGAIN_S)

    async def call(
        self, request: str, body: dict[str, Any] | None = None, *, timeout_s: float = API_TIMEOUT_S
    ) -> Any:
        """Return the answer to the API request *request* (``STREAM.INFO.NAME``), as parsed JSON.

        Raises:
            ApiError: JetStream refused it.
            NotSent, OutcomeUnknown: see `Connection.request`.
        """
        payload = json.dumps(body).encode() if body is not None else b""
        answer = await self.connection.request(
            f"{self.prefix}.{request}", payload, timeout_s=timeout_s
        )
        return _checked(request, answer.data)

    async def account(self) -> dict[str, Any]:
        """Return limits and usage of the account."""
        return dict(await self.call("INFO"))

    async def stream_info(self, stream: str) -> dict[str, Any] | None:
        """Return configuration, state and ``created`` of *stream*, or None where there is none."""
        try:
            return dict(await self.call(f"STREAM.INFO.{stream}"))
        except ApiError as error:
            if error.err_code == STREAM_NOT_FOUND:
                return None
            raise

    async def consumer_create(
        self, stream: str, config: dict[str, Any], *, action: str = ""
    ) -> dict[str, Any]:
        """Create (*action* ``create``), change (``update``), or either (empty) the consumer named
        in *config*.
        """
        body: dict[str, Any] = {"stream_name": stream, "config": config}
        if action:
            body["action"] = action
        return dict(await self.call(f"CONSUMER.CREATE.{stream}.{config['name']}", body))

    async def consumer_delete(self, stream: str, consumer: str) -> bool:
        """Delete a consumer, which ends its waiting pulls; return whether there was one."""
        try:
            await self.call(f"CONSUMER.DELETE.{stream}.{consumer}")
        except ApiError as error:
            if error.err_code in (CONSUMER_NOT_FOUND, STREAM_NOT_FOUND):
                return False
            raise
        return True

    async def direct_get(self, stream: str, get: Awaitable[Answer]) -> Answer:
        """Return the result of *get*, which is a direct get from *stream*. The servers that keep a
        stream respond to direct gets from it.

        Raises:
            NoStream: the stream does not exist.
            NoResponders: it exists, and none of its servers responds.
        """
        try:
            return await get
        except NoResponders:
            if await self.stream_info(stream) is not None:
                raise
            raise NoStream(f"the stream {stream} does not exist on this server") from None

    async def message(self, stream: str, sequence: int) -> StoredMessage | None:
        """Return the message at *sequence*, or None where it is gone (direct get: needs
        ``allow_direct``).
        """
        return await self._direct(stream, {"seq": sequence})

    async def next_from_leader(
        self, stream: str, sequence: int, subject: str = ">"
    ) -> StoredMessage | None:
        """Return the first message from *sequence* on whose subject *subject* matches, or None;
        the stream's leader answers, which misses nothing.

        Raises:
            ApiError, NotSent, OutcomeUnknown: see `call`.
        """
        query = {"seq": sequence, "next_by_subj": subject}
        try:
            answer = await self.call(f"STREAM.MSG.GET.{stream}", query)
        except ApiError as error:
            if error.err_code == MESSAGE_NOT_FOUND:
                return None
            raise
        found = answer["message"]
        return StoredMessage(
            found["subject"],
            int(found["seq"]),
            time_ns_of(found["time"]),
            base64.b64decode(found.get("hdrs", "")),
            base64.b64decode(found.get("data", "")),
        )

    async def next_message(
        self, stream: str, subject: str, *, sequence: int = 1
    ) -> StoredMessage | None:
        """Return the first message of *subject*, which may be a filter, from *sequence* on, or
        None.
        """
        return await self._direct(stream, {"seq": sequence, "next_by_subj": subject})

    async def newest_message(self, stream: str, subject: str) -> StoredMessage | None:
        """Return the last message of *subject*, or None, by the right to read all of *stream*."""
        return await self._direct(stream, {"last_by_subj": subject})

    async def message_delete(self, stream: str, sequence: int) -> bool:
        """Delete a message, whose bytes stay on the disk for a while; return whether there was
        one.
        """
        body = {"seq": sequence, "no_erase": True}
        try:
            await self.call(f"STREAM.MSG.DELETE.{stream}", body)
        except ApiError as error:
            # Which of the two a server answers depends on its store and on the sequence.
            if error.err_code not in (SEQUENCE_NOT_FOUND, MESSAGE_NOT_DELETED):
                raise
            if await self.message(stream, sequence):
                raise
            return False
        return True

    async def last_message(self, stream: str, subject: str) -> StoredMessage | None:
        """Return the last message of *subject*, or None; a right to this subject alone is
        enough.
        """
        answer = await self.connection.request(
            f"{self.prefix}.DIRECT.GET.{stream}.{subject}", timeout_s=API_TIMEOUT_S
        )
        return _stored(f"DIRECT.GET.{stream}", answer)

    async def _direct(self, stream: str, query: dict[str, Any]) -> StoredMessage | None:
        answer = await self.connection.request(
            f"{self.prefix}.DIRECT.GET.{stream}",
            json.dumps(query).encode(),
            timeout_s=API_TIMEOUT_S,
        )
        return _stored(f"DIRECT.GET.{stream}", answer)

    async def publish(
        self,
        subject: str,
        payload: bytes,
        headers: dict[str, str] | None = None,
        *,
        timeout_s: float = API_TIMEOUT_S,
    ) -> PubAck:
        """Store a message and return the server's acknowledgement.

        Raises:
            ApiError: JetStream refused it; it is not stored.
            NotSent: it certainly is not stored.
            OutcomeUnknown: it may be stored.
        """
        answer = await self.connection.request(
            subject, payload, headers=headers, timeout_s=timeout_s
        )
        ack = _checked(f"publish to {subject}", answer.data)
        if not isinstance(ack.get("stream"), str) or not isinstance(ack.get("seq"), int):
            raise ApiError(f"publish to {subject}", 0, 0, "what answers there stores no messages")
        return PubAck(ack["stream"], ack["seq"], ack.get("duplicate", False))


def rfc3339_of(time_ns: int) -> str:
    """Return a time in nanoseconds since 1970 as the server takes it; `time_ns_of` reads it."""
    seconds, rest = divmod(time_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def time_ns_of(text: str) -> int:
    """Return a time of JetStream's JSON (RFC 3339 with up to nanoseconds) in nanoseconds since
    1970.
    """
    whole, dot, rest = text.partition(".")
    digits = rest.rstrip("Z").split("+")[0].split("-")[0] if dot else ""
    zone = rest[len(digits) :] if dot else ""
    moment = datetime.fromisoformat((whole + zone if dot else whole).replace("Z", "+00:00"))
    return int(moment.timestamp()) * 1_000_000_000 + int((digits + "000000000")[:9])


def header_fields(headers: bytes) -> dict[str, str]:
    """Return a message's headers by name."""
    fields: dict[str, str] = {}
    # From the end: what comes before the last lines stays in one piece, and is left out.
    for line in headers.decode("utf-8", "replace").rsplit("\r\n", HEADER_LINES_MAX)[1:]:
        name, _, value = line.partition(":")
        # The server's own fields come last; a stored message may carry the same names.
        fields[name] = value.strip()
    return fields


def stored_of(answer: RawMessage) -> StoredMessage:
    """Return the message in the answer to a direct get; its headers end with the server's own.

    Raises:
        OutcomeUnknown: it is not such an answer.
    """
    fields = header_fields(answer.headers)
    try:
        return StoredMessage(
            fields["Nats-Subject"],
            int(fields["Nats-Sequence"]),
            time_ns_of(fields["Nats-Time-Stamp"]),
            answer.headers,
            answer.data,
        )
    except (KeyError, ValueError) as error:
        shown = answer.headers[-80:]
        raise OutcomeUnknown(
            f"no stored message in the answer to a direct get: {shown!r}"
        ) from error


def _checked(request: str, data: bytes) -> Any:
    if data.count(b",") >= ANSWER_VALUES_MAX:
        raise OutcomeUnknown(f"the answer to {request} has more than {ANSWER_VALUES_MAX} values")
    try:
        answer = json_text.parse(data)
    except ValueError as error:
        raise OutcomeUnknown(f"no JSON in the answer to {request}: {data[:80]!r}") from error
    if not isinstance(answer, dict):
        raise OutcomeUnknown(f"no object in the answer to {request}: {data[:80]!r}")
    if "error" in answer:
        why = answer["error"]
        if not isinstance(why, dict):
            raise OutcomeUnknown(f"no error's code in the answer to {request}: {data[:80]!r}")
        code, err_code = why.get("code", 0), why.get("err_code", 0)
        raise ApiError(request, code, err_code, why.get("description", ""))
    return answer


def _stored(request: str, answer: RawMessage) -> StoredMessage | None:
    if answer.status == 404:
        return None
    if answer.status:
        raise ApiError(request, answer.status, 0, answer.description)
    return stored_of(answer)
