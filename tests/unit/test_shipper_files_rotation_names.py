"""Names of rotated files, and patterns that choose files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.codecs import Codec
from logpipeline_shipper.files.rotation_names import asides_of, chains_of, restart_of, rotation_of
from logpipeline_shipper.files.source_filter import BadPattern, Patterns


def names(chain: list[tuple[str, Codec | None]]) -> list[str]:
    return [name for name, _ in chain]


@pytest.mark.parametrize(
    "oldest_first",
    [
        ["0.log.20261120-235959.gz", "0.log.20261121-100000.gz", "0.log.20261121-100001", "0.log"],
        ["app.log.11.gz", "app.log.10.gz", "app.log.9", "app.log.2", "app.log.1", "app.log"],
        ["app.log-20261119.gz", "app.log-20261120", "app.log-20261121", "app.log"],
        ["app-20261119.log.gz", "app-20261120.log", "app.log"],
        ["app.log.2026-11-20", "app.log.2026-11-21_10", "app.log"],
        ["app.log-20261121-1795255200", "app.log-20261121-1795257300.gz", "app.log"],
        ["app-20261121-1795255200.log.gz", "app-20261121-1795257300.log", "app.log"],
        ["app.log-1795255200", "app.log-1795341600.gz", "app.log"],
        ["syslog.2.gz", "syslog.1", "syslog"],
    ],
)
def test_a_chain_is_ordered_oldest_first(oldest_first: list[str]) -> None:
    """However a rotation names its files, the live file comes last and the oldest first."""
    chains = chains_of(sorted(oldest_first))

    assert [names(chain) for chain in chains.values()] == [oldest_first]
    assert list(chains) == [oldest_first[-1]]


def test_what_is_being_compressed_is_beside_the_whole_file() -> None:
    """What `X.gz` holds beside `X` is told by its content; `X.tmp` is none."""
    chain = chains_of(["0.log", "0.log.20261121-100000", "0.log.20261121-100000.gz", "0.log.tmp"])

    assert names(chain["0.log"]) == [
        "0.log.20261121-100000.gz",
        "0.log.20261121-100000",
        "0.log",
    ]


@pytest.mark.parametrize(
    "name", ["10.0.0.1", "10.0.0.12", "192.168.100.200.log", "node-192-168-100-200.log", "a.log"]
)
def test_an_address_is_no_rotation(name: str) -> None:
    """Files named after hosts are not taken for rotated files of one another."""
    rotation = rotation_of(name)

    assert rotation is not None
    assert rotation.live == name


@given(st.lists(st.text(st.characters(exclude_characters="/\0"), min_size=1), unique=True))
def test_no_file_is_in_two_chains(hostile: list[str]) -> None:
    """Whatever the names are, each file is in one chain at most."""
    members = [name for chain in chains_of(hostile).values() for name in names(chain)]

    assert len(members) == len(set(members))
    assert set(members) <= set(hostile)


def test_a_log_that_is_put_aside_is_known_by_its_name() -> None:
    """By that of logrotate, which copies it, and that of logback, which packs it."""
    ours = ["app.log.tmp", "app.2026-11-20.log8123456789.tmp"]
    others = ["app.log", "app.log.1", "0.log.20261121-100000.tmp", "app.log12.tmp", "x.part"]

    found = asides_of(ours + others)

    assert found["app.log"] == ours
    assert found.keys().isdisjoint({"0.log", "x"})


def test_a_container_log_is_named_by_its_restarts() -> None:
    """Only `<restart>.log` is a container's log."""
    assert restart_of("12.log") == "12"
    assert restart_of("app.log") is None


@pytest.mark.parametrize(
    ("pattern", "path", "is_meant"),
    [
        ("/var/log/*.log", "/var/log/a.log", True),
        ("/var/log/*.log", "/var/log/x/a.log", False),
        ("/var/log/**/*.log", "/var/log/a.log", True),
        ("/var/log/**/*.log", "/var/log/x/y/a.log", True),
        ("/var/log/**", "/var/log/x/y/anything", True),
        ("/var/*/app/[ab].log", "/var/x/app/b.log", True),
        ("/var/*/app/[ab].log", "/var/x/app/c.log", False),
        ("/var/log/*", "/var/log/.hidden", False),
        ("/var/log/.hid*", "/var/log/.hidden", True),
        ("/var/log/a.log", "/var/log/a.log", True),
    ],
)
def test_a_pattern_means_what_a_shell_means(pattern: str, path: str, is_meant: bool) -> None:
    """`*` stays in its folder, `**` does not, and hidden files want to be asked for."""
    assert matches(pattern, path) is is_meant


def matches(pattern: str, path: str) -> bool:
    patterns = Patterns.of((pattern,))
    for root, states in patterns.roots().items():
        if not Path(path).is_relative_to(root):
            continue
        *folders, name = Path(path).relative_to(root).parts
        for folder in folders:
            states = patterns.below(states, folder)
        return patterns.match(states, name)
    return False


def test_overlapping_patterns_are_looked_for_once() -> None:
    """Of two folders, one in the other, only the outer one is begun at."""
    patterns = Patterns.of(("/var/log/*.log", "/var/log/nginx/access/*.log", "/srv/x"))

    assert set(patterns.roots()) == {Path("/var/log"), Path("/srv")}


@pytest.mark.parametrize("pattern", ["relative/*.log", "/var/log/", "/var/../etc/*"])
def test_a_pattern_that_names_no_files_is_refused(pattern: str) -> None:
    """The message shows the pattern."""
    with pytest.raises(BadPattern, match=pattern.replace("*", r"\*")):
        Patterns.of((pattern,))
