"""Which generations wait for a file that could not be looked at: it may have been renamed in that
moment, and hold the lines before.
"""

from __future__ import annotations

from collections.abc import Sequence

from logpipeline_shipper.files.recognition import Finding, Unsure


class Turns:
    """What is newer than an unsure file of the last listing waits, for *patience_s* at most."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._newer: frozenset[str] = frozenset()
        self._since_s: float | None = None

    def note(self, found: Sequence[tuple[Finding, str]], now_s: float) -> None:
        """Take in what a listing shows, oldest first, and which generation lies in each file."""
        place = next((n for n, (each, _) in enumerate(found) if isinstance(each, Unsure)), None)
        if place is None:
            self._newer, self._since_s = frozenset(), None
            return
        self._newer = frozenset(id for _, id in found[place:])
        if self._since_s is None:
            self._since_s = now_s

    def has_to_wait(self, id: str, now_s: float) -> bool:
        """Return whether the generation *id* is not to be read yet."""
        return id in self._newer and self.is_unsure(now_s)

    def is_unsure(self, now_s: float) -> bool:
        """Return whether there is such a file, which may be any that is missed."""
        return self._since_s is not None and now_s - self._since_s < self._patience_s
