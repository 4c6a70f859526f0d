"""A table of all lines, kept by Spark in pods of a real Kubernetes: in one pod on a volume, and by
executors on both nodes in a bucket, while driver and executors are killed.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.handle import Cluster
from cluster.installed_operator import Operator
from cluster.pipelines import Pipeline, create, small, trusting
from cluster.pod_processes import Container, computing, containers
from cluster.rights import account, granted, used
from cluster.workload import SEED, is_place
from logpipeline.nats.options import NatsOptions
from logpipeline_cli.demonstration.check import write_out
from logpipeline_demo.expected import Expected
from logpipeline_demo.ledger import Ledger
from logpipeline_demo.oracle import check
from logpipeline_demo.sources import LogSource
from logpipeline_demo.writer import LogWriter
from logpipeline_spark.lines.schema import LINES
from logpipeline_spark.table.scan import files, tables
from logpipeline_spark.table.storage import LocalStorage, Storage
from logpipeline_spark.table.verify import verify
from tables.backlog import Backlog, digests_of
from tables.made import logs
from tables.s3 import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, S3Server, s3_server
from waiting import eventually

pytest_plugins = ["cluster.operator_fixture"]

# A JVM starts in some seconds on a machine that has nothing else to do.
IN_TABLE_S = 150.0
# Pods are asked for seldom, and their processes looked at often.
SAMPLES = 50
SAMPLE_S = 0.02
LINES_OF_PHASE = 3_000
# Both nodes have one.
EXECUTORS = 2
PARTITIONS = 4
HOSTS = ("node-a", "node-b", "node-c", "node-d")
# Of each host: 150 MB together, which is some twenty batches.
MESSAGES = 120
BATCH_BYTES = "8Mi"
SECRET = "bucket-keys"
COLUMNS = ["host", "offset", "line"]
# The first test also waits for the image to be on both nodes.
TEST_S_MAX = 1_000
# What fits beside everything else on two small nodes.
LITTLE: dict[str, Any] = {
    "enabled": True,
    "every": "1s",
    "driverMemory": "512Mi",
    "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}},
}


@pytest.fixture(scope="module")
def namespace(operator: Operator) -> str:
    """A namespace that the tests of this module share."""
    return operator.new_namespace()


@pytest.fixture(scope="module")
def little(table_image: str) -> dict[str, Any]:
    """A table that fits, of the image that was built: the operator of all may not know it."""
    return LITTLE | {"image": table_image}


@pytest.fixture(scope="module")
def spread(cluster: Cluster, namespace: str) -> Pipeline:
    """A pipeline that has no table yet: it starts while the other one's is made."""
    return create(cluster, namespace, "spread", small(partitions=PARTITIONS))


@pytest.fixture(scope="module")
def bucket(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server of this machine, where pods reach it."""
    folder = tmp_path_factory.mktemp("s3") / "server"
    with s3_server(folder, address=cluster.machine_address) as server:
        yield server


@pytest.mark.timeout(TEST_S_MAX)
async def test_one_pod_keeps_a_table_on_its_volume_whoever_deletes_it(
    cluster: Cluster, namespace: str, little: dict[str, Any], spread: Pipeline, tmp_path: Path
) -> None:
    """Lines of both nodes stand in it once and in order; the resource says that it runs."""
    assert spread.namespace == namespace
    files_of_nodes = {"include": [f"/var/log/{namespace}/**/*.log"]}
    spec = small(table=little | {"persistence": {"size": "1Gi"}})
    spec["shippers"] = {"containerLogs": False, "hostFiles": [files_of_nodes]}
    pipeline = create(cluster, namespace, "table", spec)
    pipeline.wait_ready()
    with Ledger(tmp_path / "ledger", seed=SEED) as ledger:
        writers = [
            LogWriter(
                LogSource(node, "plain", file=f"{namespace}.log"),
                cluster.log_dir(node) / namespace,
                ledger,
            )
            for node in cluster.nodes
        ]
        for writer in writers:
            writer.write(LINES_OF_PHASE)
        await eventually(
            lambda: rows_in(table_of(pipeline)) > 0, within_s=IN_TABLE_S, what="rows in the table"
        )
        pipeline.kubectl("delete", "pod/table-table-0", "--force", "--grace-period=0")
        for writer in writers:
            writer.write(LINES_OF_PHASE)
            writer.close()

    written = len(writers) * 2 * LINES_OF_PHASE
    await eventually(
        lambda: rows_in(table_of(pipeline)) >= written,
        within_s=IN_TABLE_S,
        what=f"{written} lines in the table",
    )
    write_out(table_of(pipeline), tmp_path / "collector-0")
    verdict = check(
        Expected.read(tmp_path / "ledger"), [tmp_path / "collector-0"], is_place=is_place
    )
    assert verdict.is_clean, f"{verdict.summary()}\n{verdict.explain()}"
    assert verdict.lines == written
    assert verify(table_of(pipeline), logs(table_of(pipeline))).is_well
    pipeline.wait_reason("TableRunning", "TableRunning")
    # Its Spark would take a processor from that of the next test.
    pipeline.kubectl("delete", "logpipeline/table", "--wait=false")


@pytest.mark.timeout(TEST_S_MAX)
async def test_executors_on_both_nodes_do_a_backlog_though_one_and_the_driver_are_killed(
    cluster: Cluster, operator: Operator, spread: Pipeline, little: dict[str, Any],
    bucket: S3Server, tmp_path: Path,
) -> None:  # fmt: skip
    """Each is killed with a task in progress: the table has each line once, and by its hash."""
    pipeline, namespace = spread, spread.namespace
    pipeline.wait_ready()
    backlog = Backlog(str(pipeline.get()["status"]["subject"]), PARTITIONS, HOSTS, seed=SEED)
    storage, nats = bucket.storage(namespace), nats_of(pipeline, tmp_path)
    await backlog.publish(nats, batches=MESSAGES)
    cluster.apply(keys(namespace))
    pipeline.patch({"table": little | native(bucket, namespace)})

    # Else the first executor may have done all of it before the second one is there, or before the
    # driver is killed.
    async with backlog.kept_up(nats, lambda: rows_in(storage), batches=MESSAGES // 2):
        first = await busy_executors(pipeline)
        assert {container.node for container in first} == set(cluster.nodes)
        first[0].kill()
        [driver] = containers(pipeline, "table")
        second = await busy_executors(pipeline, without=first[0])
        # On which node the new one is, is the scheduler's business: the spread is a wish, and the
        # dead pod is counted where it was until its end is known.
        assert set(second) - set(first)
        driver.kill()
        assert rows_in(storage) < backlog.lines, "nothing was left to do: the backlog is too small"

    await eventually(
        lambda: rows_in(storage) >= backlog.lines, within_s=IN_TABLE_S, what="all rows"
    )
    rows = (
        row
        for part in tables(storage, files(logs(storage)), LINES)
        for row in part.select(COLUMNS).to_pylist()
    )
    assert digests_of(rows) == backlog.digests
    assert verify(storage, logs(storage)).is_well
    asked, denied = used(cluster, account(namespace, "spread-table"))
    assert denied == set()
    assert asked <= granted(operator)["spark"]


def table_of(pipeline: Pipeline) -> LocalStorage:
    """The table on the volume of the pipeline's table."""
    folders = pipeline.volumes("table")
    assert folders, "the volume is not there yet"
    return LocalStorage(folders[0] / pipeline.name)


def rows_in(storage: Storage) -> int:
    """How many lines are committed."""
    return sum(entry.rows for entry in files(logs(storage)))


def native(bucket: S3Server, prefix: str) -> dict[str, Any]:
    """A table in a bucket, by executors in pods."""
    return {
        "runner": "native",
        "path": f"s3://{BUCKET}/{prefix}",
        "maxBytesPerBatch": BATCH_BYTES,
        "executors": {
            "instances": EXECUTORS,
            "memory": "512Mi",
            "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "1536Mi"}},
        },
        "s3": {"endpoint": bucket.endpoint, "region": REGION, "secret": {"name": SECRET}},
    }


def keys(namespace: str) -> dict[str, Any]:
    """The Secret that lets pods into the bucket."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": namespace},
        "stringData": {"accessKeyId": ACCESS_KEY, "secretAccessKey": SECRET_KEY},
    }


async def busy_executors(
    pipeline: Pipeline, *, without: Container | None = None
) -> list[Container]:
    """Wait until all executors that are wanted have computed, one of them just now; return that
    one first.
    """
    busy: dict[Container, float] = {}

    async def all_seen() -> list[Container]:
        there = set(await asyncio.to_thread(containers, pipeline, "executor")) - {without}
        for _ in range(SAMPLES):
            now = computing(there)
            busy.update(dict.fromkeys(now, time.monotonic()))
            working = sorted(there & busy.keys(), key=lambda each: -busy[each])
            if len(working) >= EXECUTORS and now:
                return working
            await asyncio.sleep(SAMPLE_S)
        return []

    return await eventually(all_seen, within_s=IN_TABLE_S, what=f"{EXECUTORS} busy executors")


def nats_of(pipeline: Pipeline, folder: Path) -> NatsOptions:
    """How a person of this machine logs in to the pipeline's managed server."""
    secret = pipeline.child("secret", "nats-auth")["data"]
    for name in ("user", "password"):
        (folder / name).write_bytes(base64.b64decode(secret[f"operator-{name}"]))
    address = pipeline.child("service", "nats")["spec"]["clusterIP"]
    own = NatsOptions(user_file=folder / "user", password_file=folder / "password")
    return trusting(pipeline, own, f"nats://{address}:4222", folder)
