"""Has the table for as long as a job runs: says again and again that it lives, and notices when
another writer took over.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from logpipeline_spark.errors import Refused
from logpipeline_spark.formats.format import Format
from logpipeline_spark.lines.schema import LINES_ENCODED
from logpipeline_spark.table.lease import RENEW_S, LeaseLost
from logpipeline_spark.table.owner import Owner
from logpipeline_spark.table.storage import Storage
from logpipeline_spark.table.table import Table

log = logging.getLogger(__name__)


@contextmanager
def held(
    storage: Storage,
    owner: Owner,
    *,
    holder: str,
    format: Format,
    stop: threading.Event,
    renew_s: float = RENEW_S,
) -> Iterator[Table]:
    """Have the table for the block; *stop* is set when another writer took it over.

    Raises:
        LeaseLost: that happened, and the block ended without noticing.
        Refused: the table cannot be had.
    """
    table = Table.open(storage, owner, holder=holder, schema=LINES_ENCODED, format=format)
    keeper = _Keeper(table, stop, renew_s)
    keeper.start()
    try:
        yield table
    finally:
        keeper.end()
        # Who cannot say that it is done is waited for, by whoever comes next.
        with suppress(Refused, OSError):
            table.close()
    if keeper.lost is not None:
        raise keeper.lost


class _Keeper(threading.Thread):
    """Renews the lease beside whatever else is done."""

    def __init__(self, table: Table, stop: threading.Event, renew_s: float) -> None:
        super().__init__(name="lease", daemon=True)
        self._table = table
        self._stop_job = stop
        self._renew_s = renew_s
        self._ended = threading.Event()
        self.lost: LeaseLost | None = None

    def run(self) -> None:
        while not self._ended.wait(self._renew_s):
            try:
                self._table.renew()
            except LeaseLost as error:
                self.lost = error
                self._stop_job.set()
                return
            except (Refused, OSError) as error:
                # A disk that is full, or a bucket that is away, may be well a moment later: whether
                # the table is still ours, each commit asks.
                log.warning("the lease was not renewed: %s", error)

    def end(self) -> None:
        """Stop renewing."""
        self._ended.set()
        self.join()
