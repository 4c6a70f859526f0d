"""Replaces the code of a loaded function by changed code. All that refers to the function runs the
changed code from then on.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from mutants.changes import Change, change, changes, functions


@dataclass(frozen=True, slots=True)
class Mutant:
    """A *change* of *function* (its qualified name) in *module*, which stands in the lines *first*
    to *last*.
    """

    module: str
    function: str
    first: int
    last: int
    change: Change

    @property
    def name(self) -> str:
        """What it is called, whatever stands in other functions."""
        return f"{self.module}:{self.function}:{self.change.number}"

    def __str__(self) -> str:
        return f"{self.name} line {self.change.line}: {self.change.was} -> {self.change.becomes}"


def mutants(module: str) -> list[Mutant]:
    """Return all mutants of the functions of *module*."""
    _, _, tree = _loaded(module)
    return [
        Mutant(module, name, function.body[0].lineno, function.end_lineno or 0, each)
        for name, function in functions(tree)
        for each in changes(function)
    ]


def plant(mutant: Mutant) -> None:
    """Have this process, and those that it forks, run *mutant* from now on."""
    module, source, tree = _loaded(mutant.module)
    for name, function in functions(tree):
        if name == mutant.function:
            change(function, mutant.change.number)
    whole = compile(tree, source, "exec")
    [code] = (each for each in _codes(whole) if each.co_qualname == mutant.function)
    _function(module, mutant.function).__code__ = code


def _loaded(name: str) -> tuple[ModuleType, str, ast.Module]:
    module = importlib.import_module(name)
    source = str(module.__file__)
    return module, source, ast.parse(Path(source).read_text())


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def _function(module: ModuleType, qualified: str) -> FunctionType:
    """Return the function of this name, without what decorates it."""
    owner: Any = module
    *classes, name = qualified.split(".")
    for each in classes:
        owner = vars(owner)[each]
    found = vars(owner)[name]
    if isinstance(found, property):
        found = found.fget
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    found = inspect.unwrap(found)
    assert isinstance(found, FunctionType), f"{qualified} is no function"
    return found
