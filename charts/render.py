#!/usr/bin/env python3
"""Writes what is made of other files: the chart's copy of the definition, which Helm cannot read
from outside of the chart, and the manifests for those who do without Helm.

charts/render.py [--helm PROGRAM] writes charts/logpipeline/files/{crd,admission}.yaml, and
deploy/operator.yaml and deploy/classes.yaml;
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
POLICY = ROOT / "deploy" / "admission.yaml"
POLICY_COPY = CHART / "files" / "admission.yaml"
CLASSES = ROOT / "deploy" / "classes.yaml"
OPERATOR = ROOT / "deploy" / "operator.yaml"

NAMESPACE = "logging"
# Helm checks the chart's kubeVersion even where no cluster is asked, against its own default.
KUBE_VERSION = "1.29.0"
# Neither the namespace nor the definition is in the file: `kubectl delete -f` of it, which undoes
# `kubectl apply -f`, would take all pipelines with it, and in the namespace their claims as well.
HEAD = """\
# Made by `charts/render.py` from charts/logpipeline; change it there. The operator alone, in the
# namespace logging, which has to exist, for all namespaces. What else an install takes, and how
# all of it is removed, is in docs/kubernetes.md.
"""
HEAD_CLASSES = """\
# Made by `charts/render.py` from charts/logpipeline; change it there. What LogPipelines may ask
# for.
"""


def rendered(helm: str) -> tuple[str, str]:
    """Return the operator's manifests, and the classes, as `kubectl apply` takes them."""
    run = subprocess.run(
        [
            helm, "template", "logpipeline", str(CHART), "--namespace", NAMESPACE,
            "--kube-version", KUBE_VERSION, "--set", "crds.enabled=false", "--skip-tests",
        ],
        check=True,
        capture_output=True,
        text=True,
    )  # fmt: skip
    objects = [_without_helm(each) for each in yaml.safe_load_all(run.stdout) if each]
    classes = [each for each in objects if each["kind"] == "LogPipelineClass"]
    others = [each for each in objects if each not in classes]
    return HEAD + _documents(others), HEAD_CLASSES + _documents(classes)


def _documents(objects: list[dict[str, Any]]) -> str:
    return "".join("---\n" + yaml.safe_dump(each, sort_keys=False) for each in objects)


def _without_helm(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return *manifest* without the labels that say that Helm looks after it."""

    def is_kept(name: str, value: str) -> bool:
        return not name.startswith("helm.sh/") and value != "Helm"

    labels: Mapping[str, str] = manifest["metadata"]["labels"]
    kept = {name: value for name, value in labels.items() if is_kept(name, value)}
    metadata = {**manifest["metadata"], "labels": kept}
    if "helm.sh/hook" in metadata.get("annotations", {}):
        del metadata["annotations"]
    return {**manifest, "metadata": metadata}


def _wanted(helm: str) -> Iterator[tuple[Path, str]]:
    yield COPY, DEFINITION.read_text()
    yield POLICY_COPY, POLICY.read_text()
    operator, classes = rendered(helm)
    yield OPERATOR, operator
    yield CLASSES, classes


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
