"""The chart's values: each does what values.yaml says, and what is no value is refused."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import yaml

from cluster.chart_rendering import ALL_ON, CHART, NAMESPACE, Refused, chart_file, helm, render
from logpipeline_operator.children.model import Scraping
from logpipeline_operator.settings import read

DIGEST = "sha256:" + "a" * 64


def test_chart_lint_has_nothing_to_say() -> None:
    """Helm's own check finds neither an error nor a warning."""
    done = subprocess.run(
        [helm(), "lint", "--strict", str(CHART)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


def test_chart_defaults_make_an_operator_and_its_definition() -> None:
    """Without any value there are the operator, its rights, its metrics and the definition."""
    rendered = render()

    assert rendered.kinds == {
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "Deployment",
        "LogPipelineClass",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
    }
    for name in ("table", "nats"):
        image = rendered.environment[f"LOGPIPELINE_IMAGE_{name.upper()}"]
        assert image == f"docker.io/logpipeline/{name}:0.1.0"


def test_chart_with_all_on_has_every_part_once() -> None:
    """What can be switched on comes, in the release's namespace, with the chart's labels."""
    rendered = render(ALL_ON)

    for kind in ("PodDisruptionBudget", "NetworkPolicy", "PodMonitor", "PrometheusRule"):
        metadata = rendered.one(kind)["metadata"]
        assert metadata["namespace"] == NAMESPACE
        assert metadata["labels"]["app.kubernetes.io/name"] == "logpipeline"
    assert rendered.one("ConfigMap")["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_chart_objects_have_names_of_their_own() -> None:
    """No two objects of one kind meet under one name."""
    manifests = render({**ALL_ON, "watchNamespaces": ["a", "b"]}, with_tests=True).manifests
    places = [(m["kind"], m["metadata"].get("namespace"), m["metadata"]["name"]) for m in manifests]

    assert len(set(places)) == len(places)


def test_chart_selectors_find_the_operator() -> None:
    """Deployment, Service, budget, policy and monitor choose by labels that the pod has."""
    rendered = render({**ALL_ON, "nameOverride": "other", "podLabels": {"team": "logs"}})
    labels = rendered.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [
        rendered.one("Service")["spec"]["selector"],
        rendered.one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        *(
            rendered.one(kind)["spec"]["selector"]["matchLabels"]
            for kind in ("Deployment", "PodDisruptionBudget", "PodMonitor")
        ),
    ]

    assert all(selector.items() <= labels.items() for selector in selectors)
    assert labels["team"] == "logs"
    # Pipelines' NetworkPolicies let the operator in by it.
    assert labels["app.kubernetes.io/name"] == "logpipeline"


@pytest.mark.parametrize(
    ("values", "operator", "collector"),
    [
        ({}, "docker.io/logpipeline/operator:0.1.0", "docker.io/logpipeline/collector:0.1.0"),
        (
            {"image": {"registry": "r.example", "tag": "v9"}},
            "r.example/logpipeline/operator:v9",
            "r.example/logpipeline/collector:v9",
        ),
        (
            {"global": {"imageRegistry": "g.example"}, "image": {"registry": "r.example"}},
            "g.example/logpipeline/operator:0.1.0",
            "g.example/logpipeline/collector:0.1.0",
        ),
        (
            {"image": {"digest": DIGEST}},
            f"docker.io/logpipeline/operator@{DIGEST}",
            "docker.io/logpipeline/collector:0.1.0",
        ),
        (
            {"images": {"collector": {"registry": "c.example", "tag": "v2", "digest": DIGEST}}},
            "docker.io/logpipeline/operator:0.1.0",
            f"c.example/logpipeline/collector@{DIGEST}",
        ),
        ({"image": {"registry": ""}}, "logpipeline/operator:0.1.0", "logpipeline/collector:0.1.0"),
    ],
)
def test_chart_images_are_named_as_asked(
    values: dict[str, Any], operator: str, collector: str
) -> None:
    """Registry, tag and digest come from the nearest setting; a digest wins over a tag."""
    rendered = render(values)

    assert rendered.container["image"] == operator
    assert rendered.environment["LOGPIPELINE_IMAGE_COLLECTOR"] == collector


def test_chart_pull_secrets_reach_the_operator_and_its_pipelines() -> None:
    """Those of a parent chart and our own are used by the pod, and told to the operator."""
    values = {
        "global": {"imagePullSecrets": [{"name": "one"}]},
        "imagePullSecrets": [{"name": "two"}, {"name": "one"}],
    }

    rendered = render(values)

    assert rendered.pod["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]
    assert rendered.environment["LOGPIPELINE_IMAGE_PULL_SECRETS"] == "one,two"
    assert "LOGPIPELINE_IMAGE_PULL_SECRETS" not in render().environment


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nodeSelector", {"disk": "ssd"}),
        ("tolerations", [{"operator": "Exists"}]),
        ("affinity", {"nodeAffinity": {}}),
        ("priorityClassName", "system-cluster-critical"),
        ("terminationGracePeriodSeconds", 7),
    ],
)
def test_chart_pod_options_arrive_in_the_pod(name: str, value: object) -> None:
    """What chooses nodes and order stands in the pod as it was given."""
    assert render({name: value}).pod[name] == value


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        ("extraEnv", [{"name": "A", "value": "b"}], "env"),
        ("extraEnvFrom", [{"secretRef": {"name": "s"}}], "envFrom"),
        ("extraArgs", ["--context=x"], "args"),
        ("extraVolumeMounts", [{"name": "v", "mountPath": "/v"}], "volumeMounts"),
    ],
)
def test_chart_container_options_arrive_in_the_container(
    name: str, value: list[Any], field: str
) -> None:
    """What is added to the container stands there, behind what the chart says itself."""
    assert render({name: value}).container[field][-len(value) :] == value


def test_chart_resources_are_those_of_the_container() -> None:
    """What is given is added to the chart's own, as Helm does; null takes one away."""
    values = {"resources": {"requests": {"cpu": "1"}, "limits": {"memory": None}}}

    assert render(values).container["resources"] == {
        "requests": {"cpu": "1", "memory": "160Mi"},
        "limits": {},
    }


def test_chart_spread_constraints_choose_the_operator_by_themselves() -> None:
    """A constraint without a selector gets the operator's; one with its own keeps it."""
    own = {"matchLabels": {"a": "b"}}
    base = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}

    spread = render({"topologySpreadConstraints": [base, base | {"labelSelector": own}]}).pod[
        "topologySpreadConstraints"
    ]

    assert spread[0]["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == "operator"
    assert spread[1]["labelSelector"] == own


def test_chart_names_and_labels_can_be_chosen() -> None:
    """Names begin with the one that was given, and common labels stand on every object."""
    values = {
        "fullnameOverride": "logs",
        "commonLabels": {"team": "x"},
        "commonAnnotations": {"a": "b"},
    }

    manifests = render(values, with_tests=True).manifests
    # What pipelines name keeps its name, whatever the release is called.
    fixed = ("CustomResourceDefinition", "LogPipelineClass")
    ours = [m for m in manifests if m["kind"] not in fixed]

    assert all(m["metadata"]["name"].startswith("logs-") for m in ours)
    assert all(m["metadata"]["labels"]["team"] == "x" for m in ours)
    assert all(m["metadata"]["annotations"]["a"] == "b" for m in ours)


def test_chart_definition_can_be_left_out_or_given_up() -> None:
    """The definition is the project's own; it survives an uninstall unless that is given up."""
    originals = list(yaml.safe_load_all(chart_file("files/crd.yaml")))
    kept = render().all("CustomResourceDefinition")
    let_go = render({"crds": {"keep": False}}).all("CustomResourceDefinition")

    policies = [each["metadata"]["annotations"] for each in kept]
    assert policies == [{"helm.sh/resource-policy": "keep"}] * len(originals)
    assert [each["spec"] for each in kept] == [each["spec"] for each in originals]
    assert let_go == originals
    assert not render({"crds": {"enabled": False}}).all("CustomResourceDefinition")


def test_chart_settings_reach_the_operator() -> None:
    """What the operator is told by environment and arguments is what the values say."""
    rendered = render({"resyncSeconds": 45, "readOnly": True, "watchNamespaces": ["a", "b"]})
    args = rendered.container["args"]

    assert rendered.environment["LOGPIPELINE_RESYNC_SECONDS"] == "45"
    assert "--read-only" in args
    assert [args[n + 1] for n, word in enumerate(args) if word == "--namespace"] == ["a", "b"]


def test_chart_labels_of_pod_monitors_reach_those_of_pipelines() -> None:
    """A Prometheus that chooses by them would scrape the operator alone, and no alert say so."""
    labels, annotations = {"release": "kps"}, {"by": "hand"}
    values = {"labels": labels, "annotations": annotations, "interval": "45s"}
    rendered = render({"podMonitor": {**values, "enabled": True}})
    environment = {each: value or "" for each, value in rendered.environment.items()}

    scraping = read(["--http", "127.0.0.1:1"], environment).install.scraping
    assert scraping == Scraping(
        labels=labels, annotations=annotations, interval="45s", timeout="10s"
    )
    monitor = rendered.one("PodMonitor")["metadata"]
    assert monitor["labels"].items() >= labels.items()


def test_chart_alerts_take_their_limits_from_values() -> None:
    """Limits and further labels reach the alerts, single ones can go, and others be added."""
    more = {"alert": "Mine", "expr": "vector(1)"}
    values = {
        "enabled": True,
        "notReadyFor": "42m",
        "lagBytes": 5_000_000_000,
        "lagSeconds": 77,
        "alertLabels": {"team": "logs"},
        "disabled": ["LogPipelineDeadLetters"],
        "extraRules": [more],
    }

    (group,) = render({"prometheusRule": values}).one("PrometheusRule")["spec"]["groups"]
    rules = {rule["alert"]: rule for rule in group["rules"]}

    assert rules["LogPipelineNotReady"]["for"] == "42m"
    assert rules["LogPipelineLagging"]["expr"].endswith("> 5000000000")
    assert rules["LogPipelineShipperBehind"]["expr"].endswith("> 77")
    assert f'namespace="{NAMESPACE}"' in rules["LogPipelineOperatorDown"]["expr"]
    assert rules["LogPipelineLagging"]["labels"] == {"severity": "warning", "team": "logs"}
    assert "LogPipelineDeadLetters" not in rules
    assert rules["Mine"] == more


def test_chart_network_policy_limits_only_what_it_is_told() -> None:
    """Metrics are open to those named, or to all; egress is free until there are rules."""
    peers = [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]
    rules = [{"ports": [{"port": 6443}]}]
    free = render({"networkPolicy": {"enabled": True}}).one("NetworkPolicy")["spec"]
    values = {"enabled": True, "metricsFrom": peers, "egress": rules}
    tight = render({"networkPolicy": values}).one("NetworkPolicy")["spec"]

    assert free["policyTypes"] == ["Ingress"]
    assert "from" not in free["ingress"][0]
    assert tight["policyTypes"] == ["Ingress", "Egress"]
    assert (tight["ingress"][0]["from"], tight["egress"]) == (peers, rules)


def test_chart_extra_objects_may_use_the_chart() -> None:
    """Objects of one's own come with the release, as data or as text with templates."""
    text = "apiVersion: v1\nkind: Secret\nmetadata: {name: '{{ .Release.Name }}-s'}"
    data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-c"}}

    rendered = render({"extraObjects": [text, data]})

    assert rendered.one("Secret")["metadata"]["name"] == "logpipeline-s"
    assert rendered.one("ConfigMap")["metadata"]["name"] == "logpipeline-c"


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"imagee": {}}, "imagee"),
        ({"image": {"name": "x"}}, "/image"),
        ({"images": {"spark": {}}}, "/images"),
        ({"replicas": "two"}, "/replicas"),
        ({"replicas": -1}, "/replicas"),
        ({"image": {"digest": "latest"}}, "/image/digest"),
        ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
        ({"watchNamespaces": "logging"}, "/watchNamespaces"),
        ({"watchNamespaces": ["A B"]}, "/watchNamespaces/0"),
        ({"watchNamespaces": ["a", "a"]}, "/watchNamespaces"),
        ({"imagePullSecrets": ["registry"]}, "/imagePullSecrets/0"),
        ({"crds": {"keep": "yes"}}, "/crds/keep"),
        ({"resyncSeconds": 0}, "/resyncSeconds"),
        ({"resyncSeconds": 120}, "/resyncSeconds"),
        ({"podMonitor": {"interval": "often"}}, "/podMonitor/interval"),
        ({"podDisruptionBudget": {"maxUnavailable": "half"}}, "/podDisruptionBudget"),
        ({"test": {"wait": 1}}, "/test"),
        ({"serviceAccount": {"create": False}}, "serviceAccount.name"),
    ],
)
def test_chart_refuses_what_is_no_value(values: dict[str, Any], where: str) -> None:
    """A name that is not there, or a value of a wrong kind, is named and not passed over."""
    with pytest.raises(Refused) as refusal:
        render(values)

    assert where in str(refusal.value)


def test_chart_may_be_part_of_another() -> None:
    """What Helm passes on from a parent chart is no mistake."""
    assert render({"enabled": True, "global": {"other": 1}}).kinds
