"""What is remembered of generations that are no longer on disk."""

from __future__ import annotations

from dataclasses import dataclass

from logpipeline_shipper.files.generations import Head, Mark

# Generations that are done and gone are remembered by name, so that a late .gz of one, or a new
# file with the same first line, is told from it. logrotate's usual 4 and kubelet's 5 are far below.
PAST_MAX = 32


@dataclass(frozen=True, slots=True)
class Past:
    """A generation that is no longer on disk, and where it ended (length None: nobody saw)."""

    name: str
    head: Head
    length: int | None
    mark: Mark
