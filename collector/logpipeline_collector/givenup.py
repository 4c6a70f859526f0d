"""What readers of extra consumers gave up becomes dead letters, with the messages, while these are
still in their streams. The server's word on it waits in the dead-letter stream, so nothing is lost
while no collector runs; and it stays there until its letter is kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing

from logpipeline.advisories import Advisory, NoAdvisory, letter_of, parse
from logpipeline.deadletters import Letter, keep
from logpipeline.failpoints import reach
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.nats.pull import Delivered
from logpipeline.nats.scan import Range, Scan, StreamChanged
from logpipeline.subjects import ADVISORIES, is_advisory
from logpipeline_collector.letterroom import LetterRoom
from logpipeline_collector.tenure import Tenure

log = logging.getLogger(__name__)

# Consumers are planned seldom; without any there is nothing to read.
ASK_AGAIN_S = 10.0
# What was put off, or could not be done, is looked at again after so long.
LOOK_AGAIN_S = 5.0


class GivenUp:
    """Makes letters of what was given up in the partitions that are ours now."""

    def __init__(
        self,
        js: JetStream,
        *,
        stream: str,
        root: str,
        room: LetterRoom,
        tenures: Callable[[], list[Tenure]],
        counted: Callable[[int, str, bool], None],
    ) -> None:
        self._js = js
        self._stream = stream
        self._root = root
        self._tenures = tenures
        self._counted = counted
        self._room = room

    async def run(self) -> None:
        """Make letters, for ever."""
        while True:
            try:
                if await self._is_told():
                    await self._look()
                    continue
            except (NotSent, OutcomeUnknown):
                await self._js.connection.wait_connected()
            except (StreamChanged, ApiError) as error:
                log.warning("cannot read what consumers gave up", extra={"reason": str(error)})
            await asyncio.sleep(ASK_AGAIN_S)

    async def _is_told(self) -> bool:
        """Return whether there are consumers that may give up, which the stream's subjects say."""
        info = await self._js.stream_info(self._stream)
        subjects = info["config"].get("subjects") or () if info is not None else ()
        return any(is_advisory(subject) for subject in subjects)

    async def _look(self) -> None:
        """Go through all that is there, then through what comes, until something is put off or
        further partitions became ours: then it has to begin anew.
        """
        ours = {tenure.stream for tenure in self._tenures()}
        loop, put_off_s = asyncio.get_running_loop(), None
        scan = Scan(self._js, self._stream, Range(), subject=ADVISORIES)
        async with aclosing(scan.batches()) as batches:
            async for batch in batches:
                for delivered in batch:
                    if not await self._is_settled(delivered):
                        put_off_s = put_off_s or loop.time()
                if put_off_s is not None and loop.time() - put_off_s > LOOK_AGAIN_S:
                    return
                if not {tenure.stream for tenure in self._tenures()} <= ours:
                    return

    async def _is_settled(self, delivered: Delivered) -> bool:
        """Make a letter of what was *delivered*; return whether nothing is left to do here."""
        try:
            advisory = parse(delivered.message.data)
        except NoAdvisory:
            return True  # It stays for people to look at.
        owned = {tenure.stream: tenure for tenure in self._tenures()}
        tenure = owned.get(advisory.stream)
        if tenure is None:
            return True  # Its owner does it.
        try:
            return await self._make_letter(tenure, advisory, delivered.sequence)
        except (NotSent, OutcomeUnknown, ApiError) as error:
            log.debug("a letter waits", extra={"reason": str(error)})
            return False

    async def _make_letter(self, tenure: Tenure, advisory: Advisory, sequence: int) -> bool:
        letter = await letter_of(self._js, advisory, created=tenure.position.created)
        is_kept = letter.is_gone and await self._is_there(tenure.partition, letter)
        if not is_kept:
            # What finds no room waits, and is looked at again.
            is_kept = await self._room.admits(
                tenure.partition, tenure.epoch, letter
            ) and await keep(self._js, self._root, tenure.partition, letter)
            if is_kept:
                self._counted(tenure.partition, letter.reason, True)
        if is_kept:
            # Only now: between the two the same letter is made again, and is known by its subject.
            reach("collector.before-advisory-goes")
            await self._js.message_delete(self._stream, sequence)
        return is_kept

    async def _is_there(self, partition: int, letter: Letter) -> bool:
        """Return whether the letter was made while its message was still there."""
        subject = letter.subject_at_any_time(self._root, partition)
        return await self._js.next_message(self._stream, subject) is not None
