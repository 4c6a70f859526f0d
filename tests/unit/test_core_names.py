"""What pipelines' streams and subjects are called: by default, no two of them ever meet."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from logpipeline.spec.mistakes import SpecError
from logpipeline.spec.parse import parse
from logpipeline.subjects import Names, names_of

# Names of the same few parts, which differ only by what stands between them: where a rule is not
# injective, it is for these that it gives the same.
PARTS = st.lists(st.sampled_from(["a", "0", "p0"]), min_size=2, max_size=4)


@st.composite
def alike(draw: st.DrawFn, marks: tuple[str, ...]) -> tuple[str, str]:
    """Two different texts of the same parts, with *marks* between them."""
    first, *rest = draw(PARTS)

    def joined() -> str:
        return first + "".join(draw(st.sampled_from(marks)) + part for part in rest)

    one, other = joined(), joined()
    assume(one != other)
    return one, other


@st.composite
def two_pipelines(draw: st.DrawFn) -> tuple[Names, Names]:
    """The default names of two pipelines whose namespaces, or names, are alike."""
    labels, names = draw(alike(("-", "--"))), draw(alike((".", "-", "--")))
    same_label, same_name = draw(st.sampled_from([(0, 1), (1, 0), (1, 1)]))
    return default((labels[0], names[0])), default((labels[same_label], names[same_name]))


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


@given(two_pipelines())
def test_two_pipelines_never_share_a_stream(both: tuple[Names, Names]) -> None:
    """Neither streams of partitions nor those beside them."""
    first, second = both

    assert not streams(first) & streams(second)


@given(two_pipelines())
def test_two_pipelines_never_share_a_subject(both: tuple[Names, Names]) -> None:
    """No root lies below another one."""
    first, second = both

    assert not [(x, y) for x in roots(first) for y in roots(second) if overlap(x, y)]


@given(two_pipelines())
def test_the_subjects_and_streams_of_one_pipeline_are_apart(both: tuple[Names, Names]) -> None:
    """Lines, progress, snapshots and dead letters never mix."""
    names, _ = both
    mine = roots(names)

    assert not any(overlap(one, other) for one in mine for other in mine if one is not other)
    assert len(streams(names)) == 3 + len(PARTITIONS)


def test_given_subjects_keep_their_own_roots_beside_them() -> None:
    """Whatever people choose: roots of progress are apart, and never lie below a root of lines."""
    marks = [".", "_", "_.", "._", "__", "_d", "._d", "-"]
    texts = ["lp", "a", *(f"a{mark}0" for mark in marks)]
    texts += [f"lp{one}a{other}d" for one in marks for other in marks]
    subjects = sorted(set(texts))
    named = [names_of("n", "x", subject=subject, stream=None) for subject in subjects]

    for first in named:
        for second in named:
            beside = roots(second)[1:]
            assert not any(overlap(first.subject, root) for root in beside)
            if first != second:
                assert not any(overlap(x, y) for x in roots(first)[1:] for y in beside)


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
