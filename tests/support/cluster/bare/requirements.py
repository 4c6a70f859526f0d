"""Whether this machine can run a cluster, and what it lacks; it installs nothing itself."""

from __future__ import annotations

import os
import shutil
import sys
from functools import cache
from pathlib import Path

from cluster.bare import binaries, node, places
from cluster.bare.running import ToolError, succeeds

PACKAGES = places.SOURCES / "packages.txt"
# Each program beside the package of packages.txt that brings it.
PROGRAMS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "buildah": "buildah",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "socat": "socat",
    "ip": "iproute2",
    "openssl": "openssl",
    "debootstrap": "debootstrap",
    "mount": "mount",
    "unshare": "util-linux",
}
# A node puts its own folders over these.
COVERED = ("/run", "/var/lib", "/var/log", "/proc", "/sys")
# Kubelets, containerds and shippers watch files; the usual 128 is for one desktop.
INOTIFY_INSTANCES_MIN = 1_024
INOTIFY_INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")


def packages() -> list[str]:
    """The Debian packages that a cluster needs."""
    lines = (line.split("#")[0].strip() for line in PACKAGES.read_text().splitlines())
    return [line for line in lines if line]


def lacking(*, has_nodes: bool = True) -> str:
    """Why no cluster can be made on this machine, in a sentence; empty when one can."""
    if not sys.platform.startswith("linux"):
        return "clusters of plain processes need Linux"
    if not has_nodes:
        return _lacking_for_an_api()
    if os.geteuid() != 0:
        return "clusters of plain processes need root"
    if missing := sorted(set(_missing_packages())):
        return f"install: apt-get install --no-install-recommends {' '.join(missing)}"
    if shutil.which("go") is None and not binaries.is_built():
        return "install Go 1.26 (go.dev/dl): Kubernetes is built from its modules"
    if any(places.cache().resolve().is_relative_to(covered) for covered in COVERED):
        return f"set XDG_CACHE_HOME: nodes cannot see {places.cache()}"
    return ""


def _lacking_for_an_api() -> str:
    if shutil.which("openssl") is None:
        return "install openssl: it makes the certificates of a cluster"
    if shutil.which("go") is None and not binaries.is_built(binaries.API):
        return "install Go 1.26 (go.dev/dl): the API server is built from its modules"
    return ""


@cache
def is_docker_there() -> bool:
    """Whether an engine of Docker answers; the command alone makes no cluster."""
    return succeeds("docker", "info")


def check(*, has_nodes: bool = True) -> None:
    """Raise a `ToolError` that says what is lacking; arrange what can be arranged."""
    if reason := lacking(has_nodes=has_nodes):
        raise ToolError(reason)
    if has_nodes and int(INOTIFY_INSTANCES.read_text()) < INOTIFY_INSTANCES_MIN:
        INOTIFY_INSTANCES.write_text(str(INOTIFY_INSTANCES_MIN))


def _missing_packages() -> list[str]:
    missing = [package for name, package in PROGRAMS.items() if shutil.which(name) is None]
    if node.plugins_folder() is None:
        missing.append("containernetworking-plugins")
    return missing
