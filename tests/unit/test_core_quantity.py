"""Sizes and time spans, as users of Kubernetes write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.quantity import (
    BYTES_MAX,
    DURATION_NS_MAX,
    QuantityError,
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration,
)

SECOND = 1_000_000_000
HOUR = 3600 * SECOND


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (1234, 1234), (0, 0), ("1234", 1234), ("0", 0), ("1k", 1000), ("64Ki", 65_536),
        ("500M", 500_000_000), ("10Gi", 10 * 2**30), ("1.5Gi", 3 * 2**29), ("2T", 2 * 10**12),
        ("0.5Ki", 512), ("1P", 10**15), ("4096Pi", BYTES_MAX),
        ("0.1Ki", 102),
    ],
)  # fmt: skip
def test_a_size_is_a_number_of_bytes(text: str | int, count: int) -> None:
    """Powers of ten without i, powers of two with it; a fraction of a byte is dropped."""
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    ("text", "span_ns"),
    [
        ("24h", 24 * HOUR), ("1d", 24 * HOUR), ("1h30m", 90 * 60 * SECOND), ("2w", 336 * HOUR),
        ("200ms", SECOND // 5), ("1.5s", 3 * SECOND // 2), ("5us", 5000), ("7ns", 7), ("0s", 0),
        ("1w2d3h4m5s6ms7us8ns", 788_645_006_007_008),
    ],
)  # fmt: skip
def test_a_time_span_is_a_number_of_nanoseconds(text: str, span_ns: int) -> None:
    """Days and weeks as well, which Go does not know."""
    assert parse_duration(text) == span_ns


@pytest.mark.parametrize(
    "value",
    ["10GB", "10gi", "ten", "", " 1Gi", "1Gi\n", "-1", -1, True, None, 1.5, "1e3", "1.", "٣",
     "5000Pi", "1" * 33, 2**62 + 1, []],
)  # fmt: skip
def test_what_is_no_size_is_refused(value: object) -> None:
    """Nothing is guessed: a wrong unit could mean a thousandth, or a thousand times, as much."""
    with pytest.raises(QuantityError, match=r"expected (a size such as 10Gi, 500M|at most 4096Pi)"):
        parse_bytes(value)


@pytest.mark.parametrize(
    "value",
    ["24", 24, "1D", "", "1h 30m", "1h\n", "-1h", "30m1h", "1h1h", "1y", None, True, "15251w",
     "1" * 40 + "s", "h"],
)  # fmt: skip
def test_what_is_no_time_span_is_refused(value: object) -> None:
    """A number needs its unit, and each unit stands once, the largest first."""
    with pytest.raises(
        QuantityError, match=r"expected (a time span with its unit, such as 24h|at )"
    ):
        parse_duration(value)


def test_a_refusal_quotes_no_control_characters() -> None:
    """What stands in a file cannot write on a terminal by way of an error."""
    with pytest.raises(QuantityError) as error:
        parse_bytes("\x1b[31m10GB")

    assert "\x1b" not in str(error.value)
    assert "10GB" in str(error.value)


@given(st.integers(0, BYTES_MAX))
def test_a_size_survives_being_written(count: int) -> None:
    """Whatever is dumped is read as the same number."""
    assert parse_bytes(format_bytes(count)) == count


@given(st.integers(0, DURATION_NS_MAX))
def test_a_time_span_survives_being_written(span_ns: int) -> None:
    """Whatever is dumped is read as the same time."""
    assert parse_duration(format_duration(span_ns)) == span_ns


def test_values_are_written_in_the_largest_whole_unit() -> None:
    """People read 10Gi and 24h faster than their numbers."""
    assert [format_bytes(n) for n in (10 * 2**30, 1500, 0)] == ["10Gi", "1500", "0"]
    assert [format_duration(n) for n in (24 * HOUR, 90 * SECOND, 0)] == ["1d", "90s", "0s"]
