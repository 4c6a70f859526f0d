"""Whatever is forged: the genuine bytes of a file are collected once, and in order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.checksum import NOTHING, Checksum, extend
from logpipeline.deduplication import Decision, SourceState, decide, decode, encode
from logpipeline.extents import (
    EXTENTS_MAX,
    HOLE_BYTES_COUNTED_MAX,
    MARKS_APART_MAX,
    MARKS_MAX,
    Extent,
    GenerationState,
    Repeat,
    missing_bytes,
    take,
)
from logpipeline.wire import Batch, Checksums

NAME = "a" * 16
TRUTH = bytes(range(1, 121))
LIES = bytes(range(121, 241)) * 2


def batch(data: bytes, start: int, before: Checksum, *, resend: bool = False) -> Batch:
    """Return the headers of *data* at *start*."""
    return Batch(
        source="/x",
        generation=NAME,
        start=start,
        end=start + len(data),
        lines=1,
        format="plain",
        checksums=Checksums.around(data, before),
        resend=resend,
    )


@dataclass
class Collected:
    """What a collector writes, decided batch by batch."""

    knowledge: SourceState = field(default_factory=SourceState)
    written: list[int] = field(default_factory=list)

    def take(self, each: Batch, data: bytes, repeat: Repeat | None = None) -> Decision:
        """Take a batch."""

        def sums(offset: int) -> Checksum:
            assert each.checksums is not None
            return extend(each.checksums.before, data[: offset - each.start])

        decision = decide(self.knowledge, each, repeat=repeat, sums=sums)
        self.knowledge = decision.after
        for part in decision.ranges:
            self.written += data[part.start - each.start : part.end - each.start]
        return decision

    def genuine(self, start: int, end: int, *, resend: bool = False) -> Decision:
        """Take bytes of the file."""
        data = TRUTH[start:end]
        before = extend(NOTHING, TRUTH[:start])
        return self.take(batch(data, start, before, resend=resend), data)

    def forged(self, start: int, size: int, before: Checksum, *, resend: bool = False) -> Decision:
        """Take bytes of somebody else."""
        data = LIES[:size]
        return self.take(batch(data, start, before, resend=resend), data)

    def true_bytes(self) -> bytes:
        """What was written of the file."""
        return bytes(byte for byte in self.written if byte in TRUTH)


UNKNOWN = Checksum(0x1234)
CUTS = st.lists(st.integers(1, len(TRUTH) - 1), unique=True, max_size=12).map(
    lambda cuts: sorted({0, *cuts, len(TRUTH)})
)
STRANGE = st.lists(
    st.tuples(
        st.integers(0, 11),
        st.integers(0, 200),
        st.integers(1, 200),
        st.booleans(),
        st.sampled_from(["blind", "begin", "none", "loss", "begins", "far"]),
    ),
    max_size=12,
)


def strike(collected: Collected, start: int, size: int, resend: bool, kind: str) -> None:
    """Let somebody who knows no checksum of the file do one thing."""
    plain = replace(batch(LIES[:size], start, UNKNOWN), checksums=None)
    match kind:
        case "blind":
            collected.forged(start, size, UNKNOWN, resend=resend)
        case "begin":
            collected.forged(0, size, NOTHING, resend=resend)
        case "none":
            collected.take(replace(plain, resend=resend), LIES[:size])
        case "loss":
            collected.take(replace(plain, lost="rotated"), b"")
        case "begins":
            collected.take(replace(batch(LIES[:size], start, NOTHING), begins=True), LIES[:size])
        case _:
            collected.forged((1 << 61) + start, size, UNKNOWN)


@given(CUTS, STRANGE)
def test_what_does_not_continue_the_file_hides_nothing_of_it(
    cuts: list[int], strange: list[tuple[int, int, int, bool, str]]
) -> None:
    """Once its first batch is known: a generation's name cannot be guessed before."""
    collected = Collected()
    for number, (start, end) in enumerate(itertools.pairwise(cuts)):
        collected.genuine(start, end)
        collected.genuine(start, end, resend=True)
        for turn, at, size, resend, kind in strange:
            if turn == number:
                strike(collected, at, size, resend, kind)

    assert collected.true_bytes() == TRUTH
    assert decode(encode(collected.knowledge)) == collected.knowledge


@given(CUTS, st.lists(st.integers(0, 11), max_size=6), st.integers(1, 60), st.booleans())
def test_who_knows_the_checksum_hides_nothing_either(
    cuts: list[int], turns: Sequence[int], size: int, resend: bool
) -> None:
    """Both go on in the collected, and it is said that they contradict each other."""
    collected = Collected()
    contradicted = 0
    for number, (start, end) in enumerate(itertools.pairwise(cuts)):
        contradicted += collected.genuine(start, end).contradicted
        if number in turns:
            before = extend(NOTHING, TRUTH[:end])
            contradicted += collected.forged(end, size, before, resend=resend).contradicted

    assert collected.true_bytes() == TRUTH
    is_struck = any(turn < len(cuts) - 2 for turn in turns)
    assert bool(contradicted) == is_struck


@given(CUTS, CUTS, st.permutations(range(13)))
def test_bytes_that_come_again_in_other_pieces_and_any_order_are_written_once(
    cuts: list[int], others: list[int], order: list[int]
) -> None:
    """As they do from a shipper that was killed, or that makes up for a loss."""
    collected = Collected()
    pieces = list(itertools.pairwise(cuts))
    for number in order:
        if number < len(pieces):
            collected.genuine(*pieces[number])
    for start, end in itertools.pairwise(others):
        collected.genuine(start, end, resend=True)

    assert sorted(collected.true_bytes()) == list(TRUTH)
    assert collected.knowledge.missing == 0
    assert len(collected.knowledge.generations[0].extents) == 1


@given(CUTS, st.sets(st.integers(0, 11), min_size=1), st.permutations(range(13)))
def test_batches_behind_an_open_hole_that_come_again_are_written_once(
    cuts: list[int], lost: set[int], order: list[int]
) -> None:
    """As they do from a shipper that was away for longer than the server knows their ids."""
    collected = Collected()
    pieces = list(itertools.pairwise(cuts))
    kept = [number for number in range(len(pieces)) if number not in lost]
    for number in kept:
        collected.genuine(*pieces[number])
    for number in order:
        if number in kept:
            collected.genuine(*pieces[number], resend=True)
    written = sorted(collected.true_bytes())
    for number in set(range(len(pieces))) - set(kept):
        collected.genuine(*pieces[number], resend=True)

    assert written == [byte for number in kept for byte in TRUTH[slice(*pieces[number])]]
    assert sorted(collected.true_bytes()) == list(TRUTH)
    assert decode(encode(collected.knowledge)) == collected.knowledge


def test_checksums_of_extents_are_bounded() -> None:
    """All of a generation share a limit, and what was joined to the begin needs few."""
    collected = Collected()
    size = 3
    file = TRUTH * 10
    before = extend(NOTHING, file[:size])
    for start in range(size, len(file) - size, size):
        data = file[start : start + size]
        collected.take(batch(data, start, before), data)
        before = extend(before, data)
    (known,) = collected.knowledge.generations
    assert len(known.extents[0].marks) == MARKS_APART_MAX

    collected.take(batch(file[:size], 0, NOTHING), file[:size])

    (known,) = collected.knowledge.generations
    assert [len(extent.marks) for extent in known.extents] == [MARKS_MAX]


def test_a_message_that_is_read_again_brings_nothing() -> None:
    """After a roll-back: it says of itself that its bytes are new."""
    collected = Collected()
    for start in range(50, 110, 10):
        collected.genuine(start, start + 10)
    data = TRUTH[50:57]
    again = batch(data, 50, extend(NOTHING, TRUTH[:50]))

    assert collected.take(again, data, Repeat.READ).ranges == ()


def test_a_copy_of_an_old_batch_is_put_aside() -> None:
    """It says that its bytes are new, and they are long collected."""
    collected = Collected()
    for start in range(0, 110, 10):
        collected.genuine(start, start + 10)

    assert collected.genuine(0, 10).is_misfit
    assert collected.genuine(30, 40).is_misfit
    assert collected.genuine(100, 110).ranges == ()
    assert collected.genuine(0, 10, resend=True).ranges == ()


def test_a_hole_that_nobody_can_believe_is_not_counted() -> None:
    """It fills all the same."""
    collected = Collected()
    collected.genuine(0, 10)
    collected.forged(HOLE_BYTES_COUNTED_MAX * 2, 10, UNKNOWN)

    assert collected.knowledge.missing == 0
    assert collected.genuine(10, 20).ranges != ()


def test_extents_are_bounded() -> None:
    """What is one too many is put aside, and what continues the file is not."""
    collected = Collected()
    collected.genuine(0, 10)
    decisions = [
        collected.forged(100 + 20 * number, 10, UNKNOWN) for number in range(EXTENTS_MAX + 5)
    ]

    assert sum(decision.is_misfit for decision in decisions) == 6
    assert collected.genuine(10, 20).ranges != ()


def test_a_part_of_an_extent_has_its_checksums() -> None:
    """Those at its begin and in it, and none of the other part."""
    sums = [Checksum(number) for number in (1000, 1, 2, 3)]
    extent = Extent(10, 30, sums[0], ((15, sums[1]), (20, sums[2]), (30, sums[3])))

    assert extent.head(20) == Extent(10, 20, sums[0], ((15, sums[1]), (20, sums[2])))
    assert extent.head(19) == Extent(10, 19, sums[0], ((15, sums[1]),))
    assert extent.tail(20) == Extent(20, 30, sums[2], ((30, sums[3]),))
    assert extent.tail(12) == Extent(12, 30, None, extent.marks)
    assert extent.tail(10) == extent


FIRST = (Extent(5, 10),)


@pytest.mark.parametrize(
    ("state", "is_whole", "holes", "checksum"),
    [
        pytest.param(GenerationState("a", 5), False, (), NOTHING, id="nothing came"),
        pytest.param(GenerationState("a", 5, claimed=8), False, ((5, 8),), None, id="all missing"),
        pytest.param(GenerationState("a", 5, FIRST), True, (), None, id="one extent"),
        pytest.param(GenerationState("a", 5, FIRST, claimed=10), True, (), None, id="all came"),
        pytest.param(
            GenerationState("a", 5, FIRST, claimed=12), False, ((10, 12),), None, id="its end"
        ),
        pytest.param(GenerationState("a", 4, FIRST), False, ((4, 5),), None, id="its begin"),
        pytest.param(
            GenerationState("a", 5, FIRST, ((20, 30),)), False, ((10, 20),), None, id="lost behind"
        ),
        pytest.param(
            GenerationState("a", 5, (*FIRST, Extent(12, 14))),
            False,
            ((10, 12),),
            None,
            id="two extents",
        ),
    ],
)
def test_holes_are_what_never_came(
    state: GenerationState,
    is_whole: bool,
    holes: tuple[tuple[int, int], ...],
    checksum: Checksum | None,
) -> None:
    """What is named as lost is none."""
    assert (state.is_whole, state.holes, state.checksum) == (is_whole, holes, checksum)
    assert state.missing == sum(end - start for start, end in holes)


def test_a_hole_is_counted_up_to_the_limit() -> None:
    """Which is of this length."""
    assert missing_bytes((7, 7 + HOLE_BYTES_COUNTED_MAX)) == HOLE_BYTES_COUNTED_MAX
    assert missing_bytes((7, 8 + HOLE_BYTES_COUNTED_MAX)) == 0


def at(offset: int) -> Checksum:
    """Return the file's running checksum at *offset*."""
    return extend(NOTHING, TRUTH[:offset])


def extent(start: int, end: int, *marked: int) -> Extent:
    """Return bytes of the file, with the checksums at *marked* and at the end."""
    return Extent(start, end, at(start), tuple((offset, at(offset)) for offset in (*marked, end)))


# Bytes that nothing of the file is known to continue, as a forger's or another shipper's.
APART = Extent(50, 60, UNKNOWN, ((60, UNKNOWN),))


@pytest.mark.parametrize(
    ("known", "span", "repeat", "extents", "asides", "new"),
    [
        pytest.param(
            [extent(0, 10), APART],
            (45, 65),
            Repeat.NEVER,
            [extent(0, 10), extent(45, 65)],
            [APART],
            [(45, 65)],
            id="around what is apart",
        ),
        pytest.param(
            [extent(0, 10), APART],
            (45, 65),
            Repeat.MARKED,
            [extent(0, 10), extent(45, 65)],
            [APART],
            [(45, 65)],
            id="once more, around what is apart",
        ),
        pytest.param(
            [extent(0, 10), APART],
            (40, 50),
            Repeat.NEVER,
            [extent(0, 10), extent(40, 50), APART],
            [],
            [(40, 50)],
            id="before what is apart",
        ),
        pytest.param(
            [extent(0, 10), APART],
            (60, 70),
            Repeat.NEVER,
            [extent(0, 10), APART, extent(60, 70)],
            [],
            [(60, 70)],
            id="behind what is apart",
        ),
        pytest.param(
            [extent(0, 10), APART],
            (55, 70),
            Repeat.NEVER,
            [extent(0, 10), Extent(50, 55, UNKNOWN), extent(55, 70)],
            [Extent(55, 60, None, ((60, UNKNOWN),))],
            [(55, 70)],
            id="over the end of what is apart",
        ),
        pytest.param(
            [extent(0, 10), Extent(50, 60, UNKNOWN, ((55, UNKNOWN), (60, UNKNOWN)))],
            (55, 70),
            Repeat.NEVER,
            [extent(0, 10), Extent(50, 55, UNKNOWN, ((55, UNKNOWN),)), extent(55, 70)],
            [Extent(55, 60, UNKNOWN, ((60, UNKNOWN),))],
            [(55, 70)],
            id="behind a checksum that is another one",
        ),
        pytest.param(
            [extent(0, 10), Extent(50, 60, UNKNOWN, ((52, UNKNOWN),))],
            (55, 70),
            Repeat.NEVER,
            [extent(0, 10), Extent(50, 55, UNKNOWN, ((52, UNKNOWN),)), extent(55, 70)],
            [],
            [(55, 70)],
            id="nothing is set aside that any batch would continue",
        ),
        pytest.param(
            [extent(0, 10), extent(50, 60)],
            (55, 65),
            Repeat.MARKED,
            [extent(0, 10), extent(50, 65, 55, 60)],
            [],
            [(60, 65)],
            id="more than came before",
        ),
        pytest.param(
            [extent(0, 10), extent(50, 65, 55, 60)],
            (55, 58),
            Repeat.MARKED,
            [extent(0, 10), extent(50, 65, 55, 60)],
            [],
            [],
            id="in other pieces",
        ),
        pytest.param(
            [extent(0, 10), Extent(50, 60)],
            (50, 65),
            Repeat.MARKED,
            [extent(0, 10), extent(50, 65)],
            [],
            [(60, 65)],
            id="with the checksums that were not sent before",
        ),
        pytest.param(
            [Extent(0, 20, NOTHING, ((10, at(10)),))],
            (5, 20),
            Repeat.NEVER,
            [Extent(0, 20, NOTHING, ((10, at(10)),))],
            [],
            [],
            id="to the same end, whose checksum is not kept",
        ),
    ],
)
def test_a_batch_finds_its_place(
    known: list[Extent],
    span: tuple[int, int],
    repeat: Repeat,
    extents: list[Extent],
    asides: list[Extent],
    new: list[tuple[int, int]],
) -> None:
    """What lies apart counts for nothing against what the shipper sends, but is kept as written."""
    start, end = span
    taken = take(
        GenerationState(NAME, extents=tuple(known)),
        batch(TRUTH[start:end], start, at(start)),
        repeat=repeat,
        sums=at,
    )

    assert taken is not None
    assert list(taken.known.extents) == extents
    assert list(taken.known.asides) == asides
    assert list(taken.new) == new
    assert taken.contradicted == sum(each.end - each.start for each in asides)


def test_what_was_set_aside_comes_back_when_the_shipper_goes_on_behind_it() -> None:
    """And what was written in its place is set aside."""
    forged = Extent(40, 60, at(40), ((60, UNKNOWN),))
    both = Extent(0, 60, NOTHING, ((40, at(40)), (60, UNKNOWN)))
    known = GenerationState(NAME, extents=(both,), asides=(extent(40, 50),))

    taken = take(known, batch(TRUTH[50:70], 50, at(50)), repeat=Repeat.NEVER, sums=at)

    assert taken is not None
    assert taken.known.extents == (extent(0, 70, 40, 50),)
    assert taken.known.asides == (forged,)
    assert (taken.new, taken.contradicted) == (((50, 70),), 10)


def test_extents_that_lie_apart_share_the_limit_of_checksums() -> None:
    """Each has its part of it."""
    known = GenerationState(
        NAME, extents=tuple(Extent(start, start + 1, at(start)) for start in (20, 30, 40, 50))
    )
    sums = [NOTHING]
    for number in range(MARKS_APART_MAX):
        sums.append(extend(sums[-1], b"x"))
        each = batch(b"x", 60 + number, sums[-2])
        taken = take(known, each, repeat=Repeat.NEVER, sums=None)
        assert taken is not None
        known = taken.known

    assert len(known.extents[-1].marks) == MARKS_APART_MAX // 5
