#!/usr/bin/env python3
"""Writes what is made of other files: the chart's copy of the definition, which Helm cannot read
from outside of the chart, and the manifests for those who do without Helm.

charts/render.py [--helm PROGRAM] writes charts/logpipeline/files/crd.yaml and deploy/operator.yaml;
with --check it writes nothing, and fails where one of them is not up to date.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "charts" / "logpipeline"
DEFINITION = ROOT / "deploy" / "crd.yaml"
COPY = CHART / "files" / "crd.yaml"
OPERATOR = ROOT / "deploy" / "operator.yaml"

NAMESPACE = "logging"
# Helm checks the chart's kubeVersion even where no cluster is asked, against its own default.
KUBE_VERSION = "1.29.0"
HEAD = """\
# Made by `charts/render.py` from charts/logpipeline; change it there. The operator, in the
# namespace logging, for all namespaces: `kubectl apply --server-side -f deploy/`.
"""
# All but the shippers would do with `restricted`: those read the node's files, as root.
NAMESPACE_LABELS = {"pod-security.kubernetes.io/enforce": "privileged"}


def rendered(helm: str) -> str:
    """Return the operator's manifests, as `kubectl apply` takes them."""
    run = subprocess.run(
        [
            helm, "template", "logpipeline", str(CHART), "--namespace", NAMESPACE,
            "--kube-version", KUBE_VERSION, "--set", "crds.enabled=false", "--skip-tests",
        ],
        check=True,
        capture_output=True,
        text=True,
    )  # fmt: skip
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": NAMESPACE_LABELS},
    }
    objects = [namespace, *(_without_helm(found) for found in yaml.safe_load_all(run.stdout))]
    return HEAD + "".join("---\n" + yaml.safe_dump(found, sort_keys=False) for found in objects)


def _without_helm(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return *manifest* without the labels that say that Helm looks after it."""

    def is_kept(name: str, value: str) -> bool:
        return not name.startswith("helm.sh/") and value != "Helm"

    labels: Mapping[str, str] = manifest["metadata"]["labels"]
    kept = {name: value for name, value in labels.items() if is_kept(name, value)}
    return {**manifest, "metadata": {**manifest["metadata"], "labels": kept}}


def _wanted(helm: str) -> Iterator[tuple[Path, str]]:
    yield COPY, DEFINITION.read_text()
    yield OPERATOR, rendered(helm)


def main() -> int:
    """Write, or check; return the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--helm", default="helm", help="the program to render with")
    parser.add_argument("--check", action="store_true", help="write nothing, only compare")
    words = parser.parse_args()
    stale = [
        (path, text)
        for path, text in _wanted(words.helm)
        if not path.exists() or path.read_text() != text
    ]
    for path, text in stale:
        name = path.relative_to(ROOT)
        if words.check:
            print(f"{name} is not up to date; run charts/render.py", file=sys.stderr)
        else:
            path.write_text(text)
            print(f"wrote {name}")
    return 1 if words.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
