"""Which test files a change touches: those that import what was changed, directly or not.

A module is also reached by its name as a text (`python -m logpipeline_cli`, `pytest_plugins`), a
command by its word, a shared fixture by its name as an argument of a test. A file that is no module
is reached by its name as a text.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tiers.steps import ROOT

# Below each of these a module's path is its name.
SOURCES = (
    *("core", "shipper", "collector", "operator", "cli", "demo", "spark"),
    *("benchmarks", "tests/support"),
)
CONFTEST = "tests/conftest.py"
# The program imports these by the command that it is given: a module has the command's name, or a
# function of the command's name that takes the parsed arguments.
COMMANDS = (
    *("logpipeline_cli.commands.", "logpipeline_cli.cluster.commands"),
    "logpipeline_cli.cluster.files",
)
COMMAND_ARGUMENT = "args"
# A change of one of these may change anything.
EVERYTHING = (CONFTEST, "pyproject.toml", "requirements/dev.txt")
# Names of files stand in texts alone, in paths and in sentences.
BETWEEN_NAMES = re.compile(r"[\s/'\"`,:()]+")
# Tiers that a change runs whole, and `make test` too; of the others both run the smoke.
QUICK = ("unit", "tables", "protocol", "live")
# Tiers whose tests have servers and folders of their own.
SIDE_BY_SIDE = ("unit", "tables", "protocol", "live", "faults", "operator")


@dataclass(slots=True)
class Source:
    """What the text of one Python file refers to."""

    imports: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    arguments: set[str] = field(default_factory=set)
    commands: set[str] = field(default_factory=set)
    fixtures: set[str] = field(default_factory=set)


def changed_files(base: str, root: Path = ROOT) -> set[str]:
    """Return the files that differ from the commit *base*, new ones included.

    Raises:
        RuntimeError: git does not know *base*.
    """
    found: set[str] = set()
    diff = ["diff", "--name-only", "-z", "--no-renames", base, "--"]
    for words in (diff, ["ls-files", "-z", "--others", "--exclude-standard"]):
        done = subprocess.run(
            ["git", *words], cwd=root, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"git {' '.join(words)}: {done.stderr.strip()}")
        found |= set(done.stdout.split("\0")) - {""}
    return found


def touched_tests(changed: Collection[str], root: Path = ROOT) -> list[str]:
    """Return the test files that the files *changed* touch, sorted; paths are below *root*."""
    if not changed:
        return []
    sources = {
        str(path.relative_to(root)): read(path)
        for folder in ("tests", *SOURCES)
        for path in (root / folder).rglob("*.py")
    }
    tests = sorted(name for name in sources if Path(name).name.startswith("test_"))
    if set(changed) & set(EVERYTHING):
        return tests
    users = _users_of(sources)
    for name in changed:
        if name not in sources:
            users[name] |= _that_name(name, sources)
    reached, open_ends = set(changed), list(changed)
    while open_ends:
        for user in users[open_ends.pop()] - reached:
            reached.add(user)
            open_ends.append(user)
    return [test for test in tests if test in reached]


def _users_of(sources: dict[str, Source]) -> defaultdict[str, set[str]]:
    """Return for each file the files that refer to it."""
    files = {_module_of(file): file for file in sources}
    words: defaultdict[str, set[str]] = defaultdict(set)
    for module, file in files.items():
        if module.startswith(COMMANDS):
            for name in (module.rpartition(".")[2], *sources[file].commands):
                words[name.replace("_", "-")].add(module)
    fixtures = _shared_fixtures(sources, files)
    users: defaultdict[str, set[str]] = defaultdict(set)
    for file, source in sources.items():
        texts = source.texts if file != CONFTEST else set()
        is_test = file.startswith("tests/")
        commands = {name for text in texts & words.keys() if is_test for name in words[text]}
        for name in source.imports | (texts & files.keys()) | commands:
            for used in _files_of(name, files):
                users[used].add(file)
        for name in source.arguments & fixtures.keys():
            users[fixtures[name]].add(file)
    return users


def _shared_fixtures(sources: dict[str, Source], files: dict[str, str]) -> dict[str, str]:
    """Return the files of the fixtures that every test may ask for: conftest's and its plugins'."""
    if CONFTEST not in sources:
        return {}
    plugins = [files[text] for text in sources[CONFTEST].texts & files.keys()]
    return {name: file for file in (CONFTEST, *plugins) for name in sources[file].fixtures}


def _files_of(name: str, files: dict[str, str]) -> Iterable[str]:
    """Return the files that run when the module *name* is imported, or started by its name."""
    parts = name.split(".")
    above = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return [files[each] for each in (*above, f"{name}.__main__") if each in files]


def _that_name(changed: str, sources: dict[str, Source]) -> set[str]:
    """Return the files with a text in which the name of *changed*, or of its folder, stands."""
    path = Path(changed)
    names = {path.name, path.parent.name} - {""}
    return {
        file
        for file, source in sources.items()
        if any(names & set(BETWEEN_NAMES.split(text)) for text in source.texts)
    }


def _module_of(file: str) -> str:
    for folder in SOURCES:
        if file.startswith(f"{folder}/"):
            inner = file.removeprefix(f"{folder}/").removesuffix(".py").removesuffix("/__init__")
            return inner.replace("/", ".")
    return file


def read(path: Path) -> Source:
    """Return what the Python file *path* refers to."""
    found = Source()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    # What a package imports at its first use is not there for all who import a part of it.
    nodes = tree.body if path.name == "__init__.py" else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            found.imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.imports |= {node.module, *(f"{node.module}.{a.name}" for a in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.texts.add(node.value)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            is_fixture = any(_is_fixture(each) for each in node.decorator_list)
            if is_fixture:
                found.fixtures.add(node.name)
            if [argument.arg for argument in node.args.args] == [COMMAND_ARGUMENT]:
                found.commands.add(node.name)
            if is_fixture or node.name.startswith("test_"):
                found.arguments |= {argument.arg for argument in node.args.args}
    return found


def _is_fixture(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Attribute) and called.attr == "fixture"
