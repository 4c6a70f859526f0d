"""What the server and the state bucket of a pipeline under test say, however often the server is
away meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.records import EpochRecord, assign, epoch_key
from logpipeline.spec import LogPipeline
from waiting import WITHIN_S, eventually

T = TypeVar("T")


class PipelineState:
    """Streams and epoch records of *pipeline*, for looking only."""

    def __init__(self, js: JetStream, pipeline: LogPipeline) -> None:
        self.bucket = Bucket(js, pipeline.names.state_bucket)
        self.group = pipeline.spec.collectors.group
        self._js = js
        self._names = pipeline.names
        self._partitions = max(pipeline.spec.partitions, 1)

    async def owned(self, members: Sequence[str], *, within_s: float = WITHIN_S) -> None:
        """Return when each of *members* owns what an assignment among them gives it."""
        wanted = assign(list(members), partitions=self._partitions, generation=0)

        async def is_owned() -> bool:
            owners = await self.owners()
            for partition in range(self._partitions):
                owner = owners.get(partition)
                assert owner == wanted.owner(partition), f"p{partition} is with {owner}"
            return True

        await eventually(is_owned, within_s=within_s, what=f"{members} own all partitions")

    async def owners(self) -> dict[int, str]:
        """Return who owns which partition and has not released it."""
        records = await self.records()
        return {number: record.owner for number, record in records.items() if not record.released}

    async def committed(
        self, at_least: Mapping[int, int] | None = None, *, within_s: float = WITHIN_S
    ) -> None:
        """Return when each partition is committed up to the sequence *at_least*; by default up to
        what is stored now.
        """
        wanted = at_least if at_least is not None else await self.stored()

        async def is_committed() -> bool:
            records = await self.records()
            for number, sequence in wanted.items():
                position = records[number].position.sequence if number in records else 0
                assert position >= sequence, f"p{number}: {position} of {sequence}"
            return True

        await eventually(is_committed, within_s=within_s, what="what is stored is committed")

    async def records(self) -> dict[int, EpochRecord]:
        """Return the epoch record of each partition that has one, once the server answers."""

        async def look() -> dict[int, EpochRecord]:
            found = {}
            for partition in range(self._partitions):
                entry = await self.bucket.get(epoch_key(self.group, partition))
                if entry is not None:
                    found[partition] = EpochRecord.decode(entry.value)
            return found

        return await answered(look)

    async def stored(self) -> dict[int, int]:
        """Return the last sequence of each partition's stream, once the server answers."""

        async def look() -> dict[int, int]:
            found = {}
            for partition in range(self._partitions):
                info = await self._js.stream_info(self._names.stream(partition))
                found[partition] = info["state"]["last_seq"] if info else 0
            return found

        return await answered(look)


async def answered(look: Callable[[], Awaitable[T]]) -> T:
    """Return what *look* returns once the server, which may just come up, answers."""

    async def attempt() -> tuple[T]:
        try:
            return (await look(),)
        except (NotSent, OutcomeUnknown, ApiError) as error:
            raise AssertionError(str(error)) from error

    return (await eventually(attempt, what="the server answers"))[0]
