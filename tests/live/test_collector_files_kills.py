"""A process that dies between any two steps of a commit, a rotation, a compression or a removal
leaves files from which the next one goes on: nothing lost or twice, nothing of others touched.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import zstandard

import warm
from components.partition_files_crash import HOSTS, LIMITS, LINES, run
from logpipeline.failpoints import VARIABLE
from logpipeline.listing import files_below
from logpipeline_collector.files.committed import committed_files
from waiting import WITHIN_S

SIGKILLED = -9

PLACES = (
    "collector.after-write",
    "files.new-announced",
    "files.new-named",
    "collector.after-fsync",
    "collector.after-state",
    "files.rotate-intent",
    "files.rotate-renamed",
    "files.rotate-noted",
    "files.compress-intent",
    "files.compress-written",
    "files.compress-renamed",
    "files.compress-removed",
)
RETIRING = ("files.retain-noted", "files.retain-removed")


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("place", PLACES)
def test_a_kill_at_any_step_costs_and_doubles_nothing(
    tmp_path: Path, place: str, count: int
) -> None:
    """The next process reads on from what is committed, and all lines stand there once."""
    theirs = tmp_path / "logs/h/_files/var/log/theirs.log"
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"theirs")
    kill(tmp_path, place, count, "{}")
    if place.startswith("files.rotate"):
        assert [file.name for file in committed_files(tmp_path) if not file.path.exists()] == []
    run(tmp_path, LIMITS)

    assert [lines_of(tmp_path, host) for host in HOSTS] == [b"".join(LINES)] * 2
    assert theirs.read_bytes() == b"theirs"
    assert strays(tmp_path) == {theirs}


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("place", RETIRING)
def test_a_kill_while_old_files_are_removed_costs_no_other_file(
    tmp_path: Path, place: str, count: int
) -> None:
    """What is removed is removed; what is kept is whole."""
    # What is not compressed is looked at by recovery, and would be named as damage.
    little = {"retention_bytes": 200, "compression": "none"}
    kill(tmp_path, place, count, json.dumps(little))
    damaged_bytes = run(tmp_path, LIMITS | little)

    assert damaged_bytes == 0
    for host in HOSTS:
        assert b"".join(LINES).endswith(lines_of(tmp_path, host))
    assert strays(tmp_path) == set()


def test_a_name_that_was_announced_and_never_given_is_not_ours(tmp_path: Path) -> None:
    """Somebody else took it, after the crash and before the next start: their file stays."""
    kill(tmp_path, "files.new-announced", 1, "{}")
    theirs = {tmp_path / "logs" / host / "_files/var/log/app.log" for host in HOSTS}
    for path in theirs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"theirs")
    run(tmp_path, LIMITS)

    assert [lines_of(tmp_path, host) for host in HOSTS] == [b"".join(LINES)] * 2
    assert strays(tmp_path) == theirs
    assert {path.read_bytes() for path in theirs} == {b"theirs"}


def kill(folder: Path, place: str, count: int, limits: str) -> None:
    """Run until death at *place*."""
    log = folder.with_suffix(".log")
    with log.open("ab") as out:
        process = warm.start(
            [str(folder), limits],
            stdout=out,
            stderr=out,
            env=os.environ | {VARIABLE: f"{place}:{count}"},
            target="components.partition_files_crash:main",
        )
    code = process.wait(WITHIN_S)
    assert code == SIGKILLED, f"the place was never reached:\n{log.read_text()}"


def lines_of(folder: Path, host: str) -> bytes:
    """Return the committed lines of *host*, rotated files first."""
    parts = []
    for file in committed_files(folder):
        if file.host == host:
            data = file.path.read_bytes()
            if file.is_compressed:
                data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
            assert len(data) == file.length
            parts.append(data)
    return b"".join(parts)


def strays(folder: Path) -> set[Path]:
    """Return files that the state knows nothing of."""
    known = {file.path for file in committed_files(folder)}
    found = set(files_below(folder / "logs"))
    assert list((folder / "state/main/p3.new").iterdir()) == []
    return found - known
