"""The set of a pipeline's children: which there are, what they are called, whose they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from cluster.child_manifests import SETTINGS, UID, built, child, children, resource, workloads
from cluster.child_manifests import settings as child_settings
from logpipeline.spec.api import PIPELINE_LABEL
from logpipeline.spec.model import NAME_CHARS_MAX
from logpipeline_operator.children import (
    Manifest,
    binding_name,
    config,
    kinds,
    order,
    shippers,
)
from logpipeline_operator.children.model import Component, Scraping, selector

LABEL_CHARS_MAX = 63
# What Kubernetes appends to a StatefulSet's name in a label of its pods, and to its name for them.
REVISION_CHARS = len("-1234567890")
ORDINAL_CHARS = len("-1023")
EVERYTHING: dict[str, Any] = {
    "networkPolicy": {"enabled": True},
    "nats": {"managed": {"replicas": 3}},
    "shippers": {"podNamespaces": "All", "hostFiles": [{"include": ["/srv/app/*.log"]}]},
}
ALL_PODS: dict[str, Any] = {"shippers": {"podNamespaces": "All"}}
OWN_PODS: dict[str, Any] = {"shippers": {"podNamespaces": "Own"}}
CHOSEN_PODS: dict[str, Any] = {
    "shippers": {
        "podNamespaces": "Selector",
        "podNamespaceSelector": {"matchLabels": {"team": "blue"}},
    }
}
SETTINGS_OWN = child_settings(shipper_role="Role/readers")
SETTINGS_ALL = child_settings(shipper_cluster_role="readers", has_pod_monitors=True)

DNS_NAMES = st.from_regex(rf"\A[a-z]([-a-z0-9]{{0,{NAME_CHARS_MAX - 2}}}[a-z0-9])?\Z")
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "partitions": st.just(1024),
        "networkPolicy": st.fixed_dictionaries({"enabled": st.booleans()}),
        "nats": st.sampled_from(
            [{"managed": {"replicas": 3}}, {"servers": ["tls://a:1"]}, {"jsDomain": "hub"}]
        ),
        "collectors": st.fixed_dictionaries(
            {},
            optional={
                "replicas": st.sampled_from([0, 1]),
                "persistence": st.sampled_from(
                    [{}, {"emptyDir": {}}, {"existingClaim": "c"}, {"hostPath": "/srv/x"}]
                ),
                "podDisruptionBudget": st.fixed_dictionaries({"enabled": st.booleans()}),
            },
        ),
        "shippers": st.fixed_dictionaries(
            {},
            optional={
                "enabled": st.booleans(),
                "mode": st.sampled_from(["daemonset", "sidecar"]),
                "hostFiles": st.just([{"include": ["/srv/a/*"]}]),
            },
        ),
    },
)


def titles(made: list[Manifest]) -> set[str]:
    """Kind and name of each child."""
    return {f"{m['kind']} {m['metadata']['name']}" for m in made}


def values(item: Any) -> Iterator[Any]:
    """Yield every value in *item*."""
    yield item
    if isinstance(item, dict | list):
        for part in item.values() if isinstance(item, dict) else item:
            yield from values(part)


@given(DNS_NAMES, SPECS)
def test_any_resource_gives_children_that_kubernetes_can_take(
    name: str, spec: dict[str, Any]
) -> None:
    """Names and labels fit, selectors find their pods, nothing is null, nothing is there twice."""
    made = built(resource(spec, name=name), SETTINGS_ALL)

    assert len(titles(made)) == len(made)
    for manifest in made:
        metadata = manifest["metadata"]
        assert None not in list(values(manifest))
        assert all(len(value) <= LABEL_CHARS_MAX for value in metadata["labels"].values())
        if manifest["kind"] != "ClusterRoleBinding":
            assert len(metadata["name"]) <= LABEL_CHARS_MAX
            assert metadata["ownerReferences"][0]["uid"] == UID
    for workload in workloads(made):
        spread = len(workload["metadata"]["name"]) + max(REVISION_CHARS, ORDINAL_CHARS)
        assert spread <= LABEL_CHARS_MAX
        labels = workload["spec"]["template"]["metadata"]["labels"].items()
        assert workload["spec"]["selector"]["matchLabels"].items() <= labels


@given(SPECS)
def test_the_same_resource_gives_the_same_bytes(spec: dict[str, Any]) -> None:
    """Whoever builds them, and whenever."""
    first, second = (json.dumps(children(spec, SETTINGS_ALL)) for _ in range(2))

    assert first == second


def test_the_children_of_a_pipeline_that_says_nothing() -> None:
    """A server, a collector, shippers, and what they need."""
    assert titles(children({})) == {
        "ServiceAccount prod-collector", "ServiceAccount prod-nats", "ServiceAccount prod-shipper",
        "ConfigMap prod-collector", "ConfigMap prod-nats", "ConfigMap prod-shipper",
        "ConfigMap prod-sidecar",
        "Service prod-collector", "Service prod-nats", "Service prod-nats-headless",
        "Service prod-shipper",
        "PodDisruptionBudget prod-collector", "PodDisruptionBudget prod-nats",
        "StatefulSet prod-collector", "StatefulSet prod-nats", "DaemonSet prod-shipper",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "gone"),
    [
        ({"nats": {"servers": ["nats://a:4222"]}}, {"StatefulSet prod-nats", "Service prod-nats"}),
        ({"shippers": {"enabled": False}}, {"DaemonSet prod-shipper", "ConfigMap prod-sidecar"}),
        ({"shippers": {"mode": "sidecar"}}, {"DaemonSet prod-shipper", "ConfigMap prod-shipper"}),
        (
            {"collectors": {"podDisruptionBudget": {"enabled": False}}},
            {"PodDisruptionBudget prod-collector"},
        ),
        (
            {"collectors": {"serviceAccountName": "mine"}}, {"ServiceAccount prod-collector"},
        ),
    ],
)  # fmt: skip
def test_what_is_not_wanted_is_not_there(spec: dict[str, Any], gone: set[str]) -> None:
    """One's own servers, no shippers on nodes, no budget, one's own account."""
    assert gone <= titles(children({}))
    assert not gone & titles(children(spec))


@pytest.mark.parametrize("tls", ["Required", "Optional"])
def test_only_servers_get_a_key_and_all_others_what_they_trust(tls: str) -> None:
    """Whoever logs in to a server with TLS finds its authority where its resource says; the
    authority's own key is in no pod.
    """
    spec = {"nats": {"managed": {"tls": tls}}, "table": {"enabled": True}}
    made = children(spec, SETTINGS_ALL)
    for workload in workloads(made):
        volumes = json.dumps(workload["spec"]["template"]["spec"]["volumes"])
        is_server = workload["metadata"]["name"] == "prod-nats"
        assert ("tls.key" in volumes) is is_server
        assert "ca.key" not in volumes
        assert ("prod-nats-ca" in volumes) is (not is_server or "callout" in volumes)
    texts = [m["data"] for m in made if m["kind"] == "ConfigMap"]
    reads = [data["pipeline.yaml"] for data in texts if "pipeline.yaml" in data]
    knowing = [text for text in reads if "caFile: /etc/logpipeline/nats/tls/ca.crt" in text]
    # But for the sidecars that were there before.
    assert len(knowing) == len(reads) - 1
    assert "caFile" in child(made, "ConfigMap", "prod-sidecar")["data"]["sidecar.yaml"]


def test_scaling_changes_the_number_of_replicas_and_nothing_else() -> None:
    """Not a byte elsewhere, so that no pod that stays is touched."""
    one, four = children({}), children({"collectors": {"replicas": 4}})
    child(four, "StatefulSet", "prod-collector")["spec"]["replicas"] = 1

    assert one == four


def test_selectors_hold_nothing_that_changes() -> None:
    """A StatefulSet's selector is fixed for its life."""
    assert selector(resource({}), Component.COLLECTOR) == {
        "app.kubernetes.io/name": "logpipeline",
        "app.kubernetes.io/instance": "prod",
        "app.kubernetes.io/component": "collector",
    }


def test_two_pipelines_share_no_child_and_no_pod() -> None:
    """Neither by name nor by selector, also where one's name begins with the other's."""
    one = built(resource({}, name="a"), SETTINGS_ALL)
    other = built(resource({}, name="a-collector"), SETTINGS_ALL)

    assert not titles(one) & titles(other)
    selectors = [w["spec"]["selector"]["matchLabels"] for w in workloads(one)]
    for workload in workloads(other):
        labels = workload["spec"]["template"]["metadata"]["labels"].items()
        assert not any(wanted.items() <= labels for wanted in selectors)


def test_only_a_binding_lies_in_no_namespace() -> None:
    """It says whose it is by labels, since no owner in a namespace could have it."""
    binding = child(
        children(ALL_PODS, SETTINGS_ALL), "ClusterRoleBinding", "logpipeline-shipper:logging:prod"
    )

    assert binding_name("logging", "prod") == binding["metadata"]["name"]
    assert "ownerReferences" not in binding["metadata"]
    assert binding["metadata"]["labels"]["logpipeline.dev/namespace"] == "logging"
    assert binding["roleRef"]["name"] == "readers"
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "prod-shipper", "namespace": "logging"}
    ]


@pytest.mark.parametrize(
    "spec",
    [
        {"shippers": {"mode": "sidecar"}},
        {"shippers": {"containerLogs": False, "hostFiles": [{"include": ["/srv/a/*"]}]}},
    ],
)
def test_who_reads_no_containers_asks_kubernetes_nothing(spec: dict[str, Any]) -> None:
    """No binding, no token, no watch."""
    made = children(spec, SETTINGS_ALL)

    assert "ClusterRoleBinding logpipeline-shipper:logging:prod" not in titles(made)
    assert "--kubernetes" not in json.dumps(made)
    for workload in workloads(made):
        assert workload["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


def test_shippers_ask_kubernetes_only_where_the_operator_may_let_them() -> None:
    """The flag, the token and the binding come together, for the namespaces that are read."""
    for settings, spec, binding in (
        (SETTINGS, ALL_PODS, ""),
        (SETTINGS_ALL, ALL_PODS, "ClusterRoleBinding logpipeline-shipper:logging:prod"),
        (SETTINGS_ALL, OWN_PODS, ""),
        (SETTINGS_OWN, OWN_PODS, "RoleBinding prod-shipper"),
        (SETTINGS_OWN, ALL_PODS, ""),
    ):
        made, is_asking = children(spec, settings), bool(binding)
        bindings = [title for title in titles(made) if "Binding" in title]
        assert bindings == [binding] * is_asking
        pod = child(made, "DaemonSet", "prod-shipper")["spec"]["template"]["spec"]
        assert ("--kubernetes" in pod["containers"][0]["args"]) is is_asking
        assert pod["automountServiceAccountToken"] is is_asking


def test_a_binding_of_own_pods_lies_with_them() -> None:
    """It gives the one role that the operator may bind, in the pipeline's namespace alone."""
    binding = child(children(OWN_PODS, SETTINGS_OWN), "RoleBinding", "prod-shipper")

    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("Role", "readers")
    assert binding["metadata"]["namespace"] == "logging"
    assert binding["metadata"]["ownerReferences"][0]["uid"] == UID


def test_shippers_are_told_which_namespaces_labels_select() -> None:
    """In a file that is read again: another namespace restarts no shipper."""
    more = child_settings(shipper_role="Role/readers", pod_namespaces=("bank", "shop"))
    few, many = (children(CHOSEN_PODS, each) for each in (SETTINGS_OWN, more))

    told = [child(each, "ConfigMap", "prod-shipper")["data"] for each in (few, many)]
    assert [each["namespaces.json"] for each in told] == ["[]", '["bank", "shop"]']
    assert child(few, "DaemonSet", "prod-shipper") == child(many, "DaemonSet", "prod-shipper")
    pod = child(few, "DaemonSet", "prod-shipper")["spec"]["template"]["spec"]
    assert pod["containers"][0]["args"][-2:] == ["--namespaces", "/etc/logpipeline/namespaces.json"]
    assert pod["automountServiceAccountToken"] is True
    [config_map, *_] = next(v for v in pod["volumes"] if v["name"] == "config")["projected"][
        "sources"
    ]
    assert [each["key"] for each in config_map["configMap"]["items"]] == [
        "pipeline.yaml", "namespaces.json",
    ]  # fmt: skip
    # Bindings lie where they count, one in each namespace, and are no children.
    assert [title for title in titles(many) if "Binding" in title] == []


def test_a_binding_in_another_namespace_is_no_child_of_a_pipeline_there() -> None:
    """One of the same name would else find it by its labels, and delete it."""
    pipeline = resource(CHOSEN_PODS)
    binding = shippers.binding_in("shop", pipeline, SETTINGS_OWN)

    assert binding["metadata"] == {
        "name": "logpipeline-shipper:logging:prod",
        "namespace": "shop",
        "labels": {
            "app.kubernetes.io/name": "logpipeline",
            "app.kubernetes.io/instance": "prod",
            "app.kubernetes.io/component": "shipper",
            "app.kubernetes.io/managed-by": "logpipeline-operator",
            "logpipeline.dev/namespace": "logging",
        },
    }
    assert (binding["kind"], binding["roleRef"]["name"]) == ("RoleBinding", "readers")
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "prod-shipper", "namespace": "logging"}
    ]


def test_no_glob_finds_the_logs_of_pods_that_are_not_read() -> None:
    """Files of the node are not another way to what podNamespaces leaves out."""
    files = {"hostFiles": [{"include": ["/var/log/**"], "exclude": ["/var/log/wtmp"]}]}
    own, all_pods = (
        config.for_shipper(resource({"shippers": {**spec["shippers"], **files}}))
        for spec in (OWN_PODS, ALL_PODS)
    )

    [narrow], [wide] = own.spec.local.shippers[0].files, all_pods.spec.local.shippers[0].files
    assert wide.exclude == ("/var/log/wtmp",)
    assert set(narrow.exclude) >= {"/var/log/wtmp", "/var/log/pods/**", "/var/log/containers/**"}
    assert own.spec.shippers.pod_namespaces == "Own"


def test_every_kind_is_known_to_who_looks_for_children() -> None:
    """What is made is found again, and pruned when it is not wanted any more."""
    made = children(EVERYTHING, SETTINGS_ALL)

    assert {(m["apiVersion"], m["kind"]) for m in made} == {
        (kind.group_version, kind.name) for kind in kinds(SETTINGS_ALL)
    }
    assert made == sorted(made, key=order)
    assert "PodMonitor" not in {kind.name for kind in kinds(SETTINGS)}


def test_a_pod_monitor_has_what_a_prometheus_chooses_by() -> None:
    """Beside our own labels, which none of these replaces."""
    scraping = Scraping(
        labels={"release": "kps", PIPELINE_LABEL: "other"},
        annotations={"by": "hand"},
        interval="45s",
        timeout="9s",
    )
    settings = child_settings(has_pod_monitors=True, scraping=scraping)
    made = child(children({}, settings), "PodMonitor", "prod")

    assert made["metadata"]["labels"]["release"] == "kps"
    assert made["metadata"]["labels"][PIPELINE_LABEL] == "prod"
    assert made["metadata"]["annotations"] == {"by": "hand"}
    (endpoint,) = made["spec"]["podMetricsEndpoints"]
    assert (endpoint["interval"], endpoint["scrapeTimeout"]) == ("45s", "9s")
