"""Hears how far collectors have archived each source, and acts on the losses that they name."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

import nats.errors

from logpipeline.nats.connection import Connection, NotSent
from logpipeline.nats.session import RawMessage
from logpipeline.partition import partition_of
from logpipeline.records import BadRecord, Committed, Progress
from logpipeline.subjects import ControlSubjects
from logpipeline_shipper.fleet import Fleet
from logpipeline_shipper.healing import Due, HoleTries, Rollbacks
from logpipeline_shipper.intents import Key
from logpipeline_shipper.pump import Pump
from logpipeline_shipper.recall import ASK_EVERY_S, Known, Recall

log = logging.getLogger(__name__)


# Collectors tell what changed, once a second; one that is silent for longer has nothing to tell.
ASK_AFTER_S = 10.0


class ProgressListener:
    """Listens for the hosts of a fleet, and asks where nothing was heard yet."""

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
        self.unhealable_holes = 0
        self.rollbacks = rollbacks
        self.fleet: Fleet | None = None
        self._connection = connection
        self._control = control
        self._partitions = partitions
        self._clock = clock
        self._tries = HoleTries()
        self._recalls: dict[str, Recall] = {}
        self._inbox = connection.new_inbox()
        self._answering: dict[str, str] = {}

    async def start(self) -> None:
        """Listen for answers to `ask_all`."""
        await self._connection.listen(f"{self._inbox}.*", self._answered)

    async def listen(self, host: str) -> None:
        """Hear of *host* from now on, and ask how far it is."""
        token = str(len(self._answering))
        self._answering[token] = host
        partition = partition_of(host, self._partitions)

        def heard(message: RawMessage) -> None:
            self._take(host, message.data)

        try:
            await self._connection.listen(self._control.committed(partition, host), heard)
            await self._ask(host, token)
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
                        await self._ask(host, token)
                    await asyncio.sleep(ASK_EVERY_S)
        del self._recalls[host]
        if recall.known is None:
            log.warning(
                "no collector says what it has; all that stands in the files is sent",
                extra={"host": host, "waited_s": patience_s},
            )
        return recall.known or {}

    async def ask_all(self) -> None:
        """Ask how far every host is: what was told while there was no connection is lost."""
        try:
            for token, host in list(self._answering.items()):
                await self._ask(host, token)
        except NotSent:
            return

    async def run(self) -> None:
        """Ask, for ever, where something was sent and nobody says what became of it.

        A roll-back, or a hole that was filled in vain, is told only to who asks, once nothing else
        changes.
        """
        while True:
            await asyncio.sleep(ASK_AFTER_S)
            assert self.fleet is not None
            hosts = {pump.key.host for pump in self.fleet.pumps.values() if _lacks_word(pump)}
            try:
                for token, host in self._answering.items():
                    if host in hosts:
                        await self._ask(host, token)
            except NotSent:
                continue

    async def _ask(self, host: str, token: str) -> None:
        partition = partition_of(host, self._partitions)
        subject = self._control.ask_committed(partition, host)
        await self._connection.publish(subject, b"", reply=f"{self._inbox}.{token}")

    def _answered(self, message: RawMessage) -> None:
        host = self._answering.get(message.subject.decode("utf-8", "replace").rsplit(".", 1)[1])
        # A status in place of an answer: nobody listens, and that is no fault.
        if host is not None and not message.status:
            self._take(host, message.data)

    def _take(self, host: str, payload: bytes) -> None:
        assert self.fleet is not None
        try:
            progress = Progress.decode(payload)
        except BadRecord as error:
            self.malformed += 1
            if self.malformed == 1:
                log.warning("a malformed progress message", extra={"reason": str(error)})
            return
        if host in self._recalls:
            self._recalls[host].take(progress)
        for committed in progress.sources:
            pump = self.fleet.confirm(Key(host, committed.source), committed, progress.group)
            if pump is not None:
                self._fill(pump, committed)
        if self.rollbacks.rose(progress.group, progress.partition, progress.rollbacks):
            log.error(
                "a collector reports that the stream lost messages; what is not archived is sent "
                "again",
                extra={"host": host, "partition": progress.partition, "group": progress.group},
            )
            self.fleet.rewind_partition(progress.partition)

    def _fill(self, pump: Pump, committed: Committed) -> None:
        for hole in committed.holes:
            if pump.standing.covers(hole):
                continue
            match self._tries.due(pump.key, hole, self._clock()):
                case Due.NOW:
                    pump.fill(hole)
                case Due.NEVER:
                    self.unhealable_holes += 1
                    log.error(
                        "a hole was filled again and again, and is still there",
                        extra={**pump.key._asdict(), "hole": hole},
                    )


def _lacks_word(pump: Pump) -> bool:
    return pump.lacks_word(ASK_AFTER_S)
