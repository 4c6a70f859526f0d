"""The results of a long run in a file, one JSON object a line, from which it can be resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def rows_by(key: str, path: Path | None) -> dict[Any, dict[str, Any]]:
    """Return the rows of the file *path*, each under the value of its field *key*; none where the
    file does not exist.
    """
    if path is None or not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row[key]: row for row in rows}


def note(row: dict[str, Any], path: Path | None) -> None:
    """Append *row* to the file *path*, if there is to be one."""
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
