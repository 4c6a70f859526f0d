"""Sends the message of a letter again, on its own subject, and deletes the letter once the server
has stored the message.

Every reader of the subject gets the message again. Our readers recognise its range, and write
nothing twice, however often it is sent. A message without a range is sent exactly once. If a
consumer gave it up, collectors have written it before and would write it again: this needs --again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, NamedTuple

from logpipeline import json_text
from logpipeline.dead_letters import RETRY_FOR, RETRY_OF, Letter
from logpipeline.failpoints import reach
from logpipeline.nats.bucket import Bucket, Conflict
from logpipeline.nats.connection import NoResponders, NotSent, OutcomeUnknown, TooLarge
from logpipeline.nats.jetstream import (
    STILL_IN_PROCESS,
    WRONG_LAST_SEQUENCE,
    WRONG_LAST_SEQUENCE_CONSTANT,
    ApiError,
    JetStream,
)
from logpipeline.nats.scan import Range, Scan, StreamChanged
from logpipeline.wire import MESSAGE_ID, BadMessage, parse_headers
from logpipeline_cli.dead_letters.entries import DeadStream, Entry, Misplaced, whole

ONCE_RETRY_S = 0.2
_WRITTEN_MEANWHILE = (WRONG_LAST_SEQUENCE, WRONG_LAST_SEQUENCE_CONSTANT, STILL_IN_PROCESS)

# Longer than a leader's election.
DEADLINE_S = 15.0
RETRY_S = 0.5
RANGE = "Log-Range"


class NotCertain(Exception):
    """It cannot be determined any more whether the message was sent before."""


class _Intent(NamedTuple):
    """The intent to send a message. When it was recorded, the message's stream, created at
    *created*, ended at *after*: so the message is behind that, or was never sent. Its *identifier*
    in the stream cannot be guessed, so that no other program can pretend that it was sent.
    *is_ours*: this process recorded the intent.
    """

    created: str
    after: int
    identifier: str
    is_ours: bool


class Once:
    """Sends the message of one *letter* exactly once. All processes that send it share one intent
    in the bucket, from before the first attempt until the letter is deleted.
    """

    def __init__(self, js: JetStream, bucket: Bucket, letter: Letter) -> None:
        self._js = js
        self._bucket = bucket
        self._letter = letter
        self._key = f"letters.{hashlib.sha256(name_of(letter).encode()).hexdigest()[:32]}"
        self._intent = _Intent("", 0, "", is_ours=False)

    async def begin(self) -> None:
        """Record the intent, or take over an earlier one. Check afterwards that the letter still
        exists: if not, another process has sent it.

        Raises:
            NotCertain: the earlier intent cannot be read.
        """
        while (found := await self._bucket.get(self._key)) is None:
            info = await self._stream()
            begun = (info["created"], info["state"]["last_seq"], secrets.token_hex(16))
            try:
                await self._bucket.swap(self._key, json.dumps(begun).encode(), revision=0)
            except Conflict:
                continue
            self._intent = _Intent(*begun, is_ours=True)
            return
        self._intent = _read_intent(found.value, self._key)

    async def send(self, headers: Mapping[str, str], *, again: bool) -> None:
        """Store the message unless it is stored already; with *again* also where that cannot be
        determined.

        Raises:
            NotCertain: it cannot be determined, and *again* is not given.
            ApiError: the server refuses it.
        """
        looked_at = self._intent.after
        is_begun = not self._intent.is_ours
        while True:
            last = await self._last()
            if (is_begun or last > looked_at) and not await self._can_see() and not again:
                raise NotCertain(
                    "an earlier retry may have sent it, and its stream no longer holds the "
                    "messages that would show it; give --again to send it in any case"
                )
            if last > looked_at and await self._is_among(looked_at + 1, last):
                return
            looked_at = max(looked_at, last)
            # If another process stores the message first, this sequence is wrong, and ours is
            # refused.
            more = {
                MESSAGE_ID: self._intent.identifier,
                "Nats-Expected-Stream": self._letter.stream,
                "Nats-Expected-Last-Subject-Sequence": str(last),
            }
            reach("dlq.before-send")
            try:
                await self._js.publish(
                    self._letter.subject, self._letter.payload, {**headers, **more}
                )
            except ApiError as error:
                if error.err_code not in _WRITTEN_MEANWHILE:
                    raise
            except (NotSent, OutcomeUnknown):
                is_begun = True
                await self._js.connection.wait_connected()
                await asyncio.sleep(ONCE_RETRY_S)
            else:
                return

    async def end(self) -> None:
        """Delete the intent; the letter must be gone."""
        reach("dlq.before-intent-goes")
        await self._bucket.erase(self._key)

    async def _stream(self) -> dict[str, Any]:
        info = await self._js.stream_info(self._letter.stream)
        if info is None:
            raise NotCertain(f"there is no stream {self._letter.stream} any more")
        return info

    async def _last(self) -> int:
        last = await self._js.last_message(self._letter.stream, self._letter.subject)
        return last.sequence if last is not None else 0

    async def _can_see(self) -> bool:
        """Return whether the stream still holds all messages since the intent."""
        info = await self._stream()
        config = info["config"]
        return bool(
            info["created"] == self._intent.created
            and info["state"]["first_seq"] <= self._intent.after + 1
            and config.get("retention", "limits") == "limits"
            and config.get("max_msgs_per_subject", -1) <= 0
        )

    async def _is_among(self, first: int, last: int) -> bool:
        """Return whether the message is among those from *first* to *last*."""
        scan = Scan(
            self._js,
            self._letter.stream,
            Range(first=first, last=last),
            subject=self._letter.subject,
            headers_only=True,
        )
        async with aclosing(scan.batches()) as batches:
            async for batch in batches:
                for delivered in batch:
                    if self._intent.identifier.encode() in delivered.message.headers:
                        return True
        return False


def name_of(letter: Letter) -> str:
    """Return a name for *letter*, which its advisory has, too."""
    # Without the stream's time of creation, which a collector that has just started does not know.
    name = f"{letter.stream}.{letter.sequence}.{letter.time_ns}"
    return f"{name}.{letter.consumer}" if letter.consumer else name


class CannotSend(Exception):
    """The message of a letter cannot be sent again, or must not be; the text gives the reason."""


def headers_again(letter: Letter, number: int, *, again: bool) -> dict[str, str]:
    """Return the headers with which the message of letter *number* is sent again.

    Raises:
        CannotSend: they cannot be sent, or collectors would write the lines twice, and *again* is
            not given.
    """
    try:
        fields = parse_headers(letter.headers) if letter.headers else {}
        for text in (letter.subject, *fields, *fields.values()):
            text.encode()
    except (BadMessage, UnicodeEncodeError) as error:
        raise CannotSend(f"its subject or headers cannot be sent: {error}") from error
    if letter.consumer and RANGE not in fields and not again:
        raise CannotSend(
            "it has no range, so that collectors would write its lines a second time; give "
            "--again to accept that"
        )
    # Headers with this prefix are instructions for the server, for the first publication.
    kept = {name: text for name, text in fields.items() if not name.lower().startswith("nats-")}
    kept[RETRY_OF] = str(number)
    if RANGE in fields:
        kept["Log-Resend"] = "1"
        kept.pop("Log-Unsure", None)
    if letter.consumer:
        kept[RETRY_FOR] = letter.consumer
    return kept


async def send_again(dead: DeadStream, entry: Entry, *, again: bool) -> bool:
    """Send the message of *entry* again, and delete the entry once the server has stored the
    message. Return False if another process has sent it meanwhile.

    Raises:
        CannotSend: it cannot be sent; the entry stays.
        ApiError, NotSent, OutcomeUnknown, TimeoutError: the server refuses, or does not answer; the
            entry stays.
    """
    letter = await _checked(dead, entry)
    if letter is None:
        raise CannotSend(
            "it was not kept completely, and its stream no longer holds the message"
            if entry.letter.payload
            else "its stream no longer held the message when it was to be kept"
        )
    headers = headers_again(letter, entry.number, again=again)
    try:
        async with asyncio.timeout(DEADLINE_S):
            if RANGE in headers:
                await _send(dead.js, letter, headers)
                await _remove(dead, entry)
                return True
            return await _send_once(dead, entry, letter, headers, again=again)
    except (TooLarge, NoResponders, NotCertain, StreamChanged) as error:
        raise CannotSend(str(error)) from error


async def _checked(dead: DeadStream, entry: Entry) -> Letter | None:
    """Return the letter of *entry* as `whole` does.

    Raises:
        CannotSend: its message is not of its partition.
    """
    try:
        if not entry.letter.is_gone:
            dead.check(entry, entry.letter)
        letter = await whole(dead.js, entry.letter)
        if letter is not None:
            dead.check(entry, letter)
    except Misplaced as error:
        raise CannotSend(
            f"{error}. A part of this pipeline, or its reader, wrote it by mistake or on purpose: "
            "`logpipeline dlq show` shows it, `logpipeline dlq purge` deletes it"
        ) from error
    return letter


def _read_intent(value: bytes, key: str) -> _Intent:
    try:
        created, after, identifier = json_text.parse(value)
        return _Intent(str(created), int(after), str(identifier), is_ours=False)
    except (ValueError, TypeError) as error:
        raise NotCertain(
            f"the record of an earlier retry cannot be read (key {key} of the state bucket: "
            f"{value[:80]!r}); remove the key if the message was not sent"
        ) from error


async def _send(js: JetStream, letter: Letter, headers: dict[str, str]) -> None:
    # The server stores a message with this id once. With an id that can be guessed, others could
    # make it discard the message.
    headers = {MESSAGE_ID: secrets.token_hex(16), **headers}
    reach("dlq.before-send")
    while True:
        try:
            await js.publish(letter.subject, letter.payload, headers)
        except (TooLarge, NoResponders):
            raise
        except (NotSent, OutcomeUnknown):
            await js.connection.wait_connected()
            await asyncio.sleep(RETRY_S)
        else:
            return


async def _send_once(
    dead: DeadStream, entry: Entry, letter: Letter, headers: dict[str, str], *, again: bool
) -> bool:
    once = Once(dead.js, dead.bucket, letter)
    await once.begin()
    # A process that sent it before deleted the letter first, and then the intent.
    is_there = await dead.is_there(entry)
    if is_there:
        await once.send(headers, again=again)
        await _remove(dead, entry)
    await once.end()
    return is_there


async def _remove(dead: DeadStream, entry: Entry) -> None:
    reach("dlq.before-letter-goes")
    await dead.remove(entry)
