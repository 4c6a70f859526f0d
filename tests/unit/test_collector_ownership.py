"""A partition is taken when its owner is gone, and never from one that is alive."""

from __future__ import annotations

from dataclasses import replace

from logpipeline.records import EpochRecord, StreamPosition
from logpipeline_collector.takeover import claim

RECORD = EpochRecord(
    epoch=4,
    owner="collector-1",
    incarnation="there-1",
    assignment=7,
    position=StreamPosition("monday", 9, 9),
)


def test_nobodys_partition_is_free() -> None:
    """There is no record."""
    assert is_free(None)


def test_a_released_partition_is_free_at_once() -> None:
    """Its owner has said so."""
    assert is_free(replace(RECORD, released=True), silent_s=0)


def test_a_living_owner_keeps_its_partition() -> None:
    """It was heard a moment ago, and will release it."""
    assert not is_free(RECORD, silent_s=9.9)


def test_a_silent_owner_loses_its_partition() -> None:
    """It was silent for as long as was agreed."""
    assert is_free(RECORD, silent_s=10.0)


def test_a_predecessor_in_our_folder_is_gone() -> None:
    """We hold the locks that it would hold."""
    assert is_free(RECORD, is_our_folder=True)


def test_an_older_assignment_takes_nothing() -> None:
    """Somebody has read a newer one, in which the partition may be another's."""
    assert not is_free(replace(RECORD, released=True), generation=6)
    assert not is_free(RECORD, generation=6, is_our_folder=True)


def is_free(
    record: EpochRecord | None,
    *,
    generation: int = 7,
    is_our_folder: bool = False,
    silent_s: float = 0.0,
) -> bool:
    return claim(
        record,
        generation=generation,
        is_our_folder=is_our_folder,
        owner_silent_s=silent_s,
        takeover_after_s=10.0,
    ).is_free
