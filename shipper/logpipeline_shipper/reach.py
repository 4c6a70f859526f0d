"""The namespaces whose pods are read, where the operator says it: a file that changes while the
shipper runs. What it does not name is not read, whatever the node's folder holds.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)

# A ConfigMap holds no more.
FILE_BYTES_MAX = 1024 * 1024


class NamespacesFile:
    """The namespaces in the file *path*; *changed* is called with them, and when they change."""

    def __init__(self, path: Path, changed: Callable[[frozenset[str]], None]) -> None:
        self._path = path
        self._changed = changed
        self._text: bytes | None = None
        self._problem = ""

    def look(self) -> None:
        """Read the file, and tell of what is new in it. While it says nothing, what it said last
        goes on: that it cannot be read is no word on any namespace.
        """
        try:
            with self._path.open("rb") as file:
                text = file.read(FILE_BYTES_MAX)
            if text == self._text:
                return
            found = _names(text)
        except (OSError, ValueError) as error:
            self._note(str(error))
            return
        self._text, self._problem = text, ""
        log.info("these namespaces are read", extra={"namespaces": len(found)})
        self._changed(found)

    def _note(self, problem: str) -> None:
        if problem != self._problem:
            log.warning(
                "the file with the namespaces that are read says nothing",
                extra={"file": str(self._path), "reason": problem},
            )
        self._problem = problem


def _names(text: bytes) -> frozenset[str]:
    found = json.loads(text)
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ValueError("expected a list of names")
    return frozenset(found)
