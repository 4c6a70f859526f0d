"""Which subjects a user may speak on: two hosts never share one, and nothing else is theirs."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from logpipeline.authority import (
    COLLECTOR,
    NODES_ACCOUNT,
    OPERATOR,
    SHIPPER,
    STREAMS_ACCOUNT,
    TABLE,
    crossings,
    inbox_prefix,
    permissions,
)
from logpipeline.spec import LogPipeline, parse
from logpipeline.subjects import ControlSubjects, Subjects

HOSTS = st.from_regex(r"[a-c_-]{1,2}(\.[a-c_-]{1,2}){0,2}", fullmatch=True)
COUNTS = st.integers(1, 64)


def pipeline(partitions: int = 8) -> LogPipeline:
    return parse(
        {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": "prod", "namespace": "logging"},
            "spec": {"partitions": partitions},
        }
    )


def is_covered(subject: str, patterns: list[str]) -> bool:
    """Whether one of *patterns* matches *subject*, as nats-server compares them."""

    def regex(pattern: str) -> str:
        tokens = [{"*": r"[^.]+", ">": r".+"}.get(t, re.escape(t)) for t in pattern.split(".")]
        return r"\.".join(tokens)

    return any(re.fullmatch(regex(pattern), subject) for pattern in patterns)


def may_say(subject: str, made: dict[str, Any]) -> bool:
    return is_covered(subject, made["publish"]["allow"])


def may_hear(subject: str, made: dict[str, Any]) -> bool:
    return is_covered(subject, made["subscribe"]["allow"])


@given(own=HOSTS, other=HOSTS, before=COUNTS, after=COUNTS)
def test_a_host_speaks_for_itself_alone(own: str, other: str, before: int, after: int) -> None:
    """Also where one name is the end of another, and when the number of partitions changes."""
    assume(own != other)
    made = permissions(pipeline(before), SHIPPER, user="shipper-own", hosts=[own])
    names = pipeline().names
    subjects, control = Subjects(names.subject, after), ControlSubjects(names.control_subject)
    for host, is_own in ((own, True), (other, False)):
        subject = subjects.of_host(host)
        partition = subjects.read(subject)[0]

        assert may_say(subject, made) is is_own
        assert may_say(control.ask_committed(partition, host), made) is is_own
        assert may_hear(control.committed(partition, host), made) is is_own
        assert may_say(f"$JS.API.DIRECT.GET.LP_0.{subject}", made) is is_own
        assert not may_hear(subject, made)
        assert not may_say(control.committed(partition, host), made)


def test_a_user_hears_its_own_answers_alone() -> None:
    """Users of one role have inboxes of their own; a name that begins as another does is not it."""
    first, second = (
        permissions(pipeline(), SHIPPER, user=user, hosts=["a"]) for user in ("s-1", "s-11")
    )

    assert may_hear(f"{inbox_prefix('s-1')}.x.1", first)
    assert not may_hear(f"{inbox_prefix('s-11')}.x.1", first)
    assert not may_hear(f"{inbox_prefix('s-1')}.x.1", second)
    for role in (COLLECTOR, TABLE):
        assert not may_hear(f"{inbox_prefix('s-1')}.x.1", permissions(pipeline(), role))


def test_what_crosses_is_what_shippers_do() -> None:
    """Their account reaches neither buckets nor calls that change streams, whatever a user may."""
    crossing = crossings(pipeline())
    services = [
        each["service"] for each in crossing[STREAMS_ACCOUNT]["exports"] if "service" in each
    ]
    mine = permissions(pipeline(), SHIPPER, hosts=["a"])["publish"]["allow"]

    for subject in mine:
        assert is_covered(subject.replace("*", "x"), services), subject
    names = pipeline().names
    for never in (
        f"$KV.{names.state_bucket}.epoch.main.0",
        f"$JS.API.STREAM.PURGE.{names.stream(0)}",
        f"$JS.API.DIRECT.GET.KV_{names.state_bucket}.$KV.{names.state_bucket}.a",
        f"$JS.API.DIRECT.GET.{names.stream(0)}",
        f"{names.control_subject}.committed.p0.a",
        f"{names.dead_letter_subject}.p0.reason",
    ):
        assert not is_covered(never, services), never
    imported = [each["service"]["subject"] for each in crossing[NODES_ACCOUNT]["imports"][:-1]]
    assert imported == services


def test_the_operator_stays_inside_the_pipeline() -> None:
    """It does everything for its own pipeline, and nothing on subjects of others."""
    made = permissions(pipeline(), OPERATOR)

    assert may_say(Subjects(pipeline().names.subject, 8).of_host("a"), made)
    assert not may_say("lp.other.prod.p0.a", made)
