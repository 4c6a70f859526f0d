"""The glossary names modules that are there, and explains each word once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = re.findall(
    r"^\| \*\*(.+?)\*\* \| (.+?) \| `(.+?)` \|$",
    (ROOT / "docs/glossary.md").read_text(),
    re.MULTILINE,
)


def test_each_owner_is_there() -> None:
    """Modules are renamed, and pages forgotten."""
    assert len(ROWS) > 20
    assert [owner for _, _, owner in ROWS if not (ROOT / owner).exists()] == []


def test_each_word_is_explained_once() -> None:
    """One word for one thing."""
    counted = Counter(word for words, _, _ in ROWS for word in words.split(", "))
    assert [word for word, count in counted.items() if count > 1] == []
