"""What a reason is: a word for programs, and sentences for people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Meaning:
    """What *word* says, and what people *do* about it.

    *is_passing*: it ends by itself, so that nobody needs to be warned.
    """

    word: str
    description: str
    do: str = ""
    is_passing: bool = False
