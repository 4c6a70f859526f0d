"""Lines that are too long for a batch, and bytes that are sent once more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from components.log_chain import Folder, append, joined

TIME = b"2026-11-21T10:00:00.123456789Z"


def test_a_line_of_64_megabytes_arrives_whole(tmp_path: Path) -> None:
    """In adjoining pieces, of which only the last ends the line; it counts as one line."""
    line = b"x" * (64 << 20) + b"\n"
    folder = Folder(tmp_path, batch_bytes=512 * 1024, line_bytes=1_000_000)
    folder.live.write_bytes(b"before\n" + line + b"after\n")
    chunks = folder.read()

    assert joined(chunks) == b"before\n" + line + b"after\n"
    assert max(len(chunk.data) for chunk in chunks) == 1_000_000
    assert sum(chunk.lines for chunk in chunks) == 3
    assert [chunk.ends_inside_line for chunk in chunks[1:]] == [True] * 67 + [False]
    assert [chunk.starts_inside_line for chunk in chunks[1:]] == [False] + [True] * 67
    assert folder.chain.long_lines == 1


def test_a_long_line_may_be_written_slowly(tmp_path: Path) -> None:
    """Nothing of it is sent before it is complete, or too long to wait for."""
    folder = Folder(tmp_path, batch_bytes=100, line_bytes=1000)
    folder.live.write_bytes(b"")
    for _ in range(9):
        append(folder.live, b"x" * 100)
        assert folder.read() == []
    append(folder.live, b"y\nz\n")

    assert joined(folder.read()) == b"x" * 900 + b"y\nz\n"
    assert folder.chain.long_lines == 0


def test_a_line_longer_than_a_batch_is_one_line_in_a_file_that_ended_too(tmp_path: Path) -> None:
    """It was rotated before it was read: the end of what is read at once is no end of a line."""
    folder = Folder(tmp_path, batch_bytes=100, line_bytes=1000)
    folder.live.write_bytes(b"x" * 550 + b"\ny\n")
    folder.live.rename(f"{folder.live}.1")
    folder.live.write_bytes(b"z\n")
    folder.look()
    folder.now_s += folder.limits.unfinished_s
    chunks = folder.drain()

    assert joined(chunks) == b"x" * 550 + b"\ny\nz\n"
    assert sum(chunk.lines for chunk in chunks) == 3
    assert not any(chunk.starts_inside_line or chunk.ends_inside_line for chunk in chunks)


def test_a_place_inside_a_line_survives_a_restart(tmp_path: Path) -> None:
    """The next piece still says that it begins inside a line."""
    folder = Folder(tmp_path, batch_bytes=100, line_bytes=100)
    folder.live.write_bytes(b"x" * 150 + b"\n")
    folder.look()
    piece = folder.chain.read(folder.now_s)
    assert piece is not None
    folder.chain.acknowledge(piece)
    (rest,) = Folder(tmp_path, saved=folder.chain.saved()).read()

    assert (rest.start, rest.starts_inside_line, rest.ends_inside_line) == (100, True, False)


def test_a_run_of_fragments_goes_on_in_the_next_file(tmp_path: Path) -> None:
    """A rotation between two fragments of a line does not make two lines of it."""
    folder = Folder(tmp_path, cri=True)
    folder.live.write_bytes(TIME + b" stdout P one, \n")
    assert folder.read() == []
    folder.live.rename(folder.path / "0.log.20261121-100000")
    folder.live.write_bytes(TIME + b" stdout F two\n" + TIME + b" stdout F three\n")
    first, second = folder.drain()

    assert (first.ends_inside_line, second.starts_inside_line) == (True, True)
    assert second.first_time_ns == second.last_time_ns > 0


def test_a_line_of_another_stream_is_no_continuation(tmp_path: Path) -> None:
    """Only the stream whose fragments were left open goes on."""
    folder = Folder(tmp_path, cri=True)
    folder.live.write_bytes(TIME + b" stdout P one, \n")
    folder.read()
    folder.live.rename(folder.path / "0.log.20261121-100000")
    folder.live.write_bytes(TIME + b" stderr F two\n")
    _, second = folder.drain()

    assert not second.starts_inside_line


def test_unacknowledged_bytes_are_read_again(tmp_path: Path) -> None:
    """In the same pieces, or what is left of one of which a part has arrived."""
    folder = Folder(tmp_path, batch_bytes=8)
    folder.live.write_bytes(b"one\ntwo\nthree\n")
    chain = folder.look()
    first, second = chain.read(folder.now_s), chain.read(folder.now_s)
    assert first is not None
    assert second is not None
    chain.acknowledge(replace(first, end=4, data=b"one\n"))
    chain.rewind()

    assert joined(folder.read()) == b"two\nthree\n"
