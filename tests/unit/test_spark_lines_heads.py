"""What a runtime wrote before a line's text, by arithmetic on many lines at a time: the same as
plain Python says of each line.
"""

from __future__ import annotations

import numpy as np
import pytest

from logpipeline import cri
from logpipeline_spark.lines.crilines import (
    NO_FD,
    STDERR,
    STDOUT,
    CriColumns,
    parse_other,
    parse_usual,
)
from logpipeline_spark.lines.layout import PADDING

ZONES = ("Z", "+01:00", "-07:30")
NANOSECONDS = "123456789"


def columns_of(lines: list[bytes], *, are_cri: bool = True) -> tuple[CriColumns, CriColumns]:
    """Return the columns of *lines* after the fast pass, and after both; texts count from the
    beginning of the line.
    """
    buffer = np.frombuffer(b"".join(line + b"\n" for line in lines) + PADDING, np.uint8)
    sizes = np.array([len(line) + 1 for line in lines])
    ends = np.cumsum(sizes) - 1
    starts = ends - sizes + 1
    is_cri = np.full(len(lines), are_cri)
    found = parse_usual(buffer, starts, is_cri)
    fast = CriColumns(found.times.copy(), found.fds.copy(), found.texts - starts)
    parse_other(buffer, starts, ends, found, is_cri)
    return fast, CriColumns(found.times, found.fds, found.texts - starts)


def plain(line: bytes) -> tuple[int, int, int]:
    """Return the time, stream and beginning of the text of one line."""
    (found,) = cri.join(line + b"\n")
    time_us = cri.time_ns(found.time) // 1000 if found.stream else 0
    fd = {b"": NO_FD, b"stdout": STDOUT, b"stderr": STDERR}[found.stream]
    return time_us, fd, len(line) - len(found.text)


def rows(columns: CriColumns) -> list[tuple[int, int, int]]:
    """Return *columns* as rows."""
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("decimals", range(1, 10))
def test_each_usual_form_needs_one_pass(decimals: int, zone: str) -> None:
    """All decimals and zones that runtimes write, both streams, with and without a text; none is
    left to the slow way.
    """
    heads = [
        f"2026-{month:02}-28T23:{minute:02}:59.{NANOSECONDS[:decimals]}{zone}"
        for month in (2, 12)
        for minute in (0, 59)
    ]
    rests = (" stdout F x", " stderr F two words", " stdout F ", " stderr F")
    lines = [f"{head}{rest}".encode() for head in heads for rest in rests]

    fast, _ = columns_of(lines)
    assert rows(fast) == [plain(line) for line in lines]
    assert NO_FD not in fast.fds
    assert 0 not in fast.times


@pytest.mark.parametrize("head", ["12Z", "123456789Z", "123456+05:30", "123456789-07:00"])
def test_no_changed_byte_makes_another_line(head: str) -> None:
    """Each byte of a head, changed to each other one: also beside usual lines in the same pass."""
    usual = f"2026-11-21T10:00:59.{head} stdout F text".encode()
    lines = [
        usual[:place] + bytes([byte]) + usual[place + 1 :]
        for place in range(len(usual) - len("text"))
        for byte in range(256)
        if byte != ord("\n")
    ]

    _, both = columns_of(lines)
    assert rows(both) == [plain(line) for line in lines]


def test_lines_of_many_forms_stand_beside_each_other() -> None:
    """More lines than are parsed at once, of all forms in turn."""
    heads = [
        f"2026-11-{1 + number % 30:02}T{number % 24:02}:{number % 60:02}:{number % 61:02}."
        f"{NANOSECONDS[: 1 + number % 9]}{ZONES[number % 3]}"
        for number in range(40_000)
    ]
    lines = [f"{head} std{'err' if len(head) % 2 else 'out'} F x".encode() for head in heads]

    fast, both = columns_of(lines)
    assert rows(both) == [plain(line) for line in lines]
    # Second 60 is the slow way's.
    assert np.count_nonzero(fast.fds == NO_FD) == len(range(60, len(lines), 61))


def test_lines_of_other_formats_are_left_alone() -> None:
    """A plain line may look like one of a runtime."""
    _, both = columns_of([b"2026-11-21T10:00:59.1Z stdout F text"], are_cri=False)

    assert rows(both) == [(0, NO_FD, 0)]
