"""The redo log of a receiver: what a crash leaves is read, and what it cannot leave is told."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline_cli.receiving.redo import (
    REDO,
    Place,
    Record,
    SpoolBroken,
    Write,
    encode,
    framed,
    records_of,
)
from logpipeline_cli.receiving.spool import Spool

FIRST = Record((Write("a.log", 0, b"x\n"),), None)
PLACE = Place("0123abcd")


def log_of_three(folder: Path) -> bytes:
    """Return a redo log of three records, as a crash leaves it."""
    opened = Spool(folder)
    opened.commit({"a.log": b"one\n"}, 1)
    opened.commit({"a.log": b"two\n", "b.log": b"three\n"}, 2)
    opened._close_files()
    return (folder / REDO).read_bytes()


@pytest.mark.parametrize("flip", [1, 0x40, 0xFF])
def test_a_damaged_byte_takes_no_record_before_the_last(tmp_path: Path, flip: int) -> None:
    """Wherever it is, in a head as well: what was accepted is there, or it is told."""
    raw = log_of_three(tmp_path)
    whole = list(records_of(raw))
    assert [record.state for record in whole] == [None, 1, 2]
    for at in range(len(raw)):
        damaged = raw[:at] + bytes([raw[at] ^ flip]) + raw[at + 1 :]
        try:
            found = list(records_of(damaged))
        except SpoolBroken:
            continue
        assert found in (whole[:2], whole), f"byte {at} of {len(raw)}"


def test_a_last_record_that_a_crash_tore_is_left_out(tmp_path: Path) -> None:
    """It ends anywhere, or parts of it are zeros, its head among them."""
    raw = log_of_three(tmp_path)
    whole = list(records_of(raw))
    begin = raw.rindex(b"redo ")
    for at in range(begin, len(raw)):
        rest = bytes(len(raw) - at)
        for torn in (raw[:at], raw[:at] + rest, raw[:begin] + bytes(at - begin) + raw[at:]):
            assert list(records_of(torn)) in (whole[:2], whole)


def test_lines_that_look_like_a_record_are_lines() -> None:
    """A sender does not know the log's name; one that a crash tore is torn all the same."""
    forged = encode(FIRST, PLACE._replace(log="f" * 8, number=9))
    last = encode(Record((Write("a.log", 0, forged + b"\n"),), 1), PLACE.next)
    raw = encode(FIRST, PLACE) + last[:-1]

    assert list(records_of(raw)) == [FIRST]


def test_a_record_of_another_log_is_none() -> None:
    """Nor is one with another number."""
    for place in (Place("f" * 8, 1), PLACE, PLACE.next.next):
        raw = encode(FIRST, PLACE) + encode(FIRST, place)
        try:
            assert list(records_of(raw)) == [FIRST]
        except SpoolBroken:
            assert place == PLACE.next.next


@given(st.binary(max_size=200))
def test_any_redo_log_is_read_or_refused(raw: bytes) -> None:
    """By the error that says what to do; a torn record is left out."""
    try:
        records = list(records_of(encode(FIRST, PLACE) + raw))
    except SpoolBroken:
        return
    assert records[0] == FIRST


def test_a_log_that_begins_with_something_else_is_told() -> None:
    """It was synced before it got its name."""
    for raw in (b"\0" * 10, encode(FIRST, PLACE)[1:], encode(FIRST, PLACE.next)):
        with pytest.raises(SpoolBroken, match="move it out"):
            list(records_of(raw))
    assert list(records_of(b"")) == []


@pytest.mark.parametrize("meta", [b"[]", b"{}", b'{"writes":[["a",0,9]],"state":1}'])
def test_a_record_of_another_version_is_told(meta: bytes) -> None:
    """It is whole, and says something else."""
    with pytest.raises(SpoolBroken, match="move it out"):
        list(records_of(framed(meta + b"\nx\n", PLACE)))


def test_a_log_of_a_former_version_is_read() -> None:
    """Its heads had no checksum of their own."""
    body = b'{"writes":[["a.log",0,2]],"state":null}\nx\n'
    former = f"{zlib.crc32(body):08x} {len(body)}\n".encode() + body

    assert list(records_of(former + former[:-1])) == [FIRST]
    with pytest.raises(SpoolBroken, match="move it out"):
        list(records_of(former.replace(b"x", b"y") + former))
