"""Build images without a daemon and without a registry, and pack them into archives."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
import tarfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.bare import places
from cluster.bare.running import ToolError, run

# What a machine behind a proxy needs so that steps of a build may fetch packages.
MACHINE_FILES = ("/etc/ssl/certs", "/etc/pip.conf")
ALGORITHM = "sha256:"
DIGEST_CHARS = 64


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
    """Write the images *tags* into one *archive*, an OCI layout. Layers that they share are in it
    once. Layers are not compressed: that takes minutes on a busy machine.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    folder = archive.with_suffix(".unfinished")
    unfinished = archive.with_suffix(".unfinished.tar")
    # A build that was killed leaves it behind.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    manifests: list[dict[str, Any]] = []
    blobs: dict[str, Path] = {}
    for number, tag in enumerate(tags):
        image = folder / str(number)
        # Debian's buildah ignores --disable-compression for `oci:`, but not for `dir:`.
        _buildah("push", "--disable-compression", "--format", "oci", tag, f"dir:{image}")
        manifests.append(_described(tag, image / "manifest.json"))
        blobs |= {file.name: file for file in image.iterdir() if len(file.name) == DIGEST_CHARS}
        blobs[manifests[-1]["digest"].removeprefix(ALGORITHM)] = image / "manifest.json"
    with tarfile.open(unfinished, "w") as file:
        _add(file, "oci-layout", {"imageLayoutVersion": "1.0.0"})
        _add(file, "index.json", {"schemaVersion": 2, "manifests": manifests})
        for digest, blob in blobs.items():
            file.add(blob, arcname=f"blobs/sha256/{digest}")
    shutil.rmtree(folder)
    unfinished.rename(archive)


def _described(tag: str, manifest: Path) -> dict[str, Any]:
    """Return the entry of the image *tag* in an index. It has the name twice: containerd puts a
    prefix before the standard one, unless its own is there.
    """
    content = manifest.read_bytes()
    return {
        "mediaType": json.loads(content)["mediaType"],
        "digest": ALGORITHM + hashlib.sha256(content).hexdigest(),
        "size": len(content),
        "annotations": {
            "org.opencontainers.image.ref.name": tag,
            "io.containerd.image.name": tag,
        },
    }


def _add(archive: tarfile.TarFile, name: str, content: dict[str, Any]) -> None:
    encoded = json.dumps(content).encode()
    member = tarfile.TarInfo(name)
    member.size = len(encoded)
    archive.addfile(member, io.BytesIO(encoded))


def _buildah(verb: str, *arguments: str) -> str:
    store = places.cache() / "buildah"
    folders = ["--root", str(store / "store"), "--runroot", str(store / "run")]
    return run("buildah", *folders, "--storage-driver", "overlay", verb, *arguments)
