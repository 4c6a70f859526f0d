"""The chart, and the manifests for those without Helm, on a real Kubernetes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from cluster import chart_monitoring
from cluster.chart_rendering import ALL_ON, CHART, ROOT, helm, image_of, never_pulled, render
from cluster.handle import Cluster
from cluster.installed_operator import DEFINITION, away, define
from waiting import eventually

INSTALL_S_MAX = 120
TEST_S_MAX = 180
DEPLOYED = ("classes", "admission", "operator")


@pytest.fixture
def monitoring(cluster: Cluster) -> Iterator[None]:
    """The definitions of Prometheus' operator, in a group of their own."""
    made = chart_monitoring.definitions()
    names = [definition["metadata"]["name"] for definition in made]
    cluster.define(as_list(made), *names)
    yield
    cluster.kubectl("delete", "crd", *names)


@pytest.fixture
def alone(cluster: Cluster) -> Iterator[None]:
    """No other operator looks after the pipelines of this test."""
    with away(cluster):
        yield


def as_list(manifests: list[dict[str, Any]]) -> str:
    """Manifests as one text for kubectl."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})


def values_of(images: dict[str, str], namespace: str) -> dict[str, Any]:
    """Values for an operator of *namespace* alone, with the images that were built."""

    return {
        "crds": {"enabled": False},
        "image": never_pulled(images["operator"]),
        "images": {name: image_of(images[name]) for name in ("collector", "shipper", "nats")},
        "watchNamespaces": [namespace],
        "rbac": {"shipperMetadata": False, "aggregateToView": False},
        "test": {"timeoutSeconds": TEST_S_MAX},
    }


@pytest.mark.usefixtures("monitoring")
@pytest.mark.parametrize("more", [{}, {"watchNamespaces": ["default"], "readOnly": True}])
def test_chart_objects_are_taken_by_a_real_api_server(
    cluster: Cluster, namespace: str, more: dict[str, Any]
) -> None:
    """With every part on, each object is valid, and the pods are `restricted` as claimed."""
    define(cluster)
    cluster.kubectl(
        "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"
    )
    rendered = render({**ALL_ON, **more}, with_tests=True)
    manifests = [chart_monitoring.in_our_group(each) for each in rendered.manifests]
    # Pod Security judges pods alone, and not what would make some.
    pod = {"name": "operator", "namespace": namespace}
    manifests.append({"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": rendered.pod})
    for manifest in manifests:
        if manifest["metadata"].get("namespace"):
            manifest["metadata"]["namespace"] = namespace
    # A pod is refused without its account, which a dry run does not make.
    accounts = [manifest for manifest in manifests if manifest["kind"] == "ServiceAccount"]
    cluster.kubectl("apply", "--server-side", "-f", "-", input=as_list(accounts))

    said = cluster.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts",
        "-f", "-", input=as_list(manifests),
    )  # fmt: skip

    assert said.count("(server dry run)") == len(manifests)


@pytest.mark.smoke
@pytest.mark.usefixtures("alone")
async def test_chart_installs_and_its_test_finds_the_line(
    cluster: Cluster, namespace: str, images: dict[str, str]
) -> None:
    """After `helm install`, `helm test` prints a line and finds it in a file, once; an upgrade
    that changes nothing restarts nothing, and an uninstall leaves the definition.
    """
    define(cluster)
    at = ("--namespace", namespace)
    given = ("--values", "-", "--wait", f"--timeout={INSTALL_S_MAX}s")
    values = json.dumps(values_of(images, namespace))

    cluster.helm("install", "try", str(CHART), *at, *given, input=values)
    pods = names_of_pods(cluster, namespace)
    said = cluster.helm("test", "try", *at, "--logs", f"--timeout={TEST_S_MAX}s")
    cluster.helm("upgrade", "try", str(CHART), *at, *given, input=values)

    assert "the line was found, once" in said
    assert "Phase:          Succeeded" in said
    assert pods <= names_of_pods(cluster, namespace)
    assert not cluster.get("logpipelines", *at)["items"]
    # Kubernetes keeps a claim that was deleted until its pod is gone.
    claims = ("persistentvolumeclaims", *at)
    await eventually(lambda: not cluster.get(*claims)["items"], within_s=60, what="claims go")

    cluster.helm("uninstall", "try", *at, "--wait")
    assert cluster.get("crd", "logpipelines.logpipeline.dev")
    assert not cluster.get("deployments", *at)["items"]


def names_of_pods(cluster: Cluster, namespace: str) -> set[str]:
    """The operator's pods."""
    chosen = "app.kubernetes.io/component=operator"
    found = cluster.get("pods", "--namespace", namespace, "--selector", chosen)["items"]
    return {pod["metadata"]["name"] for pod in found}


def test_deploy_manifests_are_taken_as_they_are(cluster: Cluster) -> None:
    """`kubectl apply --server-side` of these files is all that it takes without Helm."""
    # Nothing is made while it is only tried: so definitions and namespace have to be there.
    define(cluster)
    files = [DEFINITION, *(DEFINITION.with_stem(name) for name in DEPLOYED)]
    text = "\n---\n".join(file.read_text() for file in files)
    said = cluster.kubectl(
        "apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f", "-",
        input=text.replace("namespace: logging", "namespace: default"),
    )  # fmt: skip

    objects = [each for each in yaml.safe_load_all(text) if each]
    assert {each["kind"] for each in objects} >= {"LogPipelineClass", "Deployment"}
    assert said.count("(server dry run)") == len(objects)


@pytest.mark.parametrize("sample", ["logpipeline.yaml", "minimal.yaml", "second-group.yaml"])
def test_deploy_samples_are_taken(cluster: Cluster, namespace: str, sample: str) -> None:
    """The API server finds nothing wrong with what we show as examples."""
    define(cluster)
    text = (ROOT / "deploy" / "samples" / sample).read_text()

    said = cluster.kubectl(
        "create", "--dry-run=server", "--validate=strict", "--namespace", namespace, "-f", "-",
        input=text.replace("namespace: logging", f"namespace: {namespace}"),
    )  # fmt: skip

    assert "created (server dry run)" in said


def test_deploy_manifests_are_what_the_chart_renders() -> None:
    """What is made of the chart is up to date: `make generate` makes it anew."""
    script = ROOT / "deploy" / "generate.py"

    done = subprocess.run(
        [sys.executable, str(script), "--helm", helm(), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
