"""Resources and their mistakes: all of them at once, each with its path."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.spec import LogPipeline, Mistake, SpecError, dump, parse
from logpipeline.spec.mistakes import MISTAKES_SHOWN_MAX

MIB = 2**20


def resource(spec: Any = None, **metadata: Any) -> dict[str, Any]:
    """A resource with *spec*."""
    return {
        "apiVersion": "logpipeline.dev/v1alpha1",
        "kind": "LogPipeline",
        "metadata": {"name": "a", **metadata},
        "spec": spec,
    }


def mistakes(of: Any) -> list[str]:
    """What is wrong with a resource."""
    with pytest.raises(SpecError) as error:
        parse(of)
    return [str(mistake) for mistake in error.value.mistakes]


def test_all_mistakes_are_told_at_once() -> None:
    """Of each kind and at each depth, so that a user mends them in one go."""
    spec = {
        "partitions": "ten",
        "colectors": {},
        "stream": {"maxAge": "1 day", "maxBytes": "10GB", "trim": "collect"},
        "collectors": {"replicas": "two", "rotation": {"maxBites": 1}},
        "consumers": [{"name": "a", "type": "push", "maxWaiting": 3}, {"durable": 1}],
        "nats": {"servers": ["nats.example.net"]},
    }

    assert mistakes(resource(spec, namespace="Prod")) == [
        "metadata.namespace: expected at most 63 lower-case letters, digits and '-', beginning "
        'with a letter or digit and ending with a letter or digit, found "Prod"',
        "spec.colectors: unknown field; did you mean collectors?",
        'spec.partitions: expected an integer, found "ten"',
        "spec.nats.servers[0]: expected something like nats://nats.example.net:4222, found "
        '"nats.example.net"',
        "spec.stream.maxAge: expected a time span with its unit, such as 24h, 1d, 1h30m, 90s or "
        '200ms, found "1 day"',
        'spec.stream.maxBytes: expected a size such as 10Gi, 500M, 64Ki or 1048576, found "10GB"',
        'spec.stream.trim: expected one of collected, never, found "collect"; did you mean '
        "collected?",
        "spec.consumers[0].maxWaiting: goes only with type pull",
        "spec.consumers[1].name: is missing: Name of the consumer.",
        "spec.consumers[1].durable: expected true or false, found 1",
        'spec.collectors.replicas: expected an integer, found "two"',
        "spec.collectors.rotation.maxBites: unknown field; did you mean maxBytes?",
    ]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ([], "spec: expected a mapping, found a list"),
        ({"archive": {"enabled": True}},
         "spec.archive: is called table now: rename it, and leave what it holds as it is"),
        ({"collectors": {"workers": 4}},
         "spec.collectors.workers: is gone: remove it, and set replicas to what the two made "
         "together"),
        ({"partitions": True}, "spec.partitions: expected an integer, found true"),
        ({"partitions": 1.0}, "spec.partitions: expected an integer, found 1.0"),
        ({"partitions": 1025}, "spec.partitions: expected at most 1024, found 1025"),
        ({"nats": {"managed": {"replicas": 2}}},
         "spec.nats.managed.replicas: expected one of 1, 3, found 2"),
        ({"nats": {"managed": {"replicas": True}}},
         "spec.nats.managed.replicas: expected one of 1, 3, found true"),
        ({"nats": {"creds": {"file": "x"}}},
         "spec.nats.creds.secret: is missing: The Secret that holds the file."),
        ({"batch": {"maxBytes": 100}}, "spec.batch.maxBytes: expected at least 1Ki, found 100"),
        ({"collectors": {"takeoverAfter": "10ms"}},
         "spec.collectors.takeoverAfter: expected at least 1s, found 10ms"),
        ({"collectors": {"nodeSelector": {"a": 1}}},
         "spec.collectors.nodeSelector.a: expected a text, found 1; quote it"),
        ({"collectors": {"nodeSelector": ["a"]}},
         "spec.collectors.nodeSelector: expected a mapping, found a list"),
        ({"collectors": {"updateStrategy": {"maxUnavailable": 1.5}}},
         "spec.collectors.updateStrategy.maxUnavailable: expected an integer or a text, found 1.5"),
        ({"consumers": [{"name": "a"}, {"name": "a"}]},
         'spec.consumers[1].name: "a" is used more than once; names are unique'),
        ({"consumers": {}}, "spec.consumers: expected a list, found a mapping"),
        ({"table": {"path": "s3://logs/team-a/%2e%2e/team-b"}},
         "spec.table.path: expected something like s3://logs/prod, found "
         '"s3://logs/team-a/%2e%2e/team-b"'),
        ({"table": {"path": "s3://logs/a#1"}},
         'spec.table.path: expected something like s3://logs/prod, found "s3://logs/a#1"'),
        ({"subject": "logs\n"}, 'spec.subject: expected something like logs, found "logs\\n"'),
        ({"subject": "x" * 129}, "spec.subject: expected at most 128 characters, found 129"),
        ({"subject": "*"}, 'spec.subject: expected something like logs, found "*"'),
        ({"local": {"shippers": [{"name": "a", "files": [{"include": []}]}]}},
         "spec.local.shippers[0].files[0].include: expected at least 1 entry, found 0"),
        ({"local": {"shippers": [{"name": "a", "files": [{"include": ["*.log"]}]}]}},
         "spec.local.shippers[0].files[0].include[0]: expected something like /var/log/*.log, "
         'found "*.log"'),
        ({"local": {"shippers": [{"name": "a", "files": [{"include": ["/var/log/"]}]}]}},
         "spec.local.shippers[0].files[0].include[0]: expected something like /var/log/*.log, "
         'found "/var/log/"'),
        ({"local": {"shippers": [{"name": "a", "files": [{"include": ["~/../*.log"]}]}]}},
         "spec.local.shippers[0].files[0].include[0]: expected something like /var/log/*.log, "
         'found "~/../*.log"'),
        ({"consumers": [{"name": "a", "deliverPolicy": "byStartTime",
                         "optStartTime": "2026-02-30T00:00:00Z"}]},
         'spec.consumers[0].optStartTime: no such time: "2026-02-30T00:00:00Z"'),
        ({"consumers": [{"name": "a"}] * 65},
         "spec.consumers: expected at most 64 entries, found 65"),
    ],
)  # fmt: skip
def test_a_mistake_says_where_it_is_and_what_is_right(spec: Any, message: str) -> None:
    """And it is told alone: nothing follows from it."""
    assert mistakes(resource(spec)) == [message]


@pytest.mark.parametrize(
    ("metadata", "path"),
    [
        ({"name": None}, "metadata.name"),
        ({"name": "Web"}, "metadata.name"),
        ({"name": "a_b"}, "metadata.name"),
        ({"name": "a.b"}, "metadata.name"),
        ({"name": "1a"}, "metadata.name"),
        ({"name": "a" * 43}, "metadata.name"),
        ({"name": "a\n"}, "metadata.name"),
        ({"namespace": "a.b"}, "metadata.namespace"),
        ({"namespace": ""}, "metadata.namespace"),
        ({"generation": "3"}, "metadata.generation"),
        ({"annotations": ["a"]}, "metadata.annotations"),
        ({"annotations": {"a": 1}}, "metadata.annotations.a"),
    ],
)
def test_who_a_pipeline_is_is_checked_too(metadata: dict[str, Any], path: str) -> None:
    """Names of streams and subjects are made of it."""
    assert [line.split(":")[0] for line in mistakes(resource(**metadata))] == [path]


def test_another_kind_is_told_as_such_only() -> None:
    """Its fields are no mistakes of a LogPipeline."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {"containers": []}}

    assert mistakes(pod) == [
        'apiVersion: expected logpipeline.dev/v1alpha1, found "v1"',
        'kind: expected LogPipeline, found "Pod"',
    ]


def test_a_rule_is_silent_about_a_field_that_could_not_be_read() -> None:
    """Otherwise one mistake would look like two: replicas are compared with no default."""
    assert mistakes(resource({"partitions": "x", "collectors": {"replicas": 20}})) == [
        'spec.partitions: expected an integer, found "x"'
    ]


def test_nothing_stands_for_the_default() -> None:
    """A field that is null, or a spec that is, is as good as absent."""
    assert parse(resource({"partitions": None, "nats": None})) == parse(resource())


def test_a_default_that_a_server_stored_of_a_field_that_is_gone_is_no_mistake() -> None:
    """Nobody wrote it, and it says nothing."""
    assert parse(resource({"collectors": {"workers": 1}})) == parse(resource())


def test_what_kubernetes_keeps_in_a_resource_is_no_mistake() -> None:
    """The status and the server's own metadata pass."""
    given = resource(uid="u-1", generation=3, annotations={"a": "b"}, labels={}, managedFields=[])

    pipeline = parse({**given, "status": {"whatever": 1}})

    assert (pipeline.uid, pipeline.generation, pipeline.annotations) == ("u-1", 3, {"a": "b"})


def test_units_are_read_into_bytes_and_nanoseconds() -> None:
    """Python's names say the unit of time; YAML's have none."""
    spec = parse(resource({"stream": {"maxAge": "1d", "maxBytes": "64Mi"}})).spec

    assert (spec.stream.max_age_ns, spec.stream.max_bytes) == (86_400 * 10**9, 64 * MIB)


@pytest.mark.parametrize("hostile", ["\x1b[31mred", "a\nb", "\u202eabc", "\x9b31m", "\x00"])
def test_a_message_never_carries_what_a_terminal_obeys(hostile: str) -> None:
    """Neither as a value nor as the name of a field."""
    spec = {
        hostile: 1,
        "subject": hostile,
        "trim": hostile,
        "collectors": {"podLabels": {hostile: 1}},
    }

    for line in mistakes(resource(spec)):
        assert line.isprintable()


def test_a_long_list_of_mistakes_is_cut_where_it_is_shown() -> None:
    """The list itself has them all."""
    with pytest.raises(SpecError) as error:
        parse(resource({f"x{number}": 1 for number in range(1000)}))

    assert len(error.value.mistakes) == 1000
    lines = str(error.value).splitlines()
    assert lines[MISTAKES_SHOWN_MAX:] == [f"… and {1000 - MISTAKES_SHOWN_MAX} more"]


FULL = {
    "cluster": "prod-1",
    "subject": "logs",
    "nats": {
        "servers": ["nats://a:4222", "tls://b:4222"],
        "creds": {"secret": {"name": "s"}, "file": "user.creds"},
        "managed": {"storage": 1_500_000},
    },
    "stream": {
        "maxAge": "36h",
        "placement": {},
        "metadata": {"team": "logs"},
        "overrides": [{"partitions": "0-3,7", "maxBytes": "1.5Gi", "maxAge": "90m"}],
    },
    "consumers": [{"name": "a", "backoff": ["1s", "1m30s"], "partitions": "1"}],
    "collectors": {
        "persistence": {},
        "resources": {"limits": {"cpu": 1}},
        "tolerations": [{"operator": "Exists"}],
        "updateStrategy": {"maxUnavailable": "25%"},
    },
    "shippers": {"match": [{"select": {"namespaces": ["a"]}}, {"exclude": {}}]},
    "local": {"shippers": [{"name": "m", "files": [{"include": ["/var/log/*.log"]}]}]},
}


def test_a_dumped_pipeline_is_read_back_as_it_was() -> None:
    """With everything that was given, and nothing that was not."""
    pipeline = parse(resource(FULL, uid="u", generation=2, annotations={"a": "b"}, namespace="n"))

    dumped = dump(pipeline)

    assert parse(json.loads(json.dumps(dumped))) == pipeline
    assert dumped["spec"]["stream"]["overrides"] == [
        {"partitions": "0-3,7", "maxBytes": "1536Mi", "maxAge": "90m"}
    ]
    assert dump(LogPipeline(name="a"))["spec"] == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


def attempt(of: dict[str, Any]) -> LogPipeline | tuple[Mistake, ...]:
    """The pipeline that a resource is, or its mistakes."""
    try:
        return parse(of)
    except SpecError as error:
        return error.mistakes


def places(value: Any) -> list[tuple[Any, ...]]:
    """The paths to all values in *value*."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [
        path
        for key, item in items
        for path in [
            (key,),
            *((key, *rest) for rest in (places(item) if isinstance(item, dict | list) else [])),
        ]
    ]


@given(st.sampled_from(places(FULL)), JSON)
def test_whatever_stands_in_a_field_is_read_or_told(path: tuple[Any, ...], value: Any) -> None:
    """No value anywhere makes the parser fail in another way, and what it reads survives a dump."""
    spec = json.loads(json.dumps(FULL))
    place = spec
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value

    read = attempt(resource(spec))

    if isinstance(read, LogPipeline):
        # As texts: a NaN in a field that Kubernetes reads is not equal to itself.
        assert repr(parse(dump(read))) == repr(read)
    else:
        assert read
        assert all(mistake.path and str(mistake).isprintable() for mistake in read)


@given(JSON)
def test_whatever_is_no_resource_is_told(value: Any) -> None:
    """Also where a resource itself should be."""
    with pytest.raises(SpecError):
        parse(value)
