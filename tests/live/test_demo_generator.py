"""The generator as a process of its own: it keeps its pace, ends cleanly, and its ledger outlives a
kill.
"""

from __future__ import annotations

import gzip
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logpipeline import cri
from logpipeline_demo.expected import Expected
from logpipeline_demo.oracle import check
from logpipeline_demo.rotation import rotated_files
from logpipeline_demo.sources import host_names, sources_of
from waiting import WITHIN_S, eventually

HOSTS = 6
SEED = 11
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a generator with further arguments; what still runs is killed in the end."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> subprocess.Popen[str]:
        command = [
            sys.executable, "-m", "logpipeline_demo.application",
            "--root", str(tmp_path / "root"), "--ledger", str(tmp_path / "ledger"),
            "--hosts", str(HOSTS), "--seed", str(SEED), "--keep", "all", *arguments,
        ]  # fmt: skip
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def lines_written(ledger: Path) -> int:
    return Expected.read(ledger).lines if ledger.exists() and ledger.stat().st_size else 0


def content_of(live: Path) -> bytes:
    """Return what stands in all files of a source, oldest first; a kill may have left it between
    any two steps of a rotation.
    """
    files = [path for path in [*rotated_files(live), live] if path.exists()]
    packed = {path.with_name(path.name + ".gz") for path in files}
    content = b""
    for path in files:
        if path.suffix == ".tmp" or path in packed:
            continue  # its original is still there
        data = path.read_bytes()
        content += gzip.decompress(data) if path.suffix == ".gz" else data
    return content


def copied(folder: Path) -> Path:
    """Copy the generator's own files into a collector's folder, and return that."""
    for source in sources_of(host_names(HOSTS, seed=SEED), seed=SEED):
        live = source.live_path(folder / "root")
        content = content_of(live)
        place = f"{source.host}/{source.namespace}/{source.pod}/{source.container}.log"
        if source.kind == "plain":
            place = f"{source.host}/_files/app.log"
        else:
            content = b"".join(line.text + b"\n" for line in cri.join(content) if line.whole)
        target = folder / "data" / "collector-0" / "logs" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return folder / "data"


def status(process: subprocess.Popen[str], command: str = "status") -> dict[str, object]:
    assert process.stdin
    assert process.stdout
    process.stdin.write(f"{command}\n")
    process.stdin.flush()
    answer: dict[str, object] = json.loads(process.stdout.readline())
    return answer


async def test_a_terminated_generator_leaves_whole_lines_and_a_whole_ledger(
    start: Start, tmp_path: Path
) -> None:
    """It finishes what is open and exits with 0; its files are exactly what its ledger says."""
    process = start("--lines-per-second", "20000", "--rotate-bytes", "20000")
    await eventually(lambda: lines_written(tmp_path / "ledger") > 5000)
    process.terminate()
    _, errors = process.communicate(timeout=WITHIN_S)
    expected = Expected.read(tmp_path / "ledger")
    verdict = check(expected, [copied(tmp_path)])

    assert (process.returncode, errors) == (0, "")
    assert verdict.explain() == ""
    assert verdict.lines > 5000
    assert expected.rotations > 10
    assert all(source.attempted_end == source.written_end for source in expected.sources.values())


async def test_a_killed_generator_leaves_a_ledger_that_covers_its_files(
    start: Start, tmp_path: Path
) -> None:
    """After kill -9 nothing that is written is missing in the files, and nothing in the files was
    not announced.
    """
    process = start("--lines-per-second", "50000", "--rotate-bytes", "20000")
    await eventually(lambda: lines_written(tmp_path / "ledger") > 5000)
    process.kill()
    process.wait()
    verdict = check(Expected.read(tmp_path / "ledger"), [copied(tmp_path)])

    assert (verdict.lost, verdict.twice, verdict.out_of_order) == (0, 0, 0)
    assert verdict.corrupt == 0
    assert verdict.lines > 5000


def test_five_thousand_lines_a_second_take_less_than_half_a_core(start: Start) -> None:
    """The generator shares its machine with what it is to test."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = start("--lines-per-second", "5000", "--seconds", "2")
    process.wait(timeout=WITHIN_S)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)

    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert process.returncode == 0
    assert used_s < 1.0


def test_it_obeys_commands(start: Start, tmp_path: Path) -> None:
    """It pauses, rotates and bursts when it is told, says where it is, and stops."""
    process = start("--lines-per-second", "1000", "--control")
    paused = status(process, "pause")
    rotated = status(process, "rotate")
    burst = status(process, "burst")

    assert paused["paused"] is True
    assert rotated["rotations"] == len(sources_of(host_names(HOSTS, seed=SEED), seed=SEED))
    assert int(str(burst["lines"])) >= int(str(rotated["lines"])) + 500
    assert status(process)["lines"] == burst["lines"]
    assert status(process, "resume")["paused"] is False
    assert status(process, "stop")["command"] == "stop"
    assert process.wait(timeout=WITHIN_S) == 0
    assert Expected.read(tmp_path / "ledger").lines >= int(str(burst["lines"]))


def test_it_ends_with_whoever_started_it(start: Start) -> None:
    """When its standard input ends, there is nobody left to stop it."""
    process = start("--control")
    status(process)
    assert process.stdin
    process.stdin.close()
    process.stdin = None

    assert process.wait(timeout=WITHIN_S) == 0


def test_an_earlier_run_is_not_mixed_up_with_this_one(start: Start, tmp_path: Path) -> None:
    """An old ledger, or an old file below the root, is refused with what to do."""
    start("--seconds", "0").wait(timeout=WITHIN_S)
    second = start("--seconds", "0")
    _, errors = second.communicate(timeout=WITHIN_S)
    assert (second.returncode, "remove it" in errors) == (2, True)
    (tmp_path / "ledger").unlink()
    third = start("--seconds", "0")
    _, errors = third.communicate(timeout=WITHIN_S)

    assert third.returncode == 2
    assert "wants an empty folder" in errors
