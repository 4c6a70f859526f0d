"""Mistakes in a resource, each with its path; all of them are reported at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# A person reads no more; a file that is no resource at all may hold hundreds of thousands.
MISTAKES_SHOWN_MAX = 100
# As much of a value as helps to find it.
SHOWN_CHARS_MAX = 80


@dataclass(frozen=True, slots=True)
class Mistake:
    """A *message* about the value at *path*: what is wrong, and what is right."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class SpecError(ValueError):
    """A resource that cannot be used; *mistakes* are all of them, *file* where it was read."""

    def __init__(self, mistakes: tuple[Mistake, ...], *, file: Path | None = None) -> None:
        self.mistakes = mistakes
        self.file = file
        super().__init__(mistakes)

    def __str__(self) -> str:
        start = f"{self.file}: " if self.file is not None else ""
        lines = [f"{start}{mistake}" for mistake in self.mistakes[:MISTAKES_SHOWN_MAX]]
        if more := len(self.mistakes) - len(lines):
            lines.append(f"{start}… and {more} more")
        return "\n".join(lines)


def below(path: str, key: object) -> str:
    """Return the path of *key* below *path*; what a terminal could obey is escaped."""
    text = str(key)
    if not text or not all(letter.isalnum() or letter in "-_./" for letter in text):
        return f"{path}[{shown(text)}]"
    return f"{path}.{text[:SHOWN_CHARS_MAX]}" if path else text[:SHOWN_CHARS_MAX]


def shown(value: Any) -> str:
    """Return *value* as a message quotes it: escaped, and short."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        cut = "…" if len(value) > SHOWN_CHARS_MAX else ""
        return f'"{repr(value[:SHOWN_CHARS_MAX])[1:-1]}{cut}"'
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return repr(value)[:SHOWN_CHARS_MAX]


def unknown(name: object, known: Iterable[str]) -> str:
    """Return the message for a field *name* that is none of *known*."""
    known = sorted(known)
    close = difflib.get_close_matches(str(name)[:SHOWN_CHARS_MAX], known, 1)
    return f"unknown field; {did_you_mean(close) or 'known are ' + ', '.join(known)}"


def did_you_mean(close: list[str]) -> str:
    """Return the question for the best of *close*, or nothing without any."""
    return f"did you mean {close[0]}?" if close else ""
