"""Sends the message of a letter again, to where it was: then the letter goes.

Every reader of the subject gets it once more. Ours know it by its range, and write nothing twice;
a message without a range would be written twice, so that needs a word.
"""

from __future__ import annotations

import asyncio

from logpipeline.deadletters import RETRY_FOR, Letter
from logpipeline.nats.connection import NoResponders, NotSent, OutcomeUnknown, TooLarge
from logpipeline.nats.jetstream import JetStream
from logpipeline.wire import MESSAGE_ID, BadMessage, parse_headers
from logpipeline_cli.letters.entries import DeadStream, Entry, whole

# Longer than a leader's election.
DEADLINE_S = 15.0
RETRY_S = 0.5


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
    has_range = "Log-Range" in fields
    if letter.consumer and not has_range and not again:
        raise CannotSend(
            "it has no range, so collectors would write its lines a second time; give --again if "
            "that is meant"
        )
    # What begins so tells a server what to do, and was meant for the first time.
    kept = {name: text for name, text in fields.items() if not name.lower().startswith("nats-")}
    # The same retry, repeated after a crash, is known by its id.
    kept = {MESSAGE_ID: f"{letter.identifier}.retry-{number}"} | kept
    if has_range:
        kept["Log-Resend"] = "1"
    if letter.consumer:
        kept[RETRY_FOR] = letter.consumer
    return kept


async def send_again(dead: DeadStream, entry: Entry, *, again: bool) -> None:
    """Send the message of *entry* again, and delete the entry once the server has the message.

    Raises:
        CannotSend: it cannot be; the entry stays.
        ApiError, NotSent, OutcomeUnknown: the server refuses, or does not answer; it stays.
    """
    letter = await whole(dead.js, entry.letter)
    if letter is None:
        raise CannotSend(
            "it was not kept as a whole, and its stream has let the message go"
            if entry.letter.payload
            else "its stream had let the message go before it could be kept"
        )
    headers = headers_again(letter, entry.number, again=again)
    async with asyncio.timeout(DEADLINE_S):
        await _publish(dead.js, letter, headers)
    await dead.js.message_delete(dead.name, entry.number)


async def _publish(js: JetStream, letter: Letter, headers: dict[str, str]) -> None:
    while True:
        try:
            await js.publish(letter.subject, letter.payload, headers)
        except (TooLarge, NoResponders) as error:
            raise CannotSend(str(error)) from error
        except (NotSent, OutcomeUnknown):
            # The same id again: what the server has already, it does not store twice.
            await js.connection.wait_connected()
            await asyncio.sleep(RETRY_S)
        else:
            return
