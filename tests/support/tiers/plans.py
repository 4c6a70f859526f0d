"""The steps of each command. What is cheap comes first; what is built for later steps begins at
once, behind everything else.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from cluster.bare import binaries, requirements
from tiers import affected
from tiers.steps import Step, pytest_step

SPARK43 = ".venv-spark43"
KIND = "tests/cluster/kind"
ALL_BUILT = "build-all"
SMOKE, REST = ("-m", "smoke"), ("-m", "not smoke")
QUICK, LONG = ("-m", "not long"), ("-m", "long")
# A compiler keeps all processors busy, but beside it there is room for what mostly waits. Packages
# for images are fetched, and unpacked one by one.
BUILD_LOAD, IMAGES_LOAD, TABLE_IMAGE_LOAD = 1.2, 0.4, 0.2
# Two clusters, with all their pods, which wait more than they compute.
NODES_LOAD = 1.0
# A JVM starts with all processors, and then waits for servers and disks.
SPARK_LOAD = 0.6
# Each of its tests waits for an operator's next look, and a kube-apiserver computes meanwhile:
# beside both clusters and Spark it answered too late.
OPERATOR_LOAD = 0.8
# They wait more than they compute: for servers and disks, for an operator's next look, for what
# heals by itself after some seconds.
LIVE_WORKERS, FAULT_WORKERS, OPERATOR_WORKERS = "4", "4", "3"
# Two clusters: a third finds no processor. Tests of one file share pipelines. By the number of
# their tests, which would be pytest-xdist's own order, the longest files came last;
# tests/conftest.py puts them first.
NODES_SHARING = ("-n", "2", "--dist=loadfile", "--no-loadscope-reorder")


def check() -> list[Step]:
    """What is run before each commit: style, types, all tests without process and network, and
    those of tables that the change touches.
    """
    return [*_pure(), *_touched_tables()]


def test() -> list[Step]:
    """What shows in minutes that each part does its work."""
    searched = "all states of the protocol, within small bounds"
    return [
        _own_jars(),
        # The operator's tests would wait for it in the end, when nothing else is left to run.
        replace(_built_api(), is_urgent=True),
        *_pure(),
        # What waits more than it computes comes first: the others find a processor beside it.
        _live("live", QUICK),
        _operator("operator-smoke", SMOKE),
        _spark("spark-smoke", SMOKE),
        _tables("tests/tables"),
        pytest_step("protocol", searched, "tests/protocol", "-n", "2", load=1.0),
        _faults("faults-smoke", SMOKE),
        _simulation("simulation-smoke", SMOKE),
        *([_nodes("nodes-smoke", SMOKE)] if is_cluster_at_hand() else []),
    ]


def test_all() -> list[Step]:
    """Everything. What takes longest begins first, as soon as it can."""
    nodes = REST if is_cluster_at_hand() else ()
    # kind, with Docker, brings its own.
    built = [] if requirements.is_docker_there() else _built_for_nodes()
    all_built = tuple(step.name for step in built if step.name == ALL_BUILT)
    # A compiler beside that of Kubernetes would hold up the tests that take longest.
    nats_cli = Step(
        name="nats-cli",
        shows="NATS' own command line from its module, once",
        command=(sys.executable, "tests/support/go_programs.py", "nats"),
        after=all_built,
        is_background=True,
    )
    # Nothing waits for it: a test that finds it unfinished does.
    nats_server = Step(
        name="nats-server",
        shows="a rotator and the oldest nats-server that is taken, from their modules, once",
        command=(sys.executable, "tests/support/go_programs.py", "lumberjack", "nats-server"),
        after=all_built,
        is_background=True,
    )
    longest = [
        *(built or [_built_api()]),
        *([_table_image()] if built else []),
        *_built_for_spark43(),
        _own_jars(),
        _nodes("nodes", nodes, after=tuple(step.name for step in built)),
        _spark("spark", REST),
        # Tests of the chart use Helm.
        _operator("operator", REST, after=all_built),
        _faults("faults", REST),
        nats_cli,
        nats_server,
        # Its last tests wait for minutes: others find the processors beside them.
        _live("live-long", LONG, after=(nats_cli.name,)),
        _simulation("simulation", REST),
    ]
    return [
        *longest,
        *(step for step in test() if step.name not in {each.name for each in longest}),
        pytest_step(
            "spark43",
            "the newest Spark",
            "tests/spark",
            *("-m", "spark43"),
            load=SPARK_LOAD,
            after=("venv-spark43", "jars-spark43"),
            folder=Path(SPARK43) / "bin",
            is_prompt=True,
        ),
    ]


PLANS = {"check": check, "test": test, "test-all": test_all}


def is_cluster_at_hand() -> bool:
    """Whether a whole Kubernetes can be had in seconds: built here, or by Docker."""
    return binaries.is_built() or requirements.is_docker_there()


def _pure() -> list[Step]:
    shows = "format, style, types, who may import whom, and what is generated"
    unit = "without process and network"
    return [
        Step(name="lint", shows=shows, command=("make", "lint"), load=1.0),
        pytest_step("unit", unit, "tests/unit", "-n", "2", load=1.0),
    ]


def _tables(*words: str) -> Step:
    shows = "tables on disks, without Spark"
    return pytest_step("tables", shows, *words, "-n", "2", load=1.0)


def _touched_tables() -> list[Step]:
    """Return a step with the tests of tables that the change since the last commit touches. The
    whole tier takes as long as all unit tests.
    """
    try:
        changed = affected.changed_files("HEAD")
    except RuntimeError:
        # No history to tell by.
        return [_tables("tests/tables")]
    touched = [file for file in affected.touched_tests(changed) if file.startswith("tests/tables/")]
    return [_tables(*touched)] if touched else []


def _built_for_spark43() -> list[Step]:
    return [
        Step(
            name="venv-spark43",
            shows="a virtual environment with the newest Spark",
            command=("sh", "requirements/install", "spark43", SPARK43),
            is_background=True,
        ),
        _jars("jars-spark43", f"{SPARK43}/bin/python", after=("venv-spark43",)),
    ]


def _built_for_nodes() -> list[Step]:
    """Return what the tests on nodes wait for, which take longer than any others."""
    cluster = (sys.executable, KIND, "build")
    # One builds at a time: what is not urgent would hold up what is.
    api = replace(_built_api(), is_urgent=True, load=BUILD_LOAD)
    return [
        api,
        Step(
            name=ALL_BUILT,
            shows="all of Kubernetes, and Helm, from their modules, once",
            command=(*cluster, "all"),
            after=(api.name,),
            is_background=True,
            is_urgent=True,
            load=BUILD_LOAD,
        ),
        Step(
            name="build-images",
            shows="the project's images",
            command=(*cluster, "images"),
            is_background=True,
            is_urgent=True,
            load=IMAGES_LOAD,
        ),
    ]


def _table_image() -> Step:
    """Return what builds the image of the tests of tables on nodes, which come late: nobody else
    waits for its gigabytes.
    """
    return Step(
        name="build-table-image",
        shows="the image that runs Spark",
        command=(sys.executable, KIND, "build", "table-image"),
        after=("build-images",),
        is_background=True,
        is_urgent=True,
        load=TABLE_IMAGE_LOAD,
    )


def _built_api() -> Step:
    return Step(
        name="build-api",
        shows="a kube-apiserver from its modules, once",
        command=(sys.executable, KIND, "build", "api"),
        is_background=True,
    )


def _own_jars() -> Step:
    return _jars("jars", sys.executable)


def _jars(name: str, python: str, after: tuple[str, ...] = ()) -> Step:
    return Step(
        name=name,
        shows="libraries of Java, once",
        command=(python, "tests/support/spark_versions.py"),
        after=after,
        is_background=True,
    )


def _live(name: str, marks: tuple[str, ...], after: tuple[str, ...] = ()) -> Step:
    words = ("tests/live", "-n", LIVE_WORKERS, *marks)
    return pytest_step(name, "real nats-servers", *words, load=1.0, after=("jars", *after))


def _faults(name: str, marks: tuple[str, ...]) -> Step:
    shows = "kills, cuts and full disks"
    words = ("tests/faults", "-n", FAULT_WORKERS, *marks)
    return pytest_step(name, shows, *words, load=0.8, after=("jars",))


def _simulation(name: str, marks: tuple[str, ...]) -> Step:
    shows = "whole pipelines in simulated worlds"
    return pytest_step(name, shows, "tests/simulation", "-n", "0", *marks, load=1.0)


def _spark(name: str, marks: tuple[str, ...]) -> Step:
    shows = "tables with a real Spark and a real S3 server"
    return pytest_step(
        name, shows, "tests/spark", *marks, load=SPARK_LOAD, after=("jars",), is_prompt=True
    )


def _operator(name: str, marks: tuple[str, ...], after: tuple[str, ...] = ()) -> Step:
    shows = "the operator and a real kube-apiserver"
    words = ("tests/operator", "-n", OPERATOR_WORKERS, *marks)
    return pytest_step(name, shows, *words, load=OPERATOR_LOAD, after=("build-api", *after))


def _nodes(name: str, marks: tuple[str, ...], after: tuple[str, ...] = ()) -> Step:
    shows = "a whole Kubernetes, with nodes, pods and images"
    words = ("tests/cluster", *marks, *(() if marks == SMOKE else NODES_SHARING))
    return pytest_step(name, shows, *words, load=NODES_LOAD, after=after)
