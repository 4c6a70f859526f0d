"""The ledger announces before, confirms after, and can be read whenever its writer died."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo_collected import CONTAINER, PLACES, PLAIN, SEED, collect, lines_of, run_of
from logpipeline_demo.expected import Expected, LedgerBroken
from logpipeline_demo.ledger import Ledger, LedgerExists
from logpipeline_demo.oracle import check, main
from logpipeline_demo.writer import LogWriter


def interrupted(folder: Path) -> Path:
    """Leave a ledger as a kill does between ten lines and their confirmation; return the folder
    of the collectors.
    """
    with Ledger(folder / "ledger", seed=SEED) as ledger:
        writer = LogWriter(PLAIN, folder / "source", ledger)
        writer.write(100)
        writer.write(10)
        writer.close()
    records = (folder / "ledger").read_text().splitlines(keepends=True)
    assert records.pop() == "w 0 110\n"
    (folder / "ledger").write_text("".join(records))
    return folder / "data"


def test_an_attempt_is_in_the_file_before_its_lines(tmp_path: Path) -> None:
    """At the moment of the write the ledger has announced it, and does not claim its outcome."""
    with Ledger(tmp_path / "ledger", seed=SEED) as ledger:
        writer = LogWriter(PLAIN, tmp_path, ledger)
        writer.append = lambda data: seen.append((tmp_path / "ledger").read_text())  # type: ignore[method-assign]
        seen: list[str] = []
        writer.write(5)
        writer.close()

    [at_the_write] = seen
    assert "\na 0 0 5 " in at_the_write
    assert "\nw " not in at_the_write


def test_lines_of_unknown_outcome_may_arrive_or_not(tmp_path: Path) -> None:
    """The generator was killed in a write: none, some or all of its lines are fine, others not."""
    data = interrupted(tmp_path)
    maker = Expected.read(tmp_path / "ledger").sources[PLAIN.key].maker
    for arrived in (0, 4, 10):
        collect(data, PLACES[PLAIN.key], [maker.lines(0, 100 + arrived)])
        verdict = check(Expected.read(tmp_path / "ledger"), [data])

        assert verdict.explain() == ""
        assert (verdict.lines, verdict.sources[0].recovered) == (100, arrived)
    collect(data, PLACES[PLAIN.key], [maker.lines(0, 111)])
    assert check(Expected.read(tmp_path / "ledger"), [data]).invented == 1


def test_a_torn_line_of_unknown_outcome_is_fine(tmp_path: Path) -> None:
    """The kernel had taken half a line when the generator was killed."""
    data = interrupted(tmp_path)
    maker = Expected.read(tmp_path / "ledger").sources[PLAIN.key].maker
    collect(data, PLACES[PLAIN.key], [maker.lines(0, 105), maker.line(105)[:-5]])
    assert check(Expected.read(tmp_path / "ledger"), [data]).explain() == ""
    collect(data, PLACES[PLAIN.key], [maker.lines(0, 105), maker.line(105)[:-5], b"?"])

    assert check(Expected.read(tmp_path / "ledger"), [data]).corrupt == 1


@given(end=st.integers(20, 400))
def test_a_ledger_that_ends_anywhere_can_be_read(
    end: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Cut at any byte, it tells of a part of what was written, and never of more."""
    folder = tmp_path_factory.mktemp("run")
    whole = run_of(folder, lines=10)
    ledger = folder / "ledger"
    ledger.write_bytes(ledger.read_bytes()[:end])
    part = Expected.read(ledger)

    assert part.lines <= whole.lines
    assert all(source.written_end in (0, 10) for source in part.sources.values())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("v 1 ", "v 2 "),
        ("a 0 0", "a 0 5"),
        ("a 0 0", "a 9 0"),
        ("w 0", "q 0"),
        (f" {SEED}\n", f" {SEED + 1}\n"),
    ],
    ids=["version", "gap", "source", "record", "seed"],
)
def test_a_ledger_that_makes_no_sense_is_refused(tmp_path: Path, old: str, new: str) -> None:
    """Nothing is checked against a ledger that could be of something else."""
    run_of(tmp_path, lines=10)
    ledger = tmp_path / "ledger"
    text = ledger.read_text()
    assert old in text
    ledger.write_text(text.replace(old, new, 1))

    with pytest.raises(LedgerBroken):
        Expected.read(ledger)
    assert main(["--ledger", str(ledger), "--outputs", str(tmp_path)]) == 2


def test_two_runs_do_not_mix_in_one_ledger(tmp_path: Path) -> None:
    """An older ledger is not added to, and not overwritten."""
    run_of(tmp_path, lines=10)
    before = (tmp_path / "ledger").read_bytes()

    with pytest.raises(LedgerExists, match="remove it"):
        Ledger(tmp_path / "ledger", seed=1)
    assert (tmp_path / "ledger").read_bytes() == before


def test_a_run_without_lines_is_no_clean_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing expected and nothing found proves nothing."""
    run_of(tmp_path, lines=0, sources=[CONTAINER])
    (tmp_path / "data").mkdir()

    assert main(["--ledger", str(tmp_path / "ledger"), "--outputs", str(tmp_path / "data")]) == 2
    assert "nothing was expected" in capsys.readouterr().err


def test_the_lines_of_two_sources_stay_apart(tmp_path: Path) -> None:
    """Each source has its own numbers from 0 and its own lines."""
    expected = run_of(tmp_path, lines=10)
    first, second = (lines_of(expected, key) for key in expected.sources)

    assert set(first).isdisjoint(second)
    assert expected.lines == 20
