"""Which Spark runs here, and the Java libraries that tests give to it, or use without it.

They are kept in a cache of the user's: `python tests/support/spark_versions.py` fetches what is
lacking there, before any test's time runs. Each is what its checksum says, or is not used.
"""

from __future__ import annotations

import hashlib
import os
import sys
import urllib.request
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import pytest

import spark_classes
from logpipeline_spark.job.spark import JAVA
from logpipeline_spark.requirements import missing

ROOT = Path(__file__).parents[2]
PACKAGES = ("core", "spark")
LOCK = ROOT / "requirements" / "spark-jars.txt"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "logpipeline-spark"
# Another place of the same files may be named here, or in Maven's own settings.
MIRROR_VARIABLE = "MAVEN_MIRROR"
CENTRAL = "https://repo1.maven.org/maven2"
SETTINGS = Path.home() / ".m2" / "settings.xml"
ANSWERS_WITHIN_S = 60
IS_NEWEST = version("pyspark").startswith("4.3.")
# Libraries are there for the default Spark alone.
KINDS: tuple[str, ...] = () if IS_NEWEST else ("delta", "s3")
# How a session is told to read Delta's tables by name.
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
}
# What tests use without Spark.
KINDS_BESIDE = ("logback", "kafka", "opensearch")


@dataclass(frozen=True, slots=True)
class Jar:
    """A library: what it is for, where Maven Central has it, and what its bytes are."""

    kind: str
    path: str
    sha256: str

    @property
    def place(self) -> Path:
        """Where it is kept; another version has another name."""
        return CACHE / self.path.rpartition("/")[2]


class Mismatch(Exception):
    """What came is not what was locked."""


def locked() -> list[Jar]:
    """Return all libraries that are locked."""
    rows = [line.split() for line in LOCK.read_text().splitlines() if not line.startswith("#")]
    return [Jar(kind, path, sha256) for sha256, kind, path in rows]


def session_settings() -> dict[str, str]:
    """Return what each session is told. The first one of a process starts a JVM for all of them:
    libraries that are loaded, and the Python that is asked for data sources, stay as they are then.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Where our packages are not installed, workers find them as this process did.
    paths = [str(ROOT / name) for name in PACKAGES] + [os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    jars = [jar for jar in locked() if jar.kind in KINDS and jar.place.exists()]
    has_delta = any(jar.kind == "delta" for jar in jars)
    return {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": JAVA,
        "spark.jars": ",".join(str(jar.place) for jar in jars),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(DELTA if has_delta else {}),
    }


def need_jars(kind: str) -> None:
    """Skip the test where libraries are lacking."""
    lacking = [jar.place.name for jar in locked() if jar.kind == kind and not jar.place.exists()]
    if lacking:
        pytest.skip(f"{lacking[0]} is not there: run `python tests/support/spark_versions.py`")


def fetch(jar: Jar, mirror: str) -> None:
    """Bring *jar* into the cache, whole or not at all.

    Raises:
        OSError: it cannot be had.
        Mismatch: it is another one.
    """
    with urllib.request.urlopen(f"{mirror}/{jar.path}", timeout=ANSWERS_WITHIN_S) as answer:
        data = answer.read()
    found = hashlib.sha256(data).hexdigest()
    if found != jar.sha256:
        raise Mismatch(f"{jar.path} has the checksum {found}, and {jar.sha256} is locked")
    CACHE.mkdir(parents=True, exist_ok=True)
    temporary = jar.place.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(jar.place)


def mirror() -> str:
    """Return where Maven's files are fetched from here."""
    if named := os.environ.get(MIRROR_VARIABLE):
        return named.rstrip("/")
    return (_mirror_in(SETTINGS.read_text()) if SETTINGS.exists() else None) or CENTRAL


def _mirror_in(settings: str) -> str | None:
    """Return the mirror of Maven Central that Maven's *settings* name, if they do."""
    for entry in ElementTree.fromstring(settings).iterfind(".//{*}mirror"):
        of = entry.findtext("{*}mirrorOf", "").replace(" ", "").split(",")
        if {"*", "central", "external:*"} & set(of) and "!central" not in of:
            return entry.findtext("{*}url", "").strip().rstrip("/") or None
    return None


def main() -> None:
    """Fetch what is lacking, and have Java's classes kept."""
    wanted = [jar for jar in locked() if jar.kind in (*KINDS, *KINDS_BESIDE)]
    lacking = [jar for jar in wanted if not jar.place.exists()]
    if lacking:
        print(f"fetching {len(lacking)} libraries of Java into {CACHE}", file=sys.stderr)
    for jar in lacking:
        try:
            fetch(jar, mirror())
        except (OSError, Mismatch) as error:
            sys.exit(f"{jar.path}: {error}")
    if not missing() and not spark_classes.KEPT.exists():
        print("keeping the classes that a Spark loads", file=sys.stderr)
        spark_classes.keep()


if __name__ == "__main__":
    main()
