"""Each fault of docs/faults.md in a cluster ends without a human, on a real Kubernetes with real
pods that print all the time: no line is lost, none stands twice, and meanwhile the pipeline does
not say that all is well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

import pytest

from cluster.chart_rendering import CHART
from cluster.handle import Cluster
from cluster.healing.campaign import Outcomes, campaign
from cluster.healing.cluster_faults import FAULTS, Fault
from cluster.healing.site import HEALED_WITHIN_S, Site, until
from cluster.installed_operator import INSTALL_S_MAX, Operator, values_of
from cluster.pipelines import Pipeline
from cluster.plugin import plugin_in
from faults import settings

pytest_plugins = ["cluster.operator_fixture"]

# What is said when all is well again.
GOOD = {"Working", "StreamsAsWanted", "CollectorsReady", "ShippersReady"}
LONG_AGO = "2026-01-01T00:00:00Z"
OUT_OF_DATE = "the conditions are out of date"
PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
TRIED = [fault for fault in FAULTS if fault.is_telling or settings.is_soak()]
# Each is a dozen processes.
SITES_MAX = 4 if settings.is_soak() else 2


def _id(fault: Fault) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", fault.name)


@pytest.fixture(scope="module")
def chosen(request: pytest.FixtureRequest) -> list[Fault]:
    """The faults whose tests are to run."""
    asked = [item.name for item in request.session.items]
    return [fault for fault in TRIED if any(f"[{_id(fault)}]" in name for name in asked)]


@pytest.fixture(scope="module")
def sites(
    cluster: Cluster, operator: Operator, workload_image: str, chosen: list[Fault]
) -> list[Site]:
    """Pipelines beside each other, which start while nobody waits."""
    count = min(SITES_MAX, max(len(chosen), 1))
    made = [Site(cluster, operator.new_namespace(), workload_image) for _ in range(count)]
    for site in made:
        site.create()
    return made


@pytest.fixture(scope="module")
def outcomes(operator: Operator, sites: list[Site], chosen: list[Fault]) -> Iterator[Outcomes]:
    """What will come of each fault that is asked for."""
    with campaign(operator, sites, chosen) as found:
        yield found


@pytest.mark.timeout(3 * HEALED_WITHIN_S + 600)
@pytest.mark.parametrize("fault", TRIED, ids=_id)
def test_a_fault_in_a_cluster_ends_without_a_human(
    outcomes: Outcomes, fault: Fault, say: Callable[[str], None]
) -> None:
    """Without a human, every line is collected once, and the pipeline is ready again."""
    outcome = outcomes[fault.name].result()

    said = ", ".join(f"`{reason}`" for reason in sorted({*outcome.said} - GOOD))
    say(f"| {fault.name} | {outcome.seconds:.0f} | {outcome.lost} | {outcome.twice} | {said} |")
    assert outcome.lost == 0
    assert outcome.twice == 0


@pytest.fixture
def pipeline(sites: list[Site], outcomes: Outcomes) -> Pipeline:
    """One of them, when nothing happens to any of them any more; one that a fault has spoiled is
    another test's failure.
    """
    futures.wait(outcomes.values())
    made = [site.pipeline for site in sites]
    works = [each for each in made if each.condition("Ready").get("status") == "True"]
    pipeline = (works or made)[0]
    pipeline.wait_ready()
    return pipeline


async def test_a_second_release_that_watches_everything_changes_nothing(
    cluster: Cluster, operator: Operator, images: dict[str, str], pipeline: Pipeline
) -> None:
    """It would have other shippers run; it says for whom it waits, and the status says who acts."""
    second = operator.new_namespace()
    values = values_of(images)
    values["images"]["shipper"] = values["images"]["collector"]
    here = f"--namespace={second}"
    before = written(pipeline)
    cluster.helm(
        "install", "second", str(CHART), here, "--values=-", "--wait",
        f"--timeout={INSTALL_S_MAX}s",
        input=json.dumps(values),
    )  # fmt: skip
    try:
        of_it = ("logs", here, "--selector=app.kubernetes.io/component=operator", "--tail=-1")

        def waits() -> bool:
            told = [line for line in cluster.kubectl(*of_it).splitlines() if "waiting" in line]
            place = f"{pipeline.namespace}/{pipeline.name}"
            return any(place in line and operator.namespace in line for line in told)

        await until(waits, "the second one says for whom it waits")
        assert written(pipeline) == before
    finally:
        cluster.helm("uninstall", "second", here, "--wait")


async def test_a_status_that_nobody_keeps_is_told_to_be_old(
    cluster: Cluster, operator: Operator, pipeline: Pipeline, tmp_path: Path
) -> None:
    """Ready stays True without an operator; that it is of long ago is said, until one is back."""
    plugin = plugin_in(tmp_path, cluster)
    words = ("status", "--check", "-n", pipeline.namespace)
    here = f"--namespace={operator.namespace}"
    (name,) = cluster.kubectl(
        "get", "deployment", here, "--selector=app.kubernetes.io/component=operator", "-o", "name"
    ).split()
    cluster.kubectl("scale", name, here, "--replicas=0")
    try:
        await until(lambda: not operator.pods(), "no operator is there")
        stale = json.dumps({"status": {"lastChecked": LONG_AGO}})
        what = f"logpipeline/{pipeline.name}"
        pipeline.kubectl("patch", what, "--subresource=status", "--type=merge", "--patch", stale)
        old = plugin.run(*words)
    finally:
        cluster.kubectl("scale", name, here, "--replicas=1")

    assert pipeline.condition("Ready")["status"] == "True"
    assert old.returncode == 1
    assert OUT_OF_DATE in old.stdout + old.stderr
    await until(lambda: pipeline.get()["status"]["lastChecked"] > LONG_AGO, "it is looked at")
    new = plugin.run(*words)
    assert OUT_OF_DATE not in new.stdout + new.stderr


def written(pipeline: Pipeline) -> dict[str, object]:
    """What tells whether anybody has changed a child since, and who looks after the pipeline."""
    kinds = "configmaps,services,statefulsets,daemonsets,poddisruptionbudgets"
    chosen = f"--selector=logpipeline.dev/pipeline={pipeline.name}"
    children = pipeline.cluster.get(kinds, pipeline.here, chosen)["items"]
    found: dict[str, object] = {
        f"{each['kind']} {each['metadata']['name']}": each.get("spec") or each.get("data")
        for each in children
    }
    return found | {"by": pipeline.get()["status"]["checkedBy"]}


def test_the_page_has_each_fault_of_a_cluster_once() -> None:
    """What the page promises is tried, and what is tried is promised."""
    rows = re.findall(r"^\| (.+?) \| [0-9]+ \| 0 \| 0 \| .* \|$", PAGE.read_text(), re.MULTILINE)

    assert sorted(rows) == sorted(fault.name for fault in FAULTS)
