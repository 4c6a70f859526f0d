"""What becomes of a pipeline that is paused, tampered with, spoiled, deleted and made anew."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cluster.handle import Cluster
from cluster.installed_operator import Operator
from cluster.pipelines import Pipeline, create, small
from waiting import eventually

pytest_plugins = ["cluster.operator_fixture"]

POLICIES = ("Retain", "Delete")
GONE_S_MAX = 150
# Nothing pulls it, and nothing ever will.
BAD_IMAGE = "localhost/nobody-builds-this:1"


@pytest.fixture(scope="module")
def namespace(operator: Operator) -> str:
    """A namespace that the tests of this module share."""
    return operator.new_namespace()


@pytest.fixture(scope="module")
def leaving(operator: Operator, cluster: Cluster, namespace: str) -> dict[str, Pipeline]:
    """A pipeline for each deletion policy: they start while other tests run."""
    return {
        policy: create(cluster, namespace, policy.lower(), spec_of(policy)) for policy in POLICIES
    }


@pytest.fixture(scope="module")
def staying(
    operator: Operator, cluster: Cluster, namespace: str, leaving: dict[str, Pipeline]
) -> dict[str, Pipeline]:
    """A small pipeline, and one with three servers: they start beside the others."""
    assert leaving
    servers = {"managed": {"replicas": 3, "storage": "1Gi"}}
    three = small(nats=servers, stream={"replicas": 3, "maxBytes": "9Mi"})
    specs = {"small": small(), "three": three}
    return {name: create(cluster, namespace, name, spec) for name, spec in specs.items()}


@pytest.fixture(scope="module")
def going(operator: Operator, cluster: Cluster, staying: dict[str, Pipeline]) -> list[str]:
    """Namespaces that are being deleted while other tests run, with a pipeline of each policy."""
    assert staying
    names = [operator.new_namespace() for _ in POLICIES]
    made = [
        create(cluster, name, "going", spec_of(policy))
        for name, policy in zip(names, POLICIES, strict=True)
    ]
    for pipeline in made:
        pipeline.wait_ready()
    cluster.kubectl("delete", "namespace", *names, "--wait=false")
    return names


@pytest.fixture(scope="module")
def pipeline(staying: dict[str, Pipeline], going: list[str]) -> Pipeline:
    """A small pipeline that works, for those tests that leave it as it was."""
    assert going
    staying["small"].wait_ready()
    return staying["small"]


@pytest.fixture(scope="module")
def deleted(leaving: dict[str, Pipeline]) -> dict[str, str]:
    """When the streams were made of the pipelines that leave, which both go at the same time."""
    created = {}
    for policy, pipeline in leaving.items():
        pipeline.wait_ready()
        [stream] = streams_of(pipeline)
        created[policy] = str(stream["created"])
    for pipeline in leaving.values():
        pipeline.kubectl("delete", f"logpipeline/{pipeline.name}", "--wait=false")
    return created


def spec_of(policy: str) -> dict[str, Any]:
    """A small pipeline with a deletion policy."""
    return small(deletionPolicy=policy)


@pytest.mark.parametrize("reason", ["Paused", "Unmanaged"])
async def test_what_is_paused_is_left_alone_until_it_goes_on(
    pipeline: Pipeline, reason: str
) -> None:
    """By annotation or by management state: a change waits and is named, nobody makes it, and once
    the pipeline goes on it is made.
    """
    budgets = ("get", "poddisruptionbudget", "--ignore-not-found", "-o", "name", "small-collector")
    hold(pipeline, reason)
    pipeline.wait_reason("Paused", reason)
    pipeline.patch({"collectors": {"podDisruptionBudget": {"enabled": False}}})

    said = pipeline.wait_reason("Ready", reason)

    assert "PodDisruptionBudget small-collector" in said
    assert pipeline.kubectl(*budgets)
    release(pipeline, reason)
    pipeline.wait_ready()
    assert not pipeline.kubectl(*budgets)
    pipeline.patch({"collectors": {"podDisruptionBudget": {"enabled": True}}})
    pipeline.wait_ready()
    assert pipeline.kubectl(*budgets)


async def test_drift_is_put_right_and_told(pipeline: Pipeline) -> None:
    """What somebody changes or deletes by hand is soon as wanted again; an event names it."""
    right = pipeline.child("configmap", "collector")["data"]
    changed = json.dumps({"data": {"pipeline.yaml": "nonsense"}})
    pipeline.kubectl("patch", "configmap/small-collector", "--type=merge", "--patch", changed)
    pipeline.kubectl("scale", "statefulset/small-collector", "--replicas=3")
    pipeline.kubectl("delete", "service/small-nats")

    def is_right() -> bool:
        assert pipeline.child("configmap", "collector")["data"] == right
        assert pipeline.child("statefulset", "collector")["spec"]["replicas"] == 1
        return bool(pipeline.child("service", "nats"))

    def told() -> str:
        events = pipeline.cluster.get(
            "events", pipeline.here, "--field-selector=reason=DriftCorrected"
        )["items"]
        return " ".join(event["message"] for event in events)

    await eventually(is_right, within_s=60)
    config = "ConfigMap small-collector (data.pipeline.yaml, changed by kubectl-patch)"
    await eventually(lambda: config in told())
    assert "StatefulSet small-collector (spec.replicas)" in told()
    pipeline.wait_ready()


async def test_an_operator_that_starts_or_is_upgraded_restarts_no_pod(
    operator: Operator, pipeline: Pipeline
) -> None:
    """A new operator finds all as it should be, and touches no pod of a pipeline."""
    pipeline.wait_ready()
    pods = [pipeline.pods(component) for component in ("collector", "nats")]
    operators = operator.pods()

    operator.install(podLabels={"upgraded": "yes"}, resyncSeconds=6)

    await eventually(lambda: operators.isdisjoint(operator.pods()), within_s=60)
    # It has looked at this generation once it acts on it.
    pipeline.patch({"collectors": {"podDisruptionBudget": {"maxUnavailable": 1}}})
    pipeline.wait_ready()
    assert [pipeline.pods(component) for component in ("collector", "nats")] == pods


async def test_three_servers_are_ready_again_whichever_is_lost(
    pipeline: Pipeline, staying: dict[str, Pipeline]
) -> None:
    """Streams of three replicas on a managed cluster of three; each server goes once."""
    assert pipeline.condition("Ready")
    three = staying["three"]
    three.wait_ready()
    for number in range(3):
        name = f"three-nats-{number}"
        before = three.pods("nats")[name]
        three.kubectl("delete", "pod", name, "--wait=false")
        await eventually(
            lambda: three.pods("nats").get(name, before) != before,  # noqa: B023  now
            within_s=60,
            what=f"another {name}",
        )
        three.kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=90s")
        three.wait_ready()

    three.kubectl("delete", "logpipeline/three", "--wait=false")


async def test_a_bad_image_is_named_and_a_corrected_one_frees_the_pods(pipeline: Pipeline) -> None:
    """Pods that are stuck on an image nobody can pull go when the image is corrected."""
    pipeline.patch({"collectors": {"image": BAD_IMAGE}})
    said = pipeline.wait_reason("CollectorsAvailable", "ImageNotPulled")
    assert BAD_IMAGE in said

    pipeline.patch({"collectors": {"image": None}})

    pipeline.wait_ready()


async def test_a_change_that_deletes_lines_waits_to_be_allowed(pipeline: Pipeline) -> None:
    """It is made once an annotation names the generation that asks for it, and not for another."""
    pipeline.patch({"stream": {"maxAge": "1h"}})

    said = pipeline.wait_reason("StreamsReady", "DataLossHeld")

    generation = pipeline.get()["metadata"]["generation"]
    allow = f"logpipeline.dev/allow-data-loss={generation}"
    assert allow in said
    pipeline.annotate(f"logpipeline.dev/allow-data-loss={generation - 1}")
    pipeline.annotate(allow)
    pipeline.wait_ready()
    [stream] = streams_of(pipeline)
    assert stream["config"]["max_age"] == 3_600 * 10**9
    pipeline.annotate("logpipeline.dev/allow-data-loss-")


async def test_what_belongs_to_others_is_left_alone_until_it_may_be_adopted(
    cluster: Cluster, namespace: str, operator: Operator
) -> None:
    """A ConfigMap and a StatefulSet with names of children stay as they are, and are named; with
    the annotation they are taken over.
    """
    theirs = {"metadata": {"name": "foreign-collector", "namespace": namespace}}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"their": "own"}} | theirs
    template = {
        "metadata": {"labels": {"app": "theirs"}},
        "spec": {"containers": [{"name": "theirs", "image": BAD_IMAGE}]},
    }
    workload = {"selector": {"matchLabels": {"app": "theirs"}}, "template": template, "replicas": 0}
    stateful_set = {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": workload} | theirs
    cluster.apply(config, stateful_set)
    pipeline = create(cluster, namespace, "foreign", small())

    said = pipeline.wait_reason("Ready", "ForeignChild")

    assert "ConfigMap foreign-collector" in said
    await eventually(
        lambda: "StatefulSet foreign-collector" in pipeline.condition("Ready")["message"],
        within_s=60,
    )
    assert pipeline.child("configmap", "collector")["data"] == {"their": "own"}
    assert pipeline.child("statefulset", "collector")["spec"]["replicas"] == 0
    pipeline.annotate("logpipeline.dev/adopt=true")
    pipeline.wait_ready()
    assert "pipeline.yaml" in pipeline.child("configmap", "collector")["data"]
    pipeline.kubectl("delete", "logpipeline/foreign", "--wait=false")


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_deleted_pipeline_keeps_its_streams_or_not(
    cluster: Cluster, leaving: dict[str, Pipeline], deleted: dict[str, str], policy: str
) -> None:
    """By default the streams of a deleted pipeline are there when it is made anew; with `Delete`
    they are gone. Its children go in either case.
    """
    pipeline, before = leaving[policy], deleted[policy]

    gone = (f"logpipeline/{pipeline.name}", "--for=delete", f"--timeout={GONE_S_MAX}s")
    pipeline.kubectl("wait", *gone)

    chosen = f"--selector=logpipeline.dev/pipeline={pipeline.name}"
    pipeline.kubectl("wait", "pods", chosen, "--for=delete", f"--timeout={GONE_S_MAX}s")
    kinds = "statefulsets,configmaps,services,serviceaccounts,poddisruptionbudgets"
    left = ("get", kinds, chosen, "-o", "name")
    await eventually(lambda: not pipeline.kubectl(*left), within_s=60)
    create(cluster, pipeline.namespace, pipeline.name, spec_of(policy)).wait_ready()
    [after] = streams_of(pipeline)
    assert (after["created"] == before) is (policy == "Retain")
    pipeline.kubectl("delete", f"logpipeline/{pipeline.name}", "--wait=false")


def test_a_namespace_goes_though_a_pipeline_is_in_it(cluster: Cluster, going: list[str]) -> None:
    """No finalizer keeps a namespace from going away, also when NATS goes first."""
    cluster.kubectl("wait", "namespace", *going, "--for=delete", f"--timeout={GONE_S_MAX}s")

    assert not cluster.kubectl("get", "namespace", *going, "--ignore-not-found")


def hold(pipeline: Pipeline, reason: str) -> None:
    """Have the operator leave the pipeline alone."""
    if reason == "Paused":
        pipeline.annotate("logpipeline.dev/paused=true")
    else:
        pipeline.patch({"managementState": "Unmanaged"})


def release(pipeline: Pipeline, reason: str) -> None:
    """Have the operator look after the pipeline again."""
    if reason == "Paused":
        pipeline.annotate("logpipeline.dev/paused-")
    else:
        pipeline.patch({"managementState": "Managed"})


def streams_of(pipeline: Pipeline) -> list[dict[str, Any]]:
    """The streams of lines that the pipeline's server has, as it tells of them."""
    pod = f"pod/{pipeline.name}-nats-0"
    server = pipeline.cluster.get(pod, pipeline.here)["spec"]["containers"][0]
    # The pages lie where a stranger does not look.
    below = server["readinessProbe"]["httpGet"]["path"].removesuffix("/healthz")
    proxy = f"/api/v1/namespaces/{pipeline.namespace}/pods/{pipeline.name}-nats-0:8222/proxy"
    path = f"{proxy}{below}/jsz"
    told = json.loads(pipeline.cluster.kubectl("get", "--raw", f"{path}?streams=true&config=true"))
    streams = [s for account in told["account_details"] for s in account.get("stream_detail", [])]
    lines = f"{pipeline.get()['status']['subject']}.p"
    return [s for s in streams if any(each.startswith(lines) for each in s["config"]["subjects"])]
