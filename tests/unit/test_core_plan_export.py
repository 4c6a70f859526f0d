"""An existing stream becomes a resource that wants exactly this stream."""

from __future__ import annotations

from typing import Any

import pytest

from logpipeline.plan.desired import desired
from logpipeline.plan.export import NotExportable, export_streams
from logpipeline.plan.model import OWNER_KEY
from logpipeline.plan.server_defaults import normal_stream
from logpipeline.spec import parse


def stream(**fields: Any) -> dict[str, Any]:
    """A stream that somebody made by hand."""
    return {
        "name": "APP_2",
        "subjects": ["app.logs.p2.>"],
        "retention": "limits",
        "discard": "old",
        "storage": "file",
        "num_replicas": 1,
        "max_age": 3_600_000_000_000,
        "max_bytes": 10_000_000,
        "max_msgs_per_subject": 50,
        "max_consumers": 40,
        "duplicate_window": 60_000_000_000,
        "allow_direct": True,
        "metadata": {"team": "a", "_nats.ver": "2.15.1"},
        **fields,
    }


def test_the_exported_resource_wants_the_stream_as_it_is() -> None:
    """Parsed and planned, nothing differs but our mark."""
    (wanted,) = (
        found.config
        for found in desired(parse(export_streams([stream()]))).streams
        if found.name == "APP_2"
    )

    theirs, ours = normal_stream(stream()), normal_stream(wanted)
    assert ours.pop("metadata") == {**theirs.pop("metadata"), OWNER_KEY: "default/app"}
    assert ours == theirs


def test_an_exported_resource_adopts_the_stream() -> None:
    """Without it, the plan would not touch a stream that we did not make."""
    assert export_streams([stream()])["spec"]["stream"]["adopt"] is True


def test_a_stream_of_a_pipeline_gets_its_name_back() -> None:
    """Its metadata says which one it was."""
    resource = export_streams([stream(metadata={OWNER_KEY: "team/logs"})], partitions=8)

    assert resource["metadata"] == {"namespace": "team", "name": "logs"}
    assert resource["spec"]["partitions"] == 8


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "APP"},
        {"subjects": ["app.>"]},
        {"subjects": ["app.logs.p3.>"]},
        {"subjects": ["app.logs.p2.>", "more"]},
        {"subjects": [], "mirror": {"name": "X"}},
        {"sources": [{"name": "X"}]},
        {"republish": {"src": ">", "dest": "copy.>"}},
        {"sealed": True},
    ],
)
def test_what_no_pipeline_would_make_is_refused_with_advice(fields: dict[str, Any]) -> None:
    """Silently leaving something out would change the stream when it is adopted."""
    with pytest.raises(NotExportable, match=r": "):
        export_streams([stream(**fields)])


def several(**last: Any) -> list[dict[str, Any]]:
    """Three streams of one pipeline; the last one has *last* besides."""
    return [
        stream(name=f"APP_{number}", subjects=[f"app.logs.p{number}.>"], **more)
        for number, more in enumerate(({}, {}, last))
    ]


def test_streams_with_limits_of_their_own_become_overrides() -> None:
    """What most have is the pipeline's; the resource wants each as it is."""
    found = several(max_bytes=20_000_000, max_age=7_200_000_000_000)

    resource = export_streams(found)

    [override] = resource["spec"]["stream"]["overrides"]
    assert override == {"partitions": "2", "maxBytes": "20000000", "maxAge": "2h"}
    wanted = {each.name: each.config for each in desired(parse(resource)).streams}
    for config in found:
        assert wanted[config["name"]]["max_bytes"] == config["max_bytes"]
        assert wanted[config["name"]]["max_age"] == config["max_age"]


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ([stream(name="OTHER_1", subjects=["app.logs.p1.>"])], "OTHER"),
        ([stream(name="APP_1", subjects=["more.logs.p1.>"])], "more.logs"),
        ([stream(name="APP_1", subjects=["app.logs.p1.>"], storage="memory")], "storage"),
        ([stream(name="APP_1", subjects=["app.logs.p1.>"], max_bytes=-1)], "max_bytes"),
    ],
)
def test_streams_that_no_one_pipeline_would_make_are_refused(
    others: list[dict[str, Any]], why: str
) -> None:
    """The sentence names what does not fit."""
    with pytest.raises(NotExportable, match=why):
        export_streams([stream(), *others])


def test_a_stream_that_stores_fewer_partitions_than_its_neighbour_is_refused() -> None:
    """What shippers of another kind count is one number for all streams of a pipeline."""
    one = stream(name="APP_0", subjects=["app.logs.p0.>"])
    other = stream(name="APP_1", subjects=["app.logs.p1.>", "app.logs.p3.>"])

    with pytest.raises(NotExportable, match=r"APP_0 has in subjects"):
        export_streams([one, other])


def single(**fields: Any) -> dict[str, Any]:
    """A stream that somebody made for all partitions."""
    return stream(name="LOGS", subjects=["logs.>"], **fields)


def test_one_stream_of_all_partitions_becomes_a_pipeline_of_one() -> None:
    """As fshipper's documents begin: its subjects become those of the partitions."""
    resource = export_streams([single()], partitions=8)

    (wanted,) = (found.config for found in desired(parse(resource)).streams if found.name == "LOGS")
    assert resource["spec"]["stream"]["layout"] == "single"
    assert (resource["spec"]["subject"], resource["spec"]["partitions"]) == ("logs", 8)
    assert wanted["subjects"] == sorted(f"logs.p{number}.>" for number in range(32))


@pytest.mark.parametrize("count", [4, 6])
def test_what_one_stream_says_of_its_partitions_stays(count: int) -> None:
    """Four of ours, and those of shippers that count six; or six of ours."""
    subjects = [f"logs.p{number}.>" for number in range(6)]

    resource = export_streams([single() | {"subjects": subjects}], partitions=count)

    (wanted,) = (found.config for found in desired(parse(resource)).streams if found.name == "LOGS")
    assert wanted["subjects"] == subjects


def test_how_many_partitions_one_stream_holds_has_to_be_said() -> None:
    """A wrong number would send hosts elsewhere than their shippers do."""
    with pytest.raises(NotExportable, match="give --partitions"):
        export_streams([single()])


def test_a_consumer_of_one_stream_reads_all_of_it_or_one_host() -> None:
    """Not a partition, which a template of one stream cannot choose."""
    every = {"durable_name": "all", "ack_policy": "explicit"}
    host = {**every, "durable_name": "one", "filter_subject": "logs.p1.web2"}
    part = {**every, "filter_subject": "logs.p3.>"}

    resource = export_streams([single()], {"LOGS": [every, host]}, partitions=2)

    assert [each.get("filterHost") for each in resource["spec"]["consumers"]] == [None, "web2"]
    with pytest.raises(NotExportable, match="a template reads a whole stream"):
        export_streams([single()], {"LOGS": [part]}, partitions=2)
