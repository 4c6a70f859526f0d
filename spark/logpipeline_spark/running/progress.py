"""Tells in the pipeline's bucket how far the table is: trimming waits for it, status shows it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from logpipeline.nats.bucket import Bucket
from logpipeline.records import BadRecord, StreamPosition
from logpipeline.tables.progress import TableProgress
from logpipeline_spark.errors import Refused
from logpipeline_spark.running.state import StreamState
from logpipeline_spark.source.client import Client
from logpipeline_spark.table.table import Table

log = logging.getLogger(__name__)


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
