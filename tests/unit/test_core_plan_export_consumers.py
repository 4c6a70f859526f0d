"""Existing consumers become templates that make exactly these consumers."""

from __future__ import annotations

from typing import Any

import pytest

from logpipeline.partition import partition_of
from logpipeline.plan.desired import consumers_for
from logpipeline.plan.export import UntranslatableConsumer, export_consumers
from logpipeline.plan.server_defaults import normal_consumer
from logpipeline.spec import parse

ROOT = "logs"
PARTITIONS = 3
HOST = "web1.example.net"

TEMPLATES: list[dict[str, Any]] = [
    {"name": "plain"},
    {"name": "passing", "durable": False, "inactiveThreshold": "10m", "ackPolicy": "none"},
    {"name": "new", "deliverPolicy": "new", "ackPolicy": "all", "ackWait": "7s"},
    {"name": "time", "deliverPolicy": "byStartTime", "optStartTime": "2026-01-31T12:00:00Z"},
    {"name": "number", "deliverPolicy": "byStartSequence", "optStartSeq": 12},
    {"name": "each", "deliverPolicy": "lastPerSubject", "replayPolicy": "original"},
    {"name": "tries", "maxDeliver": 4, "backoff": ["1s", "5s"], "maxAckPending": 7},
    {"name": "asks", "maxWaiting": 3, "maxRequestBatch": 5, "maxRequestExpires": "9s"},
    {"name": "heads", "headersOnly": True, "memStorage": True, "metadata": {"team": "a"}},
    {"name": "some", "partitions": "0,2"},
    {"name": "host", "filterHost": HOST},
    {
        "name": "out", "type": "push", "deliverSubject": "out.logs", "ackPolicy": "none",
        "deliverGroup": "readers", "idleHeartbeat": "5s", "flowControl": True,
    },
]  # fmt: skip


def made(*templates: dict[str, Any]) -> dict[int, list[dict[str, Any]]]:
    """What a pipeline makes of *templates*, by partition."""
    spec = {"subject": ROOT, "partitions": PARTITIONS, "consumers": list(templates)}
    resource = {
        "apiVersion": "logpipeline.dev/v1alpha1",
        "kind": "LogPipeline",
        "metadata": {"name": "test"},
        "spec": spec,
    }
    pipeline = parse(resource)
    return {
        number: [dict(each) for each in consumers_for(pipeline, number, {})]
        for number in range(PARTITIONS)
    }


def exported(found: dict[int, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The templates of *found*."""
    return export_consumers(found, root=ROOT, partitions=PARTITIONS)


def normal(found: dict[int, list[dict[str, Any]]]) -> dict[int, list[dict[str, Any]]]:
    """What *found* means."""
    return {
        number: sorted(map(normal_consumer, configs), key=str) for number, configs in found.items()
    }


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda each: str(each["name"]))
def test_a_template_of_what_was_found_makes_it_again(template: dict[str, Any]) -> None:
    """In each partition that has it, and in no other."""
    found = made(template)

    assert normal(made(*exported(found))) == normal(found)


def test_all_consumers_of_a_pipeline_come_back() -> None:
    """Each name becomes one template, sorted."""
    found = made(*TEMPLATES)

    names = [template["name"] for template in exported(found)]

    assert names == sorted(each["name"] for each in TEMPLATES)
    assert normal(made(*exported(found))) == normal(found)


def test_a_host_is_filtered_in_its_own_partition() -> None:
    """Its consumer is found once, and the template says no partition."""
    [template] = exported(made({"name": "host", "filterHost": HOST}))

    assert template["filterHost"] == HOST
    assert "partitions" not in template
    assert partition_of(HOST, PARTITIONS) in range(PARTITIONS)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"filter_subject": "logs.p1.*.more"}, "reads logs.p1"),
        ({"filter_subject": f"logs.p1.{HOST}"}, "reads logs.p1"),
        ({"filter_subjects": ["logs.p1.a", "logs.p1.b"]}, "filter_subjects"),
        ({"deliver_subject": "somewhere"}, "somewhere"),
        ({"sample_freq": "100"}, "sample_freq"),
    ],
)
def test_what_no_template_would_make_is_refused(config: dict[str, Any], why: str) -> None:
    """Leaving a field out would change the consumer."""
    assert partition_of(HOST, PARTITIONS) != 1
    with pytest.raises(UntranslatableConsumer, match=why):
        exported({1: [{"name": "theirs", "durable_name": "theirs", **config}]})


def test_consumers_of_one_name_that_differ_are_refused() -> None:
    """The sentence says in what."""
    found = made({"name": "plain"})
    found[2][0]["max_deliver"] = 9

    with pytest.raises(UntranslatableConsumer, match="maxDeliver"):
        exported(found)
