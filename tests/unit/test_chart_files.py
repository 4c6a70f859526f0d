"""What the chart holds beside its templates agrees with the code, without Helm."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "logpipeline"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
ALERTS = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
DASHBOARD = json.loads((CHART / "files" / "dashboard.json").read_text())
# Where Kubernetes, or the definition of LogPipeline, checks what is in it.
CHECKED_ELSEWHERE = {
    "affinity", "cluster", "default", "podSecurityContext", "resources", "securityContext", "spec",
    "strategy",
}  # fmt: skip


def test_chart_definition_can_be_annotated_as_text() -> None:
    """The one line at which the chart adds its annotation stands in each definition once."""
    assert (CHART / "files" / "crd.yaml").read_text().count("\nmetadata:\n  name: ") == 2


def test_chart_policy_can_be_named_as_text() -> None:
    """The lines that the chart replaces to call it after the release are those of its name."""
    text = (CHART / "files" / "admission.yaml").read_text()

    assert text.count("logpipeline-classes") == 3
    assert text.count("\nmetadata:\n  name: logpipeline-classes\n") == 2
    assert text.count("policyName: logpipeline-classes\n") == 1


def test_manifests_of_the_operator_hold_nothing_that_takes_pipelines_with_it() -> None:
    """Deleting deploy/operator.yaml deletes no namespace, no definition and no claim."""
    found = yaml.safe_load_all((ROOT / "deploy" / "operator.yaml").read_text())

    assert {each["kind"] for each in found}.isdisjoint(
        {"CustomResourceDefinition", "LogPipeline", "Namespace", "PersistentVolumeClaim"}
    )


def test_chart_and_images_have_the_version_of_the_project() -> None:
    """Chart, application, images and their labels are of one version."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    images = yaml.safe_load(chart["annotations"]["artifacthub.io/images"])

    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert {image["image"].partition(":")[2] for image in images} == {version}
    assert f"ARG VERSION={version}\n" in (ROOT / "Dockerfile").read_text()


def test_chart_schema_knows_every_value() -> None:
    """Each value of values.yaml has a place in the schema, and the other way round."""
    assert set(_paths(SCHEMA)) - {"enabled"} == set(_value_paths(VALUES))


def test_chart_schema_is_closed() -> None:
    """A misspelt value is refused at each level, but where others check or a parent adds."""
    open_ones = {
        path.rpartition(".")[2]
        for path, schema in _objects(SCHEMA)
        if schema.get("additionalProperties", True) is True
    }

    assert open_ones == CHECKED_ELSEWHERE | {"global"}


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_chart_alert_says_what_is_wrong_and_what_to_do(rule: dict[str, Any]) -> None:
    """Every alert has a severity, a summary and a sentence."""
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"].rstrip().endswith((".", "`"))


def test_chart_panels_lie_beside_each_other() -> None:
    """No panel hides another, and each has a title and an id of its own."""
    panels = DASHBOARD["panels"]
    cells = [
        (x, y)
        for position in (panel["gridPos"] for panel in panels)
        for x in range(position["x"], position["x"] + position["w"])
        for y in range(position["y"], position["y"] + position["h"])
    ]

    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["title"] for panel in panels)


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return dict(SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]])
    return schema


def _objects(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of *schema*, with its path; items of lists are Kubernetes' own."""
    schema = _resolved(schema)
    if schema.get("type") == "object":
        yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from _objects(inner, f"{path}.{name}".lstrip("."))


def _paths(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """The paths of what *schema* allows and values.yaml has to show."""
    properties = _resolved(schema).get("properties")
    if properties is None or path.rpartition(".")[2].endswith("Probe"):
        yield path
        return
    for name, inner in properties.items():
        yield from _paths(inner, f"{path}.{name}".lstrip("."))


def _value_paths(values: Any, path: str = "", schema: Any = SCHEMA) -> Iterator[str]:
    """The paths of *values*, down to where the schema says no more."""
    properties = _resolved(schema).get("properties")
    if properties is None or path.rpartition(".")[2].endswith("Probe"):
        yield path
        return
    for name, inner in values.items():
        yield from _value_paths(inner, f"{path}.{name}".lstrip("."), properties.get(name, {}))
