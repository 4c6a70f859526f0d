"""Where in a pod the files lie: which volume, and at which folder the shipper needs it."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from logpipeline_cli.errors import CliError
from logpipeline_cli.injection.sidecar import Manifest, Sidecar

_WILD = re.compile(r"[*?\[]")
# What two containers of a pod can both see, and one of them write.
SHARED_KINDS = ("emptyDir", "ephemeral", "persistentVolumeClaim")


def folder_of(paths: tuple[str, ...]) -> str:
    """Return the folder that all *paths* lie in, up to their first wildcard.

    Raises:
        CliError: they are no absolute paths of files, or have no folder in common.
    """
    folders = []
    for path in paths:
        words = PurePosixPath(path).parts
        if not path.startswith("/") or path.endswith("/") or ".." in words:
            raise CliError(f"--path {path!r}: give an absolute path, such as /var/log/app/*.log")
        wild = next((i for i, word in enumerate(words) if _WILD.search(word)), len(words) - 1)
        folders.append(words[: min(wild, len(words) - 1)])
    common = folders[0]
    for folder in folders[1:]:
        same = [a == b for a, b in zip(common, folder, strict=False)]
        common = common[: same.index(False) if False in same else len(same)]
    if len(common) < 2:
        raise CliError(
            f"--path {' '.join(paths)}: the files need a folder of their own, into which a volume "
            "is mounted; give a path such as /var/log/app/*.log"
        )
    return str(PurePosixPath(*common))


def mount_volume(sidecar: Sidecar, spec: Manifest, where: str) -> Manifest:
    """Make the volume part of the pod *spec*, and return how the shipper mounts it.

    Raises:
        CliError: a volume of that name cannot be shared, or is mounted elsewhere; *where* tells in
            which workload.
    """
    folder = folder_of(sidecar.paths)
    existing = _named(spec.get("volumes"), sidecar.volume)
    if existing is None:
        spec.setdefault("volumes", []).append({"name": sidecar.volume, "emptyDir": {}})
    elif not any(kind in existing for kind in SHARED_KINDS):
        kind = ", ".join(key for key in existing if key != "name")
        raise CliError(
            f"{where}: the volume {sidecar.volume!r} is a {kind}, into which no container writes; "
            "give --volume the name of an emptyDir, or of no volume yet"
        )
    mounts = [
        mount
        for container in spec["containers"]
        for mount in container.get("volumeMounts") or ()
        if mount.get("name") == sidecar.volume
    ]
    if not mounts:
        return _mount_in_all(sidecar, spec, folder, where)
    for mount in mounts:
        if _is_within(folder, str(mount.get("mountPath"))) and "subPathExpr" not in mount:
            return {key: mount[key] for key in ("name", "mountPath", "subPath") if key in mount}
    places = ", ".join(sorted({str(mount.get("mountPath")) for mount in mounts}))
    raise CliError(
        f"{where}: the volume {sidecar.volume!r} is mounted at {places}, and the files are to lie "
        f"in {folder}; give --path '{places.split(', ')[0]}/*.log', or another --volume"
    )


def _mount_in_all(sidecar: Sidecar, spec: Manifest, folder: str, where: str) -> Manifest:
    mount = {"name": sidecar.volume, "mountPath": folder}
    for container in spec["containers"]:
        for other in container.get("volumeMounts") or ():
            if _is_within(str(other.get("mountPath")), folder):
                raise CliError(
                    f"{where}: container {container.get('name')!r} has the volume "
                    f"{other.get('name')!r} at {other.get('mountPath')}; give --volume "
                    f"{other.get('name')}, or another --path"
                )
        container.setdefault("volumeMounts", []).append(dict(mount))
    return mount


def _named(entries: Any, name: str) -> Manifest | None:
    return next((entry for entry in entries or () if entry.get("name") == name), None)


def _is_within(path: str, folder: str) -> bool:
    return PurePosixPath(path).is_relative_to(PurePosixPath(folder))
