"""The reference of the resource: made from the definition, and whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from logpipeline.spec.crd import GONE, crd
from logpipeline.spec.reference import reference


def leaves(schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield name and description of every field that holds no other."""
    for name, field in schema.get("properties", {}).items():
        inner = field.get("items", field)
        if "properties" in inner:
            yield from leaves(inner)
        else:
            yield name, field["description"]


def test_the_reference_tells_of_every_field() -> None:
    """What a resource can say, and what its status tells, stands there with its description; what
    is gone does not.
    """
    root = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    text = reference().replace("&lt;", "<")
    wanted = [*leaves(root["spec"]), *leaves(root["status"])]

    assert len(wanted) > 150
    lacking = [field for field in wanted if f"{field[0]}` |" not in text or field[1] not in text]
    assert lacking == [("workers", GONE), ("archive", GONE)]


def test_every_link_in_the_reference_leads_to_a_heading() -> None:
    """A click on an object's type shows its fields."""
    text = reference()
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-") for title in headings}
    links = re.findall(r"\]\(#([^)]*)\)", text)

    assert len(links) > 20
    assert set(links) <= anchors
    assert len(headings) == len(anchors)


def test_a_row_has_as_many_cells_as_its_table() -> None:
    """No text of a field breaks the table that it stands in."""
    rows = [line for line in reference().splitlines() if line.startswith("| `")]

    assert len(rows) > 150
    assert {len(re.split(r"(?<!\\)\|", row)) for row in rows} == {6}
