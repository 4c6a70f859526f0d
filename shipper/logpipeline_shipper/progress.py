"""Hears how far collectors have archived each source, and acts on the losses that they name."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable

import nats.errors

from logpipeline.nats.connection import Connection, NotSent
from logpipeline.nats.session import RawMessage
from logpipeline.partition import partition_of
from logpipeline.records import BadRecord, Committed, Progress, Question, questions
from logpipeline.subjects import ControlSubjects
from logpipeline_shipper.account import REFUSED, Gap
from logpipeline_shipper.checkpoint import Key
from logpipeline_shipper.resend import Due, Rollbacks, Tries
from logpipeline_shipper.source_manager import ASK_EVERY_S, Known, Recall, SourceManager

log = logging.getLogger(__name__)


# Collectors tell what changed, once a second; what they did not confirm for longer is asked for.
ASK_AFTER_S = 10.0


class ProgressListener:
    """Listens for the hosts of a source manager, and asks where nothing was heard yet."""

    def __init__(
        self,
        connection: Connection,
        control: ControlSubjects,
        *,
        partitions: int,
        rollbacks: Rollbacks,
        clock: Callable[[], float],
    ) -> None:
        self.malformed = 0
        self.unhealable_gaps = 0
        self.rollbacks = rollbacks
        self.manager: SourceManager | None = None
        self._connection = connection
        self._control = control
        self._partitions = partitions
        self._clock = clock
        self._tries = Tries()
        self._recalls: dict[str, Recall] = {}
        self._inbox = connection.new_inbox()
        self._answering: dict[str, str] = {}

    async def start(self) -> None:
        """Listen for answers to `ask_all`."""
        await self._connection.listen(f"{self._inbox}.*", self._answered)

    async def listen(self, host: str) -> None:
        """Hear of *host* from now on, and ask for what is not confirmed."""
        token = str(len(self._answering))
        self._answering[token] = host
        partition = partition_of(host, self._partitions)

        def heard(message: RawMessage) -> None:
            self._take(host, message.data)

        try:
            await self._connection.listen(self._control.committed(partition, host), heard)
            await self._ask_unconfirmed(host, token)
        except (NotSent, nats.errors.Error, OSError):
            return  # the next connection listens and asks again

    async def recall(self, host: str, patience_s: float) -> Known:
        """Return what collectors know of *host*, or nothing if none says so in *patience_s*."""
        recall = self._recalls[host] = Recall()
        token = next(token for token, name in self._answering.items() if name == host)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while recall.known is None:
                    with contextlib.suppress(NotSent):
                        await self._ask(host, token, Question())
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(ASK_EVERY_S):
                            await recall.answered.wait()
        del self._recalls[host]
        if recall.known is None:
            log.warning(
                "no collector says what it has; all that stands in the files is sent",
                extra={"host": host, "waited_s": patience_s},
            )
        return recall.known or {}

    async def ask_all(self) -> None:
        """Ask for all that is not confirmed: what was told while there was no connection is
        lost.
        """
        try:
            for token, host in list(self._answering.items()):
                await self._ask_unconfirmed(host, token)
        except NotSent:
            return

    async def run(self) -> None:
        """Ask, for ever, where something was sent and nobody says what became of it.

        What never reached a collector, a roll-back, or a hole that was filled in vain, is told only
        to who asks.
        """
        while True:
            await asyncio.sleep(ASK_AFTER_S)
            assert self.manager is not None
            hosts = self.manager.lacking_word(ASK_AFTER_S)
            try:
                for token, host in list(self._answering.items()):
                    if host in hosts:
                        await self._ask_unconfirmed(host, token)
            except NotSent:
                continue

    async def _ask_unconfirmed(self, host: str, token: str) -> None:
        assert self.manager is not None
        for question in questions(self.manager.unconfirmed(host)):
            await self._ask(host, token, question)

    async def _ask(self, host: str, token: str, question: Question) -> None:
        partition = partition_of(host, self._partitions)
        subject = self._control.ask_committed(partition, host)
        await self._connection.publish(subject, question.encode(), reply=f"{self._inbox}.{token}")

    def _answered(self, message: RawMessage) -> None:
        host = self._answering.get(message.subject.decode("utf-8", "replace").rsplit(".", 1)[1])
        # A status in place of an answer: nobody listens, and that is no fault.
        if host is None or message.status:
            return
        progress = self._take(host, message.data)
        if progress is None:
            return
        if host in self._recalls:
            self._recalls[host].take(progress)
        self._weigh(host, progress)

    def _weigh(self, host: str, progress: Progress) -> None:
        """Compare what a group has of what it was asked for with what was sent. Of what it does
        not speak of, it says nothing: it was sent since, or stands in another part.
        """
        assert self.manager is not None
        known: defaultdict[str, dict[str, Committed | None]] = defaultdict(dict)
        for committed in progress.sources:
            known[committed.source][committed.generation] = committed
        for source, generation in progress.unknown:
            known[source][generation] = None
        for source, generations in known.items():
            key = Key(host, source)
            self._mend(key, self.manager.answer(key, progress, generations))

    def _take(self, host: str, payload: bytes) -> Progress | None:
        assert self.manager is not None
        try:
            progress = Progress.decode(payload)
        except BadRecord as error:
            self.malformed += 1
            if self.malformed == 1:
                log.warning("a malformed progress message", extra={"reason": str(error)})
            return None
        for committed in progress.sources:
            key = Key(host, committed.source)
            self._mend(key, self.manager.confirm(key, committed, progress.group))
        if self.rollbacks.rose(progress.group, progress.partition, progress.rollbacks):
            log.error(
                "a collector reports that the stream lost messages; what is not archived is sent "
                "again",
                extra={"host": host, "partition": progress.partition, "group": progress.group},
            )
            self.manager.doubt_partition(progress.partition)
        return progress

    def _mend(self, key: Key, gaps: Iterable[Gap]) -> None:
        assert self.manager is not None
        for gap in gaps:
            match self._tries.due(key, gap, self._clock()):
                case Due.NOW:
                    self.manager.owe(key, gap)
                case Due.NEVER:
                    self.unhealable_gaps += 1
                    log.error(
                        "bytes were sent again and again, and are still missing",
                        extra={**key._asdict(), **gap._asdict()},
                    )
                    self.manager.lose(key, gap._replace(cause=REFUSED))
