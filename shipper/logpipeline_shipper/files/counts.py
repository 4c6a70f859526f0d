"""What went wrong with one source, in numbers that a user is told: nothing is lost silently."""

from __future__ import annotations

from collections import Counter


class Counts:
    """Counted since the start of the process."""

    def __init__(self) -> None:
        self.missing_bytes = 0  # were in a file, and are gone unread
        self.unseen_generations = (
            0  # files that vanished before their end was seen: at least so many
        )
        self.restarts = 0  # another file stood where the known one was expected
        self.truncations = 0  # a file shrank, or was cut and written again
        self.hole_bytes = 0  # NULs that stood before the first line, where a file was truncated
        self.long_lines = 0  # lines and runs of fragments that were cut for their length
        self.unreadable: Counter[str] = Counter()  # by reason; each file once per failure
