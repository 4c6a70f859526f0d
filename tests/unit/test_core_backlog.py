"""The question who is behind, and the answers: those that are well say nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.backlog import (
    ANSWER_BYTES_MAX,
    HOSTS_NAMED_MAX,
    PROBLEM_CHARS_MAX,
    ShipperBacklog,
    asked,
    backlog_of,
    decode,
    question,
)
from logpipeline.subjects import HOST_CHARS_MAX

LATE = {"node-1": (8192, 301.0)}


def test_shipper_that_is_level_does_not_answer() -> None:
    """Neither an empty backlog nor a burst of seconds is worth a message."""
    assert (
        backlog_of("shipper", None, {"node-1": (0, 900.0), "node-2": (10**9, 5.0)}, 300.0) is None
    )


def test_shipper_that_is_behind_says_which_hosts() -> None:
    """With bytes and seconds; one with a problem says that in its own words."""
    late = backlog_of("shipper", None, {**LATE, "node-2": (1, 1.0)}, 300.0)
    ill = backlog_of("shipper", "positions cannot be saved: disk full", {}, 300.0)

    assert late == ShipperBacklog("shipper", "", LATE)
    assert ill is not None
    assert "disk full" in ill.problem


def test_question_and_answer_survive_the_way() -> None:
    """What is sent is what is read."""
    answer = ShipperBacklog("shipper", "slow", {"node-1": (8192, 301)})

    assert asked(question(300.0)) == 300.0
    assert decode(answer.encode()) == answer


def test_answer_is_bounded() -> None:
    """A shipper of many hosts names those that are furthest behind."""
    hosts = {f"host-{number}": (1, float(number)) for number in range(HOSTS_NAMED_MAX + 5)}
    answer = decode(ShipperBacklog("shipper", "x" * 10_000, hosts).encode())

    assert answer is not None
    assert len(answer.hosts) == HOSTS_NAMED_MAX
    assert "host-0" not in answer.hosts
    assert len(answer.problem) < 1000


def test_answer_that_no_shipper_sends_is_none() -> None:
    """One with the longest names and problem is read; a longer one is not even parsed."""
    hosts = {f"{number:0{HOST_CHARS_MAX}}": (10**15, 10.0**8) for number in range(HOSTS_NAMED_MAX)}
    longest = ShipperBacklog("x" * HOST_CHARS_MAX, "\N{GRINNING FACE}" * PROBLEM_CHARS_MAX, hosts)

    assert decode(longest.encode()) is not None
    assert decode(ShipperBacklog("x" * ANSWER_BYTES_MAX, "slow", LATE).encode()) is None


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b'{"behind_s": true}', b"\xff"])
def test_other_messages_are_the_question_of_old(data: bytes) -> None:
    """Who asks how a shipper is without these words gets all of it."""
    assert asked(data) is None


@given(st.binary() | st.text().map(lambda text: f'{{"behind": {text}}}'.encode()))
def test_garbage_is_no_answer(data: bytes) -> None:
    """Anyone with the right to publish may answer anything."""
    assert decode(data) is None or isinstance(decode(data), ShipperBacklog)
