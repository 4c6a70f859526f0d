"""Rules between fields, and rules about changes: each is broken here once."""

from __future__ import annotations

import re
from typing import Any

import pytest

from logpipeline.spec import LogPipeline, SpecError, check_update, parse
from logpipeline.spec.changes import CHANGE_RULES
from logpipeline.spec.rules import ENTRY_RULES, SPEC_RULES

SECRET = {"secret": {"name": "s"}}


def pipeline(spec: dict[str, Any]) -> LogPipeline:
    """The pipeline with *spec*."""
    return parse(
        {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": "a"},
            "spec": spec,
        }
    )


def consumer(**fields: Any) -> dict[str, Any]:
    """A spec with one consumer."""
    return {"consumers": [{"name": "a", **fields}]}


def collectors(**fields: Any) -> dict[str, Any]:
    """A spec with these collectors."""
    return {"collectors": fields}


def table(**fields: Any) -> dict[str, Any]:
    """A spec with this table."""
    return {"table": fields}


def parsed(**field: Any) -> dict[str, Any]:
    """A rule for JSON with one field."""
    return {"format": "json", "fields": [field]}


def host_files(**files: Any) -> dict[str, Any]:
    """A spec with one entry of host files."""
    return {"shippers": {"hostFiles": [files]}}


EXTERNAL = {"subject": "logs", "stream": {"name": "LOGS", "external": True}}

# Of each rule: a spec that breaks it, where that is told, and a spec that comes close and is good.
BLUE = {"matchLabels": {"team": "blue"}}
CASES: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "selector-selects-namespaces": (
        {"shippers": {"podNamespaces": "Selector"}}, "shippers.podNamespaceSelector",
        {"shippers": {"podNamespaces": "Selector", "podNamespaceSelector": BLUE}},
    ),
    "selector-says-something": (
        {"shippers": {"podNamespaces": "Selector", "podNamespaceSelector": {}}},
        "shippers.podNamespaceSelector",
        {"shippers": {"podNamespaces": "Selector", "podNamespaceSelector": {
            "matchExpressions": [{"key": "team", "operator": "Exists"}]}}},
    ),
    "labels-are-labels": (
        {"shippers": {"podNamespaces": "Selector", "podNamespaceSelector": {
            "matchLabels": {"example.net/team": "blue, red"}}}},
        "shippers.podNamespaceSelector.matchLabels",
        {"shippers": {"podNamespaces": "Selector", "podNamespaceSelector": {
            "matchLabels": {"example.net/team": ""}}}},
    ),
    "values-with-in": (
        {"shippers": {"podNamespaces": "Selector", "podNamespaceSelector": {
            "matchExpressions": [{"key": "team", "operator": "Exists", "values": ["blue"]}]}}},
        "shippers.podNamespaceSelector.matchExpressions[0].values",
        {"shippers": {"podNamespaces": "Selector", "podNamespaceSelector": {
            "matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["blue"]}]}}},
    ),
    "collectors-within-partitions": (
        {"partitions": 3, **collectors(replicas=4)}, "collectors.replicas",
        {"partitions": 0, **collectors(replicas=1)},
    ),
    "collectors-start-time-policy": (
        collectors(optStartTime="2026-01-31T12:00:00Z"), "collectors.optStartTime",
        collectors(deliverPolicy="byStartTime", optStartTime="2026-01-31T12:00:00Z"),
    ),
    "collectors-need-start-time": (
        collectors(deliverPolicy="byStartTime"), "collectors.optStartTime",
        collectors(deliverPolicy="new"),
    ),
    "one-login": (
        {"nats": {"creds": {**SECRET, "file": "f"}, "nkey": {**SECRET, "seed": "s"}}}, "nats",
        {"nats": {"creds": {**SECRET, "file": "f"}, "tls": {**SECRET, "ca": "c"}}},
    ),
    "table-executors-somewhere": (
        table(path="s3://logs", executors={"instances": 1}), "table.executors.instances",
        table(path="s3://logs", executors={"instances": 1}, runner="native"),
    ),
    "table-application-executors": (
        table(path="s3://logs", runner="sparkApplication"), "table.executors.instances",
        table(path="s3://logs", runner="sparkApplication", executors={"instances": 1}),
    ),
    "table-executors-reach-it": (
        table(path="/table", executors={"instances": 1}, runner="native"), "table.path",
        table(
            executors={"instances": 1}, runner="native", persistence={"existingClaim": "shared"}
        ),
    ),
    "table-one-kind-of-volume": (
        table(persistence={"existingClaim": "a", "emptyDir": {}}), "table.persistence",
        table(persistence={"existingClaim": "a", "size": "1Gi"}),
    ),
    "table-catalog": (
        table(format="iceberg", catalog={"type": "sql"}), "table.catalog",
        table(format="iceberg", catalog={"type": "sql", "table": "logs.prod"}),
    ),
    "column-of-one-type": (
        table(parse=[parsed(name="a", type="int"), parsed(name="a")]), "table.parse",
        table(parse=[parsed(name="a", type="int"), parsed(name="a", type="int")]),
    ),
    "time-of-declared-field": (
        table(parse=[parsed(name="a")], time=[{"field": "b"}]), "table.time",
        table(parse=[parsed(name="a")], time=[{"field": "a"}]),
    ),
    "regex-has-pattern": (
        table(parse=[{"format": "regex"}]), "table.parse[0].pattern",
        table(parse=[{"format": "regex", "pattern": "(?P<a>x)"}]),
    ),
    "column-not-ours": (
        table(parse=[parsed(name="ts")]), "table.parse[0].fields[0].name",
        table(parse=[parsed(**{"name": "at", "from": "ts"})]),
    ),
    "time-format-or-pattern": (
        table(time=[{"format": "klog", "pattern": "%d%m%H"}]), "table.time[0].pattern",
        table(time=[{"pattern": "%d%m%H"}]),
    ),
    "table-needs-direct": (
        {**table(enabled=True), "stream": {"allowDirect": False}}, "stream.allowDirect",
        {**table(enabled=False), "stream": {"allowDirect": False}},
    ),
    "external-names": (
        {"subject": "logs", "stream": {"external": True}, **collectors(group="audit")},
        "stream.external",
        {**EXTERNAL, **collectors(group="audit")},
    ),
    "external-group": (EXTERNAL, "collectors.group", {**EXTERNAL, **collectors(replicas=0)}),
    "single-few-partitions": (
        {"partitions": 65, "stream": {"layout": "single"}}, "partitions",
        {"partitions": 64, "stream": {"layout": "single"}},
    ),
    "single-without-overrides": (
        {"stream": {"layout": "single", "overrides": [{"partitions": "0"}]}}, "stream.overrides",
        {"stream": {"overrides": [{"partitions": "0"}]}},
    ),
    "single-consumers-read-all": (
        {**consumer(partitions="0"), "stream": {"layout": "single"}}, "consumers",
        {**consumer(filterHost="web1"), "stream": {"layout": "single"}},
    ),
    "one-local-login": (
        {"local": {"nats": {"tokenFile": "/t", "credsFile": "/c"}}}, "local.nats",
        {"local": {"nats": {"tokenFile": "/t", "caFile": "/c"}}},
    ),
    "tls-cert-and-key": (
        {"nats": {"tls": {**SECRET, "cert": "c"}}}, "nats.tls",
        {"nats": {"tls": {**SECRET, "cert": "c", "key": "k"}}},
    ),
    "tls-names-a-file": (
        {"nats": {"tls": SECRET}}, "nats.tls",
        {"nats": {"tls": {**SECRET, "ca": "c"}}},
    ),
    "tls-first-needs-tls": (
        {"nats": {"tlsFirst": True, "servers": ["nats://a:1"]}}, "nats.tlsFirst",
        {"nats": {"tlsFirst": True, "servers": ["nats://a:1", "tls://a:1"]}},
    ),
    "one-kind-of-volume": (
        collectors(persistence={"existingClaim": "c", "emptyDir": {}}), "collectors.persistence",
        collectors(persistence={"existingClaim": "c", "size": "1Gi"}),
    ),
    "host-files-mountable": (
        host_files(include=["/etc/*.log"]), "shippers.hostFiles",
        host_files(include=["/var/log/*.log", "/etc/app/*.log", "/opt/app/x.log"]),
    ),
    "shippers-read-something": (
        {"shippers": {"containerLogs": False}}, "shippers",
        {"shippers": {"containerLogs": False, "hostFiles": [{"include": ["/srv/a/*"]}]}},
    ),
    "local-cert-and-key": (
        {"local": {"nats": {"certFile": "/c"}}}, "local.nats",
        {"local": {"nats": {"certFile": "/c", "keyFile": "/k"}}},
    ),
    "local-user-and-password": (
        {"local": {"nats": {"userFile": "/u"}}}, "local.nats",
        {"local": {"nats": {"userFile": "/u", "passwordFile": "/p"}}},
    ),
    "age-none-or-kept": (
        {"stream": {"maxAge": "1us", "duplicateWindow": "100ms"}}, "stream.maxAge",
        {"stream": {"maxAge": "0s"}},
    ),
    "window-within-age": (
        {"stream": {"maxAge": "1d", "duplicateWindow": "25h"}}, "stream.duplicateWindow",
        {"stream": {"maxAge": "1d", "duplicateWindow": "24h"}},
    ),
    "overrides-within-partitions": (
        {"stream": {"overrides": [{"partitions": "0-3,10"}]}}, "stream.overrides",
        {"stream": {"overrides": [{"partitions": "0-3,9"}]}},
    ),
    "consumers-within-partitions": (
        consumer(partitions="5-10"), "consumers", consumer(partitions="5-9"),
    ),
    "path-known-variables": (
        collectors(path="{host}/{hots}"), "collectors.path", collectors(path="${host}/%Y.log"),
    ),
    "path-apart": (collectors(path="all.log"), "collectors.path", collectors(path="{partition}")),
    "path-inside": (
        collectors(path="{host}/../x"), "collectors.path", collectors(path="{host}/..x"),
    ),
    "filePath-known-variables": (
        collectors(filePath="{host}/{"), "collectors.filePath", collectors(filePath="{host}{path}"),
    ),
    "filePath-apart": (
        collectors(filePath="{path}"), "collectors.filePath", collectors(filePath="{host}"),
    ),
    "filePath-inside": (
        collectors(filePath="/{host}"), "collectors.filePath", collectors(filePath="{host}/"),
    ),
    "consumer-needs-start-sequence": (
        consumer(deliverPolicy="byStartSequence"), "consumers[0].optStartSeq",
        consumer(deliverPolicy="byStartSequence", optStartSeq=1),
    ),
    "consumer-needs-start-time": (
        consumer(deliverPolicy="byStartTime"), "consumers[0].optStartTime",
        consumer(deliverPolicy="byStartTime", optStartTime="2026-01-31T12:00:00.5+02:00"),
    ),
    "consumer-needs-heartbeat": (
        consumer(type="push", flowControl=True), "consumers[0].idleHeartbeat",
        consumer(type="push", flowControl=True, idleHeartbeat="5s"),
    ),
    "consumer-backoff-or-wait": (
        consumer(ackWait="1s", backoff=["1s"]), "consumers[0].ackWait",
        consumer(ackWait="1s", backoff=[]),
    ),
    "consumer-backoff-fits": (
        consumer(maxDeliver=1, backoff=["1s", "2s"]), "consumers[0].backoff",
        consumer(maxDeliver=2, backoff=["1s", "2s"]),
    ),
    "consumer-partitions-rise": (
        consumer(partitions="3-0"), "consumers[0].partitions", consumer(partitions="3-3"),
    ),
    "override-partitions-rise": (
        {"stream": {"overrides": [{"partitions": "3-0"}]}}, "stream.overrides[0].partitions",
        {"stream": {"overrides": [{"partitions": "0-3"}]}},
    ),
    "override-age-none-or-kept": (
        {"stream": {"overrides": [{"partitions": "0", "maxAge": "99ms"}]}},
        "stream.overrides[0].maxAge",
        {"stream": {"overrides": [{"partitions": "0", "maxAge": "0s"}]}},
    ),
    "ack-of-selected": (
        {"shippers": {"match": [{"exclude": {}, "ack": "each"}]}}, "shippers.match[0].ack",
        {"shippers": {"match": [{"select": {}, "ack": "each"}]}},
    ),
    "select-or-exclude": (
        {"shippers": {"match": [{}]}}, "shippers.match[0]",
        {"shippers": {"match": [{"select": {}}]}},
    ),
    "shipper-reads-something": (
        {"local": {"shippers": [{"name": "a", "files": []}]}}, "local.shippers[0]",
        {"local": {"shippers": [{"name": "a", "pods": "/p"}]}},
    ),
}  # fmt: skip
PUSH = {"deliverSubject": "out", "deliverGroup": "g", "idleHeartbeat": "1s", "rateLimitBps": 1}
PULL = {
    "maxWaiting": 1, "maxRequestBatch": 1, "maxRequestExpires": "1s", "maxRequestMaxBytes": 1,
}  # fmt: skip
ACKED: dict[str, Any] = {"ackWait": "1s", "maxAckPending": 5, "backoff": ["1s"]}
for fields, other, wrong, right in (
    (PUSH, "type", "pull", "push"),
    (PULL, "type", "push", "pull"),
    (ACKED, "ackPolicy", "none", "all"),
    ({"optStartSeq": 5}, "deliverPolicy", "new", "byStartSequence"),
    ({"optStartTime": "2026-01-31T12:00:00Z"}, "deliverPolicy", "new", "byStartTime"),
):
    for field, value in fields.items():
        CASES[f"consumer-{field}-{other}"] = (
            consumer(**{field: value, other: wrong}), f"consumers[0].{field}",
            consumer(**{field: value, other: right}),
        )  # fmt: skip
CASES["redaction-expressions"] = (
    {"redaction": {"expressions": ["a", "("]}}, "redaction.expressions",
    {"redaction": {"expressions": ["a", "b"]}},
)  # fmt: skip
CASES["consumer-flowControl-type"] = (
    consumer(flowControl=True, type="pull", idleHeartbeat="1s"), "consumers[0].flowControl",
    consumer(flowControl=True, type="push", idleHeartbeat="1s"),
)  # fmt: skip

OWN_SERVER: dict[str, Any] = {"servers": ["nats://a:4222"]}
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "subject-stays": ({}, {"subject": "logs"}, "subject"),
    "partitions-stay": ({"partitions": 10}, {"partitions": 11}, "partitions"),
    "stream-name-stays": ({"stream": {"name": "A"}}, {"stream": {"name": "B"}}, "stream.name"),
    "layout-stays": ({}, {"stream": {"layout": "single"}}, "stream.layout"),
    "foreign-stays": (
        {"stream": {"layout": "single"}},
        {"stream": {"layout": "single", "foreignPartitions": 64}},
        "stream.foreignPartitions",
    ),
    "storage-stays": ({}, {"stream": {"storage": "memory"}}, "stream.storage"),
    "workqueue-stays": ({}, {"stream": {"retention": "workqueue"}}, "stream.retention"),
    "deny-delete-stays": ({"stream": {"denyDelete": True}}, {}, "stream.denyDelete"),
    "deny-purge-stays": ({"stream": {"denyPurge": True}}, {}, "stream.denyPurge"),
    "group-stays": (collectors(group="main"), collectors(group="x"), "collectors.group"),
    "persistence-stays": (
        {}, collectors(persistence={"hostPath": "/srv/logs"}), "collectors.persistence",
    ),
    "managed-replicas-stay": (
        {}, {"nats": {"managed": {"replicas": 3}}}, "nats.managed.replicas",
    ),
    "servers-stay-yours": ({}, {"nats": OWN_SERVER}, "nats.servers"),
    "managed-domain-stays": ({}, {"nats": {"jsDomain": "hub"}}, "nats.jsDomain"),
}  # fmt: skip


def test_every_rule_is_broken_below() -> None:
    """A new rule needs a case, and no two rules have the same name."""
    rules = [rule.id for rule in (*SPEC_RULES, *ENTRY_RULES)]

    assert sorted(rules) == sorted(CASES)
    assert [rule.id for rule in CHANGE_RULES] == list(CHANGES)


def regex(pattern: str, *fields: str) -> dict[str, Any]:
    """A spec with one rule for lines, whose groups are columns."""
    rule = {"format": "regex", "pattern": pattern, "fields": [{"name": name} for name in fields]}
    return table(parse=[rule])


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(?P<a>x", "is not an expression of RE2: missing )"),
        ("(?P<a>x)(?=y)", "is not an expression of RE2: invalid perl operator"),
        (r"(?P<a>x)\1", "is not an expression of RE2: invalid escape sequence"),
        ("(?P<a>x++)", "is not an expression of RE2: bad repetition operator"),
        (r"(?P<a>\pL{1000})", "is not an expression of RE2: pattern too large"),
        ("(?P<a>\ud800)", "is not text"),
        ("(x)", "has a group without a name of its own"),
        ("(?P<a>x)(y)", "has a group without a name of its own"),
        ("(?P<a>x)(?P<a>y)", "has a group without a name of its own"),
        ("x", "has no named group"),
        ("(?P<b>x)", 'the pattern has no group "a"'),
    ],
)
def test_an_expression_that_no_table_takes_is_refused(pattern: str, said: str) -> None:
    """With what is wrong; a table would refuse it when it starts."""
    with pytest.raises(SpecError) as caught:
        pipeline(regex(pattern, "a"))

    assert said in str(caught.value)


# In Python's own engine each letter of each range is looked at: seconds for one expression.
COSTLY = "(?i)(?P<a>[" + "".join(f"{chr(33 + number)}-\uffff" for number in range(300)) + "])"


def test_no_expression_of_a_resource_is_compiled_by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may write one could stop the operator by it, which reads the resources of all."""
    compiled_by_python = vars(re)["_compile"]

    def noted(pattern: Any, flags: int) -> Any:
        assert pattern != COSTLY, "compiled by Python"
        return compiled_by_python(pattern, flags)

    monkeypatch.setattr("re._compile", noted)

    assert pipeline(regex(COSTLY, "a")).spec.table.parse[0].pattern == COSTLY


@pytest.mark.parametrize("name", CASES)
def test_a_broken_rule_is_told_at_its_field(name: str) -> None:
    """With its own message, where the user finds it."""
    spec, path, _ = CASES[name]
    (rule,) = (rule for rule in (*SPEC_RULES, *ENTRY_RULES) if rule.id == name)

    with pytest.raises(SpecError) as error:
        pipeline(spec)

    assert (f"spec.{path}", rule.message) in [(m.path, m.message) for m in error.value.mistakes]


@pytest.mark.parametrize("name", CASES)
def test_what_comes_close_to_breaking_a_rule_is_good(name: str) -> None:
    """A rule refuses no more than it must."""
    pipeline(CASES[name][2])


@pytest.mark.parametrize("name", CHANGES)
def test_what_may_not_change_is_told(name: str) -> None:
    """Alone, at its field; nothing is told where nothing changed."""
    old, new, path = CHANGES[name]

    told = check_update(pipeline(old), pipeline(new))

    assert [mistake.path for mistake in told] == [f"spec.{path}"]
    assert check_update(pipeline(old), pipeline(old)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"collectors": {"replicas": 5}},
        {"stream": {"maxAge": "2d", "denyDelete": True, "retention": "interest"}},
        {"consumers": [{"name": "a"}]},
        {"batch": {"compression": "none"}},
        {"collectors": {"persistence": {"size": "10Gi"}}},
    ],
)
def test_everything_else_may_change(change: dict[str, Any]) -> None:
    """Scaling, limits, consumers and how lines are sent: while the pipeline runs."""
    assert check_update(pipeline({}), pipeline(change)) == []


@pytest.mark.parametrize("change", [{"servers": ["nats://b:4222"]}, {"jsDomain": "hub"}])
def test_addresses_of_the_user_s_own_servers_may_change(change: dict[str, Any]) -> None:
    """Which way leads to them is theirs to say."""
    new = pipeline({"nats": {**OWN_SERVER, **change}})

    assert check_update(pipeline({"nats": OWN_SERVER}), new) == []
