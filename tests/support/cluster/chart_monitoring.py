"""The definitions of Prometheus' operator, to check what we render for it, from its Go module.

They go by another group: with the true one, pipelines of other tests in the same cluster would get
their PodMonitors.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

Manifest = dict[str, Any]

MODULE = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
SUM = "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
FOLDER = Path("example/prometheus-operator-crd")
TRUE_GROUP = "monitoring.coreos.com"
GROUP = "monitoring.test.logpipeline.dev"
KINDS = ("podmonitors", "prometheusrules")
DOWNLOAD_S_MAX = 300.0


def definitions() -> list[Manifest]:
    """Return the definitions of PodMonitor and PrometheusRule, in `GROUP`."""
    folder = _module() / FOLDER
    found = []
    for kind in KINDS:
        definition = yaml.safe_load((folder / f"{TRUE_GROUP}_{kind}.yaml").read_text())
        definition["metadata"] = {"name": f"{kind}.{GROUP}"}
        definition["spec"]["group"] = GROUP
        found.append(definition)
    return found


def in_our_group(manifest: Manifest) -> Manifest:
    """Return *manifest* as an object of `GROUP`, where it is one of Prometheus' operator."""
    return {**manifest, "apiVersion": manifest["apiVersion"].replace(TRUE_GROUP, GROUP)}


def _module() -> Path:
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is needed to fetch the definitions of Prometheus' operator")
    done = subprocess.run(
        [go, "mod", "download", "-json", MODULE],
        capture_output=True,
        text=True,
        check=False,
        timeout=DOWNLOAD_S_MAX,
        cwd="/",
    )
    if done.returncode:
        pytest.skip(f"the definitions of Prometheus' operator cannot be fetched: {done.stdout}")
    answer = json.loads(done.stdout)
    assert answer["Sum"] == SUM, f"{MODULE} is not what it was: {answer['Sum']}"
    return Path(answer["Dir"])
