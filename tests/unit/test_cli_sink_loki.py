"""Which times the lines have that Loki gets."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from components.sink_batches import batch_of, message
from logpipeline.consuming.message import Line
from logpipeline_cli.sinks import loki

T = 1_795_644_000_000_000_000  # 2026-11-25T22:00:00Z, in nanoseconds since 1970


def cri(*times_ns: int) -> bytes:
    """Return a container's log that says the same at each of these nanoseconds after `T`."""
    return b"".join(b"2026-11-25T22:00:00.%09dZ stdout F same\n" % each for each in times_ns)


def test_equal_lines_get_the_first_times_that_are_free() -> None:
    """Also where others are there a nanosecond later, and where the clock was set back."""
    hour_ns = 3_600 * 10**9
    batch = batch_of([message(1, cri(0, 0, 1, 9, 4, 9), form="cri")])

    found = [entry.time_ns - T for entry in loki.entries(batch, {})]
    assert found == [0, 1, 2, 9, 10, 11]
    back = b"2026-11-25T23:00:00.%09dZ stdout F same\n" % 0
    batch = batch_of([message(1, back + cri(0) + back + cri(0), form="cri")])
    found = [entry.time_ns - T for entry in loki.entries(batch, {})]
    assert found == [hour_ns, 0, hour_ns + 1, 1]


def test_equal_lines_of_two_messages_are_two() -> None:
    """By the line's name, which stays however the batch is cut."""
    both = [message(1, cri(0), form="cri"), message(2, cri(0), form="cri")]
    first, second = loki.entries(batch_of(both), {})

    assert first[:3] == second[:3]
    assert first.metadata["line_id"] != second.metadata["line_id"]
    assert loki.entries(batch_of(both[1:]), {}) == [second]


def test_lines_of_one_time_keep_their_order() -> None:
    """Loki knows none among entries of the same time: a plain file's lines have that of their
    message.
    """
    both = [message(1, b"one\ntwo\nthree\n"), message(2, b"four\nfive\n")]
    together = loki.entries(batch_of(both), {})
    alone = [entry for each in both for entry in loki.entries(batch_of([each]), {})]

    assert [entry.text for entry in together] == ["one", "two", "three", "four", "five"]
    times_ns = [entry.time_ns for entry in together]
    assert times_ns == sorted(set(times_ns))
    # A message has the same times however it comes again.
    assert times_ns == [entry.time_ns for entry in alone]


class Counted(tuple[tuple[str, str], ...]):
    """Labels that count how often they are looked up."""

    lookups = 0

    def __hash__(self) -> int:
        Counted.lookups += 1
        return super().__hash__()


def test_many_equal_lines_cost_no_more_than_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that says the same for ever would else hold up its batch for minutes."""

    def labels(line: Line, more: Mapping[str, str]) -> Counted:
        return Counted([("host", line.host)])

    monkeypatch.setattr(loki, "_labels", labels)
    monkeypatch.setattr(Counted, "lookups", 0)
    lines = 500

    assert len(loki.entries(batch_of([message(1, b"same\n" * lines)]), {})) == lines
    assert Counted.lookups <= 8 * lines
