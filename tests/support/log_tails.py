"""The end of a log, for messages of failures."""

from __future__ import annotations

import os
from pathlib import Path


def tail_of(file: Path, bytes_max: int) -> str:
    """Return the last *bytes_max* bytes of *file* as text.

    Raises:
        OSError: it cannot be read.
    """
    with file.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - bytes_max))
        return log.read().decode(errors="replace")
