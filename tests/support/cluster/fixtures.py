"""Fixtures of tests on a real Kubernetes. The cluster comes from pytest-kind's own `kind_cluster`.

Where Docker is there, that fixture drives kind. Where not, it is pointed at tests/cluster/kind,
which starts the same Kubernetes as plain processes. LOGPIPELINE_TEST_KUBECONFIG names a cluster to
be used as it is.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from pytest_kind import KindCluster  # type: ignore[import-untyped]  # it has no types

from api_server import shared
from cluster import evidence, handle, namespaces
from cluster.bare import binaries, places, requirements, state
from cluster.bare import images as cluster_images
from cluster.bare.running import ToolError
from cluster.handle import Cluster

KUBECONFIG = "LOGPIPELINE_TEST_KUBECONFIG"
# The images of a cluster that they cannot be brought to, as JSON: {"operator": …, "workload": …}.
IMAGES = "LOGPIPELINE_TEST_IMAGES"
KIND = places.SOURCES / "kind"
# What the option of pytest-kind is when nobody gave it.
DEFAULT_NAME = "pytest-kind"
WORKLOAD = "docker.io/library/python:3.11-slim-bookworm"
BUILD = "tests/cluster/kind build all"


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A Kubernetes with nothing in it but itself; it is shared by all tests of the run."""
    if found := given_cluster():
        yield found
        return
    if request.config.option.kind_bin is None and not requirements.is_docker_there():
        _choose_plain_processes(request.config)
    elif request.config.option.cluster_name == DEFAULT_NAME and hasattr(
        request.config, "workerinput"
    ):
        # Each process that tests are shared out to has a cluster of its own.
        worker: str = request.config.workerinput["workerid"]
        request.config.option.cluster_name = f"{DEFAULT_NAME}-{worker}"
    made: KindCluster = request.getfixturevalue("kind_cluster")
    path = made.kubeconfig_path.resolve()
    yield Cluster(path, made.api, handle.record_of(path))
    if made.name != DEFAULT_NAME and not request.config.option.keep_cluster:
        # Of a name that comes once nothing is needed again, and pytest-kind leaves its folder.
        shutil.rmtree(made.path)


def given_cluster() -> Cluster | None:
    """The cluster that is to be used as it is, if there is one."""
    given = os.environ.get(KUBECONFIG)
    return handle.handle_of(Path(given), handle.record_of(Path(given))) if given else None


def pytest_configure(config: pytest.Config) -> None:
    """Be the process that the cluster without nodes belongs to, unless another one shares tests out
    to us.
    """
    if not hasattr(config, "workerinput"):
        shared.begin_run()


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the cluster without nodes, after the last test of all processes."""
    if not hasattr(config, "workerinput"):
        shared.end_run()


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """The name of a namespace of this test alone; it goes with all that is in it."""
    name = namespaces.create(cluster)
    yield name
    namespaces.delete(cluster, name)


@pytest.fixture(scope="session")
def images(cluster: Cluster, request: pytest.FixtureRequest) -> dict[str, str]:
    """Names of the project's images, built and brought to the nodes, and of `workload`."""
    given = os.environ.get(IMAGES)
    if given:
        return dict(json.loads(given))
    if cluster.record is not None:
        built = cluster_images.project()
        cluster.load(built.archive)
        return built.names
    if os.environ.get(KUBECONFIG):
        pytest.skip(f"images cannot be brought to the cluster of {KUBECONFIG}: set {IMAGES}")
    return _docker_images(request.getfixturevalue("kind_cluster"))


@pytest.fixture(scope="session")
def table_image(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """The image that runs Spark, brought to the nodes of those tests that have a table."""
    if cluster.record is None:
        names: dict[str, str] = request.getfixturevalue("images")
        return names["table"]
    built = cluster_images.project(targets=cluster_images.SPARK_TARGETS)
    cluster.load(built.archive)
    return built.names["table"]


@pytest.fixture(scope="session")
def workload_image(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """An image with a shell and Python, for pods that log."""
    if cluster.record is None:
        names: dict[str, str] = request.getfixturevalue("images")
        return names["workload"]
    built = cluster_images.workload()
    cluster.load(built.archive)
    return built.names["workload"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failure what is in its namespace, and what its pods wrote."""
    report = yield
    if report.failed:
        used = getattr(item, "funcargs", {})
        on, name = used.get("cluster"), used.get("namespace")
        if isinstance(on, Cluster) and isinstance(name, str):
            report.sections.extend(evidence.evidence(on, name))
    return report


def _choose_plain_processes(config: pytest.Config) -> None:
    if reason := requirements.lacking():
        pytest.skip(f"no Docker for kind, and for plain processes: {reason}")
    if not binaries.is_built():
        pytest.skip(f"Kubernetes is not built yet: run {BUILD} (some minutes, once)")
    # The program begins with `env python3`, and a system's own may be too old for it.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    config.option.kind_bin = str(KIND)
    config.option.kind_kubectl_bin = str(binaries.folder() / "kubectl")
    if config.option.cluster_name == DEFAULT_NAME:
        # Of this run alone: others may test at the same time, from this checkout or another.
        config.option.cluster_name = f"test-{os.getpid()}"
    if not config.option.keep_cluster:
        # If this run is killed, the next cluster's creation sweeps away what it left.
        os.environ[state.OWNER] = str(os.getpid())


def _docker_images(made: KindCluster) -> dict[str, str]:
    targets = (*cluster_images.TARGETS, *cluster_images.SPARK_TARGETS)
    names = {target: f"logpipeline-{target}:test" for target in targets}
    for target, name in names.items():
        _docker("build", "--target", target, "--tag", name, str(places.PROJECT))
    _docker("pull", WORKLOAD)
    names["workload"] = WORKLOAD
    for name in names.values():
        made.load_docker_image(name)
    return names


def _docker(*arguments: str) -> None:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolError(f"docker {' '.join(arguments)}: {done.stderr}")
