"""What the job keeps of a stream beside each batch: up to where it was read, and what is known of
its sources.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from logpipeline.knowledge import decode, encode
from logpipeline_spark.running.known import Known, SourceName
from logpipeline_spark.source.positions import Position
from logpipeline_spark.table.damage import Damaged
from logpipeline_spark.table.state import Kept


@dataclass(slots=True)
class StreamState:
    """A stream as the table has it; *position* is None before the first commit."""

    position: Position | None = None
    known: Known = field(default_factory=dict)

    def kept(self, changed: Iterable[SourceName]) -> Kept:
        """Return what is kept of it, of which the sources *changed* since the last batch."""
        rows = {_key(name): self._row(name) for name in changed}
        return Kept(
            None if self.position is None else asdict(self.position),
            rows,
            lambda: {_key(name): encode(knowledge) for name, knowledge in self.known.items()},
        )

    def _row(self, name: SourceName) -> Any:
        """Return a source as it is kept; None for one that is forgotten."""
        knowledge = self.known.get(name)
        return None if knowledge is None else encode(knowledge)

    @staticmethod
    def of(head: Any, rows: Mapping[str, Any], *, where: str) -> StreamState:
        """Return what was kept.

        Raises:
            Damaged: it is something else; *where* tells the reader which table and stream.
        """
        try:
            position = None if head is None else Position(**head)
            known = {_name(key): decode(row) for key, row in rows.items()}
        except (ValueError, KeyError, TypeError) as error:
            raise Damaged(
                f"what {where} keeps is damaged or of another version ({error}): bring its folder "
                "_table back from a backup, or use the version that wrote it"
            ) from error
        return StreamState(position, known)


def _key(name: SourceName) -> str:
    return json.dumps(name)


def _name(key: str) -> SourceName:
    host, source = json.loads(key)
    return str(host), str(source)
