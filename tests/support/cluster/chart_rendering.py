"""The chart as Helm renders it, for tests of what each value does. No cluster is asked."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.bare import binaries

Manifest = dict[str, Any]

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "logpipeline"
RELEASE = "logpipeline"
NAMESPACE = "logging"
# The oldest that the chart takes.
KUBE_VERSION = "1.29.0"
HELM_DEADLINE_S = 60.0

# Every part of the chart at once; each is tried alone as well.
ALL_ON: Mapping[str, Any] = {
    "podDisruptionBudget": {"enabled": True},
    "networkPolicy": {"enabled": True},
    "podMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "grafanaDashboard": {"enabled": True},
    "rbac": {"aggregateToEdit": True},
}


class Refused(Exception):
    """Helm did not render the chart; the text is what it said."""


@dataclass(frozen=True)
class Rendered:
    """What a set of values makes."""

    manifests: tuple[Manifest, ...]

    def one(self, kind: str, name: str = "") -> Manifest:
        """The object of *kind*, and *name* where there are several."""
        found = self.all(kind, name)
        assert len(found) == 1, f"{len(found)} objects of kind {kind} called {name or 'anything'}"
        return found[0]

    def all(self, kind: str, name: str = "") -> list[Manifest]:
        """The objects of *kind*."""
        return [
            manifest
            for manifest in self.manifests
            if manifest["kind"] == kind and name in ("", manifest["metadata"]["name"])
        ]

    @property
    def kinds(self) -> set[str]:
        """The kinds of all objects."""
        return {manifest["kind"] for manifest in self.manifests}

    @property
    def pod(self) -> Manifest:
        """The specification of the operator's pod."""
        spec: Manifest = self.one("Deployment")["spec"]["template"]["spec"]
        return spec

    @property
    def container(self) -> Manifest:
        """The operator's container."""
        (container,) = self.pod["containers"]
        return dict(container)

    @property
    def environment(self) -> dict[str, Any]:
        """The environment of the operator's container."""
        return {each["name"]: each.get("value") for each in self.container["env"]}


def helm() -> str:
    """Where Helm is; the test is skipped where it is not."""
    built = binaries.folder() / "helm"
    found = str(built) if built.exists() else shutil.which("helm")
    if found is None:
        pytest.skip("helm is neither installed nor built (tests/cluster/kind build all)")
    return found


def image_of(name: str) -> dict[str, str]:
    """Return the image *name* as a value of the chart."""
    path, _, tag = name.rpartition(":")
    registry, _, repository = path.rpartition("/")
    return {"registry": registry, "repository": repository, "tag": tag}


def never_pulled(name: str) -> dict[str, str]:
    """Return the image *name*, which nodes have already, as the value `image` of the chart."""
    return image_of(name) | {"pullPolicy": "IfNotPresent"}


def render(values: Mapping[str, Any] | None = None, *, with_tests: bool = False) -> Rendered:
    """Return what Helm makes of the chart with *values*.

    Raises:
        Refused: Helm, or the schema of the values, did not take them.
    """
    text = _rendered(json.dumps(values or {}), with_tests)
    # In C, for the definition alone is some thousand lines; each test may change what it gets.
    return Rendered(tuple(found for found in yaml.load_all(text, yaml.CSafeLoader) if found))


@cache
def _rendered(values: str, with_tests: bool) -> str:
    arguments = [
        "template", RELEASE, str(CHART), "--namespace", NAMESPACE,
        "--kube-version", KUBE_VERSION, "--values", "-",
    ]  # fmt: skip
    if not with_tests:
        arguments.append("--skip-tests")
    done = subprocess.run(
        [helm(), *arguments],
        input=values,
        capture_output=True,
        text=True,
        check=False,
        timeout=HELM_DEADLINE_S,
    )
    if done.returncode:
        raise Refused(done.stderr)
    return done.stdout


def chart_file(name: str) -> str:
    """The text of a file of the chart."""
    return (CHART / name).read_text()
