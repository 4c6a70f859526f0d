"""What pipelines' streams and subjects are called: by default, no two of them ever meet."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from logpipeline.names import Names, names_of
from logpipeline.spec.mistakes import SpecError
from logpipeline.spec.parse import parse

# Few letters, so that names differ by little: by a dot, a dash, a digit, a partition's look.
LABEL = st.sampled_from(["a", "p0", "0", "a0", "a-0"]) | st.text("ap0-", max_size=3).map(
    "a{}0".format
)
NAME = st.lists(LABEL, min_size=1, max_size=3).map(".".join)
IDENTITY = st.tuples(LABEL, NAME)
TOKEN = st.sampled_from(["a", "a_d", "a__d", "d", "_lp", "p0"]) | st.text(
    "a_d", min_size=1, max_size=4
)
SUBJECT = st.lists(TOKEN, max_size=3).map(lambda tokens: ".".join(["a", *tokens]))
PARTITIONS = (0, 1, 10)


def default(identity: tuple[str, str]) -> Names:
    """The names of a pipeline that gives none."""
    return names_of(*identity, subject=None, stream=None)


def streams(names: Names) -> set[str]:
    """All streams of a pipeline, as far as partitions are tried."""
    beside = {f"KV_{names.state_bucket}", names.snapshot_stream, names.dead_letter_stream}
    return beside | {names.stream(partition) for partition in PARTITIONS}


def roots(names: Names) -> list[str]:
    """The roots of all subjects of a pipeline; everything of it lies below one of them."""
    return [
        names.subject, names.control_subject, names.snapshot_subject, names.dead_letter_subject,
    ]  # fmt: skip


def overlap(first: str, second: str) -> bool:
    """Whether a subject can lie below both roots."""
    return f"{first}.".startswith(f"{second}.") or f"{second}.".startswith(f"{first}.")


@given(IDENTITY, IDENTITY)
def test_two_pipelines_never_share_a_stream(
    first: tuple[str, str], second: tuple[str, str]
) -> None:
    """Neither streams of partitions nor those beside them."""
    assume(first != second)

    assert not streams(default(first)) & streams(default(second))


@given(IDENTITY, IDENTITY)
def test_two_pipelines_never_share_a_subject(
    first: tuple[str, str], second: tuple[str, str]
) -> None:
    """No root lies below another one."""
    assume(first != second)

    assert not [
        pair
        for one in roots(default(first))
        for other in roots(default(second))
        if overlap(*(pair := (one, other)))
    ]


@given(IDENTITY)
def test_the_subjects_and_streams_of_one_pipeline_are_apart(identity: tuple[str, str]) -> None:
    """Lines, progress, snapshots and dead letters never mix."""
    mine = roots(default(identity))

    assert not any(overlap(one, other) for one in mine for other in mine if one is not other)
    assert len(streams(default(identity))) == 3 + len(PARTITIONS)


@given(SUBJECT, SUBJECT)
def test_given_subjects_keep_their_own_roots_beside_them(first: str, second: str) -> None:
    """Whatever people choose: roots of progress never lie below a root of lines."""
    one = names_of("n", "a", subject=first, stream=None)
    other = names_of("n", "b", subject=second, stream=None)

    assert not any(overlap(first, root) for root in roots(other)[1:])
    if first != second:
        assert not any(overlap(x, y) for x in roots(one)[1:] for y in roots(other)[1:])


@pytest.mark.parametrize("subject", ["_lp", "_lpd.a", "_INBOX"])
def test_a_subject_cannot_be_given_among_our_own_roots(subject: str) -> None:
    """A root that begins with an underscore could hold another pipeline's progress, or an inbox."""
    resource = {
        "apiVersion": "logpipeline.dev/v1alpha1",
        "kind": "LogPipeline",
        "metadata": {"name": "a"},
        "spec": {"subject": subject},
    }

    with pytest.raises(SpecError, match=r"^spec\.subject: "):
        parse(resource)


def test_the_default_names_are_what_users_rely_on() -> None:
    """Changing one would leave the data of every running pipeline behind."""
    names = default(("logging", "web.prod-1"))

    assert names.subject == "lp.logging.web_prod-1"
    assert names.stream(7) == "LP_logging_web__prod-1_7"
    assert names.state_bucket == "LP_logging_web__prod-1_state"
    assert names.snapshot_stream == "LP_logging_web__prod-1_snapshots"
    assert names.dead_letter_stream == "LP_logging_web__prod-1_dead"
    assert names.control_subject == "_lp.lp_dlogging_dweb__prod-1"
    assert names.snapshot_subject == "_lps.lp_dlogging_dweb__prod-1"
    assert names.dead_letter_subject == "_lpd.lp_dlogging_dweb__prod-1"


def test_given_names_replace_the_derived_ones() -> None:
    """A pipeline takes its place beside other tools by the names they use."""
    names = names_of("default", "demo", subject="logs", stream="LOGS")

    assert (names.subject, names.stream(0), names.state_bucket) == ("logs", "LOGS_0", "LOGS_state")
