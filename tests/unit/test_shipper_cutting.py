"""A chunk that is taken apart loses nothing, and lines stay whole where they can."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline import cri
from logpipeline.checksum import NOTHING, Checksum, extend
from logpipeline.redaction import Redactor
from logpipeline.wire import Checksums, Previous
from logpipeline_shipper.files.chain import Chunk
from logpipeline_shipper.files.chunk import InFile
from logpipeline_shipper.resend import halves, single_lines, split_at, within

TIME = b"2026-11-21T10:00:00.123456789Z"


def chunk_of(data: bytes, *, start: int = 0) -> Chunk:
    return Chunk(
        generation="0123456789abcdef",
        start=start,
        end=start + len(data),
        data=data,
        lines=data.count(b"\n"),
        first_time_ns=0,
        last_time_ns=0,
        previous=None,
        checksums=Checksums.around(data, NOTHING),
        starts_inside_line=False,
        ends_inside_line=False,
    )


def halved(chunk: Chunk, log_format: Literal["cri", "plain"]) -> tuple[Chunk, Chunk]:
    parts = halves(chunk, log_format)
    assert parts is not None
    return parts


@given(st.lists(st.binary(max_size=3000), min_size=1, max_size=8), st.integers(0, 1 << 40))
def test_halves_hold_every_byte_at_its_place(lines: list[bytes], start: int) -> None:
    """Both parts together are the chunk, and each knows its own range."""
    data = b"\n".join(lines) + b"\n"
    parts = halves(chunk_of(data, start=start), "plain")

    if parts is not None:
        first, second = parts
        assert first.data + second.data == data
        assert (first.start, second.end) == (start, start + len(data))
        assert first.end == second.start == start + len(first.data)


def test_halves_end_with_a_line() -> None:
    """Where there is a line's end, no line is cut."""
    first, second = halved(chunk_of(b"x" * 1500 + b"\n" + b"y" * 1500 + b"\n"), "plain")

    assert first.data.endswith(b"\n")
    assert not first.ends_inside_line
    assert (first.lines, second.lines) == (1, 1)


def test_a_line_too_large_alone_is_cut_and_says_so() -> None:
    """Both parts of a cut line are marked, and none of its bytes is missing."""
    first, second = halved(chunk_of(b"x" * 4000 + b"\n"), "plain")

    assert first.ends_inside_line
    assert second.starts_inside_line
    assert first.data + second.data == b"x" * 4000 + b"\n"


def test_what_is_small_is_not_cut_any_more() -> None:
    """A message that is refused at this size is not refused for its size."""
    assert halves(chunk_of(b"x" * 2000 + b"\n"), "plain") is None


def test_halves_keep_a_run_of_fragments_together() -> None:
    """A cut never falls between the fragments of a line."""
    line = TIME + b" stdout F " + b"a" * 900 + b"\n"
    run = TIME + b" stdout P " + b"b" * 900 + b"\n" + TIME + b" stdout F " + b"c" * 900 + b"\n"

    first, second = halved(chunk_of(line + run), "cri")

    assert (first.data, second.data) == (line, run)


def test_single_lines_are_lines_with_their_fragments() -> None:
    """Sent line by line, a run of fragments is one line."""
    run = TIME + b" stdout P b\n" + TIME + b" stdout F c\n"
    line = TIME + b" stderr F d\n"

    assert [line.data for line in single_lines(chunk_of(run + line + run), "cri")] == [
        run,
        line,
        run,
    ]


def test_a_part_knows_the_times_of_its_own_lines() -> None:
    """Readers choose files by time: the times of the whole would be wrong for a part."""
    early = b"2026-11-21T10:00:00Z stdout F a\n"
    late = b"2026-11-21T10:00:01Z stdout F b\n"

    first, second = split_at(chunk_of(early + late), len(early), "cri")

    assert second.first_time_ns - first.last_time_ns == 1_000_000_000


@given(st.data())
def test_a_part_between_two_offsets_fits_to_what_is_around_it(drawn: st.DataObject) -> None:
    """What is sent again covers exactly the hole, by the checksums of the whole."""
    data = b"one\ntwo\nthree\n"
    start = drawn.draw(st.integers(0, len(data) - 1))
    end = drawn.draw(st.integers(start + 1, len(data)))

    part = within(chunk_of(data), start, end, "plain")

    assert (part.start, part.end, part.data) == (start, end, data[start:end])
    assert part.checksums == Checksums.around(part.data, extend(NOTHING, data[:start]))
    assert part.starts_inside_line == (data[:start][-1:] not in (b"", b"\n"))
    assert part.ends_inside_line == (data[end - 1 : end] != b"\n")


CARDS = Redactor(["card"])


def redacted(data: bytes) -> Chunk:
    """A chunk of a file with *data*, as it is sent."""
    sent = CARDS.redact(data, "plain")
    return replace(
        chunk_of(sent),
        checksums=Checksums.around(sent, Checksum(7)),
        unredacted=InFile.around(data, Checksum(5)),
    )


@given(st.lists(st.sampled_from([b"pan 4111111111111111", b"none", b""]), min_size=2), st.data())
def test_parts_of_a_redacted_chunk_know_what_is_in_the_file(
    lines: list[bytes], drawn: st.DataObject
) -> None:
    """So that what is acknowledged in parts is known again after a restart, by its own bytes."""
    data = b"".join(line + b"\n" for line in lines)
    chunk = redacted(data)
    cut = drawn.draw(st.integers(1, len(data) - 1))

    for parts in (split_at(chunk, cut, "plain"), [*single_lines(chunk, "plain")]):
        assert b"".join(part.data for part in parts) == chunk.data
        assert b"".join(part.in_file.data for part in parts) == data
        for former, latter in pairwise(parts):
            assert former.checksums.after == latter.checksums.before
            assert former.in_file.checksums.after == latter.in_file.checksums.before
        ends = [(part.checksums, part.in_file.checksums) for part in (parts[0], parts[-1])]
        assert ends[0][0].before == 7
        assert ends[0][1].before == 5
        assert ends[1][0].after == chunk.checksums.after
        assert ends[1][1].after == chunk.in_file.checksums.after


def stamped(second: int, text: bytes, tag: bytes = b"F") -> bytes:
    """Return a CRI line of this second of 2026-11-21T10:00."""
    return b"2026-11-21T10:00:%02dZ stdout %s %s\n" % (second, tag, text)


TEN_S = cri.time_ns(stamped(0, b""))
PREVIOUS = Previous("f" * 16, 70)


def told(part: Chunk) -> tuple[int, int, int, bool, bool, bool, bool]:
    """Return what a part says of itself: its lines, the seconds of the first and of the last one,
    whether a generation was before it, whether its ends are inside of lines, and whether it begins.
    """
    seconds = [(time - TEN_S) // 1_000_000_000 for time in (part.first_time_ns, part.last_time_ns)]
    return (
        part.lines,
        seconds[0],
        seconds[1],
        part.previous is not None,
        part.starts_inside_line,
        part.ends_inside_line,
        part.begins,
    )


def whole(data: bytes, **changes: Any) -> Chunk:
    """Return a chunk with *data*, from second 1 to 9, that says all that a part may not say."""
    times = [TEN_S + second * 1_000_000_000 for second in (1, 9)]
    made = replace(chunk_of(data), first_time_ns=times[0], last_time_ns=times[1])
    return replace(made, previous=PREVIOUS, starts_inside_line=True, begins=True, **changes)


THREE = [stamped(second, b"x") for second in (1, 5, 9)]


def test_each_of_two_parts_says_what_is_true_of_it() -> None:
    """The second one has no generation before it, and nothing was left out before it."""
    data = b"".join(THREE)
    first, second = split_at(whole(data), len(THREE[0]), "cri")

    assert told(first) == (1, 1, 1, True, True, False, True)
    assert told(second) == (2, 5, 9, False, False, False, False)


def test_parts_of_a_line_count_it_both() -> None:
    """And the last one counts though nothing ends it."""
    data = b"one\ntwo\nend"
    first, second = split_at(whole(data, ends_inside_line=True), 6, "plain")

    assert told(first) == (2, 1, 1, True, True, True, True)
    assert told(second) == (2, 9, 9, False, True, True, False)


def test_each_of_single_lines_says_what_is_true_of_it() -> None:
    """The first and the last one have the ends of the whole."""
    lines = [*single_lines(whole(b"".join(THREE), ends_inside_line=True), "cri")]

    assert list(map(told, lines)) == [
        (1, 1, 1, True, True, False, True),
        (1, 5, 5, False, False, False, False),
        (1, 9, 9, False, False, True, False),
    ]
    assert [line.start for line in lines] == [0, len(THREE[0]), len(THREE[0] + THREE[1])]
    assert [line.end for line in lines] == [line.start + len(line.data) for line in lines]


def test_a_last_line_that_nothing_ends_is_one() -> None:
    """Plain lines have no times of their own, and get that of the first one."""
    assert [line.data for line in single_lines(chunk_of(b"\nx\n"), "plain")] == [b"\n", b"x\n"]
    lines = [*single_lines(whole(b"one\ntwo"), "plain")]

    assert [line.data for line in lines] == [b"one\n", b"two"]
    assert list(map(told, lines)) == [
        (1, 1, 1, True, True, False, True),
        (1, 1, 1, False, False, False, False),
    ]


def test_one_line_is_the_whole() -> None:
    """With all that it says of itself."""
    chunk = whole(THREE[0], ends_inside_line=True)

    assert [*single_lines(chunk, "cri")] == [chunk]


@pytest.mark.parametrize(
    ("data", "log_format", "cut"),
    [
        pytest.param(b"x" * 2047, "plain", None, id="too small"),
        pytest.param(b"x" * 2048, "plain", 1024, id="as small as can be"),
        pytest.param(b"a" * 899 + b"\n" + b"b" * 1199 + b"\n", "plain", 900, id="before the half"),
        pytest.param(b"a" * 1299 + b"\n" + b"b" * 799 + b"\n", "plain", 1300, id="behind the half"),
        pytest.param(b"abc" * 1000 + b"\n", "plain", 1500, id="one line"),
        pytest.param(
            stamped(1, b"a" * 800, b"P") + stamped(1, b"b" * 800, b"P") + stamped(1, b"c" * 800),
            "cri",
            len(stamped(1, b"a" * 800)),
            id="one run",
        ),
        pytest.param(
            stamped(1, b"a" * 2000, b"P") + stamped(1, b"b") + stamped(2, b"c") + stamped(3, b"d"),
            "cri",
            len(stamped(1, b"a" * 2000) + stamped(1, b"b")),
            id="a run over the half",
        ),
    ],
)
def test_halves_are_cut_where_it_costs_least(
    data: bytes, log_format: Literal["cri", "plain"], cut: int | None
) -> None:
    """Between lines, else between fragments, else anywhere."""
    parts = halves(chunk_of(data), log_format)

    assert (None if parts is None else len(parts[0].data)) == cut
