"""The rules of this code base that no linter knows: sizes, the folder operator/, and our words."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("core", "shipper", "collector", "cli", "demo", "operator", "spark", "benchmarks")
NO_PACKAGES = ("tests", "benchmarks")
MODULES = sorted(path for folder in (*FOLDERS, "tests") for path in (ROOT / folder).rglob("*.py"))
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70

# A reader in five years knows the project, and nothing of how or where it was made. The words are
# written in pieces, so that this file keeps its own rule.
FORBIDDEN = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(to" + r"do|fix" + r"me|x" + r"xx)\b",
        r"\bissues? #?\d{1,2}\b",
        r"(?<![\w.-])/wo" + r"rk/",
        r"\.\./sha" + r"red\b",
        r"\bsha" + r"red/(design|facts|faults|style)\b",
        r"\b(helper|sub)[ -]?age" + r"nts?\b",
        r"\bpy" + r"pi\.org\b|\bpython" + r"hosted\b",
    )
]
TEXTS = {".py", ".md", ".toml", ".yaml", ".yml", ".txt", ".sh", ""}
LEFT_OUT = {"LICENSE"}


def test_the_folder_operator_is_no_package() -> None:
    """`operator/__init__.py` would hide the standard library's operator from every Python here."""
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_tests_are_no_package() -> None:
    """Test files are imported by path; a package among them would shadow the folders' names."""
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_a_folder_of_a_package_is_a_package() -> None:
    """Without its `__init__.py` a folder is a namespace that import contracts do not see."""
    inside = [path.parent for path in MODULES if path.parts[len(ROOT.parts)] not in NO_PACKAGES]
    packages = {folder for folder in inside if folder.parent != ROOT}

    assert [str(folder) for folder in packages if not (folder / "__init__.py").exists()] == []


def test_test_files_have_names_of_their_own() -> None:
    """Two test files of one name are one module to mypy."""
    tests = [path for path in MODULES if path.is_relative_to(ROOT / "tests")]
    # What tests share is told apart by its folders.
    names = [path.name for path in tests if path.name.startswith("test_")]

    assert sorted(names) == sorted(set(names))


def test_the_readers_wheel_is_of_the_same_version_and_asks_for_the_same() -> None:
    """Both hold the same package: what one needs of a library, the other does as well."""
    whole, reader = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
        for folder in ("", "core")
    )
    pairs = [(reader["dependencies"], whole["dependencies"])]
    optional = reader["optional-dependencies"]
    pairs += [(optional["yaml"], whole["dependencies"])]
    pairs += [(optional["nkeys"], whole["optional-dependencies"]["nkeys"])]

    assert reader["version"] == whole["version"]
    assert [each for needed, known in pairs for each in needed if each not in known] == []


def test_no_test_has_less_time_than_all_have() -> None:
    """The limit is a net for hangs, on a machine that is busy as well: it measures nothing."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    net = settings["tool"]["pytest"]["ini_options"]["timeout"]
    found = [
        (path.name, int(limit))
        for path in MODULES
        for limit in re.findall(r"mark\.timeout\((\d+)\)", path.read_text(encoding="utf-8"))
    ]

    assert len(found) > 3
    assert [each for each in found if each[1] <= net] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_small_and_says_why_it_exists(path: Path) -> None:
    """A module has a docstring and a size that a reader can hold, and so has each function."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)

    assert ast.get_docstring(tree), "say first why the module exists"
    assert len(text.splitlines()) <= FILE_LINES_MAX, "find the noun that wants out"
    long = [f"{node.name}: {_lines(node)}" for node in _functions(tree) if not _is_short(node)]
    assert long == [], "move the decision first, the effect last"


def test_no_digit_is_taken_that_is_no_number() -> None:
    """`isdigit` and `isnumeric` also take such as a raised two, which `int` refuses; bytes have
    ASCII digits alone.
    """
    of_bytes = {"session.py"}
    folders = ("core", "collector", "cli", "spark")
    lines = [
        (path.name, line)
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        for line in path.read_text().splitlines()
    ]
    asking = [each for each in lines if ".isdigit()" in each[1] or ".isnumeric()" in each[1]]

    assert [each for each in asking if "isascii()" not in each[1] and each[0] not in of_bytes] == []


def test_the_project_speaks_of_itself_alone() -> None:
    """No text tells of unfinished work, of the place where it was made, or of a registry."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in _texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if any(pattern.search(line) for pattern in FORBIDDEN)
    ]

    assert found == []


def test_the_lock_pins_every_package_by_hash() -> None:
    """What is installed is what was locked, wherever it is fetched from."""
    lock = (ROOT / "requirements" / "dev.txt").read_text()
    packages = re.split(r"\n(?=\S)", lock.strip())

    assert len(packages) > 20
    assert [text.splitlines()[0] for text in packages if "--hash=sha256:" not in text] == []
    assert "://" not in lock


def _texts() -> Iterator[Path]:
    folders = (*FOLDERS, "tests", "deploy", "docs", "requirements", ".ci")
    inside = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    for path in sorted([*ROOT.iterdir(), *inside]):
        is_ours = path.suffix in TEXTS and "__pycache__" not in path.parts
        if path.is_file() and is_ours and path.name not in LEFT_OUT:
            yield path


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _is_short(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return _lines(node) <= FUNCTION_LINES_MAX


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1
