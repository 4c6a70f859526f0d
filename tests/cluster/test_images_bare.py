"""Whoever gets into a pod finds neither a shell nor a package manager there."""

from __future__ import annotations

import json
from typing import Any

from cluster.handle import Cluster

PYTHON = ("operator", "shipper", "collector")
READY_S_MAX = 90
TOOLS = ("sh", "bash", "dash", "busybox", "apt-get", "dpkg", "perl", "cat", "id", "mount", "pip")
NOT_THERE = "executable file not found"
OWN = (
    "/opt/logpipeline/",
    *(
        f"{prefix}/{folder}/python3"
        for prefix in ("/usr", "/usr/local")
        for folder in ("bin", "lib")
    ),
)
# Every file that could be run, outside of what Python itself is.
PROGRAMS = """
import json, os, pathlib
folders = [f for f in ("/bin", "/sbin", "/usr", "/opt") if not os.path.islink(f)]
print(json.dumps(sorted(
    str(file)
    for folder in folders
    for file in pathlib.Path(folder).rglob("*")
    if not file.is_dir() and not file.is_symlink() and os.access(file, os.X_OK)
    and ".so" not in file.name and not file.name.startswith("ld-")
)))
"""


def pod(name: str, image: str) -> dict[str, Any]:
    """A pod that waits in *image*, or runs a server."""
    container = {"name": "main", "image": image, "imagePullPolicy": "IfNotPresent"}
    waits = {"command": ["python3", "-c", "import time; time.sleep(100_000)"]}
    spec = {"containers": [container | (waits if name in PYTHON else {})]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def test_images_hold_their_own_programs_alone(
    cluster: Cluster, namespace: str, images: dict[str, str]
) -> None:
    here = f"--namespace={namespace}"
    names = (*PYTHON, "nats")
    pods = [pod(name, images[name]) for name in names]
    made = {"apiVersion": "v1", "kind": "List", "items": pods}
    cluster.kubectl("apply", here, "-f", "-", input=json.dumps(made))
    ready = ("--for=condition=Ready", f"--timeout={READY_S_MAX}s")
    cluster.kubectl("wait", here, *ready, "pod", "--all")

    for name in names:
        for tool in TOOLS:
            said = cluster.kubectl("exec", here, name, "--", tool, check=False)
            assert NOT_THERE in said, f"{tool} is in the image of {name}: {said}"
    for name in PYTHON:
        found = json.loads(cluster.kubectl("exec", here, name, "--", "python3", "-c", PROGRAMS))
        foreign = [file for file in found if not is_own(file)]
        assert found
        assert not foreign


def is_own(file: str) -> bool:
    """Whether a file is Python itself, or of what is locked by hash, as ours is."""
    return file.startswith(OWN)
