"""Listens to collectors: how far they have collected each source, and which losses they report.

An answer comes to an inbox that only collectors were told. A report comes to a subject that anyone
can name, and a server puts an answer to anyone there who asks for it. So a report says nothing but
what is proved by naming a generation, whose id is random; for all else, collectors are asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import nats.errors

from logpipeline.nats.connection import Connection, NotSent
from logpipeline.nats.session import RawMessage
from logpipeline.partition import partition_of
from logpipeline.records import BadRecord, Committed, Progress, Question, questions
from logpipeline.subjects import ControlSubjects
from logpipeline_shipper.account import REFUSED, Gap
from logpipeline_shipper.checkpoint import Key
from logpipeline_shipper.resend import Due, Rollbacks, Tries
from logpipeline_shipper.source_manager import Known, SourceManager

log = logging.getLogger(__name__)


# Collectors report changes once a second. If they have not confirmed something for so long, they
# are asked.
ASK_AFTER_S = 10.0
# The least interval of questions that reports give rise to.
ASK_AGAIN_S = 1.0
# A group that answers leave out for so long was deleted. While a bucket is restored, a living one
# may be left out.
GROUP_GONE_S = 300.0
# The interval of questions about a recall. If no collector listens, the server says so at once.
ASK_EVERY_S = 0.2


@dataclass(slots=True)
class _Group:
    """The answer of one group to the last question, which comes in parts."""

    parts: list[Committed] = field(default_factory=list)
    # The stream's last sequence when the group was first asked: up to it there may be messages of
    # this host.
    wanted: int | None = None


@dataclass(slots=True)
class Recall:
    """The answers of the groups of collectors about one host. Once one group has collected all that
    was sent before, *known* holds what it has, and *answered* is set.
    """

    known: Known | None = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    _groups: defaultdict[str, _Group] = field(default_factory=lambda: defaultdict(_Group))

    def take(self, progress: Progress) -> None:
        """Take a part of an answer."""
        group = self._groups[progress.group]
        group.parts += progress.sources
        if not progress.is_last:
            return
        parts, group.parts = group.parts, []
        if group.wanted is None:
            group.wanted = progress.sequence + progress.pending
        if self.known is None and (progress.sequence >= group.wanted or not progress.pending):
            known: Known = defaultdict(list)
            for each in parts:
                known[each.source].append(each)
            self.known = dict(known)
            self.answered.set()


class ProgressListener:
    """Listens for all hosts of a source manager, and asks collectors that were silent."""

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
        # The same for recalls: an answer to another question does not name all that was sent.
        self._recalling: dict[str, str] = {}
        # Hosts of which a report says what only an answer can say.
        self._doubtful: set[str] = set()
        self._is_doubtful = asyncio.Event()
        # Since when answers about a host leave a group out.
        self._left_out: dict[tuple[str, str], float] = {}

    async def start(self) -> None:
        """Listen for answers to `ask_all`."""
        await self._connection.listen(f"{self._inbox}.*", self._answered)

    async def listen(self, host: str) -> None:
        """Listen for *host* from now on, and ask for what is not confirmed."""
        token = str(len(self._answering))
        self._answering[token] = host
        partition = partition_of(host, self._partitions)

        def heard(message: RawMessage) -> None:
            self._reported(host, message.data)

        try:
            await self._connection.listen(self._control.committed(partition, host), heard)
            await self._ask_unconfirmed(host, token)
        except (NotSent, nats.errors.Error, OSError):
            return  # the next connection listens and asks again

    async def recall(self, host: str, patience_s: float) -> Known:
        """Return what collectors have of *host*; nothing if none answers within *patience_s*."""
        recall = self._recalls[host] = Recall()
        token = secrets.token_hex(8)
        self._recalling[token] = host
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while recall.known is None:
                    with contextlib.suppress(NotSent):
                        await self._ask(host, token, Question())
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(ASK_EVERY_S):
                            await recall.answered.wait()
        del self._recalls[host], self._recalling[token]
        if recall.known is None:
            log.warning(
                "no collector answered what it has; everything in the files is sent",
                extra={"host": host, "waited_s": patience_s},
            )
        return recall.known or {}

    async def ask_all(self) -> None:
        """Ask for all that is not confirmed: reports that were sent while there was no connection
        are lost.
        """
        try:
            for token, host in list(self._answering.items()):
                await self._ask_unconfirmed(host, token)
        except NotSent:
            return

    async def run(self) -> None:
        """Ask, for ever, about hosts of which something was sent, and no collector reported, or
        which a report made doubtful.

        Bytes that never reached a collector, a roll-back, and a hole that was filled in vain are
        only reported in an answer.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._ask_unreported_forever())
            tasks.create_task(self._ask_doubtful_forever())

    async def _ask_doubtful_forever(self) -> None:
        while True:
            await self._is_doubtful.wait()
            self._is_doubtful.clear()
            hosts, self._doubtful = self._doubtful, set()
            try:
                for token, host in list(self._answering.items()):
                    if host in hosts:
                        # Also where all is confirmed: which groups there are is asked as well.
                        await self._ask(host, token, Question(()))
                        await self._ask_unconfirmed(host, token)
            except NotSent:
                pass  # the next connection asks again
            await asyncio.sleep(ASK_AGAIN_S)

    async def _ask_unreported_forever(self) -> None:
        while True:
            await asyncio.sleep(ASK_AFTER_S)
            assert self.manager is not None
            hosts = self.manager.unreported(ASK_AFTER_S)
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
        token = message.subject.decode("utf-8", "replace").rsplit(".", 1)[1]
        host = self._answering.get(token) or self._recalling.get(token)
        # A status in place of an answer: no collector listens, which is no error.
        if host is None or message.status:
            return
        progress = self._decoded(message.data)
        if progress is None:
            return
        assert self.manager is not None
        self.manager.admit(host, progress)
        self._forget_gone(host, progress)
        self._confirm(host, progress)
        if self.rollbacks.rose(progress.group, progress.partition, progress.rollbacks):
            log.error(
                "a collector reports that the stream lost messages; what is not collected is sent "
                "again",
                extra={"host": host, "partition": progress.partition, "group": progress.group},
            )
            self.manager.doubt_partition(progress.partition)
        if token in self._recalling and host in self._recalls:
            self._recalls[host].take(progress)
        self._compare(host, progress)

    def _compare(self, host: str, progress: Progress) -> None:
        """Compare what a group has with what was sent. A generation that the answer does not name
        was sent since the question, or is in another part of the answer.
        """
        assert self.manager is not None
        known: defaultdict[str, dict[str, Committed | None]] = defaultdict(dict)
        for committed in progress.sources:
            known[committed.source][committed.generation] = committed
        for source, generation in progress.unknown:
            known[source][generation] = None
        for source, generations in known.items():
            key = Key(host, source)
            self._fill(key, self.manager.answer(key, progress, generations))

    def _reported(self, host: str, payload: bytes) -> None:
        progress = self._decoded(payload)
        if progress is None:
            return
        assert self.manager is not None
        self._confirm(host, progress)
        is_known = progress.group in self.manager.groups.get(host, {})
        count = progress.rollbacks
        if not is_known or self.rollbacks.is_higher(progress.group, progress.partition, count):
            self._doubtful.add(host)
            self._is_doubtful.set()

    def _forget_gone(self, host: str, progress: Progress) -> None:
        """Forget the groups that all answers about *host* have left out for some time."""
        assert self.manager is not None
        self._left_out.pop((host, progress.group), None)
        if progress.group not in progress.groups:
            return  # it does not know them, or is forgotten itself
        now_s = self._clock()
        for group in list(self.manager.groups.get(host, {})):
            if group in progress.groups:
                self._left_out.pop((host, group), None)
                continue
            if now_s - self._left_out.setdefault((host, group), now_s) < GROUP_GONE_S:
                continue
            del self._left_out[host, group]
            log.warning(
                "a group of collectors does not exist any more; it is not waited for",
                extra={"host": host, "group": group},
            )
            if not self.manager.forget_group(host, group):
                self.rollbacks.forget(group)

    def _decoded(self, payload: bytes) -> Progress | None:
        try:
            progress = Progress.decode(payload)
        except BadRecord as error:
            self.malformed += 1
            if self.malformed == 1:
                log.warning(
                    "a collector sent a malformed progress message", extra={"reason": str(error)}
                )
            return None
        return progress

    def _confirm(self, host: str, progress: Progress) -> None:
        assert self.manager is not None
        for committed in progress.sources:
            key = Key(host, committed.source)
            self._fill(key, self.manager.confirm(key, committed, progress.group))

    def _fill(self, key: Key, gaps: Iterable[Gap]) -> None:
        assert self.manager is not None
        for gap in gaps:
            match self._tries.due(key, gap, self._clock()):
                case Due.NOW:
                    self.manager.owe(key, gap)
                case Due.NEVER:
                    self.unhealable_gaps += 1
                    log.error(
                        "bytes were sent again several times, and collectors still lack them",
                        extra={**key._asdict(), **gap._asdict()},
                    )
                    self.manager.lose(key, gap._replace(cause=REFUSED))
