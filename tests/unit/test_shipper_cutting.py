"""A chunk that is taken apart loses nothing, and lines stay whole where they can."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from logpipeline.checksum import NOTHING, Checksum, extend
from logpipeline.redaction import Redactor
from logpipeline.wire import Checksums
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
