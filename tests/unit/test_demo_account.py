"""The demo's numbers: counted in the files, and adding up."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from demo_collected import CONTAINER, PLACES, PLAIN, collect, collect_all, lines_of, run_of
from logpipeline.layout import Layout
from logpipeline_cli.demonstration.check import (
    Account,
    Origins,
    Written,
    check_files,
    differences,
)
from logpipeline_cli.demonstration.screen import Progress
from logpipeline_demo.outputs import CollectedCounter, lines_by_place
from logpipeline_demo.realfiles import RealFile, default_place

LINES = 300
ROTATED = ".20260101-000000.000001"


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """What an application, one file of the machine and the probe wrote, all of it collected."""
    expected = run_of(tmp_path, lines=LINES)
    collect_all(tmp_path / "collectors", expected)
    real = []
    for name, lines in (("app.log", 7), ("probe.log", 3)):
        path = tmp_path / name
        path.write_bytes(b"line\n" * lines)
        real.append(RealFile.observe(path, host="node-a"))
        collect(tmp_path / "collectors", real[-1].place, [b"line\n"] * lines)
    machine, probe = real
    left_out = default_place("node-a", tmp_path / "empty.log")
    return Written(expected, real, Origins({machine.place}, probe.place, {left_out}))


def test_a_clean_run_adds_up(
    written: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is collected, by origin, is what was due, and what was checked."""
    verdict = check_files(written, Layout(tmp_path), Progress())
    printed = capsys.readouterr().out

    assert verdict.is_clean
    assert written.due() == Account(application=2 * LINES, machine=7, probe=3)
    assert verdict.lines == written.due().total == 2 * LINES + 10
    assert (
        f"collected: {2 * LINES + 10} lines = {2 * LINES} of the application"
        " + 7 of this machine's files + 3 of the probe\n"
    ) in printed
    assert "not as many as" not in printed


def test_lines_beside_the_checked_ones_are_named(
    written: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What came after the end, and what was left out at first, are terms of their own."""
    for file in written.real:
        file.freeze()
    machine = written.real[0]
    machine.path.write_bytes(b"line\n" * 9)
    collect(tmp_path / "collectors", machine.place, [b"line\n"] * 9)
    collect(tmp_path / "collectors", next(iter(written.origins.left_out)), [b"late\n"] * 2)

    verdict = check_files(written, Layout(tmp_path), Progress())
    printed = capsys.readouterr().out

    assert verdict.is_clean
    assert f"collected: {verdict.lines + 4} lines" in printed
    assert "+2 written to this machine's files after the end" in printed
    assert "+2 of files that were left out at first" in printed


def test_a_line_that_is_taken_away_is_said(
    written: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check fails, and the account says by how much it does not add up."""
    lines = lines_of(written.expected, PLAIN.key)
    collect(tmp_path / "collectors", PLACES[PLAIN.key], [*lines[:10], *lines[11:]])

    verdict = check_files(written, Layout(tmp_path), Progress())
    printed = capsys.readouterr().out

    assert not verdict.is_clean
    assert verdict.lost == 1
    assert "-1 by what is lost, came twice, or belongs to no source" in printed


def test_a_file_that_was_rotated_meanwhile_is_named(written: Written, tmp_path: Path) -> None:
    """Its lines are collected and not checked, and the account says whose they are."""
    machine = written.real[0]
    machine.path.rename(tmp_path / "app.log.1")
    machine.path.touch()
    verdict = check_files(written, Layout(tmp_path), Progress())
    lines = lines_by_place([tmp_path / "collectors"])

    told = list(differences(verdict, lines, written.real, written.origins.account(lines)))

    assert told == [f"+7 of {machine.path}, which is not checked: it was replaced or rotated"]
    assert written.due().machine == 0


def test_the_counter_reads_on_where_it_was(tmp_path: Path) -> None:
    """Growth, rotation and compression change no line's count, and empty files count."""
    place = PLACES[CONTAINER.key]
    path = collect(tmp_path, place, [b"a\n"] * 5)
    counter = CollectedCounter(tmp_path)
    assert (counter.look().total, counter.look().bytes) == (5, 10)

    with path.open("ab") as file:
        file.write(b"b\n" * 2 + b"torn")
    assert counter.look().total == 7

    # A collector that was killed takes back what it had not committed.
    os.truncate(path, 6)
    assert counter.look().lines == {place: 3}
    with path.open("ab") as file:
        file.write(b"b\n" * 4)
    assert counter.look().total == 7

    rotated = path.rename(path.with_name(path.name + ROTATED))
    collect(tmp_path, place, [b"c\n"] * 30)
    assert counter.look().lines == {place: 37}

    # Both exist for a moment, and are the same lines.
    rotated.with_name(rotated.name + ".gz").write_bytes(gzip.compress(rotated.read_bytes()))
    assert counter.look().lines == {place: 37}
    rotated.unlink()
    assert counter.look().lines == {place: 37}
    assert counter.look().lines == lines_by_place([tmp_path])


def test_lines_of_all_collectors_count(tmp_path: Path) -> None:
    """A partition that moved left lines with both its owners."""
    place = PLACES[PLAIN.key]
    collect(tmp_path, place, [b"a\n"] * 5, collector=0)
    collect(tmp_path, place, [b"b\n"] * 6, collector=1)

    assert CollectedCounter(tmp_path).look().lines == {place: 11}
    assert CollectedCounter(tmp_path / "nothing").look().total == 0
