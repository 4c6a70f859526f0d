"""Build Kubernetes, CoreDNS, Helm, kwok and a pause program from Go modules, once per version.

The folders below tests/cluster/modules pin each module by go.mod and go.sum.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster_bare import places
from cluster_bare.locking import locked
from cluster_bare.running import ToolError, say

MODULES = places.SOURCES / "modules"
SAY_EVERY_S = 15.0
# Shown when a build fails: a compiler's last words, behind the names of packages.
ERROR_LINES_MAX = 30

Stamps = dict[str, str]


def _kubernetes_stamps(go_mod: str) -> Stamps:
    version = _version("k8s.io/kubernetes", go_mod)
    major, minor, *_ = version.removeprefix("v").split(".")
    package = "k8s.io/component-base/version"
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return {f"{package}.{name}": value for name, value in values.items()}


def _helm_stamps(go_mod: str) -> Stamps:
    # Without these, `helm template` takes itself for a client of Kubernetes 1.20.
    minor = _version("k8s.io/client-go", go_mod).split(".")[1]
    package = "helm.sh/helm/v3"
    return {
        f"{package}/internal/version.version": _version(package, go_mod),
        f"{package}/pkg/chartutil.k8sVersionMajor": "1",
        f"{package}/pkg/chartutil.k8sVersionMinor": minor,
        f"{package}/pkg/lint/rules.k8sVersionMajor": "1",
        f"{package}/pkg/lint/rules.k8sVersionMinor": minor,
    }


def _no_stamps(go_mod: str) -> Stamps:
    return {}


@dataclass(frozen=True, slots=True)
class Module:
    """A folder with a go.mod whose tools are built, and what is stamped into them."""

    name: str
    programs: tuple[str, ...]
    stamps: Callable[[str], Stamps] = _no_stamps
    build: str = "tool"

    @property
    def folder(self) -> Path:
        return MODULES / self.name


PLANNED = (
    Module(
        "kubernetes",
        (
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kubelet",
            "kube-proxy",
            "kubectl",
        ),
        _kubernetes_stamps,
    ),
    Module("coredns", ("coredns",)),
    Module("helm", ("helm",), _helm_stamps),
    Module("kwok", ("kwok",)),
    Module("pause", ("pause",), build="."),
)


def folder() -> Path:
    """The folder of the programs, named for everything that they are built of."""
    return places.cache() / _hash_of_sources() / "bin"


def is_built() -> bool:
    """Whether all programs are there."""
    target = folder()
    return all((target / program).exists() for one in PLANNED for program in one.programs)


def build() -> Path:
    """Build what is not there yet and return the folder of the programs."""
    target = folder()
    if not is_built():
        with locked(target.parent / "lock", what="building Kubernetes"):
            for module in PLANNED:
                if any(not (target / program).exists() for program in module.programs):
                    _build(module, target)
    return target


def _build(module: Module, target: Path) -> None:
    if shutil.which("go") is None:
        raise ToolError("Go is not installed: Kubernetes is built from its modules, see go.dev/dl")
    say(f"building {module.name}: once, some minutes the first time")
    stamps = module.stamps((module.folder / "go.mod").read_text())
    linking = " ".join(["-s -w", *(f"-X {name}={value}" for name, value in stamps.items())])
    # Built aside and renamed: a program that is there is whole.
    unfinished = target.parent / f"unfinished-{module.name}"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    # A compiler takes every processor, and somebody works on this machine.
    command = ["nice", "-n5", "go", "build", "-v", "-mod=readonly", "-trimpath", "-buildvcs=false"]
    _run_go([*command, f"-ldflags={linking}", "-o", f"{unfinished}/", module.build], module)
    target.mkdir(exist_ok=True)
    for program in module.programs:
        (unfinished / program).rename(target / program)
    shutil.rmtree(unfinished)


def _run_go(command: list[str], module: Module) -> None:
    began = said = time.monotonic()
    lines: list[str] = []
    with subprocess.Popen(
        command,
        cwd=module.folder,
        env={**os.environ, "CGO_ENABLED": "0"},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if time.monotonic() - said > SAY_EVERY_S:
                said = time.monotonic()
                say(f"building {module.name}: {len(lines)} packages, {said - began:.0f} s")
    if process.returncode:
        tail = "".join(lines[-ERROR_LINES_MAX:])
        raise ToolError(f"go could not build {module.name} in {module.folder}:\n{tail}")
    say(f"built {module.name} in {time.monotonic() - began:.0f} s")


def _version(module: str, go_mod: str) -> str:
    found = re.search(rf"^\s*(?:require\s+)?{re.escape(module)} (v\S+)", go_mod, re.MULTILINE)
    if found is None:
        raise ToolError(f"no version of {module} in its go.mod")
    return found[1]


def _hash_of_sources() -> str:
    digest = hashlib.sha256()
    for module in PLANNED:
        digest.update(repr((module.name, module.programs)).encode())
        digest.update(repr(module.stamps((module.folder / "go.mod").read_text())).encode())
        for file in sorted(module.folder.iterdir()):
            digest.update(f"{file.name}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
