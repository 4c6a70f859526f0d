"""Patterns of paths, matched folder by folder, so that nothing is looked at that cannot match."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from pathlib import Path

_WILD = re.compile(r"[*?\[]")
_ANY_FOLDERS = "**"

State = tuple[int, int]


class BadPattern(ValueError):
    """A pattern that cannot name files."""


@dataclass(frozen=True, slots=True)
class Patterns:
    """Patterns of absolute paths. A state is (pattern, part) still to be matched; a folder has a
    set of them.
    """

    parts: tuple[tuple[str, ...], ...]

    @staticmethod
    def of(patterns: tuple[str, ...]) -> Patterns:
        """Return *patterns* taken apart.

        Raises:
            BadPattern: one is not absolute, or ends with a slash.
        """
        parts = []
        for pattern in patterns:
            if not pattern.startswith("/") or pattern.endswith("/"):
                raise BadPattern(
                    f"{pattern!r}: a pattern is the absolute path of files, as /var/log/**/*.log"
                )
            words = [part for part in pattern.split("/") if part not in ("", ".")]
            if ".." in words:
                raise BadPattern(f"{pattern!r}: a pattern does not contain '..'")
            parts.append((*words, "*") if words[-1] == _ANY_FOLDERS else tuple(words))
        return Patterns(tuple(parts))

    def roots(self) -> dict[Path, frozenset[State]]:
        """Return the folders to begin at, none of them below another, with their states."""
        bases = {index: self._base(words) for index, words in enumerate(self.parts)}
        tops = [
            base
            for base in set(bases.values())
            if not any(base[: len(other)] == other for other in bases.values() if other != base)
        ]
        return {
            Path("/", *top): frozenset(
                self._closed(
                    {(i, len(top)) for i, base in bases.items() if base[: len(top)] == top}
                )
            )
            for top in tops
        }

    def below(self, states: frozenset[State], name: str) -> frozenset[State]:
        """Return the states of the folder *name* in a folder of *states*; none: skip it."""
        following: set[State] = set()
        for index, part in states:
            words = self.parts[index]
            if words[part] == _ANY_FOLDERS:
                if not name.startswith("."):
                    following.add((index, part))
            elif part + 1 < len(words) and _matches(words[part], name):
                following.add((index, part + 1))
        return frozenset(self._closed(following))

    def match(self, states: frozenset[State], name: str) -> bool:
        """Return whether a file *name* in a folder of *states* is meant."""
        return any(
            part + 1 == len(self.parts[index]) and _matches(self.parts[index][part], name)
            for index, part in states
        )

    def match_path(self, path: Path) -> bool:
        """Return whether *path*, or a folder above it, is meant: for exclusions."""
        states = frozenset(self._closed({(index, 0) for index in range(len(self.parts))}))
        for name in path.parts[1:]:
            if self.match(states, name):
                return True
            states = self.below(states, name)
        return False

    def _closed(self, states: set[State]) -> set[State]:
        """Add what follows from `**` standing for no folder at all."""
        closed = set(states)
        for index, part in states:
            words = self.parts[index]
            while words[part] == _ANY_FOLDERS:
                part += 1
                closed.add((index, part))
        return closed

    def _base(self, words: tuple[str, ...]) -> tuple[str, ...]:
        wild = next((i for i, word in enumerate(words) if _WILD.search(word)), len(words) - 1)
        return words[: min(wild, len(words) - 1)]


def _matches(pattern: str, name: str) -> bool:
    # As in a shell, a hidden file is only meant where the pattern says so.
    if name.startswith(".") and not pattern.startswith("."):
        return False
    return _compiled(pattern).match(name) is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))
