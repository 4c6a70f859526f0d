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
    """Also where others are there a nanosecond later, before or behind them."""
    batch = batch_of([message(1, cri(0, 0, 1), form="cri"), message(2, cri(0, 1, 9), form="cri")])

    found = [entry.time_ns - T for entry in loki.entries(batch, {})]
    assert found == [0, 1, 2, 3, 4, 9]


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
