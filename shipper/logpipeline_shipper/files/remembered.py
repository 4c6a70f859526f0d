"""The generations of a source that are done and have no file: a late copy of one, or its file come
back, is known again.

A folder may be out of sight for a while with all that it has: its disk is mounted late, or a look
at it comes late. So as many are remembered as there were files, and some more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from logpipeline_shipper.files.generation import Generation

# Beside the files that there were: logrotate compresses one rotation later. Its usual 4 and
# kubelet's 5 are far below.
GONE_MAX = 64


class Remembered(Sequence[Generation]):
    """What is remembered of one source, oldest first."""

    def __init__(self) -> None:
        self._gone: deque[Generation] = deque()
        self._files_seen = 0

    def __len__(self) -> int:
        return len(self._gone)

    def __getitem__(self, place: Any) -> Any:
        return self._gone[place]

    def __iter__(self) -> Iterator[Generation]:
        return iter(self._gone)

    def see(self, files: int) -> None:
        """Note how many *files* the source has now; none may mean that they are out of sight."""
        if files:
            self._files_seen = files

    def add(self, generation: Generation) -> None:
        """Remember *generation*, and forget the oldest beyond the limit."""
        self._gone.append(generation)
        while len(self._gone) > GONE_MAX + self._files_seen:
            self._gone.popleft()

    def remove(self, generation: Generation) -> None:
        """Forget *generation*: it has a file again."""
        self._gone.remove(generation)

    def saved(self) -> list[list[Any]]:
        """Return it as JSON."""
        return [each.saved() for each in self._gone]

    def restore(self, rows: Sequence[Sequence[Any]], *, files: int) -> None:
        """Take in what `saved` returned, of a source that had *files* besides."""
        self._gone.extend(Generation.restore(list(row)) for row in rows)
        # All of these may be files that were out of sight.
        self._files_seen = max(files, len(self._gone) - GONE_MAX, 0)
