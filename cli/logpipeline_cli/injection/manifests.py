"""Changes manifests as text: only documents that change are written again; all others stay the
same, byte for byte.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import yaml

from logpipeline_cli.errors import CliError

TEXT_BYTES_MAX = 32 * 1024 * 1024
_LINE_CHARS = 100
# With aliases a small file may expand to more than fits into memory.
_NODES_MAX = 1_000_000


class _Loader(yaml.SafeLoader):
    """Reads times as text."""


_Loader.yaml_implicit_resolvers = {
    letter: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
    for letter, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def rewritten(text: str, change: Callable[[Any], None]) -> str:
    """Return *text* with each of its documents changed by *change*.

    Raises:
        CliError: it is not valid YAML; and errors of *change*.
    """
    parts = []
    for part in _split(text):
        before = _loaded(part)
        after = copy.deepcopy(before)
        change(after)
        parts.append(part if after == before else _dumped(part, after))
    return "".join(parts)


def _split(text: str) -> list[str]:
    """Return *text* cut at the beginning of each document."""
    try:
        starts = [
            event.start_mark.index
            for event in yaml.parse(text, _Loader)
            if isinstance(event, yaml.DocumentStartEvent) and event.start_mark is not None
        ]
    except yaml.YAMLError as error:
        raise _refused(error) from error
    bounds = [0, *starts[1:], len(text)]
    return [text[first:end] for first, end in pairwise(bounds)]


def _loaded(part: str) -> Any:
    try:
        return _Tree().copy_of(yaml.load(part, _Loader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _refused(error) from error


class _Tree:
    """Copies a document without aliases, so that a change in one place changes no other."""

    def __init__(self) -> None:
        self._left = _NODES_MAX

    def copy_of(self, value: Any) -> Any:
        """Return *value* without aliases.

        Raises:
            ValueError: it is too large.
        """
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"more than {_NODES_MAX} values; replace aliases by their values")
        if isinstance(value, dict):
            return {key: self.copy_of(each) for key, each in value.items()}
        return list(map(self.copy_of, value)) if isinstance(value, list) else value


def _dumped(part: str, document: Any) -> str:
    marker = "---\n" if part.lstrip().startswith("---") else ""
    body = yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, width=_LINE_CHARS, allow_unicode=True
    )
    return marker + body


def _refused(error: Exception) -> CliError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error) or type(error).__name__
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return CliError(f"the manifest is not valid YAML: {place}{problem}")
