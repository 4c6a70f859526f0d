"""The CustomResourceDefinition: made from the same declarations as the parser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from logpipeline.spec.changes import CHANGE_RULES
from logpipeline.spec.crd import crd
from logpipeline.spec.rules import ENTRY_RULES, SPEC_RULES

FILE = Path(__file__).parents[2] / "deploy" / "crd.yaml"
Schema = dict[str, Any]


def root() -> Schema:
    """The schema of the whole resource."""
    schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert isinstance(schema, dict)
    return schema


def fields(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield every schema below *schema*, entries of lists as ``[]``."""
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from fields(field, f"{path}.{name}")
    if "items" in schema:
        yield f"{path}[]", schema["items"]
        yield from fields(schema["items"], f"{path}[]")


def rules(schema: Schema) -> list[str]:
    """The CEL of the rules that stand directly at *schema*."""
    return [rule["rule"] for rule in schema.get("x-kubernetes-validations", [])]


def test_the_file_is_plain_yaml_that_kubectl_takes() -> None:
    """Without anchors, which not every reader knows, and small enough for kubectl's annotation."""
    text = FILE.read_text()

    assert "&id" not in text
    assert len(text) < 262_144


def test_every_field_tells_what_it_is_for() -> None:
    """`kubectl explain` answers for each of them."""
    silent = [
        path
        for path, schema in fields(root())
        if not path.endswith("[]") and not schema.get("description") and path != ".metadata"
    ]

    assert silent == []


def test_every_rule_stands_in_the_definition() -> None:
    """So the API server refuses what one machine refuses."""
    everywhere = [cel for _, schema in [("", root()), *fields(root())] for cel in rules(schema)]

    assert {rule.cel for rule in (*SPEC_RULES, *ENTRY_RULES)} <= set(everywhere)
    assert {rule.cel for rule in CHANGE_RULES} <= set(everywhere)


def test_no_rule_of_an_object_is_evaluated_on_its_bare_default() -> None:
    """The API server refuses a definition whose rules read fields of the default {}: in it, fields
    are not filled in.
    """
    wrong = [
        path
        for path, schema in fields(root())
        if schema.get("type") == "object" and "default" in schema and rules(schema)
    ]

    assert wrong == []


def test_what_rules_read_is_bounded() -> None:
    """The API server estimates what a rule costs, and takes what has no limit for endless."""
    unbounded = [
        path
        for path, schema in fields(root()["properties"]["spec"])
        if (schema.get("type") == "array" and "maxItems" not in schema)
        or (schema.get("type") == "string" and not schema.keys() & {"maxLength", "enum"})
    ]

    assert unbounded == []


def test_every_field_that_has_a_default_shows_it() -> None:
    """A resource in the cluster says what holds; one with nothing but a name is filled in."""
    spec = root()["properties"]["spec"]

    assert spec["default"] == {}
    assert spec["properties"]["partitions"]["default"] == 10
    assert spec["properties"]["collectors"]["default"] == {}
    assert spec["properties"]["stream"]["properties"]["maxAge"]["default"] == "1d"
    assert "required" not in spec
    assert "required" not in root()


def test_scaling_and_listing_work_as_for_any_resource() -> None:
    """`kubectl scale` reaches the collectors, and `kubectl get` shows what people look for."""
    version = crd()["spec"]["versions"][0]

    assert version["subresources"]["scale"] == {
        "specReplicasPath": ".spec.collectors.replicas",
        "statusReplicasPath": ".status.collectors.replicas",
        "labelSelectorPath": ".status.collectors.selector",
    }
    shown = [c["name"] for c in version["additionalPrinterColumns"] if not c.get("priority")]
    assert [name.upper() for name in shown] == [
        "READY", "REASON", "PARTITIONS", "COLLECTORS", "SHIPPERS", "LAG", "MISSING", "LOST",
        "CHECKED",
        "AGE",
    ]  # fmt: skip


def test_every_column_and_path_is_in_the_schema() -> None:
    """A column that nothing fills would stay empty for ever."""
    version = crd()["spec"]["versions"][0]
    known = {path for path, _ in fields(root())}
    paths = [column["jsonPath"] for column in version["additionalPrinterColumns"]]
    paths += version["subresources"]["scale"].values()

    plain = {path for path in paths if "[" not in path and not path.startswith(".metadata")}
    assert plain <= known
