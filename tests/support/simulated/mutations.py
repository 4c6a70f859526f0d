"""Defects that are planted into the product, one at a time, to see that a world shows them."""

from __future__ import annotations

import fcntl
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from logpipeline import deduplication, extents
from logpipeline.extents import GenerationState, Repeat
from logpipeline.group import ownership
from logpipeline.group.ownership import HeldRecord
from logpipeline.nats.connection import OutcomeUnknown
from logpipeline.nats.jetstream import PubAck
from logpipeline.plan import trim
from logpipeline.records import StreamPosition
from logpipeline.streamstate import Verdict
from logpipeline_collector import (
    epochs,
    partition_writer,
    recovery,
    snapshot_schedule,
    snapshots,
    sources,
    stream_position,
    stream_reader,
    takeover,
)
from logpipeline_collector.epochs import HeldEpoch
from logpipeline_collector.files import commit
from logpipeline_collector.intake import Intake
from logpipeline_collector.owned_partition import OwnedPartition
from logpipeline_collector.stream_position import Verified
from logpipeline_shipper import publish, reconnect, resend
from logpipeline_shipper.account import Account, Confirmed
from logpipeline_shipper.checkpoint import IntentLog
from logpipeline_shipper.files import directory_scan
from logpipeline_shipper.files.chain import Chain
from logpipeline_shipper.files.generation import Generation
from logpipeline_shipper.files.generations import UnsureFiles
from logpipeline_shipper.publish import Sender
from logpipeline_shipper.resend import EarlierSends, Piece
from logpipeline_shipper.shared import ByteBudget
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
        await self.held.advance(
            position,
            rollbacks=rollbacks,
            assignment=self.assignment(),
            lost_bytes=self.writer.lost_bytes,
            missing_bytes=self.writer.missing_bytes,
        )
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
        whole = deduplication.Range(batch.start, batch.end, is_late=False)
        return replace(found, ranges=(whole,))

    genuine = sources.decide  # type: ignore[attr-defined]
    sources.decide = decide  # type: ignore[attr-defined]


def partition_is_taken_at_once() -> None:
    """The owner of a partition is never waited for."""

    def claim(record: Any, **named: Any) -> Any:
        return genuine(record, **named | {"owner_silent_s": 1e9})

    genuine = takeover.claim
    takeover.claim = claim


def lost_messages_are_not_sent_again() -> None:
    """A shipper believes each acknowledgement for ever."""
    SourceManager.doubt_subjects = lambda self, subjects, cause: 0  # type: ignore[method-assign]
    SourceManager.doubt_stream = lambda self, subjects: None  # type: ignore[method-assign]
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


async def _nothing_caught_up(*words: Any) -> int:
    return 0


async def _nothing_written(*words: Any) -> None:
    return None


async def _none_deleted(*words: Any) -> int:
    return 0


def _at_the_end(verdict: Any, position: StreamPosition, stream: Any, common: Any) -> Verified:
    end = StreamPosition(stream.created, stream.last, position.time_ns)
    return Verified(verdict, end, stream, position.time_ns, stream.last)


def _reported_early(self: Any, reached: Any, **named: Any) -> Any:
    pending = _prepare(self, reached, **named)
    self._sources.commit(pending.commit.number, pending.sources)
    return pending


def _never_in_doubt(self: Any, *words: Any, is_in_doubt: bool) -> None:
    _source_init(self, *words, is_in_doubt=False)


_prepare = partition_writer.PartitionWriter.prepare
_source_init = Source.__init__
_group_floor = trim.group_floor


def _passed_at_once(self: Any, stream: Any) -> None:
    self.passed = StreamPosition(stream.created, stream.last, stream.last_time_ns)


def _believing(record: Any, **named: Any) -> int:
    passed_ns = record.passed.time_ns if record.passed else None
    return _group_floor(record, **named | {"passed_time_ns": passed_ns})


def _returns(owner: Any, name: str, value: Any) -> Callable[[], None]:
    """Return a defect: *name* of *owner* does nothing, and returns *value*."""
    is_async = inspect.iscoroutinefunction(getattr(owner, name))

    def plain(*words: Any, **named: Any) -> Any:
        return value

    async def waiting(*words: Any, **named: Any) -> Any:
        return value

    return lambda: setattr(owner, name, waiting if is_async else plain)


def _property(owner: Any, name: str, value: Any) -> Callable[[], None]:
    """Return a defect: the property *name* of *owner* is always *value*."""
    return _value(owner, name, property(lambda self: value))


def _value(owner: Any, name: str, value: Any) -> Callable[[], None]:
    """Return a defect: *name* of *owner* is *value*."""
    # A name that the product has no more would change nothing.
    assert hasattr(owner, name), name
    return lambda: setattr(owner, name, value)


def _named(owner: Any, name: str, **changed: Any) -> Callable[[], None]:
    """Return a defect: *name* of *owner* is called with other values than it should be."""

    def plant() -> None:
        genuine = getattr(owner, name)
        setattr(owner, name, lambda *words, **named: genuine(*words, **{**named, **changed}))

    return plant


# One decision each: in which function, and what it decides instead.
ONE_DECISION: dict[str, Callable[[], None]] = {
    # the owner of a partition
    "foreign_record_counts_as_ours": _returns(ownership.HeldRecord, "_is_ours", True),
    "unknown_swap_counts_as_written": _returns(ownership.HeldRecord, "_is_written", True),
    "unknown_swap_counts_as_not_written": _returns(ownership.HeldRecord, "_is_written", False),
    "commit_is_never_late": _value(recovery, "is_late", lambda folder, end: False),
    "each_commit_is_late": _value(
        recovery, "is_late", lambda folder, end: folder.previous is not None
    ),
    "end_of_a_former_owner_is_unknown": _value(recovery, "_end_of", lambda *words: None),
    "folder_is_always_current": _value(
        recovery,
        "_later_epoch",
        lambda folder, record, epoch, **_: recovery._keep(folder, epoch, record.rollbacks),
    ),
    "same_epoch_follows_the_record": _value(
        recovery, "_same_epoch", lambda folder, record, epoch, **_: recovery._follow(record, epoch)
    ),
    "successor_takes_no_sources": _value(
        recovery,
        "_follow",
        lambda record, epoch, warning="": recovery.Recovery(
            recovery.Source.NOTHING, epoch, record.position, record.rollbacks
        ),
    ),
    "former_owners_are_forgotten": _value(
        epochs, "_succession", lambda former, successor, gone: None
    ),
    "owner_releases_before_it_commits": _returns(OwnedPartition, "commit_all", None),
    "owner_never_releases": _returns(HeldEpoch, "release", None),
    "owner_is_never_silent": _named(takeover, "claim", owner_silent_s=0.0),
    "any_folder_is_ours": _named(takeover, "claim", is_our_folder=True),
    "older_assignment_takes_as_well": _named(takeover, "claim", generation=10**9),
    "failed_commit_goes_on": _returns(OwnedPartition, "raise_failure", None),
    "nothing_is_discarded_when_fenced": _returns(partition_writer.PartitionWriter, "discard", None),
    # what a successor learns
    "successor_learns_nothing_from_headers": _value(takeover, "catch_up", _nothing_caught_up),
    "snapshot_is_not_taken_over": _value(takeover, "import_snapshot", lambda owned, found: None),
    "snapshot_is_empty": _returns(partition_writer.PartitionWriter, "export_sources", b""),
    "lagging_replica_of_the_snapshots_is_believed": _value(
        snapshots, "certain_message", lambda js, stream, sequence: js.message(stream, sequence)
    ),
    "lagging_replica_of_the_bucket_is_believed": _returns(takeover, "is_outdated", False),
    "snapshot_is_never_written": _value(snapshot_schedule, "write_snapshot", _nothing_written),
    "learned_batches_are_forgotten": _returns(Intake, "learn", None),
    # reading a stream
    "gaps_in_deliveries_are_not_seen": _returns(stream_reader.Order, "accept", None),
    "stuck_consumer_is_waited_for": _returns(stream_reader.StreamReader, "_look", None),
    "roll_back_reads_from_the_end": _value(stream_position, "gone_back", _at_the_end),
    "commit_in_the_midst_of_a_second_reading": _property(OwnedPartition, "is_settled", True),
    "position_stays_behind": _returns(OwnedPartition, "note_read", None),
    "predecessors_consumers_stay": _value(stream_reader, "delete_before", _none_deleted),
    # one stream of all partitions
    "others_messages_are_never_passed": _returns(stream_reader.StreamReader, "_pass", None),
    "others_messages_are_passed_at_the_first_look": _value(
        stream_reader.StreamReader, "_pass", _passed_at_once
    ),
    "what_should_have_come_is_not_looked_for": _returns(stream_reader, "is_unread", False),
    "partitions_share_a_consumers_name": _value(
        stream_reader, "_reader_of", lambda group, partition: group
    ),
    "each_partition_reads_all": _named(stream_reader, "consumer_config", subjects=()),
    "what_was_passed_is_forgotten_at_a_take_over": _returns(takeover, "still_passed", None),
    "what_was_passed_is_believed": _value(trim, "group_floor", _believing),
    # which bytes are new
    "repeats_are_not_looked_for": _named(sources, "decide", repeat=Repeat.NEVER),
    "checksums_behind_a_hole_are_forgotten": _value(extents, "MARKS_APART_MAX", extents.MARKS_MAX),
    "all_is_read_again": _named(sources, "decide", repeat=Repeat.READ),
    "nothing_is_learned_of_a_batch": _returns(sources.Sources, "learn", None),
    "changes_are_not_committed": _returns(sources.Sources, "take_changes", {}),
    "holes_are_not_reported": _property(GenerationState, "holes", ()),
    "losses_are_not_kept": _value(deduplication, "lose", lambda known, span: (known, [])),
    "shippers_hear_nothing": _returns(sources.Sources, "changed_since", (0, [])),
    "questions_are_not_answered": _returns(partition_writer.PartitionWriter, "asked", []),
    "commit_is_reported_before_it_is_made": _value(
        partition_writer.PartitionWriter, "prepare", _reported_early
    ),
    # files of collectors
    "files_are_not_synced": _value(commit, "_sync", lambda files, new, output: None),
    "files_are_not_cut_to_what_is_committed": _value(commit, "_cut", lambda row, output: row),
    "scratch_files_stay": _value(commit, "_empty", lambda output: None),
    "state_is_committed_before_files_have_names": _value(
        commit, "_name", lambda new, output, state: None
    ),
    # what a shipper sends
    "acknowledgement_moves_nothing": _returns(Chain, "acknowledge", None),
    "unsent_bytes_count_as_sent": _returns(Chain, "rewind", None),
    "intents_are_not_noted": _returns(IntentLog, "note", None),
    "births_are_not_noted": _returns(IntentLog, "note_birth", None),
    "earlier_sends_are_forgotten": _returns(EarlierSends, "note", None),
    "earlier_pieces_are_sent_as_one": _value(
        EarlierSends, "pieces", lambda self, chunk, log_format: [Piece(chunk, "", False)]
    ),
    "full_stream_means_never": _value(
        publish, "_classify_refusal", lambda error: publish.PublishFailure.REFUSED
    ),
    "doubtful_state_is_believed": _value(Source, "__init__", _never_in_doubt),
    "nothing_collected_is_recalled": _returns(Chain, "recall", False),
    # what a shipper keeps an account of
    "loss_is_never_named": _returns(Account, "next_loss", None),
    "gaps_are_not_owed": _returns(Account, "owe", None),
    "payment_is_not_noted": _returns(Account, "pay", None),
    "reports_confirm_all": _returns(Confirmed, "lacks", []),
    "reports_confirm_nothing": _returns(Account, "_is_everywhere", False),
    "holes_of_a_former_process_are_forgotten": _returns(Account, "recall", None),
    "answers_show_no_gap": _returns(Account, "answer", []),
    "reports_show_no_gap": _returns(Account, "confirm", []),
    "roll_backs_are_not_heard_of": _returns(resend.Rollbacks, "rose", False),
    "reconnect_finds_no_loss": _value(reconnect, "is_lost", lambda *words: False),
    "sequences_may_go_back": _returns(reconnect.LastAcks, "subjects_of", set()),
    # which file is which
    "copies_are_new_files": _returns(Generation, "is_copied_in", False),
    "replaced_files_are_the_same": _returns(Generation, "verify", True),
    "a_file_that_is_missing_once_is_gone": _value(
        Chain, "_is_gone", lambda self, since_s, now_s: True
    ),
    "rest_of_a_gone_file_is_not_named": _returns(Chain, "name_lost", None),
    "next_lines_do_not_wait_for_a_copy": _returns(UnsureFiles, "has_to_wait", False),
    "rising_numbers_count_as_falling": _value(directory_scan, "_by_age", lambda files: files),
    "two_shippers_share_a_folder": _value(fcntl, "flock", lambda descriptor, operation: None),
    # what is kept for ever
    "budget_is_not_given_back": _returns(ByteBudget, "give_back", None),
    "descriptors_stay_open": _returns(Generation, "close_handle", None),
}
DEFECTS.update(ONE_DECISION)


def plant(name: str | None) -> None:
    """Have the product decide wrongly, as the defect *name* does; None leaves it as it is."""
    if name is not None:
        DEFECTS[name]()
