"""Build Kubernetes, etcd, CoreDNS, Helm, kwok and a pause program from Go modules, once a version.

The folders below tests/cluster/modules pin each module by go.mod and go.sum.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster_bare import places
from cluster_bare.locking import locked
from cluster_bare.running import ToolError, say

MODULES = places.SOURCES / "modules"
SAY_EVERY_S = 15.0
# Shown when a build fails: a compiler's last words, behind the names of packages.
ERROR_LINES_MAX = 30
# A compiler lives for seconds: collecting its garbage below this size costs more than memory does.
COMPILER = {"CGO_ENABLED": "0", "GOGC": "off", "GOMEMLIMIT": "1GiB"}
# Nobody debugs these programs.
COMPILING = ("-gcflags=all=-dwarf=false",)

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
    """A folder with a go.mod, the package of each program, and what is stamped into them."""

    name: str
    packages: dict[str, str]
    stamps: Callable[[str], Stamps] = _no_stamps

    @property
    def folder(self) -> Path:
        return MODULES / self.name


KUBERNETES = Module(
    "kubernetes",
    {
        # Of the same module, so that both compile what they share once and in one version.
        "etcd": "go.etcd.io/etcd/server/v3",
        **{
            program: f"k8s.io/kubernetes/cmd/{program}"
            for program in (
                "kube-apiserver",
                "kube-controller-manager",
                "kubectl",
                "kube-scheduler",
                "kubelet",
                "kube-proxy",
            )
        },
    },
    _kubernetes_stamps,
)
PLANNED = (
    KUBERNETES,
    Module("coredns", {"coredns": "github.com/coredns/coredns"}),
    Module("helm", {"helm": "helm.sh/helm/v3/cmd/helm"}, _helm_stamps),
    Module("kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
    Module("pause", {"pause": "pause"}),
)
ALL = tuple(program for module in PLANNED for program in module.packages)
# What a cluster without nodes runs, and what its users need.
API = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")


def folder() -> Path:
    """The folder of the programs, named for everything that they are built of."""
    return places.cache() / _hash_of_sources() / "bin"


def missing(programs: Sequence[str] = ALL) -> list[str]:
    """Which of the *programs* are not built yet."""
    target = folder()
    return [program for program in programs if not (target / program).exists()]


def is_built(programs: Sequence[str] = ALL) -> bool:
    """Whether all *programs* are there."""
    return not missing(programs)


def build(programs: Sequence[str] = ALL) -> Path:
    """Build those of the *programs* that are not there yet and return the folder of all.

    Those of the API come first and by themselves, so that who waits for no others has them soon.
    Go's own cache keeps what programs share.
    """
    target = folder()
    first = [program for program in programs if program in API]
    for group in (first, programs):
        if not is_built(group):
            with locked(target.parent / "lock", what="building Kubernetes"):
                for module in PLANNED:
                    wanted = [one for one in missing(group) if one in module.packages]
                    if wanted:
                        _build(module, wanted, target)
    return target


def _build(module: Module, programs: Sequence[str], target: Path) -> None:
    if shutil.which("go") is None:
        raise ToolError("Go is not installed: Kubernetes is built from its modules, see go.dev/dl")
    say(f"building {', '.join(programs)}: once, some minutes the first time")
    stamps = module.stamps((module.folder / "go.mod").read_text())
    linking = " ".join(["-s -w", *(f"-X {name}={value}" for name, value in stamps.items())])
    # Built aside and renamed: a program that is there is whole.
    unfinished = target.parent / f"unfinished-{module.name}"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    # A compiler takes every processor, and somebody works on this machine.
    command = ["nice", "-n5", "go", "build", "-v", "-mod=readonly", "-trimpath", "-buildvcs=false"]
    packages = [module.packages[program] for program in programs]
    _run_go(
        [*command, *COMPILING, f"-ldflags={linking}", "-o", f"{unfinished}/", *packages], module
    )
    target.mkdir(exist_ok=True)
    for program, package in zip(programs, packages, strict=True):
        (unfinished / _output_of(package)).rename(target / program)
    shutil.rmtree(unfinished)


def _output_of(package: str) -> str:
    """How Go names the program of *package*: a version at the end of its path does not count."""
    return re.sub(r"/v\d+$", "", package).rpartition("/")[2]


def _run_go(command: list[str], module: Module) -> None:
    began = said = time.monotonic()
    lines: list[str] = []
    with subprocess.Popen(
        command,
        cwd=module.folder,
        env={**os.environ, **COMPILER},
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
        digest.update(repr((module.name, module.packages)).encode())
        digest.update(repr(module.stamps((module.folder / "go.mod").read_text())).encode())
        for file in sorted(module.folder.iterdir()):
            digest.update(f"{file.name}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
