"""Java libraries come from where the user has them, and are what was locked, or are not there."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import spark_versions
from spark_versions import CENTRAL, Jar, Mismatch, fetch, locked, mirror

SETTINGS = """
<settings xmlns="http://maven.apache.org/SETTINGS/1.2.0"><mirrors>
  <mirror><id>a</id><mirrorOf>elsewhere</mirrorOf><url>https://a.example/maven</url></mirror>
  <mirror><id>b</id><mirrorOf>{of}</mirrorOf><url>https://b.example/maven/</url></mirror>
</mirrors></settings>
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache and settings of this test's own."""
    monkeypatch.setattr(spark_versions, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(spark_versions, "SETTINGS", tmp_path / "settings.xml")
    monkeypatch.delenv(spark_versions.MIRROR_VARIABLE, raising=False)
    return tmp_path


def test_a_library_is_kept_only_where_it_is_what_was_locked(home: Path) -> None:
    """Another one leaves nothing behind that a later run would take."""
    (home / "one.jar").write_bytes(b"library")
    good = Jar("s3", "one.jar", hashlib.sha256(b"library").hexdigest())

    with pytest.raises(Mismatch, match="is locked"):
        fetch(Jar("s3", "one.jar", "0" * 64), home.as_uri())
    assert not good.place.exists()
    fetch(good, home.as_uri())
    assert good.place.read_bytes() == b"library"


@pytest.mark.parametrize(
    ("of", "place"),
    [
        ("central", "https://b.example/maven"),
        ("*,!internal", "https://b.example/maven"),
        ("*,!central", CENTRAL),
        ("other", CENTRAL),
    ],
)
def test_the_mirror_of_mavens_settings_is_used(home: Path, of: str, place: str) -> None:
    """Where it stands for Maven Central; a variable goes before it."""
    (home / "settings.xml").write_text(SETTINGS.format(of=of))

    assert mirror() == place


def test_a_variable_names_the_mirror(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any settings."""
    (home / "settings.xml").write_text(SETTINGS.format(of="*"))
    monkeypatch.setenv(spark_versions.MIRROR_VARIABLE, "https://c.example/maven/")

    assert mirror() == "https://c.example/maven"


def test_every_locked_library_has_a_name_of_its_own() -> None:
    """Two in one cache do not take each other's place, and each has a checksum. One may be for two
    things.
    """
    jars = locked()
    different = {(jar.path, jar.sha256) for jar in jars}

    assert len({jar.place for jar in jars}) == len(different) > 30
    assert len({(jar.kind, jar.path) for jar in jars}) == len(jars)
    assert all(len(jar.sha256) == 64 for jar in jars)
