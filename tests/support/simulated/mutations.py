"""Defects that are planted into the product, one at a time, to see that a world shows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from logpipeline.group.ownership import HeldRecord
from logpipeline.nats.connection import OutcomeUnknown
from logpipeline.nats.jetstream import PubAck
from logpipeline.streamstate import Verdict
from logpipeline_collector import partition_writer, stream_position, takeover
from logpipeline_collector.epochs import HeldEpoch
from logpipeline_collector.owned_partition import OwnedPartition
from logpipeline_shipper.account import Account
from logpipeline_shipper.files.chain import Chain
from logpipeline_shipper.publish import Sender
from logpipeline_shipper.source import Source
from logpipeline_shipper.source_manager import SourceManager


def owner_is_not_fenced() -> None:
    """A collector writes its record, whoever owns the partition by now."""

    async def write(self: HeldRecord[Any], wanted: Any) -> bool:
        self._revision = await self._bucket.put(self._key, wanted.encode())
        self.record = wanted
        return True

    HeldRecord._write = write  # type: ignore[method-assign]


def commit_is_not_taken_back() -> None:
    """What was written and not committed stays in the files."""
    partition_writer.PartitionWriter.undo = lambda self: None  # type: ignore[method-assign]


def record_before_files() -> None:
    """The group hears of a commit before the files have it."""

    async def commit(self: OwnedPartition, executor: Any) -> None:
        position, rollbacks = self.position, self.rollbacks
        await self.held.advance(position, rollbacks=rollbacks, assignment=self.assignment())
        self.committed, self.committed_rollbacks = position, rollbacks
        await genuine(self, executor)

    genuine = OwnedPartition._commit
    OwnedPartition._commit = commit  # type: ignore[method-assign]


def commit_is_never_told() -> None:
    """The group's record stays where it was when the partition was taken."""

    async def advance(self: HeldEpoch, *words: Any, **named: Any) -> None:
        return None

    HeldEpoch.advance = advance  # type: ignore[method-assign]


def rolled_back_stream_is_read_on() -> None:
    """A position is good, whatever stands there now."""
    stream_position.judge = lambda *words, **named: Verdict.GOOD  # type: ignore[attr-defined]


def every_byte_is_new() -> None:
    """What was collected before is collected once more."""

    def decide(before: Any, batch: Any, **named: Any) -> Any:
        found = genuine(before, batch, **named)
        return found if batch.lost else replace_ranges(found, batch)

    def replace_ranges(found: Any, batch: Any) -> Any:
        whole = partition_writer.Range(batch.start, batch.end, False)  # type: ignore[attr-defined]
        return replace(found, ranges=(whole,))

    genuine = partition_writer.decide  # type: ignore[attr-defined]
    partition_writer.decide = decide  # type: ignore[attr-defined]


def partition_is_taken_at_once() -> None:
    """The owner of a partition is never waited for."""

    def claim(record: Any, **named: Any) -> Any:
        return genuine(record, **named | {"owner_silent_s": 1e9})

    genuine = takeover.claim
    takeover.claim = claim  # type: ignore[assignment]


def lost_messages_are_not_sent_again() -> None:
    """A shipper believes each acknowledgement for ever."""
    SourceManager.doubt_subjects = lambda self, subjects, cause: 0  # type: ignore[method-assign]
    Source.doubt = lambda self, cause: False  # type: ignore[method-assign]
    Account.doubt = lambda self, cause: False  # type: ignore[method-assign]
    Source.fill = lambda self, hole: None  # type: ignore[attr-defined]
    Source.owe = lambda self, gap: None  # type: ignore[method-assign]


def silence_is_an_acknowledgement() -> None:
    """A message without an answer counts as stored."""

    async def attempt(self: Sender, message: Any, *, resend: bool) -> PubAck:
        try:
            return await genuine(self, message, resend=resend)
        except OutcomeUnknown:
            return PubAck("", 0, False)

    genuine = Sender._try
    Sender._try = attempt  # type: ignore[method-assign]


def rest_of_a_rotated_file_is_left() -> None:
    """What stands in a file that was renamed is not read any more."""

    def read(self: Chain, now_s: float) -> Any:
        for generation in self._generations:
            if generation.newer_since_s is not None:
                generation.give_up()
        return genuine(self, now_s)

    genuine = Chain.read
    Chain.read = read  # type: ignore[method-assign]


def batches_are_new_each_time() -> None:
    """What is sent again is not marked as such."""

    async def send(self: Sender, message: Any, *, resend: bool) -> PubAck:
        return await genuine(self, message, resend=False)

    genuine = Sender.send
    Sender.send = send  # type: ignore[method-assign]


DEFECTS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        owner_is_not_fenced,
        commit_is_not_taken_back,
        record_before_files,
        commit_is_never_told,
        rolled_back_stream_is_read_on,
        every_byte_is_new,
        partition_is_taken_at_once,
        lost_messages_are_not_sent_again,
        silence_is_an_acknowledgement,
        rest_of_a_rotated_file_is_left,
        batches_are_new_each_time,
    )
}


def plant(name: str | None) -> None:
    """Have the product decide wrongly, as the defect *name* does; None leaves it as it is."""
    if name is not None:
        DEFECTS[name]()
