"""The oracle finds what is planted: one that finds nothing would pass every pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from demo_collected import CONTAINER, PLACES, PLAIN, collect, collect_all, lines_of, run_of
from logpipeline_demo.expected import Expected
from logpipeline_demo.oracle import check, main
from logpipeline_demo.verdict import Verdict

LINES = 1500
KEY = CONTAINER.key


@dataclass
class Bench:
    """Clean files of collectors, and a way to damage the log of one container in it."""

    folder: Path
    expected: Expected

    def damage(self, change: Callable[[list[bytes]], object]) -> Verdict:
        """Check the files after *change* was done to the container's lines."""
        lines = lines_of(self.expected, KEY)
        change(lines)
        collect(self.folder, PLACES[KEY], lines)
        return check(self.expected, [self.folder])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    expected = run_of(tmp_path / "run", lines=LINES)
    collect_all(tmp_path / "data", expected)
    return Bench(tmp_path / "data", expected)


def numbers(verdict: Verdict) -> dict[str, int]:
    """Return what is not 0."""
    source = verdict.source(KEY)
    names = ("lost_prefix", "lost_middle", "lost_tail", "twice", "out_of_order", "corrupt")
    found = {name: getattr(source, name) for name in names} | {"invented": verdict.invented}
    return {name: count for name, count in found.items() if count}


def max_minus_count(lines: list[bytes]) -> int:
    """A well-known way to count lost lines, and a wrong one: the largest number, less how many
    there are.
    """
    seqs = [int(line.split(b" ")[2]) for line in lines]
    return max(seqs) + 1 - len(seqs)


def test_clean_files_are_clean(bench: Bench) -> None:
    """Everything once, intact and in order: all numbers are 0, and the lines are counted."""
    verdict = check(bench.expected, [bench.folder])

    assert verdict.is_clean
    assert verdict.summary() == f"checked: {2 * LINES} lines, 0 lost, 0 twice, 0 out of order"
    assert verdict.explain() == ""


def test_a_lost_prefix_is_found(bench: Bench) -> None:
    """The first lines of a source are missing."""
    assert numbers(bench.damage(lambda lines: lines.__delitem__(slice(0, 3)))) == {"lost_prefix": 3}


def test_a_loss_in_the_middle_is_found(bench: Bench) -> None:
    """A line between others is missing: the serious case."""
    verdict = bench.damage(lambda lines: lines.__delitem__(700))

    assert numbers(verdict) == {"lost_middle": 1}
    assert "0 twice" in verdict.summary()
    place = f"{bench.folder}/collector-0/logs/{PLACES[KEY]}"
    assert f"lost: {KEY} 700, at {place}:" in verdict.explain()


def test_a_lost_tail_is_found(bench: Bench) -> None:
    """The last lines are missing, which nothing in the files shows."""
    assert numbers(bench.damage(lambda lines: lines.__delitem__(slice(-2, None)))) == {
        "lost_tail": 2
    }


def test_a_source_that_never_arrived_is_found(bench: Bench) -> None:
    """No file is as bad as an empty one."""
    (bench.folder / "collector-0" / "logs" / PLACES[KEY]).unlink()

    assert numbers(check(bench.expected, [bench.folder])) == {"lost_tail": LINES}


def test_a_duplicate_is_found(bench: Bench) -> None:
    """A line that stands there twice in a row."""
    assert numbers(bench.damage(lambda lines: lines.insert(700, lines[700]))) == {"twice": 1}


def test_a_batch_that_is_repeated_later_is_found(bench: Bench) -> None:
    """A batch that was sent again and written again: each of its lines is there twice."""

    def repeat(lines: list[bytes]) -> None:
        lines[900:900] = lines[700:800]

    assert numbers(bench.damage(repeat)) == {"twice": 100}


def test_a_repeated_batch_with_empty_lines_is_counted_whole(bench: Bench) -> None:
    """Empty lines between repeated ones are repeated ones."""
    lines = lines_of(bench.expected, PLAIN.key)
    first = lines.index(b"\n") - 5
    lines[first + 200 : first + 200] = lines[first : first + 10]
    collect(bench.folder, PLACES[PLAIN.key], lines)
    verdict = check(bench.expected, [bench.folder])

    assert (verdict.twice, verdict.invented, verdict.lost, verdict.out_of_order) == (10, 0, 0, 0)


def test_loss_and_duplicate_do_not_cancel_out(bench: Bench) -> None:
    """As many lines as there should be, and still one is missing and another there twice."""

    def change(lines: list[bytes]) -> None:
        lines[700] = lines[699]

    assert numbers(bench.damage(change)) == {"lost_middle": 1, "twice": 1}


def test_a_swap_is_found(bench: Bench) -> None:
    """Two lines in each other's place: one of them is out of order."""

    def swap(lines: list[bytes]) -> None:
        lines[700], lines[701] = lines[701], lines[700]

    assert numbers(bench.damage(swap)) == {"out_of_order": 1}


@pytest.mark.parametrize("part", ["host", "number", "checksum", "payload", "newline"])
def test_a_changed_byte_is_found(bench: Bench, part: str) -> None:
    """Wherever in a line a byte is another one, it is one line that is corrupt."""
    head = CONTAINER.key.host.encode() + b" " + CONTAINER.key.name.encode() + b" "
    at = {"host": 2, "number": len(head), "checksum": len(head) + 6, "payload": -5, "newline": -1}

    def flip(lines: list[bytes]) -> None:
        line = bytearray(lines[700])
        line[at[part]] ^= 1
        lines[700] = bytes(line)

    found = numbers(bench.damage(flip))

    # Without its newline a line takes the next one with it.
    assert found == ({"corrupt": 1, "lost_middle": 1} if part == "newline" else {"corrupt": 1})


def test_an_invented_line_is_found(bench: Bench) -> None:
    """A line that nobody wrote, between two that somebody did."""
    assert numbers(bench.damage(lambda lines: lines.insert(700, b"hello\n"))) == {"invented": 1}


def test_a_line_that_was_never_written_is_found(bench: Bench) -> None:
    """A line that looks right, with a number that the ledger does not know."""
    invented = bench.expected.sources[KEY].maker.line(LINES) + b"\n"

    assert numbers(bench.damage(lambda lines: lines.append(invented))) == {"invented": 1}


def test_a_line_of_another_run_is_found(bench: Bench, tmp_path: Path) -> None:
    """The same source with another seed has other lines: what is left over is not taken for new."""
    other = run_of(tmp_path / "other", lines=LINES, seed=8)
    verdict = bench.damage(lambda lines: lines.append(lines_of(other, KEY)[700]))

    assert numbers(verdict) == {"corrupt": 1}


def test_a_line_in_another_sources_file_is_found(bench: Bench) -> None:
    """A line that left its own file: there it is lost, here it is invented."""
    lines, others = lines_of(bench.expected, KEY), lines_of(bench.expected, PLAIN.key)
    others.insert(300, lines.pop(700))
    collect(bench.folder, PLACES[KEY], lines)
    collect(bench.folder, PLACES[PLAIN.key], others)
    verdict = check(bench.expected, [bench.folder])

    assert numbers(verdict) == {"lost_middle": 1, "invented": 1}
    assert f"does not belong into {PLACES[PLAIN.key]}" in verdict.explain()


def test_a_file_that_is_nobodys_is_found(bench: Bench) -> None:
    """Lines in a file that no source has are invented, unless the caller says they are known."""
    collect(bench.folder, "stranger/_files/x.log", [b"hello\n", b"\n"])

    assert numbers(check(bench.expected, [bench.folder])) == {"invented": 2}
    assert check(bench.expected, [bench.folder], is_ignored=lambda p: "stranger" in p).is_clean


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_truncated_file_is_found(bench: Bench, suffix: str) -> None:
    """A compressed file that cannot be read to its end is damage, and what it held is lost."""
    lines = lines_of(bench.expected, KEY)
    rotated = f".20261121-100000.000001{suffix}"
    path = collect(bench.folder, PLACES[KEY], lines[:700], suffix=rotated)
    collect(bench.folder, PLACES[KEY], lines[700:])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    verdict = check(bench.expected, [bench.folder])

    assert [file.path for file in verdict.damaged] == [path]
    assert not verdict.is_clean
    assert verdict.lost > 0


def test_an_unreadable_file_is_not_clean(bench: Bench) -> None:
    """Even if nothing is missing without it: nobody knows what it holds."""
    collect(bench.folder, PLACES[KEY], [b"x"], suffix=".20261121-100000.000001")
    path = bench.folder / "collector-0" / "logs" / f"{PLACES[KEY]}.20261121-100000.000001"
    path.rename(path.with_name(path.name + ".gz"))
    verdict = check(bench.expected, [bench.folder])

    assert (verdict.lost, verdict.twice, verdict.invented) == (0, 0, 0)
    assert not verdict.is_clean
    assert "1 files unreadable" in verdict.summary()


def test_a_missing_last_newline_is_found(bench: Bench) -> None:
    """The last byte of a file counts as well."""

    def cut(lines: list[bytes]) -> None:
        lines[-1] = lines[-1][:-1]

    assert numbers(bench.damage(cut)) == {"corrupt": 1}


def test_max_minus_count_misses_what_the_oracle_finds(bench: Bench) -> None:
    """The well-known formula is happy with a loss beside a duplicate, a lost tail and a swap."""

    def lose_and_repeat(lines: list[bytes]) -> None:
        lines[700] = lines[699]

    def lose_the_tail(lines: list[bytes]) -> None:
        del lines[-2:]

    def swap(lines: list[bytes]) -> None:
        lines[700], lines[701] = lines[701], lines[700]

    for change in (lose_and_repeat, lose_the_tail, swap):
        lines = lines_of(bench.expected, KEY)
        change(lines)

        assert max_minus_count(lines) == 0
        assert not bench.damage(change).is_clean

    lines = lines_of(bench.expected, KEY)
    del lines[700]
    assert max_minus_count(lines) == 1, "it does find a plain loss"


def test_late_lines_are_reported_where_they_are_allowed(bench: Bench) -> None:
    """Where a server lost what it had acknowledged, lines sent again may come late, and no more."""
    lines = lines_of(bench.expected, KEY)
    lines[700:800], lines[800:900] = lines[800:900], lines[700:800]
    collect(bench.folder, PLACES[KEY], lines)
    verdict = check(bench.expected, [bench.folder], allow_late={KEY})

    assert verdict.is_clean
    assert (verdict.late, verdict.out_of_order) == (100, 0)
    assert check(bench.expected, [bench.folder]).out_of_order == 100


@pytest.mark.parametrize("is_first", [True, False], ids=["begin", "end"])
def test_late_lines_that_begin_or_end_with_an_empty_one_are_all_found(
    bench: Bench, is_first: bool
) -> None:
    """An empty line carries no number: it is known by the line that it stands next to."""
    lines = lines_of(bench.expected, PLAIN.key)
    source = bench.expected.sources[PLAIN.key]
    [blank, *_] = [seq for seq in range(200, LINES - 200) if source.is_blank(seq)]
    start = blank if is_first else blank - 99
    moved = lines[start : start + 100]
    assert b"\n" in (moved[0], moved[-1])
    lines[start : start + 200] = lines[start + 100 : start + 200] + moved
    collect(bench.folder, PLACES[PLAIN.key], lines)

    verdict = check(bench.expected, [bench.folder], allow_late={PLAIN.key})
    assert verdict.is_clean, verdict.explain()

    lines.remove(b"\n")
    collect(bench.folder, PLACES[PLAIN.key], lines)
    assert check(bench.expected, [bench.folder], allow_late={PLAIN.key}).lost == 1


def test_the_command_prints_the_result_last_and_fails_if_it_is_bad(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scripts read the last line and the exit code."""
    arguments = ["--ledger", str(tmp_path / "run" / "ledger"), "--outputs", str(bench.folder)]
    codes = [main(arguments)]
    bench.damage(lambda lines: lines.__delitem__(700))
    codes.append(main(arguments))
    last = capsys.readouterr().out.splitlines()[-1]

    assert codes == [0, 1]
    assert last == f"checked: {2 * LINES} lines, 1 lost, 0 twice, 0 out of order"
