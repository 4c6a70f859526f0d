"""What is known of a source decides which bytes are new, late, or known already."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from logpipeline.knowledge import (
    GENERATIONS_MAX,
    HOLES_MAX,
    Knowledge,
    decide,
    decode,
    encode,
)
from logpipeline.wire import Batch, Previous

OLD, NEW = "a" * 16, "b" * 16


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


def taken(*batches: Batch) -> Knowledge:
    """Return what is known after *batches*."""
    knowledge = Knowledge()
    for each in batches:
        knowledge = decide(knowledge, each).after
    return knowledge


def new_ranges(knowledge: Knowledge, each: Batch) -> list[tuple[int, int, bool]]:
    """Return what is new of *each*."""
    return [(part.start, part.end, part.is_late) for part in decide(knowledge, each).ranges]


def test_adjoining_batches_are_new() -> None:
    """The usual case."""
    knowledge = taken(batch(0, 10))

    assert new_ranges(knowledge, batch(10, 20)) == [(10, 20, False)]
    assert knowledge.missing == 0


def test_a_known_batch_has_nothing_new() -> None:
    """What a restarted shipper repeats beyond the server's window."""
    assert new_ranges(taken(batch(0, 10)), batch(0, 10)) == []
    assert new_ranges(taken(batch(0, 10)), batch(3, 7)) == []


def test_an_overlap_is_cut() -> None:
    """Only the end is new."""
    decision = decide(taken(batch(0, 10)), batch(5, 15))

    assert [(part.start, part.end) for part in decision.ranges] == [(10, 15)]
    assert decision.cut_bytes == 5


def test_a_reader_from_midway_misses_nothing_of_what_it_left_out() -> None:
    """A source is taken from where it is first seen, and from then on as ever."""
    decision = decide(Knowledge(), batch(50, 60), is_from_midway=True)
    later = decide(decision.after, batch(70, 80), is_from_midway=True)

    assert [(part.start, part.end) for part in decision.ranges] == [(50, 60)]
    assert (decision.holes, decision.after.missing) == ((), 0)
    assert later.after.missing == 10
    assert new_ranges(decision.after, batch(0, 50)) == []


def test_a_gap_is_a_hole_that_a_late_batch_fills() -> None:
    """In two pieces; what lies around them is known."""
    knowledge = taken(batch(0, 10), batch(20, 30))
    assert knowledge.missing == 10
    assert new_ranges(knowledge, batch(8, 15)) == [(10, 15, True)]
    knowledge = decide(knowledge, batch(8, 15)).after
    assert knowledge.missing == 5
    assert new_ranges(knowledge, batch(0, 40)) == [(15, 20, True), (30, 40, False)]


def test_a_generation_that_ended_later_than_was_read_has_a_hole_at_its_end() -> None:
    """The next generation's first batch says so."""
    knowledge = taken(batch(0, 10, OLD), batch(0, 5, NEW, Previous(OLD, 25)))

    assert knowledge.missing == 15
    assert new_ranges(knowledge, batch(10, 25, OLD)) == [(10, 25, True)]


def test_a_generation_that_never_came_is_missing_whole() -> None:
    """Where the source was known before, an unknown predecessor is a break of the chain."""
    decision = decide(taken(batch(0, 10, OLD)), batch(0, 5, NEW, Previous("c" * 16, 40)))

    assert decision.is_unknown_chain
    assert decision.after.missing == 40


def test_the_first_batch_of_a_source_owes_nothing_to_its_past() -> None:
    """A group that begins to read today does not miss what was trimmed yesterday."""
    knowledge = taken(batch(0, 5, NEW, Previous(OLD, 40)))

    assert knowledge.missing == 0


def test_a_source_that_begins_in_the_middle_misses_its_start() -> None:
    """Counted and named."""
    assert taken(batch(7, 9)).missing == 7


def test_what_was_left_out_on_purpose_is_not_missing() -> None:
    """`readFrom: end` says so in its first batch."""
    knowledge = taken(replace(batch(7, 9), begins=True))

    assert knowledge.missing == 0
    assert new_ranges(knowledge, batch(9, 12)) == [(9, 12, False)]


def test_knowledge_is_bounded() -> None:
    """Neither generations nor holes grow without end; the newest stay."""
    many = taken(*(batch(0, 5, f"{number:016x}") for number in range(GENERATIONS_MAX + 10)))
    torn = taken(*(batch(number * 10, number * 10 + 1) for number in range(HOLES_MAX + 20)))

    assert len(many.generations) == GENERATIONS_MAX
    assert many.generations[-1].name == f"{GENERATIONS_MAX + 9:016x}"
    assert len(torn.generations[0].holes) == HOLES_MAX
    # A hole that is listed no more is missing all the same.
    assert torn.missing == (HOLES_MAX + 19) * 9


RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=25)


@given(RANGES)
def test_every_byte_is_written_once_whatever_comes_in_whatever_order(
    ranges: list[tuple[int, int]],
) -> None:
    """Together the new ranges are exactly the bytes that came, and the holes are the others."""
    knowledge = Knowledge()
    written: list[int] = []
    came: set[int] = set()
    for start, size in ranges:
        decision = decide(knowledge, batch(start, start + size))
        knowledge = decision.after
        came.update(range(start, start + size))
        written += [byte for part in decision.ranges for byte in range(part.start, part.end)]

    assert sorted(written) == sorted(came)
    assert knowledge.missing == (max(came) + 1 - len(came) if came else 0)


@given(RANGES)
def test_knowledge_survives_being_stored(ranges: list[tuple[int, int]]) -> None:
    """In the folder and in a snapshot."""
    knowledge = taken(*(batch(start, start + size) for start, size in ranges))

    assert decode(encode(knowledge)) == knowledge
