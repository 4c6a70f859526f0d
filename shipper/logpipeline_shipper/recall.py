"""What collectors know of a host whose positions are not here: because it is a new one, or because
they were lost. A shipper that knows it goes on at the exact byte, under the same ids; one that
began anew would have all that is still on disk archived once more.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field

from logpipeline.records import Committed, Progress

# How often is asked. Where nobody listens, the server says so at once.
ASK_EVERY_S = 0.2

Known = dict[str, list[Committed]]


@dataclass(slots=True)
class _Group:
    """One group's answer to the last question, which comes in parts."""

    parts: list[Committed] = field(default_factory=list)
    # What stood in the stream when it was first asked may be of this host.
    wanted: int | None = None


@dataclass(slots=True)
class Recall:
    """The answers of one host's groups of collectors; *known* is there, and *answered* is set, once
    one of them has archived all that was sent before.
    """

    known: Known | None = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    _groups: defaultdict[str, _Group] = field(default_factory=lambda: defaultdict(_Group))

    def take(self, progress: Progress) -> None:
        """Take in a part of an answer."""
        group = self._groups[progress.group]
        group.parts += progress.sources
        if not progress.is_last:
            return
        parts, group.parts = group.parts, []
        if group.wanted is None:
            group.wanted = progress.sequence + progress.pending
        if self.known is None and (progress.sequence >= group.wanted or not progress.pending):
            known: Known = defaultdict(list)
            for each in parts:
                known[each.source].append(each)
            self.known = dict(known)
            self.answered.set()
