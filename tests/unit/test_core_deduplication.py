"""What is known of a source decides which bytes are new, late, or known already."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.source_states import known_after
from logpipeline import checksum
from logpipeline.checksum import NOTHING, extend
from logpipeline.deduplication import (
    GENERATIONS_MAX,
    LOSSES_MAX,
    Loss,
    SourceState,
    committed_of,
    decide,
    decode,
    encode,
)
from logpipeline.extents import HOLES_MAX, Extent, GenerationState
from logpipeline.wire import Batch, Checksums, Previous

OLD, NEW = "a" * 16, "b" * 16
END = extend(NOTHING, b"0123456789")


def batch(start: int, end: int, generation: str = NEW, previous: Previous | None = None) -> Batch:
    """Return a batch of the source /x."""
    return Batch(
        source="/x",
        generation=generation,
        start=start,
        end=end,
        lines=1,
        format="plain",
        previous=previous,
    )


def new_ranges(knowledge: SourceState, each: Batch) -> list[tuple[int, int, bool]]:
    """Return what is new of *each*."""
    return [(part.start, part.end, part.is_late) for part in decide(knowledge, each).ranges]


def test_adjoining_batches_are_new() -> None:
    """The usual case."""
    knowledge = known_after(batch(0, 10))

    assert new_ranges(knowledge, batch(10, 20)) == [(10, 20, False)]
    assert knowledge.missing == 0


def test_a_known_batch_has_nothing_new() -> None:
    """What a restarted shipper repeats beyond the server's window."""
    decisions = [decide(known_after(batch(0, 10)), batch(*span)) for span in ((0, 10), (3, 7))]

    assert [(decision.ranges, decision.cut_bytes) for decision in decisions] == [((), 0)] * 2


def test_an_overlap_is_cut() -> None:
    """Only the end is new."""
    decision = decide(known_after(batch(0, 10)), batch(5, 15))

    assert [(part.start, part.end) for part in decision.ranges] == [(10, 15)]
    assert decision.cut_bytes == 5


def test_a_reader_from_midway_misses_nothing_of_what_it_left_out() -> None:
    """A source is taken from where it is first seen, and from then on as ever."""
    decision = decide(SourceState(), batch(50, 60), is_from_midway=True)
    later = decide(decision.after, batch(70, 80), is_from_midway=True)

    assert [(part.start, part.end) for part in decision.ranges] == [(50, 60)]
    assert (decision.holes, decision.after.missing) == ((), 0)
    assert later.after.missing == 10
    assert new_ranges(decision.after, replace(batch(0, 50), resend=True)) == []


def test_a_gap_is_a_hole_that_a_late_batch_fills() -> None:
    """In two pieces; what lies around them is known."""
    knowledge = known_after(batch(0, 10), batch(20, 30))
    assert knowledge.missing == 10
    assert new_ranges(knowledge, batch(8, 15)) == [(10, 15, True)]
    knowledge = decide(knowledge, batch(8, 15)).after
    assert knowledge.missing == 5
    assert new_ranges(knowledge, batch(0, 40)) == [(15, 20, True), (30, 40, False)]


def test_a_generation_that_ended_later_than_was_read_has_a_hole_at_its_end() -> None:
    """The next generation's first batch says so, which is no break of the chain."""
    decision = decide(known_after(batch(0, 10, OLD)), batch(0, 5, NEW, Previous(OLD, 25)))

    assert (decision.is_unknown_chain, decision.after.missing) == (False, 15)
    assert new_ranges(decision.after, batch(10, 25, OLD)) == [(10, 25, True)]


def test_a_generation_that_never_came_is_missing_whole() -> None:
    """Where the source was known before, an unknown predecessor is a break of the chain."""
    decision = decide(known_after(batch(0, 10, OLD)), batch(0, 5, NEW, Previous("c" * 16, 40)))

    assert decision.is_unknown_chain
    assert decision.after.missing == 40


def test_the_first_batch_of_a_source_owes_nothing_to_its_past() -> None:
    """A group that begins to read today does not miss what was trimmed yesterday."""
    decision = decide(SourceState(), batch(0, 5, NEW, Previous(OLD, 40)))

    assert (decision.is_unknown_chain, decision.after.missing) == (False, 0)


def test_a_generation_of_unknown_length_that_never_came_misses_nothing_yet() -> None:
    """It is known to be missing, and how long it was is not."""
    decision = decide(known_after(batch(0, 10, OLD)), batch(0, 5, NEW, Previous("c" * 16, None)))

    assert (decision.is_unknown_chain, decision.after.missing) == (True, 0)


@pytest.mark.parametrize(
    ("known", "each"),
    [
        pytest.param([batch(0, 10, OLD)], batch(0, 5), id="names none"),
        pytest.param([batch(0, 10, OLD)], batch(0, 5, NEW, Previous(OLD, 10)), id="all came"),
        pytest.param(
            [batch(0, 10, OLD), batch(0, 5)],
            batch(5, 9, NEW, Previous("c" * 16, 40)),
            id="the batch's own is known",
        ),
    ],
)
def test_a_chain_is_whole_where_nothing_new_is_missing(known: list[Batch], each: Batch) -> None:
    """Whatever the batch says of the generation before its own."""
    decision = decide(known_after(*known), each)

    assert (decision.is_unknown_chain, decision.after.missing) == (False, 0)


def test_a_source_that_begins_in_the_middle_misses_its_start() -> None:
    """Counted and named."""
    assert known_after(batch(7, 9)).missing == 7


def test_what_was_left_out_on_purpose_is_not_missing() -> None:
    """`readFrom: end` says so in its first batch."""
    knowledge = known_after(replace(batch(7, 9), begins=True))

    assert knowledge.missing == 0
    assert new_ranges(knowledge, batch(9, 12)) == [(9, 12, False)]


def test_what_was_left_out_on_purpose_is_written_where_it_comes_as_new() -> None:
    """Not where it may have been sent before: it was left out then."""
    knowledge = known_after(replace(batch(7, 9), begins=True))

    assert new_ranges(knowledge, batch(3, 7)) == [(3, 7, True)]
    assert new_ranges(knowledge, replace(batch(3, 7), resend=True)) == []


def test_what_was_left_out_may_be_said_by_a_batch_that_comes_again() -> None:
    """The first one was another shipper's, which did not know it."""
    assert known_after(batch(7, 9), replace(batch(7, 9), begins=True)).missing == 0
    assert known_after(batch(5, 9), replace(batch(7, 9), begins=True)).missing == 5


def test_a_batch_shows_the_holes_that_it_leaves() -> None:
    """A new hole lies before its first byte, or at the end of the generation before."""
    known = known_after(batch(0, 10, OLD))
    shown = decide(known, batch(15, 20, OLD)).holes
    cut_off = decide(known, batch(0, 5, NEW, Previous(OLD, 12))).holes
    both = decide(known, batch(3, 5, NEW, Previous(OLD, 12))).holes
    after = decide(known_after(batch(0, 10, OLD), batch(15, 20, OLD)), batch(20, 30, OLD)).holes
    again = decide(known_after(batch(0, 10, OLD), batch(15, 20, OLD)), batch(15, 20, OLD)).holes

    assert shown == ((OLD, 10, 15),)
    assert cut_off == ((OLD, 10, 12),)
    assert both == ((OLD, 10, 12), (NEW, 0, 3))
    assert after == again == ()


OLDEST, OLDER, NEWEST = "a" * 16, "b" * 16, "c" * 16


@pytest.mark.parametrize(
    ("each", "order"),
    [
        pytest.param(batch(10, 20, OLDEST), [OLDER, NEWEST, OLDEST], id="the oldest grows"),
        pytest.param(batch(20, 30, OLDER), [OLDEST, NEWEST, OLDER], id="the one between grows"),
        pytest.param(batch(5, 8, OLDER), [OLDEST, OLDER, NEWEST], id="a hole is filled"),
        pytest.param(batch(10, 20, NEWEST), [OLDEST, OLDER, NEWEST], id="the newest grows"),
    ],
)
def test_the_generation_that_grows_is_the_newest(each: Batch, order: list[str]) -> None:
    """Reports to shippers are about that one, whatever else was named meanwhile. What comes late
    changes no order.
    """
    known = known_after(batch(0, 10, OLDEST), batch(10, 20, OLDER), batch(0, 10, NEWEST))

    after = decide(known, each).after

    assert [each.name for each in after.generations] == order
    assert committed_of("/x", after).generation == order[-1]


def test_what_a_limit_costs_is_counted() -> None:
    """Holes that are no longer listed cannot be filled any more."""
    # Ten bytes of each twenty, but for the first ones.
    many = known_after(*(batch(start, start + 10) for start in range(10, 20 * HOLES_MAX + 30, 20)))
    [known] = many.generations
    assert len(known.extents) == HOLES_MAX + 1
    assert (many.given_up, many.missing) == (0, 10 * (HOLES_MAX + 1))

    more = decide(many, batch(20 * HOLES_MAX + 30, 20 * HOLES_MAX + 40)).after

    [known] = more.generations
    assert known.extents[0] == Extent(10, 40)
    assert len(known.extents) == HOLES_MAX + 1
    assert (more.given_up, more.missing) == (10, 10 * (HOLES_MAX + 2))


def test_the_oldest_generation_goes_with_its_holes() -> None:
    """They are given up, and counted as long as the source is known."""
    names = [f"{number:016x}" for number in range(GENERATIONS_MAX + 1)]
    full = known_after(batch(5, 10, names[0]), *(batch(3, 10, name) for name in names[1:-1]))
    assert (len(full.generations), full.given_up) == (GENERATIONS_MAX, 0)

    more = decide(full, batch(3, 10, names[-1])).after

    assert [each.name for each in more.generations] == names[1:]
    assert (more.given_up, more.missing) == (5, 5 + 3 * GENERATIONS_MAX)
    few = more.without_oldest(2)
    assert [each.name for each in few.generations] == names[-2:]
    assert (few.given_up, few.missing) == (5 + 3 * (GENERATIONS_MAX - 2), more.missing)


def test_knowledge_is_bounded() -> None:
    """Neither generations nor holes grow without end; the newest stay."""
    many = known_after(*(batch(0, 5, f"{number:016x}") for number in range(GENERATIONS_MAX + 10)))
    torn = known_after(*(batch(number * 10, number * 10 + 1) for number in range(HOLES_MAX + 20)))

    assert len(many.generations) == GENERATIONS_MAX
    assert many.generations[-1].name == f"{GENERATIONS_MAX + 9:016x}"
    assert len(torn.generations[0].holes) == HOLES_MAX
    losses = known_after(
        batch(0, 1000), *(lost(1000 + n * 2, 1001 + n * 2) for n in range(LOSSES_MAX + 9))
    )
    assert (len(losses.losses), losses.lost) == (LOSSES_MAX, LOSSES_MAX + 9)
    # A hole that is listed no more is missing all the same.
    assert torn.missing == (HOLES_MAX + 19) * 9


def summed(start: int, data: bytes, *, after: bytes = b"", **changes: Any) -> Batch:
    """Return a batch of *data* at *start*, behind the bytes *after*, with its checksums."""
    before = extend(NOTHING, after)
    sums = Checksums(before, extend(before, data))
    return replace(batch(start, start + len(data)), checksums=sums, **changes)


def lost(start: int, end: int, cause: str = "rotated") -> Batch:
    """Return a message that names a loss."""
    return replace(batch(start, end), lines=0, lost=cause, first_time_ns=7)


def test_a_batch_that_continues_other_bytes_is_a_misfit_and_hides_nothing() -> None:
    """Forged, garbled, or of another file: what is known stays, and the right one is new."""
    knowledge = known_after(summed(0, b"one\n"))
    forged = decide(knowledge, summed(4, b"evil\n", after=b"two\n"))

    assert (forged.is_misfit, forged.ranges, forged.after) == (True, (), knowledge)
    assert new_ranges(knowledge, summed(4, b"two\n", after=b"one\n")) == [(4, 8, False)]
    assert decide(SourceState(), summed(0, b"x\n", after=b"something")).is_misfit


def test_the_checksum_goes_on_behind_what_was_left_out_on_purpose() -> None:
    """It counts from where shipping began."""
    knowledge = known_after(summed(100, b"one\n", begins=True))

    assert not decide(knowledge, summed(104, b"two\n", after=b"one\n")).is_misfit
    assert decide(knowledge, summed(104, b"two\n", after=b"two\n")).is_misfit


def test_a_shipper_without_checksums_is_believed_until_one_has_them() -> None:
    """One of a former version. Who leaves them out of a file that had some is somebody else."""
    knowledge = known_after(batch(0, 4), summed(4, b"two\n", after=b"one\n"))

    assert knowledge.generations[0].high == 8
    assert decide(knowledge, batch(8, 12)).is_misfit
    assert decide(knowledge, summed(8, b"x\n", after=b"whatever")).is_misfit


def test_a_named_loss_is_no_hole_and_may_be_found() -> None:
    """The books balance: what was seen is written, or lost; found bytes are lost no more."""
    knowledge = known_after(batch(0, 10), lost(10, 30), batch(30, 40))
    assert (knowledge.missing, knowledge.written, knowledge.lost) == (0, 20, 20)
    assert knowledge.losses == (Loss(NEW, 10, 30, "rotated", 7),)

    found = decide(knowledge, batch(5, 20))
    assert [tuple(part) for part in found.ranges] == [(10, 20, True)]
    assert (found.after.written, found.after.lost) == (30, 10)
    assert found.after.losses == (Loss(NEW, 20, 30, "rotated", 7),)
    assert found.after.generations[0].lost == ((20, 30),)


def test_what_is_found_of_one_generation_stays_lost_of_another() -> None:
    """Their bytes have the same places."""
    other = replace(lost(10, 30), generation=OLD)
    knowledge = known_after(batch(0, 10, OLD), batch(0, 10), other, lost(10, 30))

    found = decide(knowledge, batch(10, 20)).after

    assert found.lost == 30
    assert found.losses == (Loss(OLD, 10, 30, "rotated", 7), Loss(NEW, 20, 30, "rotated", 7))


def test_a_loss_fills_a_hole_and_is_counted_once() -> None:
    """Whoever names it again names nothing new; what is written cannot be lost."""
    knowledge = known_after(batch(0, 10), batch(20, 30), lost(5, 20), lost(0, 30))

    assert (knowledge.missing, knowledge.written, knowledge.lost) == (0, 20, 10)
    assert [(loss.start, loss.end) for loss in knowledge.losses] == [(10, 20)]


def test_a_predecessor_is_heeded_where_nobody_keeps_an_account() -> None:
    """A forged one would else invent holes; those who send checksums name their losses."""
    unsummed = batch(0, 10, OLD)
    chained = replace(summed(0, b"x\n"), generation="c" * 16)
    decisions = [
        decide(known_after(unsummed), summed(0, b"x\n", previous=Previous(OLD, 25))),
        # Whoever leaves the checksums out is somebody else.
        decide(known_after(unsummed, chained), batch(0, 5, NEW, Previous(OLD, 25))),
        decide(known_after(chained), batch(0, 5, NEW, Previous(OLD, 25))),
    ]

    assert [(each.is_unknown_chain, each.after.missing) for each in decisions] == [(False, 0)] * 3


RANGES = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 20), st.sampled_from(["", "", "rotated"])),
    max_size=25,
)


def ranged(start: int, size: int, cause: str) -> Batch:
    """Return a batch, or a loss where there is a *cause*."""
    return lost(start, start + size, cause) if cause else batch(start, start + size)


@given(RANGES)
def test_every_byte_is_written_once_whatever_comes_in_whatever_order(
    ranges: list[tuple[int, int, str]],
) -> None:
    """The new ranges are exactly the bytes that came, the rest of what was named is lost, and the
    holes are the others: at every moment.
    """
    knowledge = SourceState()
    written: list[int] = []
    came: set[int] = set()
    named: set[int] = set()
    for start, size, cause in ranges:
        decision = decide(knowledge, ranged(start, size, cause))
        knowledge = decision.after
        (named if cause else came).update(range(start, start + size))
        written += [byte for part in decision.ranges for byte in range(part.start, part.end)]

        assert sorted(written) == sorted(came)
        assert knowledge.written == len(came)
        assert knowledge.lost == len(named - came)
        assert knowledge.missing == max(came | named) + 1 - len(came | named)


@given(RANGES)
def test_knowledge_survives_being_stored(ranges: list[tuple[int, int, str]]) -> None:
    """In the folder and in a snapshot."""
    knowledge = known_after(*(ranged(*each) for each in ranges), summed(0, b"x\n", begins=True))

    assert decode(json.loads(json.dumps(encode(knowledge)))) == knowledge


def test_what_a_former_version_stored_is_read() -> None:
    """It knew neither checksums nor losses."""
    assert decode([5, [[OLD, 10, [[2, 4]]]]]) == SourceState(
        (GenerationState(OLD, 0, (Extent(0, 2), Extent(4, 10)), claimed=10),), 5
    )


@pytest.mark.parametrize(
    ("holes", "extents"),
    [
        ([[2, 4]], (Extent(0, 2), Extent(4, 10, marks=((10, END),)))),
        ([[2, 4], [8, 10]], (Extent(0, 2), Extent(4, 8))),
        ([[0, 10]], ()),
    ],
)
def test_the_one_checksum_of_a_former_version_is_that_of_the_end(
    holes: list[list[int]], extents: tuple[Extent, ...]
) -> None:
    """Where the end is in a hole, it says nothing of what came."""
    row = [OLD, 10, holes, checksum.encode(END), 0]
    stored = {"generations": [row], "given_up": 5, "written": 8, "lost": 0, "losses": []}

    assert decode(stored) == SourceState((GenerationState(OLD, 0, extents, claimed=10),), 5, 8)


def test_what_is_no_state_is_refused() -> None:
    """As is a file that something else wrote."""
    with pytest.raises(ValueError, match="not the state of a source"):
        decode(5)
