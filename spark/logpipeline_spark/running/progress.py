"""Tells in the pipeline's bucket how far the table is: trimming waits for it, status shows it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from logpipeline.deduplication import decode, encode
from logpipeline.nats.bucket import Bucket
from logpipeline.records import BadRecord, StreamPosition
from logpipeline.tables.progress import TableProgress
from logpipeline_spark.errors import Refused
from logpipeline_spark.running.known import Known, SourceName
from logpipeline_spark.source.client import Client
from logpipeline_spark.source.positions import Position
from logpipeline_spark.table.damage import Damaged
from logpipeline_spark.table.state import Kept
from logpipeline_spark.table.table import Table

log = logging.getLogger(__name__)


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


class Teller:
    """Writes the progress of one *table* at *key*, if there is one; what it says is at least as old
    as the truth.
    """

    def __init__(self, client: Client, bucket: str, key: str) -> None:
        self._client = client
        self._bucket = Bucket(client.js, bucket)
        self._key = key
        self._told: TableProgress | None = None

    def tell(
        self, url: str, table: Table, states: Mapping[str, StreamState], *, problem: str = ""
    ) -> None:
        """Tell up to where *states* are committed, and the *problem* that upkeep has, if any.

        Raises:
            Refused: the bucket cannot be written.
        """
        at = {name: state.position for name, state in states.items()}
        self._write(
            TableProgress(
                path=url,
                commit=table.state.batches,
                rows=table.state.lines,
                at_ns=time.time_ns(),
                streams={
                    name: StreamPosition(position.created, position.sequence, position.time_ns)
                    for name, position in at.items()
                    if position is not None
                },
                problem=problem,
            )
        )

    def tell_problem(self, sentence: str) -> None:
        """Tell why it does not go on, beside how far it is."""
        if not self._key:
            return
        try:
            former = self._told or self._former()
            self._write(replace(former, problem=sentence, at_ns=time.time_ns()))
        except Refused as error:
            # What is told to whoever started it is the first problem, not this one.
            log.warning("the problem was not told: %s", error)

    def told_path(self) -> str:
        """Return where the table is that was told of last; empty where none was."""
        return self._former().path

    def _former(self) -> TableProgress:
        """Return what was told before this process began: that stays true."""
        entry = self._client.ask(lambda: self._bucket.get(self._key))
        if entry is not None:
            with suppress(BadRecord):
                return TableProgress.decode(entry.value)
        return TableProgress(path="", commit=-1, rows=0, at_ns=0, streams={})

    def _write(self, progress: TableProgress) -> None:
        if not self._key:
            return
        self._client.ask(lambda: self._bucket.put(self._key, progress.encode()))
        self._told = progress
