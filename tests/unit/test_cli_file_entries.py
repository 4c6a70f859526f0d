"""In which order files of several collectors are printed, and what travels between them and us."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline_cli.cluster.remote_agent import (
    Kind,
    StreamBroken,
    StreamCut,
    read_frame,
    write_frame,
)
from logpipeline_cli.file_entries import CLOCKS_APART_NS, Entry, mixed, turns


def entry(member: str, place: str, begun_ns: int, ended_ns: int | None = None) -> Entry:
    """A file of *member*."""
    return Entry(
        member=member, partition=0, place=place, begun_ns=begun_ns,
        ended_ns=begun_ns if ended_ns is None else ended_ns, name=f"{place}.{begun_ns}", host="h",
        bytes=1, is_rotated=False, is_compressed=False, file=f"/data/logs/{place}",
    )  # fmt: skip


ENTRIES = st.lists(
    st.builds(
        entry,
        st.sampled_from(["c-0", "c-1", "c-2"]),
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 50),
    ),
    unique_by=lambda e: e.key,
)


@given(ENTRIES)
def test_turns_have_every_file_once_and_each_place_in_order(entries: list[Entry]) -> None:
    """However a host moved, each of its places is printed in the order of time."""
    made = list(turns(entries))
    printed = [file for turn in made for file in turn.entries]

    assert sorted(file.key for file in printed) == sorted(file.key for file in entries)
    assert all({file.member for file in turn.entries} == {turn.member} for turn in made)
    for place in {file.place for file in entries}:
        times = [file.begun_ns for file in printed if file.place == place]
        assert times == sorted(times)


def test_a_host_that_moved_once_is_printed_in_two_turns() -> None:
    """All of the former collector comes first, so that one stream after the other is enough."""
    places = [f"pod-{number}" for number in range(100)]
    files = [entry("c-1", place, 1) for place in places]
    files += [entry("c-0", place, 2) for place in places]

    assert [(turn.member, len(turn.entries)) for turn in turns(files)] == [
        ("c-1", 100),
        ("c-0", 100),
    ]


def test_a_file_that_was_gone_on_with_is_told() -> None:
    """Lines before and after another collector's, in one file, cannot be put in order."""
    second = 1_000_000_000
    former = entry("c-0", "a", 0, 30 * second)
    between = entry("c-1", "a", 10 * second, 20 * second)

    assert mixed([former, between]) == [(former, between)]
    assert mixed([entry("c-0", "a", 0, 9 * second), between]) == []
    assert mixed([entry("c-0", "a", 0, 10 * second + CLOCKS_APART_NS), between]) == []
    assert mixed([former, entry("c-1", "b", 10 * second)]) == []


def test_an_entry_comes_back_as_it_was_sent() -> None:
    """Also where a path is no plain text."""
    sent = entry("c-0", "h/\x1b[2J\u202e é", 7)

    assert Entry.decode(json.loads(sent.encode())) == sent


@given(st.lists(st.tuples(st.sampled_from(list(Kind)), st.binary(max_size=300))))
def test_frames_come_back_as_they_were_written(frames: list[tuple[Kind, bytes]]) -> None:
    """Whatever bytes a file has; and the end of the stream is told from the end of a file."""
    stream = io.BytesIO()
    for kind, data in frames:
        write_frame(stream, kind, data)
    stream.seek(0)

    assert [read_frame(stream) for _ in frames] == frames
    with pytest.raises(StreamCut):
        read_frame(stream)


@pytest.mark.parametrize("length", range(1, 8))
def test_a_frame_that_was_cut_is_none(length: int) -> None:
    """Half of a chunk is never taken for a whole one."""
    whole = io.BytesIO()
    write_frame(whole, Kind.DATA, b"abc")

    with pytest.raises(StreamCut):
        read_frame(io.BytesIO(whole.getvalue()[:length]))


@pytest.mark.parametrize("noise", [b"error: x", b"D\xff\xff\xff\xff"])
def test_a_stranger_in_the_stream_is_told(noise: bytes) -> None:
    """What is no frame is neither shown as a file nor taken into memory."""
    with pytest.raises(StreamBroken):
        read_frame(io.BytesIO(noise))
