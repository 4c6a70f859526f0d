"""What a person wants to see when a test on a cluster has failed: objects, events and logs."""

from __future__ import annotations

import re
from pathlib import Path

from cluster.bare.places import MACHINE, ClusterPlaces
from cluster.handle import Cluster

KINDS = "all,persistentvolumeclaims,configmaps,networkpolicies,poddisruptionbudgets"
# Of each log its end is shown: enough for a stack trace and what led to it.
LOG_LINES_MAX = 200
PROGRAM_LINES_MAX = 15
SECTION_CHARS_MAX = 40_000
# Of the nodes' own programs only what went wrong: Kubernetes' way to say so, containerd's and ours.
ERROR = re.compile(r"^[EF]\d{4} | level=(error|fatal) |\[ERROR\]| ended with ")


def evidence(cluster: Cluster, namespace: str) -> list[tuple[str, str]]:
    """Titles and texts, about *namespace* and about the programs of the nodes."""
    here = f"--namespace={namespace}"
    sections = [
        ("nodes", _ask(cluster, "get", "nodes", "-o", "wide")),
        ("objects", _ask(cluster, "get", KINDS, here, "-o", "wide")),
        ("pipelines", _ask(cluster, "get", "logpipelines", here, "-o", "yaml")),
        ("events", _ask(cluster, "get", "events", here, "--sort-by=.lastTimestamp")),
        ("pods", _ask(cluster, "describe", "pods", here)),
    ]
    names = _ask(cluster, "get", "pods", here, "-o", "name").split()
    sections += [(f"logs of {name}", _logs(cluster, name, here)) for name in names]
    if cluster.record is not None:
        hosts = (*cluster.record.nodes, MACHINE)
        sections += _programs(ClusterPlaces(cluster.record.name), hosts)
    return [(f"{title} of {namespace}", text[-SECTION_CHARS_MAX:]) for title, text in sections]


def _ask(cluster: Cluster, *arguments: str) -> str:
    return cluster.kubectl(*arguments, check=False)


def _logs(cluster: Cluster, pod: str, here: str) -> str:
    options = (pod, here, "--all-containers", "--prefix", f"--tail={LOG_LINES_MAX}")
    now = _ask(cluster, "logs", *options)
    before = _ask(cluster, "logs", *options, "--previous")
    return now if "not found" in before else f"{now}\n--- before the last restart ---\n{before}"


def _programs(at: ClusterPlaces, nodes: tuple[str, ...]) -> list[tuple[str, str]]:
    files = [(node, file) for node in nodes for file in at.process_logs(node).glob("*.log")]
    told = [(f"errors of {file.stem} on {node}", _last_errors(file)) for node, file in files]
    return [(title, text) for title, text in told if text]


def _last_errors(file: Path) -> str:
    lines = file.read_text(errors="replace").splitlines()
    return "\n".join([line for line in lines if ERROR.search(line)][-PROGRAM_LINES_MAX:])
