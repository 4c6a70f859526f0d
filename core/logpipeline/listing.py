"""Files below a folder in which other processes write and remove meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files below *folder*; one that is gone by then is left out.

    Raises:
        OSError: a folder cannot be listed.
    """
    for place, _, names in os.walk(folder, onerror=_unless_gone):
        for name in names:
            path = Path(place, name)
            if path.is_file():
                yield path


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
