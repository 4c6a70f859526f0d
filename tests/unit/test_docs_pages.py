"""The pages for people who run it: what they name is there, and their examples are good."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from logpipeline.spec import parse
from logpipeline.spec.api import API_VERSION, KIND
from logpipeline.spec.crd import crd
from logpipeline_cli.arguments import build_parser, kubectl
from logpipeline_operator.status.reasons import BEGIN, END, Reason, with_reasons

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
KUBERNETES = DOCS / "kubernetes.md"
OPERATIONS = DOCS / "operations.md"
GUARANTEES = DOCS / "guarantees.md"
CHART = ROOT / "charts" / "logpipeline" / "files"
# What a path on the pages begins with; its first parts may be left out.
PARTS = "spec|status|nats|stream|collectors|shippers|persistence|retention|updateStrategy"
README = ROOT / "README.md"
PAGES = (*DOCS.glob("*.md"), README, ROOT / "SECURITY.md")


def examples(page: Path) -> Iterator[dict[str, Any]]:
    """Yield the YAML documents on *page*."""
    for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        yield from yaml.safe_load_all(block)


def anchors(page: Path) -> set[str]:
    """Return how Markdown's viewers call the headings of *page*."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-") for title in titles}


def spec_paths(schema: dict[str, Any], path: str = "spec") -> Iterator[str]:
    """Yield every path of a field below *schema*."""
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from spec_paths(field.get("items", field), f"{path}.{name}")


def ends(endings: tuple[str, ...], path: str) -> bool:
    """Return whether one of *endings* is *path*, or ends with it where it is no whole path."""
    if path.startswith(("spec.", "status.")):
        return f".{path}" in endings
    return any(ending.endswith(f".{path}") for ending in endings)


def test_each_promise_names_tests_that_are_there() -> None:
    """A promise that nothing tests is none."""
    rows = re.findall(r"^\| P\d+ .*\| (.*?) \|$", GUARANTEES.read_text(), re.MULTILINE)
    named = [re.findall(r"`(\w+/test_\w+\.py)`", row) for row in rows]

    assert len(rows) >= 9
    assert all(named)
    assert [path for row in named for path in row if not (ROOT / "tests" / path).is_file()] == []


def test_the_table_of_reasons_names_each() -> None:
    """With what to do."""
    text = OPERATIONS.read_text()

    assert all(f"| `{reason.word}` |" in text for reason in Reason)


def test_a_page_without_the_marks_is_refused() -> None:
    """Nothing is written into a page that has no place for the table, or half of one."""
    for page in ("no marks\n", f"{BEGIN}no end\n", f"no beginning\n{END}"):
        with pytest.raises(ValueError, match="needs the lines"):
            with_reasons(page)


def test_every_example_of_a_resource_is_a_good_one() -> None:
    """Whoever copies it from the page gets what it shows."""
    tried = 0
    for found in examples(KUBERNETES):
        if "classes" in found:
            # The chart's values: `test_docs_classes` reads them.
            continue
        resource = found
        if "kind" not in found:
            resource = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "a"}, **found}
        if resource["kind"] == KIND:
            parse(resource)
            tried += 1

    assert tried >= 10


def test_every_example_of_the_readme_is_a_good_one() -> None:
    """The first resource that somebody copies is accepted, as it stands."""
    tried = 0
    for found in examples(README):
        head = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "a"}}
        parse(head | found)
        tried += 1

    assert tried >= 1


def test_every_command_of_the_readme_is_one() -> None:
    """Its words are taken by the parser, so a renamed option is renamed there."""
    blocks = re.findall(r"^```sh\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    commands = [line for line in lines if line.startswith("logpipeline ")]

    assert len(commands) > 8
    for line in commands:
        words = shlex.split(line, comments=True)[1:]
        words = words[: words.index(">")] if ">" in words else words
        assert build_parser().parse_args(words).command == words[0], line


def test_every_field_that_the_pages_name_is_there() -> None:
    """A field that was renamed is renamed on the pages."""
    schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    known = {*spec_paths(schema["spec"]), *spec_paths(schema["status"], "status")}
    text = KUBERNETES.read_text() + OPERATIONS.read_text()
    named = re.findall(rf"`((?:{PARTS})\.[A-Za-z.]+)", text)

    assert len(named) > 20
    endings = tuple(f".{path}" for path in known)
    assert [path for path in named if not ends(endings, path)] == []


def test_every_alert_has_a_line() -> None:
    """Who is woken by one finds what to do."""
    text = OPERATIONS.read_text()
    alerts = re.findall(r"^- alert: (\w+)$", (CHART / "alerts.yaml").read_text(), re.MULTILINE)

    assert len(alerts) > 5
    assert [name for name in alerts if f"| `{name}` |" not in text] == []


def test_every_metric_on_the_pages_is_counted() -> None:
    """Who looks for one in a dashboard finds it."""
    named = set(re.findall(r"`logpipeline_([a-z]+)_([a-z_]+)", OPERATIONS.read_text()))
    folders = {part: part for part in ("operator", "shipper", "collector")}
    folders["callout"] = "operator/logpipeline_operator/callout"
    sources = {
        part: "".join(path.read_text() for path in (ROOT / folder).rglob("*.py"))
        for part, folder in folders.items()
    }

    assert len(named) > 10
    lacking = [
        name for part, name in named if f'"{name.removesuffix("_total")}"' not in sources[part]
    ]
    assert lacking == []


def test_every_right_of_the_operator_has_a_reason() -> None:
    """The table of rights has each resource of the chart, with the verbs that it has there."""
    rows = re.findall(r"^\| (`[a-z`, /]+) \| ([^|]*) \|", KUBERNETES.read_text(), re.MULTILINE)
    told = {name: verbs for names, verbs in rows for name in re.findall(r"[a-z/]+", names)}
    rules = yaml.safe_load((CHART / "rbac.yaml").read_text())
    granted: dict[str, set[str]] = {}
    for heading, entries in rules.items():
        for rule in entries if heading not in ("shipper", "shipperOwn", "spark", "console") else []:
            for name in rule["resources"]:
                granted.setdefault(name, set()).update(rule["verbs"])

    assert granted.keys() == told.keys()
    for name, verbs in granted.items():
        words = set(re.findall(r"[a-z]+", told[name]))
        assert verbs == words & {*verbs, "get", "list", "watch", "create", "patch", "delete"}, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a file that is there, and to a heading in it."""
    dead = []
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        there = (page.parent / file) if file else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            dead.append(target)

    assert dead == []


@pytest.mark.parametrize("page", [*PAGES, ROOT / "charts/logpipeline/README.md"], ids=str)
def test_no_page_has_the_package_fetched_by_a_name_that_is_not_ours(page: Path) -> None:
    """No index has it: who takes the name there would have every reader run his program."""
    assert "no index has it yet" in README.read_text()
    # This one is the help of the command, which is for those who have installed it.
    if page.name != "cli.md":
        assert re.findall(r"pip install ['\"]?logpipeline(?!-[0-9])[^\s]*", page.read_text()) == []


@pytest.mark.parametrize(
    "page", [KUBERNETES, README, ROOT / "charts/logpipeline/README.md"], ids=str
)
def test_images_are_built_before_they_are_installed(page: Path) -> None:
    """No registry has them either, and the chart would pull what another has put there."""
    text = page.read_text()

    assert "registry has them" in " ".join(text.split())
    installs = [line for line in text.splitlines() if "helm install" in line]
    assert installs != []
    assert [line for line in installs if "global.imageRegistry=" not in line] == []


def test_each_image_of_the_chart_is_built_by_the_page() -> None:
    """By the name by which the chart asks for it."""
    values = yaml.safe_load((CHART.parent / "values.yaml").read_text())
    repositories = [values["image"], *values["images"].values()]
    built = re.search(r"for image in ([a-z ]+); do", KUBERNETES.read_text())

    assert built is not None
    assert {f"logpipeline/{name}" for name in built[1].split()} == {
        each["repository"] for each in repositories
    }


def test_each_command_of_a_cluster_has_its_rights_on_the_page() -> None:
    """Who asks for a right must know it before: what lists them has no one left out."""
    row = re.compile(r"^\| ((?:`[a-z -]+`(?:, )?)+).*\| .*(?:get|list) ", re.MULTILINE)
    told = {word for cell in row.findall((DOCS / "cli.md").read_text()) for word in cell.split("`")}
    # These ask no cluster.
    commands = {each.name for each in kubectl.COMMANDS} - {"inject", "version"}

    assert sorted(commands - told) == []


def test_an_upgrade_on_the_pages_takes_the_defaults_of_the_newer_chart() -> None:
    """With `--reuse-values` a value that the older chart did not have is missing, or off."""
    for page in PAGES:
        assert re.findall(r"(?<!reset-then)--?reuse-values", page.read_text()) == [], page.name


def test_commands_of_one_machine_are_called_where_they_are_installed() -> None:
    """The page puts them into an environment that no PATH has."""
    page = (DOCS / "one-machine.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]

    assert [line for line in lines if line.startswith("logpipeline ")] == []
