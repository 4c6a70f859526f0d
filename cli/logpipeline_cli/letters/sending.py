"""Moves the message of a letter to where it was: the letter goes when the server has the message.

Every reader of the subject gets it once more. Ours know it by its range, and write nothing twice,
however often it is sent. A message without a range is sent exactly once; a consumer's was written
before, so that it is written a second time needs a word.
"""

from __future__ import annotations

import asyncio
import secrets

from logpipeline.deadletters import RETRY_FOR, RETRY_OF, Letter
from logpipeline.failpoints import reach
from logpipeline.nats.connection import NoResponders, NotSent, OutcomeUnknown, TooLarge
from logpipeline.nats.jetstream import JetStream
from logpipeline.nats.scan import StreamChanged
from logpipeline.wire import MESSAGE_ID, BadMessage, parse_headers
from logpipeline_cli.letters.entries import DeadStream, Entry, whole
from logpipeline_cli.letters.once import NotCertain, Once

# Longer than a leader's election.
DEADLINE_S = 15.0
RETRY_S = 0.5
RANGE = "Log-Range"


class CannotSend(Exception):
    """The message of a letter cannot be sent again, or must not be; the text says why."""


def headers_again(letter: Letter, number: int, *, again: bool) -> dict[str, str]:
    """Return the headers with which the message of letter *number* is sent once more.

    Raises:
        CannotSend: they cannot be sent, or collectors would write the lines twice, and *again*
            does not say that this is meant.
    """
    try:
        fields = parse_headers(letter.headers) if letter.headers else {}
        for text in (letter.subject, *fields, *fields.values()):
            text.encode()
    except (BadMessage, UnicodeEncodeError) as error:
        raise CannotSend(f"its subject or headers cannot be sent: {error}") from error
    if letter.consumer and RANGE not in fields and not again:
        raise CannotSend(
            "it has no range, so collectors would write its lines a second time; give --again if "
            "that is meant"
        )
    # What begins so tells a server what to do, and was meant for the first time.
    kept = {name: text for name, text in fields.items() if not name.lower().startswith("nats-")}
    kept[RETRY_OF] = str(number)
    if RANGE in fields:
        kept["Log-Resend"] = "1"
        kept.pop("Log-Unsure", None)
    if letter.consumer:
        kept[RETRY_FOR] = letter.consumer
    return kept


async def send_again(dead: DeadStream, entry: Entry, *, again: bool) -> bool:
    """Send the message of *entry* again, and delete the entry once the server has the message.
    Return whether there was something to do: another one may have sent it meanwhile.

    Raises:
        CannotSend: it cannot be; the entry stays.
        ApiError, NotSent, OutcomeUnknown, TimeoutError: the server refuses, or does not answer; it
            stays.
    """
    letter = await whole(dead.js, entry.letter)
    if letter is None:
        raise CannotSend(
            "it was not kept as a whole, and its stream has let the message go"
            if entry.letter.payload
            else "its stream had let the message go before it could be kept"
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


async def _send(js: JetStream, letter: Letter, headers: dict[str, str]) -> None:
    # What the server has already, it does not store twice; an id that could be guessed would let
    # others make it believe so.
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
    # Who sent it before has deleted the letter before its intent.
    is_there = await dead.is_there(entry)
    if is_there:
        await once.send(headers, again=again)
        await _remove(dead, entry)
    await once.end()
    return is_there


async def _remove(dead: DeadStream, entry: Entry) -> None:
    reach("dlq.before-letter-goes")
    await dead.remove(entry)
