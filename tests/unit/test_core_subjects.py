"""Subjects are built and read in one place, and no host can step out of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.partition import partition_of
from logpipeline.subjects import (
    HOST_CHARS_MAX,
    BadHost,
    BadSubject,
    ControlSubjects,
    Subjects,
    check_host,
    is_inbox,
    meet,
    root_of,
)

BAD_HOSTS = [
    "",
    ".",
    "a..b",
    ".a",
    "a.",
    "*",
    ">",
    "a.*",
    "../x",
    "a b",
    "a\n",
    "é.example",
    "x" * 300,
]
TOKEN = st.text("abcXYZ019_-", min_size=1, max_size=12)
HOSTS = st.lists(TOKEN, min_size=1, max_size=5).map(".".join)


@pytest.mark.parametrize("host", BAD_HOSTS)
def test_a_host_that_cannot_stand_in_a_subject_is_refused_with_its_name(host: str) -> None:
    """Wildcards, empty tokens, spaces, other scripts and long ones never reach a subject."""
    with pytest.raises(BadHost, match="cannot be used"):
        check_host(host)


def test_the_longest_dns_name_is_a_host() -> None:
    """The limit itself is allowed."""
    assert check_host("x" * HOST_CHARS_MAX)


@given(HOSTS, st.integers(0, 64))
def test_a_subject_reads_back_as_the_host_that_wrote_it(host: str, partitions: int) -> None:
    """A host's dots stay, so it may be several tokens."""
    subjects = Subjects("logs", partitions)

    assert subjects.read(subjects.of_host(host)) == (partition_of(host, partitions), host)


@pytest.mark.parametrize(
    "subject",
    [
        "logs",
        "logs.p5",
        "other.p5.web1.example.net",
        "logs.px.web1",
        "logs.p05.web1",
        "logsx.p5.web1",
    ],
)
def test_what_is_no_subject_of_ours_is_refused(subject: str) -> None:
    """Below another root, without a partition, or with one written otherwise."""
    with pytest.raises((BadSubject, BadHost)):
        Subjects("logs", 10).read(subject)


def test_a_host_is_read_from_the_partition_that_it_stands_in() -> None:
    """fshipper counts as it was told to, and its lines are lines all the same."""
    assert Subjects("logs", 10).read("logs.p4.web1.example.net") == (4, "web1.example.net")


def test_the_filter_of_a_partition_matches_hosts_with_dots() -> None:
    """``*`` would match one token only."""
    assert Subjects("a.logs", 10).of_partition(3) == "a.logs.p3.>"


def test_control_subjects_carry_partition_and_host() -> None:
    """A node's right can be limited to its own."""
    control = ControlSubjects("_lp.logs")

    assert control.committed(3, "a.b") == "_lp.logs.committed.p3.a.b"
    assert control.ask_committed(3, "a.b") == "_lp.logs.ask.p3.a.b"
    assert control.asks_of_partition(3) == "_lp.logs.ask.p3.>"


@pytest.mark.parametrize(
    ("subject", "is_one"),
    [
        ("_INBOX.x.1", True),
        ("_INBOX_shipper-web.x.1", True),
        ("_R_.Cba8.za0lS", True),
        ("mine.x.1", True),
        ("minesweeper.x", False),
        ("$JS.API.STREAM.DELETE.LOGS_0", False),
        ("$KV.state.epoch.main.0", False),
        ("logs.p0.web1", False),
        ("", False),
    ],
)
def test_answers_go_to_inboxes_alone(subject: str, is_one: bool) -> None:
    """Whoever asks chooses where the answer goes: it must not be a line, a key or a call."""
    assert is_inbox(subject, "mine") is is_one


@given(st.lists(TOKEN, min_size=1, max_size=3).map(".".join), st.integers(0, 10_000))
def test_a_partition_s_filter_says_its_root(root: str, partition: int) -> None:
    """And no other filter does."""
    assert root_of(Subjects(root, 1).of_partition(partition)) == root
    for other in (
        Subjects(root, 1).of_all(),
        f"{root}.p{partition}.*",
        f"p{partition}.>",
        "logs.p01.>",
    ):
        assert root_of(other) is None


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a.*", "*.b", True),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "a", True),
        ("a.*.c", "a.>", True),
        ("a.b", "a.b.c", False),
        ("ab.>", "a.>", False),
        ("*.x.>", "a.*.y", True),
        ("*.x.y", "a.*.z", False),
    ],
)
def test_two_filters_meet_where_a_subject_matches_both(
    one: str, other: str, expected: bool
) -> None:
    """Whichever is named first."""
    assert meet(one, other) is expected
    assert meet(other, one) is expected
