"""Build Kubernetes, etcd, CoreDNS, Helm and a pause program from Go modules, once a version.

All are packages of one module, tests/cluster/modules/kubernetes, whose go.mod and go.sum pin what
they are made of: what they share is compiled once, and in one version. Only kwok, which no test
needs, has a module of its own.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from cluster.bare import places
from cluster.bare.locking import locked
from cluster.bare.running import ToolError, say

MODULES = places.SOURCES / "modules"
KUBERNETES = MODULES / "kubernetes"
SAY_EVERY_S = 15.0
# Shown when a build fails: a compiler's last words, behind the names of packages.
ERROR_LINES_MAX = 30
# A compiler lives for seconds: collecting its garbage below this size costs more than memory does.
COMPILER = {"CGO_ENABLED": "0", "GOGC": "off", "GOMEMLIMIT": "1GiB"}
# Nobody debugs these programs.
COMPILING = ("-gcflags=all=-dwarf=false",)
HELM = "helm.sh/helm/v3"
# What a cluster without nodes runs, and what its users need.
API = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}
# The package of each program of a cluster.
ALL = {
    **API,
    "helm": f"{HELM}/cmd/helm",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
    "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
    "coredns": "./coredns",
    "pause": "./pause",
}
# Nodes that only pretend, for a benchmark: made for another version of Kubernetes' libraries.
KWOK = {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}


def folder() -> Path:
    """The folder of the programs, named for everything that they are built of."""
    return places.cache() / _hash_of_sources() / "bin"


def missing(programs: Iterable[str] = ALL) -> list[str]:
    """Which of the *programs* are not built yet."""
    target = folder()
    return [program for program in programs if not (target / program).exists()]


def is_built(programs: Iterable[str] = ALL) -> bool:
    """Whether all *programs* are there."""
    return not missing(programs)


def build(programs: Iterable[str] = ALL) -> Path:
    """Build those of the *programs* that are not there yet and return the folder of all.

    Those of the API come first and by themselves, so that who waits for no others has them soon.
    """
    wanted = set(programs)
    target = folder()
    for module, packages in ((KUBERNETES, API), (KUBERNETES, ALL), (MODULES / "kwok", KWOK)):
        group = [program for program in packages if program in wanted]
        if not is_built(group):
            with locked(target.parent / "lock", what="building Kubernetes"):
                if lacking := missing(group):
                    _build(module, {program: packages[program] for program in lacking}, target)
    return target


def _build(module: Path, packages: Mapping[str, str], target: Path) -> None:
    if shutil.which("go") is None:
        raise ToolError("Go is not installed: Kubernetes is built from its modules, see go.dev/dl")
    say(f"building {', '.join(packages)}: once, some minutes the first time")
    linking = " ".join(["-s -w", *(f"-X {name}={value}" for name, value in _stamps().items())])
    # Built aside and renamed: a program that is there is whole.
    unfinished = target.parent / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    # A compiler takes every processor, and somebody works on this machine.
    command = ["nice", "-n5", "go", "build", "-v", "-mod=readonly", "-trimpath", "-buildvcs=false"]
    output = [f"-ldflags={linking}", "-o", f"{unfinished}/"]
    _run_go([*command, *COMPILING, *output, *packages.values()], module)
    target.mkdir(exist_ok=True)
    for program, package in packages.items():
        (unfinished / _output_of(package)).rename(target / program)
    shutil.rmtree(unfinished)


def _stamps() -> dict[str, str]:
    """Return the versions that programs say to have, by the variables that hold them."""
    go_mod = (KUBERNETES / "go.mod").read_text()
    version = _version("k8s.io/kubernetes", go_mod)
    major, minor, *_ = version.removeprefix("v").split(".")
    kubernetes = "k8s.io/component-base/version"
    return {
        f"{kubernetes}.gitVersion": version,
        f"{kubernetes}.gitMajor": major,
        f"{kubernetes}.gitMinor": minor,
        f"{HELM}/internal/version.version": _version(HELM, go_mod),
        # Without these, `helm template` takes itself for a client of Kubernetes 1.20.
        f"{HELM}/pkg/chartutil.k8sVersionMajor": major,
        f"{HELM}/pkg/chartutil.k8sVersionMinor": minor,
        f"{HELM}/pkg/lint/rules.k8sVersionMajor": major,
        f"{HELM}/pkg/lint/rules.k8sVersionMinor": minor,
    }


def _output_of(package: str) -> str:
    """How Go names the program of *package*: a version at the end of its path does not count."""
    return re.sub(r"/v\d+$", "", package).rpartition("/")[2]


def _run_go(command: list[str], module: Path) -> None:
    began = said = time.monotonic()
    lines: list[str] = []
    with subprocess.Popen(
        command,
        cwd=module,
        env={**os.environ, **COMPILER},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if time.monotonic() - said > SAY_EVERY_S:
                said = time.monotonic()
                say(f"compiled {len(lines)} packages in {said - began:.0f} s")
    if process.returncode:
        tail = "".join(lines[-ERROR_LINES_MAX:])
        raise ToolError(f"go could not build in {module}:\n{tail}")
    say(f"built all that in {time.monotonic() - began:.0f} s")


def _version(module: str, go_mod: str) -> str:
    found = re.search(rf"^\s*(?:require\s+)?{re.escape(module)} (v\S+)", go_mod, re.MULTILINE)
    if found is None:
        raise ToolError(f"no version of {module} in its go.mod")
    return found[1]


def _hash_of_sources() -> str:
    digest = hashlib.sha256(repr((ALL, KWOK, COMPILING, _stamps())).encode())
    for file in sorted(path for path in MODULES.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(MODULES)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
