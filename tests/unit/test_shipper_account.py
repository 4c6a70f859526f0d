"""Of every byte that was sent the shipper knows whether collectors have it, and what becomes of it
if they never get it.
"""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.records import PROGRESS_HOLES_MAX, Committed, Progress
from logpipeline.spans import joined, outside, size_of
from logpipeline_shipper.account import (
    DRAINED_S,
    ENTRIES_MAX,
    EXPIRED,
    GROUPS_MAX,
    REMOVED,
    ROLLED_BACK,
    SENT_MAX,
    Account,
    Confirmed,
    Gap,
    admit,
)

OLD, NEW = "0" * 16, "1" * 16


def sent(account: Account, generation: str, *ends: int, sequence: int = 1) -> None:
    """Note batches that end at *ends*, and begin at 0 or where the one before ended."""
    account.begin(generation, 0)
    for number, (start, end) in enumerate(zip((0, *ends), ends, strict=False)):
        account.acknowledged(
            generation,
            (start, end),
            sequence=sequence + number,
            now_s=0.0,
        )


def again(account: Account) -> Account:
    """Return what a shipper that was killed finds."""
    made = Account.restore(account.saved(), 0.0)
    made.groups = account.groups
    return made


def told(generation: str, offset: int, *holes: tuple[int, int]) -> Committed:
    return Committed("s", generation, offset, tuple((generation, *hole) for hole in holes))


def answer(
    account: Account,
    *known: Committed,
    sequence: int,
    pending: int = 1,
    begun: int = 0,
    first: int = 1,
    max_age_s: float = 0.0,
    now_s: float = 0.0,
    group: str = "main",
) -> list[Gap]:
    progress = Progress(group, 0, 1, 0, (), "now", sequence, pending, True, begun, first, max_age_s)
    asked: dict[str, Committed | None] = dict.fromkeys((OLD, NEW))
    return account.answer(progress, asked | {each.generation: each for each in known}, now_s)


def test_what_every_group_has_is_settled() -> None:
    """One group's word is not the other's."""
    account = Account({"main": 0, "audit": 0})
    sent(account, OLD, 10, 20)
    account.confirm("main", told(OLD, 20))
    account.confirm("audit", told(OLD, 10))
    between = (account.is_settled, account.on_the_way)
    account.confirm("audit", told(OLD, 20))

    assert between == (False, 10)
    assert (account.is_settled, account.on_the_way) == (True, 0)


def test_one_generation_that_every_group_has_settles_no_other() -> None:
    """The next one may be collected first."""
    account = Account({"main": 0})
    sent(account, OLD, 10)
    sent(account, NEW, 10)
    account.confirm("main", told(NEW, 10))
    between = account.is_settled
    account.confirm("main", told(OLD, 10))

    assert (between, account.is_settled) == (False, True)


def test_a_group_that_only_reported_is_not_waited_for() -> None:
    """Anyone can report; a collector answers."""
    account = Account()
    sent(account, OLD, 10)
    account.confirm("fake", told(OLD, 10))
    between = (dict(account.groups), account.on_the_way)
    answer(account, told(OLD, 10), sequence=1)

    assert between == ({}, 10)
    assert (list(account.groups), account.on_the_way) == (["main"], 0)


def test_a_group_that_is_forgotten_is_not_waited_for() -> None:
    """Neither for what was sent before, nor afterwards."""
    account = Account({"main": 0, "audit": 0})
    sent(account, OLD, 10)
    account.confirm("main", told(OLD, 10))
    account.confirm("audit", told(OLD, 5))
    before = account.is_settled
    account.forget_group("audit")
    between = account.is_settled
    assert "audit" not in account.saved()[OLD][2]
    account.acknowledged(OLD, (10, 20), sequence=2, now_s=0.0)
    account.confirm("main", told(OLD, 20))

    assert (before, between, account.is_settled) == (False, True, True)


def test_what_a_group_has_read_past_and_does_not_have_is_missing() -> None:
    """Each range by its own message: what comes later may still be on its way."""
    account = Account()
    sent(account, OLD, 10, 20, 30)

    assert answer(account, told(OLD, 10), sequence=2) == [Gap(OLD, 10, 20, REMOVED)]
    assert answer(account, told(OLD, 10), sequence=1) == []


def test_a_whole_generation_that_never_came_is_missing() -> None:
    """Collectors do not know it, and say nothing of it."""
    account = Account()
    sent(account, OLD, 10)
    sent(account, NEW, 5, sequence=2)

    assert answer(account, told(NEW, 5), sequence=2) == [Gap(OLD, 0, 10, REMOVED)]


def test_an_answer_says_nothing_of_what_it_was_not_asked_for() -> None:
    """A generation was begun since, or another answer speaks of it."""
    account = Account()
    sent(account, OLD, 10)
    sent(account, NEW, 5, sequence=2)
    progress = Progress("main", 0, 1, 0, (), "now", sequence=2, pending=1)

    assert account.answer(progress, {OLD: told(OLD, 10)}, 0.0) == []
    assert account.unconfirmed() == [NEW]
    assert account.answer(progress, {NEW: None}, 0.0) == [Gap(NEW, 0, 5, REMOVED)]


def test_a_stream_that_is_read_to_its_end_holds_nothing_more() -> None:
    """It went back, or was emptied: the sequences of what was lost will not be reached."""
    account = Account()
    sent(account, OLD, 10, sequence=1000)

    assert answer(account, sequence=5, pending=0, now_s=DRAINED_S - 1) == []
    assert answer(account, sequence=5, pending=3, now_s=DRAINED_S) == []
    assert answer(account, sequence=5, pending=0, now_s=DRAINED_S) == [Gap(OLD, 0, 10, ROLLED_BACK)]
    account.acknowledged(OLD, (0, 10), sequence=1001, now_s=DRAINED_S)
    assert answer(account, sequence=5, pending=0, now_s=DRAINED_S + 1) == []


def test_the_cause_says_what_the_server_did() -> None:
    """As far as the stream's first message, its max_age and the time tell."""
    causes = []
    for first, max_age_s, now_s in (
        (1, 0.0, 99.0),
        (9, 0.0, 99.0),
        (9, 60.0, 99.0),
        (9, 60.0, 9.0),
        # It is still there.
        (1, 60.0, 99.0),
    ):
        account = Account()
        sent(account, OLD, 10)
        (gap,) = answer(account, sequence=9, first=first, max_age_s=max_age_s, now_s=now_s)
        causes.append(gap.cause)

    assert causes == [REMOVED, REMOVED, EXPIRED, REMOVED, REMOVED]


@pytest.mark.parametrize(("acked_s", "cause"), [(39.0, EXPIRED), (39.5, REMOVED)])
def test_a_message_expires_so_long_after_it_was_acknowledged(acked_s: float, cause: str) -> None:
    """Not so long after the shipper began."""
    account = Account()
    account.begin(OLD, 0)
    account.acknowledged(OLD, (0, 10), sequence=1, now_s=acked_s)

    (gap,) = answer(account, sequence=9, first=9, max_age_s=60.0, now_s=99.0)
    assert gap.cause == cause


def test_a_group_that_began_later_does_not_miss_what_was_before() -> None:
    """Its own wish."""
    account = Account({"main": 0, "new": 2})
    sent(account, OLD, 10, 20)

    assert answer(account, sequence=9, begun=2, group="new") == []
    assert answer(account, told(OLD, 20), sequence=2) == []
    assert account.is_settled


def test_a_hole_is_missing_as_far_as_it_was_sent_and_asked_for() -> None:
    """What was sent without asking is not sent again."""
    account = Account({"main": 0})
    account.begin(OLD, 0)
    account.acknowledged(OLD, (30, 60), sequence=1, now_s=0.0)

    assert account.confirm("main", told(OLD, 90, (20, 40))) == [Gap(OLD, 30, 40, REMOVED)]
    assert answer(account, told(OLD, 90, (20, 40)), sequence=1) == [Gap(OLD, 30, 40, REMOVED)]


def test_what_lies_behind_the_last_hole_that_is_told_is_not_confirmed() -> None:
    """Collectors tell so many holes at once: further ones may lie behind these."""
    account = Account({"main": 0})
    holes = [(10 * number, 10 * number + 5) for number in range(PROGRESS_HOLES_MAX)]
    end = holes[-1][1] + 5
    sent(account, OLD, end)
    sent(account, NEW, 10, 20, sequence=2)
    account.confirm("main", told(OLD, end, *holes))
    # Of the newest generation, whose holes come last, none was told.
    told_of_new = told(OLD, end, *holes).holes
    account.confirm("main", Committed("s", NEW, 20, told_of_new))
    between = account.on_the_way
    account.confirm("main", Committed("s", NEW, 20))

    assert between == end + 20
    assert account.on_the_way == end
    assert Confirmed.of(told(OLD, end, *holes)).complete_to == holes[-1][1]
    assert Confirmed.of(told(OLD, end, *holes[1:])).complete_to == end
    assert Confirmed.of(Committed("s", NEW, 20, told_of_new)).complete_to == 0


def test_what_collectors_lack_of_another_process_is_sent_once_it_is_reported() -> None:
    """Whatever is sent before that."""
    account = Account({"main": 0})
    account.recall(told(OLD, 20, (5, 8)), 0.0)
    account.begin(NEW, 0)
    account.acknowledged(NEW, (0, 10), sequence=9, now_s=0.0)

    assert account.open_spans(OLD) == [(5, 8)]
    assert account.confirm("main", told(OLD, 20, (5, 8))) == [Gap(OLD, 5, 8, REMOVED)]
    gaps = answer(account, told(OLD, 20, (5, 8)), told(NEW, 10), sequence=9)
    assert gaps == [Gap(OLD, 5, 8, REMOVED)]
    account.confirm("main", told(OLD, 20))
    assert account.open_spans(OLD) == []


def test_a_group_that_began_later_does_not_miss_what_another_process_sent() -> None:
    """As with all that was stored before."""
    account = Account({"new": 5})
    account.recall(told(OLD, 20, (5, 8)), 0.0)

    assert answer(account, sequence=9, begun=5, group="new") == []
    assert account.is_settled


def test_groups_beyond_the_limit_are_not_waited_for() -> None:
    """Those that are known still say where they begin."""
    groups = {f"group-{number}": 0 for number in range(GROUPS_MAX - 1)}
    last, more = (Progress(name, 0, 1, 0, (), begun=7) for name in ("last", "more"))

    assert admit(groups, last)
    assert not admit(groups, more)
    assert admit(groups, Progress("last", 0, 1, 0, (), begun=9))
    assert (len(groups), groups["last"]) == (GROUPS_MAX, 9)


def test_generations_beyond_the_limit_are_forgotten_and_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The oldest first."""
    account = Account()
    names = [f"{number:016x}" for number in range(ENTRIES_MAX + 1)]
    for name in names[:-1]:
        sent(account, name, 10)
    with caplog.at_level(logging.ERROR):
        full = account.knows(names[0]), len(caplog.records)
        account.begin(names[-1], 5)

    assert full == (True, 0)
    assert [account.knows(name) for name in (names[0], names[1], names[-1])] == [False, True, True]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert account.began_at(names[-1]) == 5


def test_a_generation_that_no_begin_was_noted_of_begins_with_its_first_range() -> None:
    """As one that was sent before this process began, and is sent again."""
    account = Account()
    account.acknowledged(OLD, (5, 10), sequence=1, now_s=0.0)

    assert account.begins_at(OLD, 5)


def test_ranges_beyond_the_limit_are_joined_from_the_oldest_on() -> None:
    """The whole counts as read when its last message is."""
    account = Account()
    sent(account, OLD, *range(10, 10 * SENT_MAX + 10, 10))
    full = account.saved()[OLD][1]
    account.acknowledged(OLD, (10 * SENT_MAX, 10 * SENT_MAX + 10), sequence=99, now_s=0.0)

    assert full == [[10 * n, 10 * n + 10, n + 1] for n in range(SENT_MAX)]
    assert account.saved()[OLD][1] == [[0, 20, 2], *full[2:], [160, 170, 99]]


def test_an_answer_is_noted_with_its_time() -> None:
    """So that it is known who was silent."""
    account = Account()
    answer(account, sequence=1, now_s=7.0)

    assert account.answered_s == 7.0


def test_what_is_owed_is_paid_in_parts_and_named_where_it_is_gone() -> None:
    """Nothing of it is forgotten on the way, nor by a restart."""
    account = Account()
    sent(account, OLD, 100)
    (gap,) = answer(account, sequence=1)
    account.owe(gap)
    account.owe(gap)
    account.pay(OLD, (0, 30))
    account = again(account)
    assert account.owed() == [Gap(OLD, 30, 100, REMOVED)]
    account.lose(Gap(OLD, 50, 100, REMOVED))
    account = again(account)

    assert account.owed() == [Gap(OLD, 30, 50, REMOVED)]
    assert account.next_loss() == Gap(OLD, 50, 100, REMOVED)
    assert account.to_be_named == 50
    account.name(Gap(OLD, 50, 100, REMOVED))
    assert account.next_loss() is None


def test_a_doubt_concerns_what_is_not_collected() -> None:
    """A server that lost its tail is sent again what it may have lost, at once."""
    account = Account({"main": 0})
    sent(account, OLD, 10, 20)
    account.confirm("main", told(OLD, 15))

    assert account.doubt(ROLLED_BACK)
    assert account.owed()[0] == Gap(OLD, 15, 20, ROLLED_BACK)
    account.pay(OLD, (15, 20))
    account.confirm("main", told(OLD, 20))
    assert not account.doubt(ROLLED_BACK)


def test_a_doubt_concerns_nothing_that_a_group_left_out() -> None:
    """It began behind the second message."""
    account = Account({"main": 0, "new": 2})
    sent(account, OLD, 10, 20)
    account.confirm("main", told(OLD, 15))
    account.doubt(ROLLED_BACK)

    assert account.owed() == [Gap(OLD, 15, 20, ROLLED_BACK)]


def test_generations_that_are_settled_are_forgotten_but_for_the_newest() -> None:
    """Of that one it is asked where it began."""
    account = Account({"main": 0})
    sent(account, OLD, 10)
    sent(account, NEW, 5, sequence=2)
    between = account.is_settled
    account.confirm("main", told(OLD, 10))
    half = account.is_settled, account.knows(OLD), account.knows(NEW)
    account.confirm("main", told(NEW, 5))

    assert (between, half) == (False, (False, False, True))
    assert (account.is_settled, account.knows(NEW)) == (True, True)


def test_a_loss_that_was_named_is_forgotten() -> None:
    """Its generation is not the newest."""
    account = Account()
    account.lose(Gap(OLD, 5, 25, "rotated"))
    account.begin(NEW, 0)
    account.name(Gap(OLD, 5, 25, "rotated"))

    assert not account.knows(OLD)


def test_where_shipping_began_is_known_of_what_was_sent_lately() -> None:
    """A begin at 0 leaves nothing out."""
    account = Account()
    account.begin(OLD, 1)
    account.begin(NEW, 0)

    assert [account.begins_at(OLD, offset) for offset in (0, 1, 2)] == [False, True, False]
    assert not account.begins_at(NEW, 0)
    assert not account.begins_at("2" * 16, 1)
    assert [account.began_at(name) for name in (OLD, NEW, "2" * 16)] == [1, 0, 0]


def test_the_oldest_range_says_since_when_collectors_are_waited_for() -> None:
    """None is waited for for ever where all is confirmed."""
    account = Account()
    idle_s = account.waits_since_s()
    account.acknowledged(OLD, (0, 10), sequence=1, now_s=3.0)
    account.acknowledged(OLD, (10, 20), sequence=2, now_s=5.0)

    assert (idle_s, account.waits_since_s()) == (float("inf"), 3.0)


def test_a_loss_that_was_named_is_settled_like_lines() -> None:
    """Also the message that names it may be lost in the server."""
    account = Account()
    account.lose(Gap(OLD, 5, 25, "rotated"))
    account.name(Gap(OLD, 5, 25, "rotated"))
    account.acknowledged(OLD, (5, 25), sequence=7, now_s=0.0)

    assert answer(account, sequence=7) == [Gap(OLD, 5, 25, REMOVED)]
    account.confirm("main", told(OLD, 25))
    assert account.is_settled


@given(
    ends=st.lists(st.integers(1, 400), min_size=1, max_size=60, unique=True).map(sorted),
    offset=st.integers(0, 400),
    holes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), max_size=4).map(joined),
    reached=st.integers(0, 80),
)
def test_missing_and_on_the_way_and_collected_are_all_that_was_sent(
    ends: list[int], offset: int, holes: list[tuple[int, int]], reached: int
) -> None:
    """By the byte, however many ranges were joined: with a restart between."""
    account = Account()
    sent(account, OLD, *ends)
    account = again(account)
    holes = [(start, min(end, offset)) for start, end in holes if start < offset]

    gaps = answer(account, told(OLD, offset, *holes), sequence=reached)

    missing = [(gap.start, gap.end) for gap in gaps]
    collected = outside((0, offset), holes)
    whole = outside((0, ends[-1]), [*missing, *collected])
    late = [start for start, end in whole]
    assert joined(missing) == missing
    assert not any(size_of(outside(each, collected)) < each[1] - each[0] for each in missing)
    if reached >= len(ends):
        assert not late
    if len(ends) <= SENT_MAX:
        read = ends[min(reached, len(ends)) - 1] if reached else 0
        assert all(end <= read for _, end in missing)
        assert all(start >= read for start in late)


def test_what_is_stored_in_a_stream_that_went_back_is_not_left_out() -> None:
    """A group began behind message 5 of what the stream was: message 1 is another one now."""
    account = Account({"new": 5})
    account.begin(OLD, 0)
    account.acknowledged(OLD, (0, 10), sequence=3, now_s=0.0)
    left_out = account.is_settled

    account.forget_begun()
    account.acknowledged(OLD, (10, 20), sequence=1, now_s=0.0)

    assert left_out
    assert account.open_spans(OLD) == [(10, 20)]
