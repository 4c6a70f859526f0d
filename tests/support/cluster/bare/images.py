"""The images that a cluster's pods run: the pause program, the project's own, and a workload's.

Each is named for the hash of what it is made of, so that nothing is built twice, and a cluster
never runs yesterday's code under today's name.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cluster.bare import binaries, buildah, places
from cluster.bare.locking import locked
from cluster.bare.running import ToolError, run, say

TARGETS = ("operator", "shipper", "collector", "nats")
# Larger than all others together, and only for tests with tables.
SPARK_TARGETS = ("table",)
# What may come into an image: the build sees nothing else, so the hash misses nothing.
INGREDIENTS = (
    *("Dockerfile", ".dockerignore", "pyproject.toml", "README.md", "LICENSE", "requirements"),
    *("core", "shipper", "collector", "spark", "operator", "cli", "demo", "deploy/samples"),
)
PAUSE = "localhost/logpipeline-pause:1"
# A base image of one's own, where a registry can be reached; else Debian's packages make one.
BASE = "LOGPIPELINE_TEST_BASE_IMAGE"
DEBIAN = "bookworm"
BASE_PACKAGES = ("python3", "python3-venv", "ca-certificates")
# The same for an image with Java, which Spark needs.
JAVA = "LOGPIPELINE_TEST_JAVA_IMAGE"
JAVA_PACKAGES = (*BASE_PACKAGES, "openjdk-17-jre-headless")
ARCHIVES_MAX = 8
# Of images that are gigabytes, so many.
LARGE_BYTES = 500_000_000
LARGE_MAX = 2
# Each build of changed code leaves some hundred megabytes of steps; an old one is soon made again.
STEPS_AGE_MAX_S = 7_200.0
USELESS = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "var/log")


@dataclass(frozen=True, slots=True)
class Images:
    """Names of images, by what they are for, and the archive that holds them all."""

    names: dict[str, str]
    archive: Path


def pause() -> Path:
    """The archive of the image that holds a pod's namespaces."""
    archive = binaries.folder().parent / "pause.tar"
    if not archive.exists():
        with locked(_lock(), what="building images"), tempfile.TemporaryDirectory() as context:
            shutil.copy(binaries.folder() / "pause", context)
            _write_dockerfile(context, 'COPY pause /pause\nENTRYPOINT ["/pause"]\n')
            buildah.build(Path(context), PAUSE)
            buildah.pack([PAUSE], archive)
    return archive


def project(source: Path = places.PROJECT, targets: Iterable[str] = TARGETS) -> Images:
    """Build the project's images, and one with Python and a shell for pods that log."""
    if not (source / "Dockerfile").exists():
        raise ToolError(f"no Dockerfile in {source}")
    with tempfile.TemporaryDirectory() as context:
        _copy_ingredients(source, Path(context))
        version = _hash_of(Path(context), f"{base_name()} {java_name()}")
        built = {target: f"localhost/logpipeline-{target}:{version}" for target in targets}
        return _packed({**built, "workload": base_name()}, Path(context))


def workload() -> Images:
    """Only the image with Python and a shell, for pods that log."""
    return _packed({"workload": base_name()}, None)


def base_name() -> str:
    """The name of the image that most others begin with."""
    return os.environ.get(BASE) or _own_base("base", BASE_PACKAGES)


def java_name() -> str:
    """The name of the image that begins what runs Spark."""
    return os.environ.get(JAVA) or _own_base("java", JAVA_PACKAGES)


def _own_base(kind: str, packages: tuple[str, ...]) -> str:
    recipe = repr((DEBIAN, packages, USELESS))
    return f"localhost/logpipeline-{kind}:{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"


def _packed(names: dict[str, str], context: Path | None) -> Images:
    """Build those of *names* that are not there, and write them into an archive."""
    digest = hashlib.sha256("\0".join(sorted(names.values())).encode()).hexdigest()[:16]
    archive = places.cache() / "images" / f"{digest}.tar"
    # Whoever finds the archive waits for nobody who builds another one.
    if not archive.exists():
        with locked(_lock(), what="building images"):
            for target, name in names.items():
                if target == "workload":
                    _build_base(name, BASE_PACKAGES)
                elif context is not None and not buildah.exists(name):
                    _build(context, target, name)
            buildah.pack(sorted(names.values()), archive)
            _forget_old(archive.parent)
    return Images(names, archive)


def _build(context: Path, target: str, name: str) -> None:
    arguments = {"BASE": base_name()}
    _build_base(base_name(), BASE_PACKAGES)
    if target == "table":
        _build_base(java_name(), JAVA_PACKAGES)
        arguments["JAVA"] = java_name()
    say(f"building the image of {target}")
    buildah.build(context, name, target=target, arguments=arguments)


def _build_base(name: str, packages: tuple[str, ...]) -> None:
    if name in (os.environ.get(BASE), os.environ.get(JAVA)) or buildah.exists(name):
        return
    say("building a base image from Debian's packages: once, about a minute")
    with tempfile.TemporaryDirectory(dir=places.cache()) as context:
        root = Path(context) / "root"
        include = f"--include={','.join(packages)}"
        run("debootstrap", "--variant=minbase", include, DEBIAN, root)
        for folder in USELESS:
            shutil.rmtree(root / folder, ignore_errors=True)
            (root / folder).mkdir()
        _write_dockerfile(context, 'COPY root /\nCMD ["/bin/sh"]\n')
        buildah.build(Path(context), name)


def _forget_old(folder: Path) -> None:
    """Remove archives that nobody has made for some builds, and the images of former code."""
    archives = sorted(folder.glob("*.tar"), key=lambda file: file.stat().st_mtime, reverse=True)
    large = [archive for archive in archives if archive.stat().st_size > LARGE_BYTES]
    for archive in {*archives[ARCHIVES_MAX:], *large[LARGE_MAX:]}:
        archive.unlink(missing_ok=True)
    for target in (*TARGETS, *SPARK_TARGETS):
        kept = LARGE_MAX if target in SPARK_TARGETS else ARCHIVES_MAX
        for name in buildah.names(f"localhost/logpipeline-{target}")[kept:]:
            buildah.remove(name)
    buildah.forget_steps(older_than_s=STEPS_AGE_MAX_S)


def _write_dockerfile(context: str, steps: str) -> None:
    (Path(context) / "Dockerfile").write_text(f"FROM scratch\n{steps}")


def _copy_ingredients(source: Path, context: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info")
    for name in INGREDIENTS:
        path = source / name
        if path.is_dir():
            shutil.copytree(path, context / name, ignore=ignored)
        elif path.exists():
            shutil.copy2(path, context / name)


def _hash_of(context: Path, base: str) -> str:
    digest = hashlib.sha256(base.encode())
    for file in sorted(path for path in context.rglob("*") if path.is_file()):
        mode = file.stat().st_mode & 0o111
        digest.update(f"\0{file.relative_to(context)}\0{mode}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _lock() -> Path:
    return places.cache() / "images.lock"
