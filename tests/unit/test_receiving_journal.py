"""What journalctl prints, in any pieces: entries with their positions, within the limit."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.observe.metrics import Metrics
from logpipeline_cli.receiving import journal
from logpipeline_cli.receiving.journal import Journal, JournalConfig
from logpipeline_cli.receiving.journal_entries import (
    SEQUENCES_MAX,
    Entry,
    EntryReader,
    Jump,
    Numbers,
    text_line,
)


def printed(message: str, cursor: str) -> bytes:
    """Return an entry as journalctl prints it; its fields come in any order."""
    return json.dumps({"MESSAGE": message, "__CURSOR": cursor}).encode()


def read(data: bytes, size: int, bytes_max: int) -> list[Entry]:
    """Return the entries of *data*, which comes in pieces of *size*."""
    reader = EntryReader(bytes_max)
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return [entry for piece in pieces for entry in reader.feed(piece)]


@given(st.lists(st.text(max_size=30), max_size=5), st.integers(1, 50))
def test_entries_are_whole_however_they_arrive(messages: list[str], size: int) -> None:
    """A message that looks like a position is a message."""
    lines = [printed(f'{text}"__CURSOR":"x"', f"c{at}") for at, text in enumerate(messages)]

    found = read(b"".join(line + b"\n" for line in lines) + b'{"__CURSOR":"torn', size, 10_000)
    assert found == [Entry(line + b"\n", f"c{at}") for at, line in enumerate(lines)]


@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_long_entry_becomes_a_line_with_its_position(size: int, is_first: bool) -> None:
    """Wherever the position stands in it; the next entry is whole."""
    parts = [b'"__CURSOR":"c1"', b'"MESSAGE":"%b"' % (b"x" * 9000)]
    long = b"{%b}" % b",".join(parts if is_first else parts[::-1])

    first, second = read(long + b"\n" + printed("next", "c2") + b"\n", size, 3000)
    assert (first.cursor, first.cut_bytes) == ("c1", len(long))
    assert json.loads(first.line) == {"__CURSOR": "c1", "cut_bytes": len(long)}
    assert second == Entry(printed("next", "c2") + b"\n", "c2")


@given(st.binary(max_size=300))
def test_any_bytes_are_entries_or_none(data: bytes) -> None:
    """And each line of text is one line."""
    for entry in read(data + b"\n", 50, 100):
        assert entry.line.count(b"\n") == 1
    assert text_line(data.replace(b"\n", b"") + b"\n").count(b"\n") == 1


@pytest.mark.parametrize(
    ("message", "wanted"),
    [("a\nb", b"a#012b"), ([255, 10], b"\xff#012"), (["a", "b"], b"a#012b")],
)
def test_a_line_of_text_shows_what_journalctl_shows(message: object, wanted: bytes) -> None:
    """A message that is no text is a list of numbers; a repeated field is a list of values."""
    fields = {
        "MESSAGE": message, "__REALTIME_TIMESTAMP": "1790000000000001", "_HOSTNAME": "h",
        "SYSLOG_IDENTIFIER": "app", "_PID": "7",
    }  # fmt: skip

    head = b"2026-09-21T14:13:20.000001+00:00 h app[7]: "
    assert text_line(json.dumps(fields).encode() + b"\n") == head + wanted + b"\n"


@pytest.mark.parametrize("line", [b"[]\n", b"{}\n", b'{"MESSAGE":null}\n', b"x\n"])
def test_an_entry_without_a_message_stays_as_it_is(line: bytes) -> None:
    """Nothing of it is lost."""
    assert text_line(line) == line


@dataclass
class Printing:
    """A journalctl that prints *data*, and notes how much of it is asked for at a time."""

    data: bytes
    sizes: list[int] = field(default_factory=list)

    @property
    def stdout(self) -> Printing:
        """Where it prints to."""
        return self

    async def read(self, size: int = -1) -> bytes:
        """Return the next bytes, all of them where no *size* is given."""
        self.sizes.append(size)
        end = size if size >= 0 else len(self.data)
        piece, self.data = self.data[:end], self.data[end:]
        return piece


@pytest.mark.parametrize(("cursor", "gaps"), [("c1", 0), ("gone", 1)])
async def test_a_look_at_the_position_holds_no_more_than_a_piece(
    monkeypatch: pytest.MonkeyPatch, cursor: str, gaps: int
) -> None:
    """The entry there may be a core dump of hundreds of MiB."""
    monkeypatch.setattr(journal, "READ_BYTES", 1000)
    process = Printing(printed("x" * 9000, "c1") + b"\n")

    @asynccontextmanager
    async def printing(*_: object) -> AsyncIterator[Printing]:
        yield process

    monkeypatch.setattr(Journal, "_journalctl", printing)
    metrics = Metrics("receiver")
    looking = Journal(JournalConfig(), metrics)
    looking._cursor = cursor

    assert await looking._start() == "--cursor=c1"
    assert metrics.value("journal_gaps_total") == gaps
    assert set(process.sizes) == {1000}


def cursor(number: int, sequence: int = 1) -> str:
    """Return a cursor as journalctl prints it."""
    return f"s={sequence:032x};i={number:x};b={1:032x};m=1;t=1;x=1"


def test_a_jump_of_the_numbers_is_seen() -> None:
    """With what is missing, and the entry before it in its sequence."""
    numbers = Numbers()
    shared = [(1, 1), (2, 1), (3, 2), (4, 2), (5, 1)]

    assert [numbers.note(cursor(*each)) for each in shared] == [None] * 5
    assert numbers.note(cursor(16)) == Jump(cursor(5), 10)
    assert numbers.note(cursor(16)) is None
    assert numbers.note(cursor(17)) is None
    assert numbers.note("c") is None
    assert numbers.note(cursor(2)) is None


def test_sequences_that_are_known_are_bounded() -> None:
    """Of many, those that were read last."""
    numbers = Numbers()
    for sequence in range(SEQUENCES_MAX + 2):
        numbers.note(cursor(1, sequence))

    assert len(numbers._last) == SEQUENCES_MAX
