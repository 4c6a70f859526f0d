"""Small wrong changes are made one at a time, where a function decides, and in what is loaded."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from forked import result
from mutants.changes import change, changes, functions
from mutants.hunt import explained_survivors, text_of
from mutants.planted import mutants, plant
from mutants.reach import lines_reached

SOURCE = '''
def decide(held: list[int], limit: int | None = 3) -> bool:
    """Return whether *held* is enough, 1 at least."""
    if limit is None or not held:
        return False
    if held[0] + 1 < limit:
        held.append(1)
        raise ValueError(f"{limit} is too much")
    return min(held) == 2


class Kept:
    @property
    def is_kept(self) -> bool:
        return self.count > 0

    @classmethod
    def made(cls) -> "Kept":
        made = cls()
        made.count = 5
        return made
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A loaded module of `SOURCE`."""
    (tmp_path / "decides_something.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "decides_something", raising=False)
    import decides_something  # type: ignore[import-not-found]

    return decides_something  # type: ignore[no-any-return]


def test_each_place_that_decides_is_changed() -> None:
    """Types, defaults, docstrings and what stands before a function are left alone."""
    found = {
        name: [(each.was, each.becomes) for each in changes(function)]
        for name, function in functions(ast.parse(SOURCE))
    }

    assert found == {
        "decide": [
            ("limit is None or not held", "limit is None and (not held)"),
            ("limit is None or not held", "limit is not None or not held"),
            ("limit is None or not held", "limit is None or held"),
            ("return False", "return True"),
            ("held[0] + 1 < limit", "held[0] + 1 <= limit"),
            ("held[0] + 1 < limit", "held[0] + 1 >= limit"),
            ("held[0] + 1 < limit", "held[0] - 1 < limit"),
            ("held[0] + 1 < limit", "held[1] + 1 < limit"),
            ("held[0] + 1 < limit", "held[0] + 2 < limit"),
            ("held.append(1)", "pass"),
            ("held.append(1)", "held.append(2)"),
            ("raise ValueError(f'{limit} is too much')", "pass"),
            ("return min(held) == 2", "return min(held) != 2"),
            ("return min(held) == 2", "return max(held) == 2"),
            ("return min(held) == 2", "return min(held) == 3"),
        ],
        "Kept.is_kept": [
            ("return self.count > 0", "return self.count >= 0"),
            ("return self.count > 0", "return self.count <= 0"),
            ("return self.count > 0", "return self.count > 1"),
        ],
        "Kept.made": [("made.count = 5", "pass"), ("made.count = 5", "made.count = 6")],
    }


def test_one_change_is_made_at_a_time() -> None:
    """All others stay as they are."""
    tree = ast.parse("def f(a, b):\n    return a < 1 and b < 1\n")
    [(_, function)] = functions(tree)

    change(function, 1)

    assert ast.unparse(tree) == "def f(a, b):\n    return a <= 1 and b < 1"
    with pytest.raises(IndexError, match="f has no change 7"):
        change(function, 7)


def test_a_mutant_is_planted_into_what_is_loaded(module: ModuleType) -> None:
    """Whoever has the function already calls the changed one: also a property, or a class's."""
    decide, kept = module.decide, module.Kept
    planted = {(each.function, each.change.becomes): each for each in mutants(module.__name__)}
    assert not decide([3])

    plant(planted["decide", "return min(held) == 3"])
    plant(planted["Kept.is_kept", "return self.count <= 0"])
    plant(planted["Kept.made", "made.count = 6"])

    assert decide([3])
    assert kept.made().count == 6
    assert not kept.made().is_kept


def test_what_makes_no_difference_is_a_mutant_that_there_is() -> None:
    """A statement that is written otherwise is explained anew."""
    for module, reasons in explained_survivors().items():
        assert set(reasons) <= {text_of(mutant) for mutant in mutants(module)}


def test_lines_that_are_reached_are_known(module: ModuleType) -> None:
    """Those behind a return are not."""
    lines = lines_reached(lambda: module.decide([]), [module.__name__])

    assert lines == [("decides_something", 4), ("decides_something", 5)]


@pytest.mark.parametrize(
    ("task", "returned"),
    [
        pytest.param(lambda: ["a", 1], ["a", 1], id="ends"),
        pytest.param(lambda: os.kill(os.getpid(), 9), None, id="is killed"),
        pytest.param(lambda: os.stat("/nowhere"), None, id="fails"),
    ],
)
def test_a_task_that_does_not_end_well_returns_none(task: object, returned: object) -> None:
    """Whoever waits for it goes on."""
    assert result(task, within_s=60) == returned  # type: ignore[arg-type]
