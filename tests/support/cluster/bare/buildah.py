"""Build images without a daemon and without a registry, and pack them into archives."""

from __future__ import annotations

import contextlib
import json
import shutil
import tarfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster.bare import places
from cluster.bare.running import ToolError, run

# What a machine behind a proxy needs so that steps of a build may fetch packages.
MACHINE_FILES = ("/etc/ssl/certs", "/etc/pip.conf")


def build(
    context: Path, tag: str, *, target: str = "", arguments: Mapping[str, str] | None = None
) -> None:
    """Build *context*'s Dockerfile, or its stage *target*, and name the image *tag*."""
    # Steps run in a chroot: a container in a container needs more than many machines allow.
    options = ["--isolation", "chroot", "--layers", "--tag", tag]
    for file in MACHINE_FILES:
        if Path(file).exists():
            options += ["--volume", f"{file}:{file}:ro"]
    for name, value in (arguments or {}).items():
        options += ["--build-arg", f"{name}={value}"]
    if target:
        options += ["--target", target]
    _buildah("bud", *options, str(context))


def exists(tag: str) -> bool:
    """Whether there is an image of this name in our store."""
    return bool(_buildah("images", "--quiet", "--filter", f"reference={tag}").strip())


def names(repository: str) -> list[str]:
    """The names of all images of a *repository*, the newest first."""
    listed = _buildah("images", "--json", "--filter", f"reference={repository}:*")
    found = sorted(json.loads(listed), key=lambda image: int(image["created"]), reverse=True)
    return [name for image in found for name in image["names"] or []]


def remove(name: str) -> None:
    """Remove the image, and what no other one needs of it."""
    _buildah("rmi", name)


def forget_steps(*, older_than_s: float) -> None:
    """Remove the remembered results of steps that have not been made anew for long."""
    listed = json.loads(_buildah("images", "--json", "--filter", "dangling=true"))
    for image in listed:
        if time.time() - int(image["created"]) > older_than_s:
            with contextlib.suppress(ToolError):  # a later step stands on it
                remove(image["id"])


def pack(tags: Sequence[str], archive: Path) -> None:
    """Write the images *tags* into one *archive*; layers that they share stand in it once."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    layout = archive.with_suffix(".unfinished")
    unfinished = archive.with_suffix(".unfinished.tar")
    shutil.rmtree(layout, ignore_errors=True)
    for one in tags:
        # Compressing costs more than copying within a machine.
        _buildah("push", "--disable-compression", "--format", "oci", one, f"oci:{layout}:{one}")
    _name_images(layout / "index.json")
    with tarfile.open(unfinished, "w") as file:
        file.add(layout, arcname=".")
    shutil.rmtree(layout)
    unfinished.rename(archive)


def _name_images(index: Path) -> None:
    """Write names where containerd takes them as they are, instead of putting a prefix before."""
    content = json.loads(index.read_text())
    for manifest in content["manifests"]:
        notes = manifest["annotations"]
        notes["io.containerd.image.name"] = notes["org.opencontainers.image.ref.name"]
    index.write_text(json.dumps(content))


def _buildah(verb: str, *arguments: str) -> str:
    store = places.cache() / "buildah"
    folders = ["--root", str(store / "store"), "--runroot", str(store / "run")]
    return run("buildah", *folders, "--storage-driver", "overlay", verb, *arguments)
