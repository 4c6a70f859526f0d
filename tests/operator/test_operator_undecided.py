"""What the operator cannot decide, it does not delete."""

from __future__ import annotations

from typing import Any

from api_server.states import CHILDREN, NAME
from api_server.world import FORMER, NOWHERE, World
from logpipeline.spec.api import PIPELINE_LABEL
from logpipeline_operator.cluster.kinds import kind
from waiting import eventually

pytest_plugins = ["api_server.world_fixture"]

SPEC: dict[str, Any] = {
    **FORMER,
    "table": {"enabled": True, "nodeSelector": NOWHERE, "persistence": {"emptyDir": {}}},
}


async def uids(here: World) -> dict[str, str]:
    """The identities of the pipeline's children, by kind and name."""
    found: dict[str, str] = {}
    for name in CHILDREN:
        selector = f"{PIPELINE_LABEL}={NAME}"
        listed, _ = await here.kube.list(kind(name), here.namespace, selector)
        found |= {f"{name} {each['metadata']['name']}": each["metadata"]["uid"] for each in listed}
    return found


async def test_an_operator_without_images_takes_nothing_away(here: World) -> None:
    """One that was started without the images of two components leaves these as they are, says
    which images it lacks, and does what it is asked to do with the others.
    """
    operator = here.operator("--no-lease")
    await here.apply(SPEC)
    operator.start()
    await here.settles()
    operator.kill()
    before = await uids(here)
    here.writes.forget()
    operator = here.operator("--no-lease", LOGPIPELINE_IMAGE_SHIPPER="", LOGPIPELINE_IMAGE_TABLE="")
    operator.start()
    await here.apply({**SPEC, "collectors": {**SPEC["collectors"], "podLabels": {"team": "two"}}})

    async def is_applied() -> bool:
        there = await here.kube.get(kind("StatefulSet"), here.namespace, f"{NAME}-collector")
        labels = there["spec"]["template"]["metadata"]["labels"] if there else {}
        return bool(labels.get("team") == "two")

    await eventually(is_applied, within_s=60, what="a change of collectors")
    await here.settles()
    ready = await here.condition("Ready")

    assert {"DaemonSet p-shipper", "StatefulSet p-table"} <= before.keys()
    assert await uids(here) == before
    assert (ready["status"], ready["reason"]) == ("False", "ImageUnknown")
    assert "LOGPIPELINE_IMAGE_SHIPPER" in ready["message"]
    assert "LOGPIPELINE_IMAGE_TABLE" in (await here.condition("TableRunning"))["message"]
