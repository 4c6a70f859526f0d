"""The pods of a pipeline: what they may, what users say about them, and when they are restarted."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.child_manifests import built, child, children, pod_spec, pod_templates, resource
from cluster.child_manifests import settings as child_settings
from cluster.restricted_pods import restricted_faults
from logpipeline_operator.children import Component, build
from logpipeline_operator.children.pods import CONFIG_HASH_ANNOTATION

FIELDS = {
    "collector": ("collectors",),
    "nats": ("nats", "managed"),
    "shipper": ("shippers",),
    "table": ("table",),
}
# What there is only where it is asked for.
ASKED: dict[str, Any] = {"table": {"enabled": True}}
OPTIONS: dict[str, Any] = {
    "image": "registry.example/x@sha256:1",
    "imagePullPolicy": "Always",
    "imagePullSecrets": [{"name": "pull"}],
    "resources": {"requests": {"cpu": 0.5, "memory": "1024Mi"}, "limits": {"cpu": "2"}},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "topologySpreadConstraints": [{"maxSkew": 2, "topologyKey": "zone"}],
    "priorityClassName": "high",
    "podLabels": {"team": "logs", "app.kubernetes.io/instance": "stolen"},
    "podAnnotations": {"note": "1", CONFIG_HASH_ANNOTATION: "stolen"},
    "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
    "terminationGracePeriodSeconds": 0,
    "serviceAccountName": "mine",
}


def with_options(component: str, **options: Any) -> dict[str, Any]:
    """A spec with these options of the pods of *component*."""
    value: dict[str, Any] = {**ASKED.get(component, {}), **options}
    for name in reversed(FIELDS[component]):
        value = {name: value}
    return value


def hash_of(component: str, spec: dict[str, Any]) -> str:
    """What restarts pods of *component* when it changes."""
    template = pod_templates(children(spec))[component]
    return str(template["metadata"]["annotations"][CONFIG_HASH_ANNOTATION])


def test_a_collector_requests_what_it_needs() -> None:
    """Unless the user says what a pod requests."""
    (container,) = pod_templates(children({}))["collector"]["spec"]["containers"]
    own = {"collectors": {"resources": {"requests": {"cpu": "2"}}}}
    (chosen,) = pod_templates(children(own))["collector"]["spec"]["containers"]

    assert container["resources"] == {"requests": {"cpu": "100m", "memory": "256Mi"}}
    assert chosen["resources"] == {"requests": {"cpu": "2"}}


@pytest.mark.parametrize("kind", [{}, {"existingClaim": "c"}, {"emptyDir": {}}])
def test_collectors_and_servers_pass_the_restricted_standard(kind: dict[str, Any]) -> None:
    """With each volume that the standard knows; nothing is written outside of volumes."""
    made = children({"collectors": {"persistence": kind}, "nats": {"managed": {"replicas": 3}}})

    for name in ("prod-collector", "prod-nats"):
        pod = pod_spec(child(made, "StatefulSet", name))
        assert restricted_faults(pod) == []
        assert all(c["securityContext"]["readOnlyRootFilesystem"] for c in pod["containers"])


def test_a_shipper_may_read_what_others_may_not_and_nothing_else() -> None:
    """Root without rights but one, to read; of the node it writes its positions only."""
    made = children({"shippers": {"hostFiles": [{"include": ["/srv/app/*.log"]}]}})
    pod = pod_spec(child(made, "DaemonSet", "prod-shipper"))
    (container,) = pod["containers"]

    assert set(restricted_faults(pod)) == {
        "volume positions", "volume logs-0", "volume logs-1", "capabilities", "root",
    }  # fmt: skip
    assert container["securityContext"]["capabilities"] == {
        "drop": ["ALL"], "add": ["DAC_READ_SEARCH"],
    }  # fmt: skip
    writable = [m["mountPath"] for m in container["volumeMounts"] if not m.get("readOnly")]
    assert writable == ["/var/lib/logpipeline", "/tmp"]


@pytest.mark.parametrize("component", FIELDS)
def test_every_option_of_pods_arrives(component: str) -> None:
    """What a user says about pods is in them, in the API server's own form."""
    template = pod_templates(children(with_options(component, **OPTIONS)))[component]
    pod, metadata = template["spec"], template["metadata"]
    (container,) = pod["containers"]

    assert container["image"] == OPTIONS["image"]
    assert container["imagePullPolicy"] == "Always"
    assert container["resources"] == {
        "requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "2"},
    }  # fmt: skip
    assert {"name": "A", "value": "2"} in container["env"]
    assert len({entry["name"] for entry in container["env"]}) == len(container["env"])
    assert pod["terminationGracePeriodSeconds"] == 0
    assert pod["serviceAccountName"] == "mine"
    for name in ("imagePullSecrets", "nodeSelector", "tolerations", "affinity"):
        assert pod[name] == OPTIONS[name]
    assert pod["topologySpreadConstraints"] == OPTIONS["topologySpreadConstraints"]
    assert pod["priorityClassName"] == "high"
    assert metadata["labels"]["team"] == "logs"
    assert metadata["annotations"]["note"] == "1"


@pytest.mark.parametrize("component", FIELDS)
def test_labels_and_variables_that_are_ours_stay_ours(component: str) -> None:
    """A user cannot take pods out of their set, nor tell a collector another's name."""
    spec = with_options(component, podLabels=OPTIONS["podLabels"], env=[{"name": "POD_NAME"}])
    template = pod_templates(children(spec))[component]

    assert template["metadata"]["labels"]["app.kubernetes.io/instance"] == "prod"
    names = [entry["name"] for entry in template["spec"]["containers"][0]["env"]]
    assert names.count("POD_NAME") == 1
    if component != "shipper":
        assert "valueFrom" in template["spec"]["containers"][0]["env"][0]


def test_the_operator_s_settings_hold_where_the_resource_says_nothing() -> None:
    """Its images, its pull policy and its pull secrets."""
    settings = child_settings(image_pull_policy="Never", image_pull_secrets=("one", "two"))

    for template in pod_templates(built(resource({}), settings)).values():
        assert template["spec"]["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]
        assert template["spec"]["containers"][0]["imagePullPolicy"] == "Never"


@pytest.mark.parametrize(
    ("component", "table"),
    [
        ("collector", {}),
        ("nats", {}),
        ("shipper", {}),
        ("table", {}),
        ("table", {"runner": "native", "executors": {"instances": 2}}),
    ],
)
def test_without_an_image_only_its_component_is_undecided(
    component: str, table: dict[str, Any]
) -> None:
    """The reason says where to name one, and all other components are made as ever."""
    pipeline = resource({"table": {"enabled": True, "path": "s3://logs/prod", **table}})
    desired = build(pipeline, child_settings(**{f"image_{component}": ""}))
    field = ".".join(FIELDS[component])

    assert Component(component) in desired.undecided
    (why,) = {str(each) for each in desired.undecided.values()}
    assert f"spec.{field}.image" in why
    assert f"LOGPIPELINE_IMAGE_{component.upper()}" in why
    assert set(pod_templates(desired.manifests)) == FIELDS.keys() - {component}


@pytest.mark.parametrize(
    "spec",
    [
        {"collectors": {"replicas": 4}},
        {"collectors": {"nodeSelector": {"a": "b"}, "drainTimeoutSeconds": 5}},
        {"stream": {"maxAge": "2d", "replicas": 3}},
        {"consumers": [{"name": "audit"}]},
        {"deletionPolicy": "Delete"},
    ],
)
def test_what_no_pod_reads_restarts_none(spec: dict[str, Any]) -> None:
    """Scaling, limits of streams and where pods run leave the configuration as it is."""
    for component in FIELDS:
        assert hash_of(component, {**ASKED, **spec}) == hash_of(component, ASKED)


@pytest.mark.parametrize(
    ("component", "spec"),
    [
        ("collector", {"collectors": {"output": "json"}}),
        ("collector", {"collectors": {"retention": {"maxAge": "2d"}}}),
        ("collector", {"cluster": "prod-1"}),
        ("collector", {"nats": {"servers": ["nats://a:4222"]}}),
        ("shipper", {"batch": {"maxBytes": "1Mi"}}),
        ("shipper", {"shippers": {"match": [{"exclude": {"namespaces": ["a"]}}]}}),
        ("shipper", {"shippers": {"hostFiles": [{"include": ["/srv/a/*"]}]}}),
        ("shipper", {"partitions": 3}),
        ("nats", {"nats": {"managed": {"storage": "20Gi"}}}),
        ("nats", {"batch": {"maxBytes": "2Mi"}}),
        ("table", {"table": {"enabled": True, "every": "20s"}}),
        ("table", {"table": {"enabled": True, "s3": {"region": "eu-west-1"}}}),
        ("table", {"nats": {"servers": ["nats://a:4222"]}}),
        ("table", {"partitions": 3}),
    ],
)
def test_what_a_pod_reads_restarts_it(component: str, spec: dict[str, Any]) -> None:
    """A change of it reaches every pod."""
    assert hash_of(component, {**ASKED, **spec}) != hash_of(component, ASKED)


def test_the_configuration_of_one_component_is_not_the_other_s() -> None:
    """Another format of files restarts no shipper, another batch no collector."""
    assert hash_of("shipper", {"collectors": {"output": "json"}}) == hash_of("shipper", {})
    assert hash_of("collector", {"batch": {"maxBytes": "64Ki"}}) == hash_of("collector", {})


def test_a_secret_is_known_by_its_name_only() -> None:
    """Another Secret restarts pods; what is in it is nobody's business here."""

    def user(secret: str) -> dict[str, Any]:
        given = {"secret": {"name": secret}, "user": "u", "password": "p"}
        return {"nats": {"servers": ["nats://a:4222"], "user": given}}

    assert hash_of("collector", user("one")) == hash_of("collector", user("one"))
    assert hash_of("collector", user("one")) != hash_of("collector", user("two"))


@pytest.mark.parametrize(
    ("options", "seconds"),
    [({}, 300), ({"drainTimeoutSeconds": 5}, 5), ({"terminationGracePeriodSeconds": 7}, 7)],
)
def test_a_collector_has_time_to_hand_over(options: dict[str, Any], seconds: int) -> None:
    """As long as the resource gives it."""
    pod = pod_spec(child(children({"collectors": options}), "StatefulSet", "prod-collector"))

    assert pod["terminationGracePeriodSeconds"] == seconds
