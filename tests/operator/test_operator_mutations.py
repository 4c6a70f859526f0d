"""However a pipeline came to be what it is, it ends as one that was made so at once."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from api_server.states import NAME, State, differences, state_of
from api_server.walks import NOWHERE, REFUSED, Spec, Step, changed, every_move, walk
from api_server.world import World
from cluster import namespaces
from cluster.handle import Cluster
from waiting import eventually

pytest_plugins = ["api_server.world_fixture"]

# A share that takes half a minute; `make soak` walks on.
WALKS = 200 if os.environ.get("SOAK") else 4
STEPS = 8
EQUAL_WITHIN_S = 60.0
API = {"version": "logpipeline.dev/v1alpha1"}
STRICT = {"fieldValidation": "Strict"}
# Kubernetes counts a DaemonSet's changes there.
COUNTED = "deprecated.daemonset.template.generation"
ALLOW = "logpipeline.dev/allow-data-loss"


@dataclass(frozen=True)
class Pipeline:
    """The pipeline of a namespace, as its user sees it."""

    here: World
    cluster: Cluster
    namespace: str

    async def write(self, spec: Spec) -> str:
        """Make the pipeline have *spec* and nothing else, and return what the server says."""
        while (answer := await self._put(spec)).get("reason") == "Conflict":
            # The operator wrote the status in between; a user's tool does the same.
            continue
        return "" if answer["kind"] == "LogPipeline" else str(answer["message"])

    async def _put(self, spec: Spec) -> State:
        there = await self._ask("get", NAME)
        metadata: dict[str, Any] = {"name": NAME, "namespace": self.namespace}
        if there["kind"] == "LogPipeline":
            metadata = there["metadata"]
            # What a change deletes is allowed: here nothing is stored.
            next_one = str(metadata["generation"] + 1)
            metadata["annotations"] = {ALLOW: next_one}
        manifest = {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": metadata,
            "spec": spec,
        }
        is_new = "uid" not in metadata
        method, name = ("post", "") if is_new else ("put", NAME)
        return await self._ask(method, name, params=STRICT, data=json.dumps(manifest))

    async def is_seen(self) -> bool:
        """Whether the operator has acted on what was written last."""
        there = await self._ask("get", NAME)
        seen = (there.get("status") or {}).get("observedGeneration")
        return bool(seen == there["metadata"]["generation"])

    async def state(self) -> State:
        """What there is of it, to be compared."""
        found = await state_of(self.here.kube, self.here.js, self.namespace)
        assert found["resource"] is not None
        for child in found["children"].values():
            child["metadata"].get("annotations", {}).pop(COUNTED, None)
        return found

    async def _ask(self, method: str, name: str, **more: Any) -> State:
        call = getattr(self.cluster.api, method)
        url = f"logpipelines/{name}".rstrip("/")
        answer = await asyncio.to_thread(call, **API, namespace=self.namespace, url=url, **more)
        found: State = answer.json()
        return found


@pytest.fixture
async def walked(here: World, cluster: Cluster, namespace: str) -> Pipeline:
    """The pipeline that is changed."""
    return Pipeline(here, cluster, namespace)


@pytest.fixture
async def fresh(here: World, cluster: Cluster) -> AsyncIterator[Pipeline]:
    """The one that it is compared with, in a namespace of its own."""
    name = namespaces.create(cluster)
    yield Pipeline(here, cluster, name)
    namespaces.delete(cluster, name)


def base(here: World) -> Spec:
    """What all walks begin at."""
    return {
        "partitions": 2,
        # Two pipelines at once are to fit on a disk that others fill as well.
        "nats": {
            "servers": [here.nats.url],
            "managed": {"nodeSelector": NOWHERE, "storage": "1Gi"},
        },
        "collectors": {"nodeSelector": NOWHERE, "persistence": {"emptyDir": {}}},
        "shippers": {"nodeSelector": NOWHERE},
    }


async def take(pipeline: Pipeline, step: Step) -> None:
    """Write what *step* says, and see that the API server thinks of it as it must."""
    said = await pipeline.write(step.spec)
    assert bool(said) is step.is_refused, f"{said}: {step.spec}"
    if step.is_waited_for and not said:
        await eventually(pipeline.is_seen, within_s=EQUAL_WITHIN_S, what=f"acts on {step.spec}")


async def are_equal(one: Pipeline, other: Pipeline) -> None:
    """Return once both pipelines are seen, and nothing tells them apart."""

    async def is_equal() -> bool:
        assert await one.is_seen()
        assert await other.is_seen()
        assert differences(await one.state(), await other.state()) == []
        return True

    await eventually(is_equal, within_s=EQUAL_WITHIN_S, what="both pipelines are the same")


@pytest.fixture
def _operators(here: World, walked: Pipeline, fresh: Pipeline) -> None:
    """An operator for each, so that none keeps the other waiting."""
    for namespace in (walked.namespace, fresh.namespace):
        here.namespace = namespace
        here.operator("--no-lease").start()


@pytest.mark.usefixtures("_operators")
@pytest.mark.parametrize("seed", range(WALKS))
async def test_a_changed_pipeline_is_like_a_new_one(
    here: World, walked: Pipeline, fresh: Pipeline, seed: int
) -> None:
    """After any walk through good, harmful and refused specs, children, JetStream and status are
    those of a pipeline that never was anything else.
    """
    *steps, last = walk(base(here), seed, steps=STEPS)

    assert await walked.write(base(here)) == ""
    for step in (*steps, last):
        await take(walked, step)
    assert await fresh.write(last.spec) == ""
    await are_equal(walked, fresh)


@pytest.mark.usefixtures("_operators")
async def test_a_pipeline_that_comes_back_is_as_it_was(
    here: World, walked: Pipeline, fresh: Pipeline
) -> None:
    """After every move and every harmful one, the first spec leaves nothing behind of them."""
    start = base(here)
    assert await fresh.write(start) == ""
    for spec in (start, *every_move(start)):
        await take(walked, Step(spec, is_refused=False, is_waited_for=True))
    await take(walked, Step(start, is_refused=False, is_waited_for=True))
    await are_equal(walked, fresh)


@pytest.mark.smoke
@pytest.mark.usefixtures("_operators")
async def test_what_the_server_refuses_changes_nothing(here: World, walked: Pipeline) -> None:
    """It says at which field the mistake is, and the pipeline goes on as it was."""
    assert await walked.write(base(here)) == ""
    await eventually(walked.is_seen, within_s=EQUAL_WITHIN_S)
    for path, values in REFUSED.items():
        for value in values:
            said = await walked.write(changed(base(here), path, value))
            assert f"spec.{path}" in said, said

    assert await walked.is_seen()


@pytest.mark.parametrize(
    ("former", "latter", "refused"),
    [
        ({}, {"jsDomain": "hub"}, "spec.nats.jsDomain"),
        ({"jsDomain": "hub"}, {"jsDomain": ""}, "spec.nats.jsDomain"),
        ({}, {"servers": ["nats://a:4222"]}, "spec.nats.servers"),
        ({"servers": ["nats://a:4222"]}, {"jsDomain": "hub"}, ""),
    ],
)
def test_streams_of_a_managed_server_stay_within_reach(
    cluster: Cluster, namespace: str, former: Spec, latter: Spec, refused: str
) -> None:
    """Its domain cannot change, and no other server takes its place."""
    metadata = {"name": NAME, "namespace": namespace}
    cluster.apply(
        {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": metadata,
            "spec": {"nats": former},
        }
    )
    change = json.dumps({"spec": {"nats": latter}})
    words = ("patch", f"logpipeline/{NAME}", f"--namespace={namespace}", "--type=merge")
    said = cluster.kubectl(*words, "--dry-run=server", "-p", change, check=False)

    assert (refused or "patched") in said
