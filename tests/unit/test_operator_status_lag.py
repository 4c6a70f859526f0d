"""The lag is told in few words that change seldom: each change is a write of the resource."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.status_facts import partition
from logpipeline_operator.status.text import age_text, bytes_text, lag_text

MIB = 2**20
FRESH = "< 10 s"


def lag(size: int, age_s: float, previous: str = "") -> str:
    """The lag of two partitions of which one is behind."""
    behind = partition(1, lag_messages=1, lag_bytes=size, lag_s=age_s)
    return lag_text([partition(0), behind], previous)


@pytest.mark.parametrize(
    ("age_s", "text"),
    [(0, FRESH), (9.9, FRESH), (10, "10 s"), (59, "30 s"), (90, "1 min"), (4000, "1 h"),
     (90_000, "1 d"), (1e9, "30 d")],
)  # fmt: skip
def test_ages(age_s: float, text: str) -> None:
    """An age is rounded down to what people say."""
    assert age_text(age_s) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "1 KiB"), (3000, "2 KiB"), (700 * 1024, "500 KiB"), (12 * MIB, "10 MiB"),
     (1023 * MIB, "500 MiB"), (2**30, "1 GiB"), (2**62, "500 PiB")],
)  # fmt: skip
def test_sizes(size: int, text: str) -> None:
    """A size has one digit that counts."""
    assert bytes_text(size) == text


def test_idle_and_steady_pipelines_look_the_same() -> None:
    """Whether the last lines were committed a moment ago or are about to be is no news."""
    assert lag(0, 0.0) == lag(50 * MIB, 4.0) == FRESH


def test_a_pipeline_that_is_behind_says_how_far() -> None:
    """Bytes of all partitions together, and the age of the oldest line."""
    assert lag(12 * MIB, 45.0) == "10 MiB, 30 s"


def test_what_was_not_looked_at_is_unknown() -> None:
    """Nothing known is not the same as nothing to do."""
    assert lag_text([]) == "unknown"


def test_a_lag_at_a_border_does_not_flicker() -> None:
    """Back and forth over a border is written once."""
    previous = lag(10 * MIB, 30.0)
    written = set()
    for factor in (0.95, 1.02, 0.9, 1.1, 0.85):
        previous = lag(int(10 * MIB * factor), 30.0 * factor, previous)
        written.add(previous)

    assert written == {"10 MiB, 30 s"}


@given(st.integers(0, 2**62), st.floats(0, 1e9), st.integers(0, 2**62), st.floats(0, 1e9))
def test_a_kept_text_is_nearly_true(size: int, age_s: float, was: int, was_s: float) -> None:
    """What is kept fits the new value as well, but for the margin; and stays when said again."""
    text = lag(size, age_s, lag(was, was_s))
    near = {
        age_text(each) for each in (age_s / 1.3, age_s / 1.25, age_s, age_s * 1.25, age_s * 1.3)
    }

    assert text.rpartition(", ")[2] in near
    assert lag(size, age_s, text) == text


def test_a_growing_lag_is_written_a_few_times() -> None:
    """From nothing to a day behind is some twenty writes, not a write with each look."""
    previous, writes = "", 0
    for age_s in range(0, 86_400, 30):
        text = lag(age_s * MIB, float(age_s), previous)
        writes += text != previous
        previous = text

    assert writes < 45
