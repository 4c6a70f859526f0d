"""What the pages and samples show for Kubernetes is allowed by the class that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from logpipeline.spec import load, parse
from logpipeline.spec.choices import refusals
from logpipeline.spec.classes import parse_class

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs" / name for name in ("kubernetes.md", "own-nats.md")]
SAMPLES = ROOT / "deploy" / "samples"
VALUES = yaml.safe_load((ROOT / "charts" / "logpipeline" / "values.yaml").read_text())["classes"]
# The others are for one machine, where no class decides.
FOR_CLUSTERS = [each for each in sorted(SAMPLES.glob("*.yaml")) if "local:" not in each.read_text()]
API_VERSION = "logpipeline.dev/v1alpha1"
# That of the release, and of the examples.
NAMESPACE = "logging"

Object = dict[str, Any]


def sections(page: Path) -> Iterator[tuple[str, list[Object]]]:
    """Yield each part of *page* below a heading, with the objects in its YAML."""
    for part in re.split(r"^(?=##+ )", page.read_text(), flags=re.MULTILINE):
        heading = part.partition("\n")[0].strip("# ")
        blocks = re.findall(r"^```yaml\n(.*?)^```", part, flags=re.MULTILINE | re.DOTALL)
        objects = [each for block in blocks for each in yaml.safe_load_all(block)]
        yield heading, [each for each in objects if isinstance(each, dict)]


def class_of(name: str, objects: list[Object]) -> Object:
    """The class *name* as *objects* have it, or as the chart makes it with their values."""
    for each in objects:
        if each.get("kind") == "LogPipelineClass" and each["metadata"]["name"] == name:
            return each
    spec = {**VALUES[name], "namespaces": [NAMESPACE]} if name == "cluster" else VALUES[name]
    for each in objects:
        spec = spec | each.get("classes", {}).get(name, {})
    metadata = {"name": name}
    return {
        "apiVersion": API_VERSION, "kind": "LogPipelineClass", "metadata": metadata, "spec": spec,
    }  # fmt: skip


def pipelines() -> list[Any]:
    """Each example of the pages, with what stands beside it."""
    return [
        pytest.param(each, objects, id=f"{page.stem}-{heading}-{number}")
        for page in PAGES
        for heading, objects in sections(page)
        for number, each in enumerate(objects)
        if each.get("kind", "LogPipeline") == "LogPipeline" and "spec" in each
    ]


@pytest.mark.parametrize(("example", "beside"), pipelines())
def test_an_example_is_allowed_by_the_class_beside_it(
    example: Object, beside: list[Object]
) -> None:
    """A part of a resource is meant for the pipeline of the page, which is of the class cluster."""
    whole = {
        "apiVersion": API_VERSION,
        "kind": "LogPipeline",
        "metadata": {"name": "prod", "namespace": NAMESPACE},
        **example,
    }
    name = example["spec"].get("className", "cluster")

    assert refusals(parse(whole), parse_class(class_of(name, beside))) == []


@pytest.mark.parametrize("sample", FOR_CLUSTERS, ids=lambda path: path.name)
def test_a_sample_is_allowed_by_its_class(sample: Path) -> None:
    """By that of the same name in the folder of classes, or by the chart's."""
    classes = [yaml.safe_load(each.read_text()) for each in SAMPLES.glob("classes/*.yaml")]
    pipeline = load(sample)

    assert (
        refusals(pipeline, parse_class(class_of(pipeline.spec.class_name or "default", classes)))
        == []
    )


def test_the_examples_are_found() -> None:
    """A test of none would pass."""
    assert len(pipelines()) > 10
