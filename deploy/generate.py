#!/usr/bin/env python3
"""Writes every file that is generated from other files: definitions, reference pages, the chart's
copies, and manifests for those who do without Helm.

deploy/generate.py [--helm PROGRAM] [--root FOLDER] writes; with --check it writes nothing, names
each file that is stale, and fails if there is one. Without Helm the files of `RENDERED` are left.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from logpipeline.consuming import reference as package_reference
from logpipeline.spec import admission, crd
from logpipeline.spec import reference as resource_reference
from logpipeline_cli import reference as command_reference
from logpipeline_operator.status import reasons

ROOT = Path(__file__).resolve().parent.parent
CHART = "charts/logpipeline"
OPERATIONS = "docs/operations.md"
# The source of the alerts, and what is said in what is made of it.
ALERTS = "deploy/alerts.yaml"
MADE_OF_ALERTS = "# Made by `make generate` from deploy/alerts.yaml; change it there.\n"
GREW = re.compile(r"GREW\((\w+(?:\{[^}]*\})?)\)")
# What a series has counted within 15 minutes. `increase` alone knows nothing of what was counted
# before the first sample of a series: a pod that starts, and a label's first value, begin above 0.
# So the last value is compared with the one of 15 minutes before. That may be an hour old, since
# what was counted before Prometheus was away is no news. Where there is none, or a larger one of
# a former process, all of the value is news; `increase` has what came and went in between.
GREW_WITHIN_15_MIN = """(
    last_over_time({0}[15m]) - last_over_time({0}[1h] offset 15m) > 0
    or last_over_time({0}[15m]) > 0
    unless last_over_time({0}[15m]) == last_over_time({0}[1h] offset 15m)
    or increase({0}[15m]) > 0
)"""


def chart_alerts() -> str:
    """Return the alerts as the chart reads them, which replaces the other capital words."""
    text = (ROOT / ALERTS).read_text()
    _, _, rules = text.partition("\n- ")
    grown = " ".join(GREW_WITHIN_15_MIN.split())
    rules = rules.replace("UNCHECKED_AFTER_S", f"{crd.UNCHECKED_AFTER_S:.0f}")
    return MADE_OF_ALERTS + "- " + GREW.sub(lambda found: grown.format(found[1]), rules)


# What is told apart in an alert: what runs on one machine, and what does not; and the words for
# limits, with their names in the chart's values.
ON_ONE_MACHINE = re.compile(r"logpipeline_(collector|shipper)_")
ELSEWHERE = re.compile(r"logpipeline_(operator|callout)_")
LIMITS = {"LAG_SECONDS": "lagSeconds"}


def local_alerts() -> str:
    """Return the alerts as Prometheus reads them on one machine, without the chart."""
    values = yaml.safe_load((ROOT / CHART / "values.yaml").read_text())["prometheusRule"]
    text = chart_alerts()
    for word, name in LIMITS.items():
        text = text.replace(word, str(values[name]))
    rules = [
        rule
        for rule in yaml.safe_load(text)
        if ON_ONE_MACHINE.search(rule["expr"]) and not ELSEWHERE.search(rule["expr"])
    ]
    for rule in rules:
        rule["expr"] = " ".join(rule["expr"].split())
        # There is no kubectl: the command is the same without it.
        said = rule["annotations"]["description"]
        rule["annotations"]["description"] = said.replace("kubectl logpipeline", "logpipeline")
    groups = {"groups": [{"name": "logpipeline", "rules": rules}]}
    return MADE_OF_ALERTS + yaml.safe_dump(groups, sort_keys=False, width=100)


# What each file holds, given what it holds now.
WRITTEN: dict[str, Callable[[str], str]] = {
    "deploy/crd.yaml": lambda _: crd.render(),
    "deploy/admission.yaml": lambda _: admission.render(),
    # Helm reads nothing outside of its chart.
    f"{CHART}/files/crd.yaml": lambda _: crd.render(),
    f"{CHART}/files/admission.yaml": lambda _: admission.render(),
    f"{CHART}/files/alerts.yaml": lambda _: chart_alerts(),
    "deploy/local/alerts.yml": lambda _: local_alerts(),
    "docs/crd.md": lambda _: resource_reference.reference(),
    "docs/cli.md": lambda _: command_reference.reference(),
    "docs/api.md": lambda _: package_reference.reference(),
    OPERATIONS: reasons.with_reasons,
}
OPERATOR, CLASSES = RENDERED = ("deploy/operator.yaml", "deploy/classes.yaml")

NAMESPACE = "logging"
# Helm checks the chart's kubeVersion even where no cluster is asked, against its own default.
KUBE_VERSION = "1.29.0"
# Neither the namespace nor the definition is in the file: `kubectl delete -f` of it, which undoes
# `kubectl apply -f`, would take all pipelines with it, and in the namespace their claims as well.
HEAD = """\
# Made by `make generate` from charts/logpipeline; change it there. The operator alone, in the
# namespace logging, which has to exist, for all namespaces. What else an install takes, and how
# all of it is removed, is in docs/kubernetes.md.
"""
HEAD_CLASSES = """\
# Made by `make generate` from charts/logpipeline; change it there. What LogPipelines may ask
# for.
"""


def stale(root: Path, helm: str | None) -> Iterator[tuple[str, str]]:
    """Yield each generated file that is not as it is to be, and what it is to hold; files rendered
    by *helm* only where there is one.

    The chart's copies are written before Helm reads them: consume one file after the other.
    """
    for name, text in WRITTEN.items():
        path = root / name
        now = path.read_text() if path.exists() else ""
        wanted = text(now)
        if wanted != now:
            yield name, wanted
    if helm is not None:
        for name, wanted in zip(RENDERED, rendered(root, helm), strict=True):
            path = root / name
            if not path.exists() or path.read_text() != wanted:
                yield name, wanted


def rendered(root: Path, helm: str) -> tuple[str, str]:
    """Return the operator's manifests, and the classes, as `kubectl apply` takes them."""
    run = subprocess.run(
        [
            helm, "template", "logpipeline", str(root / CHART), "--namespace", NAMESPACE,
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


def main() -> int:
    """Write, or check; return the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--helm", default="helm", help="the program to render with")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project's folder")
    parser.add_argument("--check", action="store_true", help="write nothing, only compare")
    words = parser.parse_args()
    helm = shutil.which(words.helm)
    found = 0
    for name, text in stale(words.root, helm):
        found += 1
        if words.check:
            print(f"{name} is stale; run `make generate`", file=sys.stderr)
        else:
            (words.root / name).write_text(text)
            print(f"wrote {name}")
    if helm is None:
        print(f"left {' and '.join(RENDERED)}: there is no {words.helm}")
    return 1 if words.check and found else 0


if __name__ == "__main__":
    sys.exit(main())
