"""What readers remember reads back as it was written, and nothing else is believed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.consuming.records import (
    BEGUN_MAX,
    Claim,
    ReadProgress,
    claim_key,
    position_of,
    position_text,
    reader_key,
)
from logpipeline.records import BadRecord, StreamPosition

POSITION = StreamPosition("2026-11-21T10:00:00.123456789Z", 17, 1_795_255_200_000_000_000)
PROGRESS = ReadProgress(POSITION, 20)
CLAIM = Claim(epoch=3, owner="web-1-42", incarnation="0123456789abcdef", progress=PROGRESS)


@pytest.mark.parametrize("progress", [PROGRESS, None])
@pytest.mark.parametrize("released", [True, False])
def test_a_claim_reads_back(progress: ReadProgress | None, released: bool) -> None:
    """With or without a position."""
    claim = Claim(epoch=1, owner="a", incarnation="b", released=released, progress=progress)

    assert Claim.decode(claim.encode()) == claim


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"null",
        b"[]",
        b"{}",
        CLAIM.encode()[:-1],
        CLAIM.encode().replace(b'"owner"', b'"other"'),
        CLAIM.encode().replace(b'"epoch":3,', b""),
        CLAIM.encode().replace(b'"sequence":17', b'"sequence_":17'),
        CLAIM.encode().replace(b'"working":20', b'"working":"many"'),
        b'{"progress":"x"}',
    ],
)
def test_what_is_no_claim_is_refused(value: bytes) -> None:
    """Cut short, of another kind, or with other fields."""
    with pytest.raises(BadRecord, match=r"no (claim|progress) of a reader"):
        Claim.decode(value)


@pytest.mark.parametrize("progress", [PROGRESS, ReadProgress(POSITION, 20, begun=2)])
def test_progress_reads_back(progress: ReadProgress) -> None:
    """Through JSON."""
    assert ReadProgress.of_json(json.loads(json.dumps(progress.as_json()))) == progress


@pytest.mark.parametrize(("stored", "begun"), [(-1, 0), (0, 0), (3, 3), (10**12, BEGUN_MAX)])
def test_how_often_a_batch_was_begun_stands_beside_what_former_versions_know(
    stored: int, begun: int
) -> None:
    """They read the rest, and leave it out; and it is bounded."""
    data = {**PROGRESS.as_json(), "begun": stored}

    assert ReadProgress.of_json(data) == ReadProgress(POSITION, 20, begun=begun)
    assert set(ReadProgress(POSITION, 20, begun=1).as_json()) - set(PROGRESS.as_json()) == {"begun"}


@pytest.mark.parametrize("data", [None, [], "x", {}, {"position": {}}, {"working": 1}])
def test_what_is_no_progress_is_refused(data: Any) -> None:
    """Whatever JSON it is."""
    with pytest.raises(BadRecord, match="no progress of a reader"):
        ReadProgress.of_json(data)


@given(st.integers(min_value=0), st.integers(min_value=0))
def test_a_position_reads_back(sequence: int, time_ns: int) -> None:
    """As one short text."""
    position = StreamPosition(POSITION.created, sequence, time_ns)

    assert position_of(position_text(position)) == position


@pytest.mark.parametrize("text", ["", "17", "17 1", "a 1 c", "1 b c", "1 2 3 4", None, 17])
def test_what_is_no_position_is_refused(text: Any) -> None:
    """A number alone is none: it could be of any stream."""
    with pytest.raises(BadRecord, match="no position of a reader"):
        position_of(text)


def test_keys_tell_consumers_apart() -> None:
    """No claim of one is a member of another."""
    assert claim_key("billing", 2) == "consume.billing.p2"
    assert reader_key("billing", "p2") == "consume.billing.member.p2"


def test_a_claim_is_stored_as_ever() -> None:
    """Members of two versions share a consumer during an update."""
    assert CLAIM.encode() == (
        b'{"epoch":3,"owner":"web-1-42","incarnation":"0123456789abcdef","released":false,'
        b'"progress":{"position":{"created":"2026-11-21T10:00:00.123456789Z","sequence":17,'
        b'"time_ns":1795255200000000000},"working":20}}'
    )
