"""What a collector finds at its start, and the one right way to go on from each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logpipeline.records import EpochRecord, EpochStart, Reached, StreamPosition, Succession
from logpipeline_collector.epochs import Successor, at_most, succeed
from logpipeline_collector.recovery import (
    BUCKET_LOST,
    BUCKET_OLDER,
    CANNOT_UNDO,
    EPOCHS_ANEW,
    FOLDER_GONE,
    FOLDER_OLDER,
    NOWHERE,
    TWO_OWNERS,
    UNKNOWN_END,
    FolderCommit,
    Recovery,
    Source,
    is_late,
    is_outdated,
    recover,
)

# The folder whose process wrote the record, and another one.
SAME, OTHER = "same", "other"
OWNER = "collector-0"


def test_a_partition_that_nobody_had_begins_at_the_start() -> None:
    """Neither folder nor bucket knows it: epoch 1, nothing read."""
    assert recover(None, None, identity=OTHER) == Recovery(Source.NOTHING, 1, NOWHERE, 0)


def test_sources_are_brought_though_the_position_is_zero() -> None:
    """The stream went back to its beginning: nothing of it is read, and its sources are known."""
    found = recover(None, replace(record(3, 0), rollbacks=1), identity=OTHER)

    assert (found.source, found.position) == (Source.SNAPSHOT, NOWHERE)


def test_a_snapshot_describes_a_stream_up_to_where_it_went_back() -> None:
    """What stands behind that now is not in it, and must not be trimmed."""
    assert [at_most(5, None), at_most(5, 3), at_most(2, 3)] == [5, 3, 2]


def test_a_commit_that_the_bucket_knows_is_gone_on_from() -> None:
    """Both agree: the next epoch goes on there, without a warning."""
    found = recover(folder(3, 20, 10), record(3, 20), identity=SAME)

    assert (found.source, found.epoch, found.position.sequence) == (Source.FOLDER, 4, 20)
    assert not found.warning


def test_a_commit_that_the_bucket_does_not_know_yet_is_kept() -> None:
    """A crash between the folder's commit and the swap repeats nothing."""
    found = recover(folder(3, 20, 10), record(3, 10), identity=SAME)

    assert (found.source, found.position.sequence, found.warning) == (Source.FOLDER, 20, "")


def test_the_first_commit_of_all_is_kept_as_well() -> None:
    """There was no position before it, neither in the folder nor in the bucket."""
    found = recover(folder(1, 20, 0), record(1, 0), identity=SAME)

    assert (found.source, found.position.sequence, found.warning) == (Source.FOLDER, 20, "")


def test_a_commit_behind_a_successors_beginning_is_kept() -> None:
    """The successor went on from it: its lines stand in our folder alone."""
    found = recover(folder(3, 20, 10), record(4, 90, (3, 5), (4, 20)), identity=OTHER)

    assert (found.source, found.epoch, found.position.sequence) == (Source.SNAPSHOT, 5, 90)
    assert not found.warning


def test_a_commit_that_came_too_late_is_taken_back() -> None:
    """The successor began before it: its lines stand, or will stand, in the successor's folder."""
    late = recover(folder(3, 20, 10), record(4, 90, (4, 10)), identity=OTHER)
    after = recover(folder(2, 10, None), record(4, 90, (3, 10), (4, 10)), identity=OTHER)

    assert late.source is Source.UNDO
    assert (after.source, after.position.sequence) == (Source.SNAPSHOT, 90)


def test_a_first_commit_that_came_too_late_is_taken_back() -> None:
    """Nothing was committed before it, and the successor began at nothing."""
    found = recover(folder(1, 20, 0), record(2, 0, (1, 0), (2, 0)), identity=OTHER)

    assert found.source is Source.UNDO


def test_a_successor_that_read_nothing_leaves_our_folder_current() -> None:
    """No snapshot is needed where nothing was collected elsewhere."""
    found = recover(folder(3, 20, 10), record(4, 20, (4, 20)), identity=OTHER)

    assert (found.source, found.epoch) == (Source.FOLDER, 5)


def test_a_kill_after_taking_over_and_before_the_sources_came_starts_the_same_way() -> None:
    """Epoch 5 is ours and has committed nothing: what epoch 4 collected is still not here."""
    found = recover(folder(3, 20, 10), record(5, 90, (4, 20), (5, 90)), identity=SAME)

    assert (found.source, found.warning) == (Source.SNAPSHOT, "")


def test_a_lost_bucket_is_written_again_from_the_folder() -> None:
    """Nothing is read twice, and it is said."""
    found = recover(folder(3, 20, 10), None, identity=OTHER)

    assert (found.source, found.epoch, found.position.sequence) == (Source.FOLDER, 4, 20)
    assert found.warning == BUCKET_LOST


def test_a_bucket_that_went_back_is_written_again_from_the_folder() -> None:
    """Be it by epochs, or by more than the one commit that may be missing."""
    by_epochs = recover(folder(7, 20, 10), record(5, 2), identity=SAME)
    by_commits = recover(folder(7, 20, 10), record(7, 2), identity=SAME)

    assert [by_epochs.warning, by_commits.warning] == [BUCKET_OLDER, BUCKET_OLDER]
    assert [by_epochs.epoch, by_commits.epoch] == [8, 8]
    assert [by_epochs.position.sequence, by_commits.position.sequence] == [20, 20]


def test_a_bucket_that_went_back_says_nothing_of_who_has_more() -> None:
    """If the folder has the higher epoch, the collector continues from the folder, even if the
    record names another owner. If the folder is an older copy, the messages since are read again.
    """
    others = recover(folder(7, 20, 10, rollbacks=1), record(5, 2), identity=OTHER)
    ours = recover(folder(7, 20, 10), replace(record(5, 50), rollbacks=2), identity=SAME)

    assert others == Recovery(Source.FOLDER, 8, at(20), 1, BUCKET_OLDER)
    assert ours == Recovery(Source.FOLDER, 8, at(20), 2, BUCKET_OLDER)


@pytest.mark.parametrize(
    ("found", "is_it"),
    [
        (None, True),
        (6, True),
        (7, False),
        (8, False),
    ],
)
def test_a_record_is_outdated_that_is_older_than_the_folder(found: int | None, is_it: bool) -> None:
    """An answer that has none may come from a replica that lags, as well as one that is older."""
    assert is_outdated(folder(7, 20, 10), record(found, 20) if found else None) is is_it
    assert not is_outdated(None, record(found, 20) if found else None)


@pytest.mark.parametrize("is_read_again", [True, False])
def test_what_stood_in_a_folder_that_is_gone_is_read_again(is_read_again: bool) -> None:
    """From where it began, as far as the group wants that; either way it is said."""
    began = Succession(Reached(at(5), 0), Reached(at(5), 0))
    made = replace(record(3, 20), succession=began)

    found = recover(None, made, identity=OTHER, member=OWNER, is_read_again=is_read_again)

    assert found == (
        Recovery(Source.STREAM, 4, at(5), 0, FOLDER_GONE, is_folder_gone=True)
        if is_read_again
        else Recovery(Source.SNAPSHOT, 4, at(20), 0, FOLDER_GONE, is_folder_gone=True)
    )


def test_a_folder_that_is_gone_and_had_nothing_is_not_missed() -> None:
    """Its owner had not committed anything yet."""
    began = Succession(Reached(at(20), 0), Reached(at(20), 0))
    made = replace(record(3, 20), succession=began)

    assert recover(None, made, identity=OTHER, member=OWNER) == Recovery(
        Source.SNAPSHOT, 4, at(20), 0
    )


@pytest.mark.parametrize(
    ("before", "end", "is_it"),
    [
        ((5, 10), 10, True),
        ((5, 10), 5, True),
        # To take the commit back would leave what lies between in no folder.
        ((5, 10), 15, False),
        ((2, 10), 50, True),
        ((5, 10), 60, False),
        ((5, 10), 70, False),
        (None, 5, False),
    ],
)
def test_a_commit_is_late_if_its_successor_reads_all_of_it(
    before: tuple[int, int] | None, end: int, is_it: bool
) -> None:
    """Its owner began at the commit before, or earlier; a new epoch begins anywhere."""
    previous = before and (before[0], Reached(at(before[1]), 0))

    found = is_late(FolderCommit(5, Reached(at(60), 0), previous), Reached(at(end), 0))

    assert found is is_it


def test_a_record_that_was_begun_anew_and_has_more_is_followed() -> None:
    """The bucket was lost, epochs count from 1 again, and another collector read beyond our folder:
    what it collected since then is not read again.
    """
    found = recover(folder(7, 20, 10), record(1, 50), identity=OTHER)

    assert (found.source, found.epoch, found.position.sequence) == (Source.SNAPSHOT, 8, 50)
    assert found.warning == EPOCHS_ANEW


def test_a_newer_stream_counts_where_bucket_and_streams_were_lost() -> None:
    """Whatever was read of the former one, and however often it had gone back."""
    anew = replace(record(1, 2), position=StreamPosition("2026-11-26T10:00:00.51Z", 2, 2))
    former = replace(at(20), created="2026-11-26T10:00:00.5Z")
    ours = FolderCommit(1, Reached(former, 3), (1, Reached(NOWHERE, 0)))
    one_epoch = recover(ours, anew, identity=OTHER)
    higher_epoch = recover(replace(ours, epoch=5), anew, identity=OTHER)

    assert (one_epoch.source, one_epoch.warning) == (Source.SNAPSHOT, TWO_OWNERS)
    assert (higher_epoch.source, higher_epoch.warning) == (Source.SNAPSHOT, EPOCHS_ANEW)


def test_roll_backs_of_another_count_do_not_order_two_folders() -> None:
    """Since the bucket was lost they are counted anew: what the server stored later is later."""
    found = recover(folder(1, 5, 4, rollbacks=1), record(1, 50), identity=OTHER)

    assert (found.source, found.position.sequence) == (Source.SNAPSHOT, 50)


def test_commits_do_not_count_of_who_began_where_its_successor_does() -> None:
    """Though the successor's folder has seen the stream go back, which the record does not say."""
    made = succeed(record(1, 0), successor(2, Reached(at(0), 1), folder=OTHER)).succession

    assert made is not None
    assert made.former[-1].end.is_same(Reached(at(0), 0))
    assert is_late(folder(1, 1, 0), made.former[-1].end)


def test_commits_behind_the_record_do_not_count_where_two_folders_had_one_epoch() -> None:
    """The successor's folder has more than the record: it has, or reads, what they hold."""
    former = record(1, 2)
    one_epoch = succeed(former, successor(2, Reached(at(5), 0), folder=OTHER)).succession
    higher_epoch = succeed(former, successor(4, Reached(at(5), 0), folder=OTHER)).succession

    assert one_epoch is not None
    assert higher_epoch is not None
    assert one_epoch.former[-1].end.position.sequence == 2
    # The record may be an older copy: nothing that its owner committed is taken back.
    assert higher_epoch.former[-1].end.position.sequence == 5


def test_what_was_passed_holds_for_a_successor_that_begins_where_the_record_ends() -> None:
    """One that reads something again would have it trimmed before."""
    former = replace(record(3, 50), passed=at(80))

    goes_on = succeed(former, successor(4, Reached(at(50), 0), folder=OTHER))
    reads_again = succeed(former, successor(4, Reached(at(20), 0), folder=OTHER))

    assert (goes_on.passed, reads_again.passed) == (at(80), None)
    assert EpochRecord.decode(goes_on.encode()).passed == at(80)


def test_a_folder_that_went_back_reads_again_what_it_lacks() -> None:
    """Its files lack the lines as well, so nothing else would bring them."""
    same_epoch = recover(folder(3, 20, 10), record(3, 50, (3, 5)), identity=SAME)
    later_epoch = recover(folder(3, 20, 10), record(4, 50, (3, 5), (4, 30)), identity=SAME)

    assert [same_epoch.warning, later_epoch.warning] == [FOLDER_OLDER, FOLDER_OLDER]
    assert [same_epoch.position.sequence, later_epoch.position.sequence] == [20, 20]


def test_a_copy_of_the_last_owners_folder_reads_again_what_came_since() -> None:
    """The member of the record puts back what it had: no other folder has the lines since."""
    for made in (record(3, 50, (3, 5)), record(4, 50, (3, 5), (4, 30))):
        found = copied(folder(3, 20, 10), made)

        assert (found.source, found.position.sequence) == (Source.FOLDER, 20)
        assert found.warning == FOLDER_OLDER


def test_a_copy_of_a_folder_at_rest_goes_on_where_the_folder_ended() -> None:
    """It has moved to another disk, and lacks nothing."""
    found = copied(folder(3, 20, 10), record(3, 20))

    assert (found.source, found.position.sequence, found.warning) == (Source.FOLDER, 20, "")


def test_a_copy_of_a_folder_that_another_member_has_is_a_folder_of_its_own() -> None:
    """What came since stands in the original."""
    later = record(4, 50, (3, 5), (4, 30))
    found = copied(folder(3, 20, 10), later, member="collector-9")

    assert (found.source, found.position.sequence) == (Source.SNAPSHOT, 50)


def test_a_commit_that_came_too_late_is_taken_back_in_a_copy_as_well() -> None:
    """The folder was copied after its collector had died, and before it settled the commit."""
    ended = succeeded(3, Reached(at(10), 0))
    for epoch in range(5, 200):
        ended = succeed(ended, successor(epoch, Reached(at(epoch * 10), 0), folder="another"))

    assert copied(folder(3, 20, 10), ended).source is Source.UNDO


def copied(ours: FolderCommit, made: EpochRecord, *, member: str = "collector-0") -> Recovery:
    """Return how a copy of SAME goes on, as *member*, from the record that was *made*."""
    return recover(ours, made, identity="copy", copied_from=("elsewhere", SAME), member=member)


def test_another_owner_of_our_epoch_loses_no_lines() -> None:
    """Such a bucket was restored; who is further has the lines up to there."""
    ours = recover(folder(3, 20, 10), record(3, 15), identity=OTHER)
    theirs = recover(folder(3, 20, 10), record(3, 50), identity=OTHER)

    assert [ours.warning, theirs.warning] == [TWO_OWNERS, TWO_OWNERS]
    assert (ours.source, ours.position.sequence) == (Source.FOLDER, 20)
    assert (theirs.source, theirs.position.sequence) == (Source.SNAPSHOT, 50)


def test_what_cannot_be_taken_back_is_said() -> None:
    """Only one commit is kept apart; a successor that began before it is a broken bucket."""
    older = record(4, 90, (4, 7))
    last = recover(folder(3, 20, 10), older, identity=OTHER)
    rest = recover(folder(3, 10, None), older, identity=OTHER)

    assert last.source is Source.UNDO
    assert (rest.source, rest.warning) == (Source.SNAPSHOT, CANNOT_UNDO)


def test_roll_backs_are_never_forgotten() -> None:
    """Shippers heal when the count rises; it must not fall and rise again by a restart."""
    kept = recover(folder(3, 20, 10, rollbacks=2), record(3, 10), identity=SAME)
    alone = recover(folder(3, 20, 10, rollbacks=2), None, identity=SAME)

    assert (kept.rollbacks, alone.rollbacks) == (2, 2)


def test_a_commit_behind_a_roll_back_that_the_successor_does_not_know_is_taken_back() -> None:
    """It ends at the sequence at which the successor began, and holds lines that it reads too."""
    before, late = Reached(at(10), 0), Reached(at(10), 1)
    ours = FolderCommit(3, late, (3, before))
    found = recover(ours, succeeded(3, before), identity=SAME)

    assert found.source is Source.UNDO


def test_the_first_commit_of_an_epoch_that_came_too_late_is_taken_back() -> None:
    """The commit before it is of an older epoch, and says nothing about where this one began."""
    ours = FolderCommit(5, Reached(at(60), 0), (2, Reached(at(10), 0)))

    assert recover(ours, record(6, 90, (6, 50)), identity=OTHER).source is Source.UNDO


def test_a_folder_that_had_a_later_epoch_and_committed_nothing_has_no_late_commit() -> None:
    """It was compared with the record before it took that epoch, of which nothing else is left."""
    made = succeeded(3, Reached(at(20), 0))
    for epoch, name in ((5, SAME), (6, "another")):
        made = succeed(made, successor(epoch, Reached(at(epoch * 10), 0), folder=name))

    found = recover(folder(3, 20, 10), replace(made, history=()), identity=SAME)

    assert found == Recovery(Source.SNAPSHOT, 7, at(60), 0)


def test_a_folder_that_was_away_for_any_number_of_epochs_knows_what_to_take_back() -> None:
    """The record names where each folder's time ended, however many owners came since."""
    record = succeeded(3, Reached(at(10), 0))
    for epoch in range(5, 200):
        reached = Reached(at(epoch * 10), 0)
        record = succeed(record, successor(epoch, reached, folder="another"))
    found = recover(folder(3, 20, 10), record, identity=SAME)

    assert found.source is Source.UNDO


def test_a_record_that_no_longer_tells_of_our_folder_says_so() -> None:
    """More folders had the partition since than a record holds: nothing is guessed."""
    record = succeeded(3, Reached(at(10), 0))
    for epoch in range(5, 200):
        reached = Reached(at(epoch * 10), 0)
        record = succeed(record, successor(epoch, reached, folder=f"folder{epoch}"))
    found = recover(folder(3, 20, 10), record, identity=SAME)

    assert (found.source, found.warning) == (Source.SNAPSHOT, UNKNOWN_END)


def succeeded(epoch: int, reached: Reached) -> EpochRecord:
    """Return the record after SAME's *epoch*, where the next owner began at what was *reached*."""
    ours = succeed(None, successor(epoch, Reached(at(0), 0), folder=SAME))
    return succeed(ours, successor(epoch + 1, reached, folder="another"))


def successor(epoch: int, reached: Reached, *, folder: str) -> Successor:
    return Successor(
        member="collector-0",
        incarnation=f"{folder}-1",
        epoch=epoch,
        assignment=1,
        reached=reached,
    )


def at(sequence: int) -> StreamPosition:
    return StreamPosition("now", sequence, sequence * 1000) if sequence else NOWHERE


def folder(epoch: int, sequence: int, previous: int | None, *, rollbacks: int = 0) -> FolderCommit:
    before = None if previous is None else (epoch, Reached(at(previous), rollbacks))
    return FolderCommit(epoch, Reached(at(sequence), rollbacks), before)


def record(epoch: int, sequence: int, *history: tuple[int, int]) -> EpochRecord:
    return EpochRecord(
        epoch=epoch,
        owner="collector-0",
        incarnation=f"{SAME}-1",
        assignment=1,
        position=at(sequence),
        history=tuple(EpochStart(*entry) for entry in history),
    )
