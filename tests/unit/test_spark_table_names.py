"""Names of files say which range they hold, and come back from their text as they were."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.nats.jetstream import rfc3339_of
from logpipeline_spark.source.offsets import Position
from logpipeline_spark.table.files import (
    BadName,
    FileName,
    compacted_name,
    end_of,
    escaped,
    hour_folder,
    hour_of,
    is_ours,
)

STREAMS = st.text(
    st.characters(blacklist_characters=" .*>/\\\t\r\n\0", blacklist_categories=["Cs"]), min_size=1
)
SEQUENCES = st.integers(1, 2**63 - 1)
NUMBERS = st.tuples(*[st.integers(0, 1000)] * 3)


def test_a_name_is_the_documented_one() -> None:
    """Tables that are there are read for years, so a name never changes."""
    created = rfc3339_of(0x18A1F3C2D4E5F607)
    incarnation = Position(created=created, rollbacks=0, sequence=1, time_ns=0, after=0).incarnation

    assert (
        str(FileName("LOGS_0", incarnation, 1, 52000, 7))
        == "LOGS_0.18a1f3c2d4e5f607r0-1-52000.w7.parquet"
    )
    assert str(FileName("LOGS_0", "1r2", 3, 3, 7, "resent")) == "LOGS_0.1r2-3-3.w7.resent.parquet"
    many = FileName("LOGS_0", "1r2", 3, 3, 7, "resent", more=9, part=1)
    assert str(many) == "LOGS_0.1r2-3-3.w7.and9.part1.resent.parquet"
    again = FileName("LOGS_0", "1r2", 3, 3, 7, attempt=2)
    assert str(again) == "LOGS_0.1r2-3-3.w7.try2.parquet"


@given(STREAMS, SEQUENCES, SEQUENCES, SEQUENCES, st.sampled_from(["", "resent"]), NUMBERS)
def test_a_name_comes_back(
    stream: str, one: int, other: int, writer: int, kind: str, numbers: tuple[int, int, int]
) -> None:
    """Whatever a stream is called, its name is read back, and is one that readers do not skip."""
    first, last = min(one, other), max(one, other)
    name = FileName(stream, "18ar0", first, last, writer, kind, *numbers)

    assert FileName.parse(str(name)) == name
    assert is_ours(str(name))
    assert str(name)[0] not in "._-"
    assert str(name).isascii()


@given(STREAMS, STREAMS)
def test_two_streams_share_no_name(one: str, other: str) -> None:
    """Escaping is injective."""
    assert (escaped(one) == escaped(other)) == (one == other)


@pytest.mark.parametrize(
    "name",
    [
        "part-0000.parquet",
        "LOGS.1r0-2-1.w1.parquet",
        "LOGS.1r0-0-1.w1.parquet",
        "LOGS.1r0-1-2.w1.csv",
        "",
    ],
)
def test_a_strangers_name_is_refused(name: str) -> None:
    """What is not ours is never taken for a range."""
    with pytest.raises(BadName):
        FileName.parse(name)


def test_hours_have_folders_that_readers_know() -> None:
    """Folders are Hive's, in UTC; the end of a folder says when nothing more is due for it."""
    hour = datetime(2026, 11, 21, 10, tzinfo=UTC)

    assert hour_folder(hour) == "lines/dt=2026-11-21/hour=10"
    assert hour_of(hour_folder(hour)) == hour
    assert end_of(hour_folder(hour)).hour == 11
    assert hour_folder(hour, "rollup/minute") == "rollup/minute/dt=2026-11-21"
    assert end_of("rollup/minute/dt=2026-11-21").day == 22
    with pytest.raises(BadName):
        hour_of("lines/dt=2026-13-41/hour=99")


def test_compacted_files_are_ours() -> None:
    """A start may remove what a compaction left, and nothing of others."""
    assert is_ours(compacted_name(number="0" * 32, part=0))
    assert not is_ours("compacted.parquet")
