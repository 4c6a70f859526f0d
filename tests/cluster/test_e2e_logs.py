"""From containers and files of nodes into files of collectors, on a real Kubernetes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.handle import Cluster
from cluster.installed_operator import Operator, sample
from cluster.pipelines import Pipeline, create
from cluster.workload import (
    SEED,
    Printers,
    arrived,
    bare_pod,
    collected,
    deployment,
    job,
    printed,
)
from logpipeline_demo.expected import Expected
from logpipeline_demo.ledger import Ledger
from logpipeline_demo.sources import LogSource
from logpipeline_demo.writer import LogWriter
from waiting import eventually

pytest_plugins = ["cluster.operator_fixture"]

# kubelet looks at sizes each ten seconds, and rotates what has more than 10 MiB. Of the files that
# it has set aside it compresses all but the newest.
ROTATE_S_MAX = 60
# The pod whose log is rotated, and compared with that of the runtime: for that cuts lines then.
BIG = "big"


@pytest.fixture(scope="module")
def namespace(operator: Operator) -> str:
    """A namespace that the tests of this module share."""
    return operator.new_namespace()


@pytest.fixture(scope="module")
def pipelines(cluster: Cluster, operator: Operator, namespace: str) -> list[Pipeline]:
    """The sample, in volumes that this cluster has, and a second group of collectors on its
    streams; and another pipeline beside it, of a name only. Each gets the same logs, and some host
    files more.
    """
    manifest: dict[str, Any] = yaml.safe_load(sample("logpipeline.yaml").read_text())
    manifest["metadata"]["namespace"] = namespace
    files = {"include": [f"/var/log/{namespace}/**/*.log"]}
    manifest["spec"]["collectors"]["persistence"]["size"] = "90Gi"
    manifest["spec"]["shippers"]["hostFiles"].append(files)
    # A table needs more than two small nodes have beside all this; it has tests of its own.
    manifest["spec"]["table"]["enabled"] = False
    cluster.apply(manifest)
    first = Pipeline(cluster, namespace, manifest["metadata"]["name"])
    second = create(cluster, namespace, "beside", {"shippers": {"hostFiles": [files]}})
    texts = [sample(f"{each}second-group.yaml").read_text() for each in ("classes/", "")]
    of_group, third = [yaml.safe_load(text.replace("logging", namespace)) for text in texts]
    cluster.apply(of_group)
    third["spec"]["table"]["enabled"] = False
    cluster.apply(third)
    made = [first, second, Pipeline(cluster, namespace, "audit")]
    for pipeline in made:
        pipeline.wait_ready()
    return made


@pytest.fixture(scope="module")
def printers(cluster: Cluster, namespace: str, images: dict[str, str]) -> Printers:
    """Pods that log in a namespace of the pipeline's."""
    return Printers(cluster, namespace, images["shipper"])


def of_namespace(namespace: str) -> Callable[[str], bool]:
    """Whether a place is that of a container that prints for us."""
    names = ("prod-", "beside-", "audit-", f"{BIG}/")
    not_ours = [f"/{namespace}/{name}" for name in names]
    return lambda place: (
        place.split("/")[1] == namespace and not any(name in place for name in not_ours)
    )


async def all_have(
    pipelines: Sequence[Pipeline], expected: Expected, is_ours: Callable[[str], bool]
) -> None:
    """Wait until the files of each of *pipelines* hold all that is *expected*, and nothing else."""
    for pipeline in pipelines:
        verdict = await arrived([pipeline], expected, is_ours=is_ours)
        assert verdict.is_clean, f"{pipeline.name}: {verdict.summary()}\n{verdict.explain()}"


async def test_containers_of_all_kinds_are_collected_once_and_in_order(
    cluster: Cluster, namespace: str, pipelines: list[Pipeline], printers: Printers
) -> None:
    """Bursts on both streams, lines that the runtime splits, crash loops, short Jobs and a log that
    kubelet rotates: each line stands in a collector's file, once and in the order of its stream.
    """
    first, last = cluster.nodes[0], cluster.nodes[-1]
    bursts = ("--block=200", "--pause=0.3")
    cluster.apply(
        deployment("bursts", namespace, printers.pod(*bursts, containers=["web", "side"]), 2),
        bare_pod("long", namespace, printers.pod("--lines=600", "--long-every=2", nodeName=last)),
        bare_pod(
            "crashing", namespace,
            printers.pod("--lines=100", "--exit-code=3", nodeName=first, restartPolicy="Always"),
        ),
        job("short", namespace, printers.pod("--lines=20", "--pause=0"), times=4),
        bare_pod(
            BIG, namespace,
            printers.pod("--block=1000", "--pause=0.07", "--streams=stdout", nodeName=first),
        ),
    )  # fmt: skip

    here = f"--namespace={namespace}"
    cluster.kubectl("wait", "job/short", "--for=condition=Complete", here, "--timeout=120s")
    big = f"pods/{namespace}_{BIG}_*/main"
    await eventually(
        lambda: list(cluster.log_dir(first).glob(f"{big}/0.log.*.gz")),
        within_s=ROTATE_S_MAX,
        what="kubelet's second rotation",
    )
    cluster.kubectl("exec", BIG, here, "--", "python3", "-c", "import os; os.kill(1, 15)")
    phase = "--for=jsonpath={.status.phase}=Succeeded"
    cluster.kubectl("wait", "pod/long", f"pod/{BIG}", phase, here, "--timeout=120s")
    restarts = "--for=jsonpath={.status.containerStatuses[0].restartCount}=2"
    cluster.kubectl("wait", "pod/crashing", restarts, here, "--timeout=120s")
    cluster.kubectl("delete", "deployment/bursts", "pod/crashing", here, "--wait=true")
    await all_have(pipelines, printers.expected(but=BIG), of_namespace(namespace))
    [folder] = cluster.log_dir(first).glob(big)
    text, place = printed(folder), f"{first}/{namespace}/{BIG}/main.log"
    for pipeline in pipelines:

        def has_it(pipeline: Pipeline = pipeline) -> bool:
            assert (found := difference(collected(pipeline, place), text)) == "", found
            return True

        await eventually(has_it, within_s=180, what=f"{place} of {pipeline.name}")


def difference(found: bytes, wanted: bytes) -> str:
    """Say how long two texts are, and where they begin to differ; nothing where they do not."""
    if found == wanted:
        return ""
    at = next(
        (n for n, (one, other) in enumerate(zip(found, wanted, strict=False)) if one != other),
        min(len(found), len(wanted)),
    )
    around = slice(max(0, at - 200), at + 200)
    return (
        f"{len(found)} bytes instead of {len(wanted)}, other ones from {at} on: "
        f"{found[around]!r} instead of {wanted[around]!r}"
    )


async def test_host_files_are_collected_across_rotation_by_rename(
    cluster: Cluster, namespace: str, pipelines: list[Pipeline], tmp_path: Path
) -> None:
    """Each line of a node's plain files arrives once and in order, also when the file is renamed,
    written on under its old descriptor, and compressed.
    """
    ledger = tmp_path / "ledger"
    with Ledger(ledger, seed=SEED) as account:
        for node in cluster.nodes:
            source = LogSource(node, "plain", file=f"{namespace}.log")
            writer = LogWriter(source, cluster.log_dir(node) / namespace, account)
            for _ in range(3):
                writer.write(2_000)
                writer.rotate_numbered(lines_between=50)
            writer.write(10)
            writer.close()

    await all_have(pipelines, Expected.read(ledger), host_files_of(namespace))


async def test_last_lines_of_deleted_pods_arrive(
    cluster: Cluster, namespace: str, pipelines: list[Pipeline], printers: Printers
) -> None:
    """What pods printed until they were deleted, and while they ended, is collected."""
    here = f"--namespace={namespace}"
    names = [f"leaving-{number}" for number in range(4)]
    cluster.apply(
        *(bare_pod(name, namespace, printers.pod("--block=50", "--pause=0.02")) for name in names)
    )
    cluster.kubectl("wait", "pod", *names, here, "--for=condition=Ready", "--timeout=120s")
    await eventually(lambda: ledgers_of(printers, "leaving-") == len(names))

    cluster.kubectl("delete", "pod", *names, here)

    await all_have(pipelines, printers.expected(but=BIG), of_namespace(namespace))


def ledgers_of(printers: Printers, prefix: str) -> int:
    """How many pods of names like *prefix* have written something."""
    written = [s for s in printers.expected().sources.values() if s.written_end]
    return len({s.key.name.split("/")[1] for s in written if f"/{prefix}" in s.key.name})


def host_files_of(namespace: str) -> Callable[[str], bool]:
    """Whether a place is that of a host file which the namespace's test wrote."""
    return lambda place: place.endswith(f"/{namespace}.log")
