"""Levels of many lines at a time: the same as one line after the other, also where the beginnings
of lines decide about them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from logpipeline_spark.lines import levels
from logpipeline_spark.lines.levels import (
    BEGINNING_BYTES,
    SAMPLE_ROWS,
    SAMPLED_ROWS_MIN,
    UNDECIDED,
    level_of,
)

MANY = 2 * SAMPLED_ROWS_MIN
TOKENS = (
    *("[", "]", " ", "\t", ":", "/", ",", "|", "-", "=", '"', "}", "{", "x", "AB", "I", "S"),
    *("INFO", "info", "Error", "WARNING", "warn", "ERR", "INF", "30", "10"),
    *("level", "severity", "LVL", '"level":"', '"lvl": ', "E1121 ", "2026-11-21T10:00 "),
)
# A level within brackets, which the rest makes a part of another match.
BRACKETS = ("[info:warning] x", "[info: x", "[a-ERROR-b:info] x", "[error] x", "x [FATAL-a/debug]")
WORDS = ("info", "warning", "error", "debug", "fatal", "trace", "none")

FORMS: dict[str, Callable[[int, str], str]] = {
    "logfmt": lambda number, word: f"level={word} caller=main.go:{number} msg=x",
    "in capitals": lambda number, word: f"level={word.upper()} {number}",
    "python": lambda number, word: f"{word.upper()}:root:message {number}",
    "brackets": lambda number, word: f"[{word}] message {number}",
    "module in brackets": lambda number, word: f"[info:{word}] message {number}",
    "klog": lambda number, word: f"{word[0].upper()}1121 10:00:00.{number} main.go:1] x",
    "zap": lambda number, word: f'{{"level":"{word}","ts":{number},"msg":"x"}}',
    "pino": lambda number, word: f'{{"level":{10 + 10 * (number % 6)},"time":{number}}}',
    "name first": lambda number, word: f'{{"logger":"a{number % 3}","level":"{word}"}}',
    "time first": lambda number, word: f"2026-11-21T10:00:00.{number:06}Z {word.upper()} x",
    "number first": lambda number, word: f"{number} {word}: x",
    "short": lambda number, word: word[: 1 + number % 5],
}


def lines_of(*forms: str) -> list[bytes]:
    """Return lines in each of *forms* in turn."""
    pick = Random(1)
    return [
        FORMS[forms[number % len(forms)]](number, pick.choice(WORDS)).encode()
        for number in range(MANY)
    ]


def found_in(lines: list[bytes]) -> list[str | None]:
    """Return the level of each of *lines* as a column has it."""
    found: list[str | None] = levels.levels(pa.array(lines, pa.binary())).to_pylist()
    return found


@pytest.mark.parametrize("form", FORMS)
def test_many_lines_of_a_form(form: str) -> None:
    """Whether their beginnings are few, many, or do not decide."""
    lines = lines_of(form)

    assert found_in(lines) == [level_of(line) for line in lines]


def test_many_lines_of_all_forms() -> None:
    """Beginnings decide about some of them only."""
    lines = lines_of(*FORMS)

    assert found_in(lines) == [level_of(line) for line in lines]


@pytest.mark.parametrize("form", ["logfmt", "in capitals", "zap", "pino", "python", "klog"])
def test_lines_with_the_level_first_are_not_searched_one_by_one(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only those that the beginning does not decide are searched in full: here some warnings."""
    searched: list[int] = []
    search = levels._Search._searched

    def counting(self: levels._Search, lines: pa.Array) -> levels.Numbers:
        searched.append(len(lines))
        return search(self, lines)

    monkeypatch.setattr(levels._Search, "_searched", counting)
    lines = [line for line in lines_of(form) if level_of(line)]
    found_in(lines)
    assert sum(searched) < len(lines) // 3


@pytest.mark.parametrize("search", [levels._LINES, levels._OBJECTS], ids=["line", "object"])
def test_a_beginning_decides_only_what_the_rest_cannot_change(search: levels._Search) -> None:
    """Whatever follows it: brackets and longer words in particular."""
    pick = Random(1)
    lines = ["".join(pick.choices(TOKENS, k=pick.randrange(1, 9))) for _ in range(20_000)]
    decisions = 0
    for line in map(str.encode, (*BRACKETS, *lines)):
        for size in range(4, BEGINNING_BYTES[-1] + 1):
            decided = search._decided(line[:size], size)
            assert decided in (UNDECIDED, levels._number(search.line(line))), (line, size)
            decisions += decided != UNDECIDED
    assert decisions > 1000


def test_more_beginnings_than_a_sample_shows_are_not_looked_at_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All lines that the sample sees begin in the same way, and no others."""
    lines = [f"{number:06} level=info".encode() for number in range(MANY)]
    for row in np.linspace(0, MANY - 1, SAMPLE_ROWS, dtype=np.int64).tolist():
        lines[row] = b"level=info and so on"
    looked_at = []
    decide = levels._Search._decided

    def counting(self: levels._Search, text: bytes, size: int) -> int:
        looked_at.append(text)
        return decide(self, text, size)

    monkeypatch.setattr(levels._Search, "_decided", counting)

    assert found_in(lines) == ["info"] * MANY
    assert 0 < len(looked_at) <= SAMPLE_ROWS


def test_the_dictionary_holds_what_is_found() -> None:
    """Each level once, in order, so that the same lines give the same files."""
    found = levels.levels(pa.array([b"WARN", b"x", b"ERROR", b"WARN"], pa.binary()))

    assert found.dictionary.to_pylist() == ["error", "warn"]
    assert found.to_pylist() == ["warn", None, "error", "warn"]
