"""Tells shippers how far their sources are committed: by themselves at most once a second a host,
and whenever one asks.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable

from logpipeline.nats.connection import Connection, Listener, NotSent
from logpipeline.nats.session import RawMessage
from logpipeline.records import BadRecord, Committed, Progress, Question, answers
from logpipeline.subjects import BadHost, BadSubject, ControlSubjects
from logpipeline_collector.owned_partition import OwnedPartition

log = logging.getLogger(__name__)

TELL_EVERY_S = 1.0
# A shipper that has lost its positions ships nothing until it was answered.
LISTEN_EVERY_S = 0.1
# Questions that wait for an answer; a shipper asks again when it hears nothing.
QUESTIONS_MAX = 1000


class ProgressTeller:
    """Publishes what partitions have committed; *owned_partitions* are those that are ours now."""

    def __init__(
        self,
        connection: Connection,
        control: ControlSubjects,
        group: str,
        owned_partitions: Callable[[], Iterable[OwnedPartition]],
    ) -> None:
        self._connection = connection
        self._control = control
        self._group = group
        self._owned = owned_partitions
        self._told: dict[OwnedPartition, int] = {}
        self._questions: asyncio.Queue[RawMessage] = asyncio.Queue(QUESTIONS_MAX)
        self._listeners: dict[int, Listener] = {}

    async def run(self) -> None:
        """Tell for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen_forever())
            tasks.create_task(self._tell_forever())
            tasks.create_task(self._answer_forever())

    async def _listen_forever(self) -> None:
        while True:
            await self._listen({owned.partition for owned in self._owned()})
            await asyncio.sleep(LISTEN_EVERY_S)

    async def _tell_forever(self) -> None:
        while True:
            await asyncio.sleep(TELL_EVERY_S)
            partitions = list(self._owned())
            for owned in partitions:
                try:
                    await self._tell(owned)
                except NotSent as error:
                    log.debug("progress not told", extra={"reason": str(error)})
            for gone in self._told.keys() - set(partitions):
                del self._told[gone]

    async def _listen(self, partitions: set[int]) -> None:
        for partition in partitions - self._listeners.keys():
            subject = self._control.asks_of_partition(partition)
            self._listeners[partition] = await self._connection.listen(subject, self._asked)
        for partition in self._listeners.keys() - partitions:
            await self._connection.unlisten(self._listeners.pop(partition))

    def _asked(self, message: RawMessage) -> None:
        if message.reply and not self._questions.full():
            self._questions.put_nowait(message)

    async def _tell(self, owned: OwnedPartition) -> None:
        commit, changed = await owned.changed_since(self._told.get(owned, 0))
        by_host: defaultdict[str, list[Committed]] = defaultdict(list)
        for host, source in changed:
            by_host[host].append(source)
        for host, sources in by_host.items():
            subject = self._control.committed(owned.partition, host)
            for message in _messages(self._group, owned, Question(), sources):
                await self._connection.publish(subject, message)
            await asyncio.sleep(0)
        self._told[owned] = commit

    async def _answer_forever(self) -> None:
        while True:
            question = await self._questions.get()
            try:
                await self._answer(question)
            except (NotSent, BadHost, BadSubject, BadRecord, UnicodeDecodeError) as error:
                log.debug("question not answered", extra={"reason": str(error)})

    async def _answer(self, question: RawMessage) -> None:
        subject = question.subject.decode("utf-8", "surrogateescape")
        partition, host = self._control.read_ask(subject)
        asked = Question.decode(question.data)
        for owned in self._owned():
            if owned.partition == partition:
                known = await owned.asked(host, asked)
                for message in _messages(self._group, owned, asked, known):
                    await self._connection.answer(question, message)


def _messages(
    group: str, owned: OwnedPartition, question: Question, known: Iterable[Committed]
) -> list[bytes]:
    """Return what says that *known* is what *question* asks for."""
    stream = owned.stream_state
    parts = list(answers(question, known))
    return [
        Progress(
            group,
            owned.partition,
            owned.epoch,
            owned.committed_rollbacks,
            sources,
            created=owned.committed.created,
            sequence=owned.committed.sequence,
            pending=owned.unarchived,
            is_last=number == len(parts),
            begun=owned.held.record.begun,
            first=stream.first if stream is not None else 0,
            max_age_s=stream.max_age_s if stream is not None else 0.0,
            unknown=unknown,
        ).encode()
        for number, (sources, unknown) in enumerate(parts, 1)
    ]
