"""Does a table's upkeep beside its batches, in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from logpipeline_spark.errors import Refused, sentence_of
from logpipeline_spark.running.numbers import JobNumbers
from logpipeline_spark.table.compact import Sizes
from logpipeline_spark.table.names import LINES
from logpipeline_spark.table.retain import Limits
from logpipeline_spark.table.upkeep import Upkeep

log = logging.getLogger(__name__)

EVERY_S = 60.0
# Looking for files that nobody needs lists all that there are.
CLEAN_EVERY_S = 1800.0
# After a long stop, hours are merged in portions, with a look at what is to be kept between them.
MERGES_MAX = 8


class Keeper:
    """The upkeep of one table. *problem* is why the last one did not end, as a sentence, or empty:
    batches go on all the same.
    """

    def __init__(
        self, upkeep: Upkeep, numbers: JobNumbers, *, limits: Limits, sizes: Sizes | None
    ) -> None:
        self._upkeep = upkeep
        self._numbers = numbers
        self._limits = limits
        self._sizes = sizes
        self._ended = threading.Event()
        self._clean_at_s = time.monotonic()
        self.problem = ""

    def keep(self) -> None:
        """Do all the upkeep that is due; *problem* tells how that ended."""
        now = datetime.now(UTC)
        try:
            if self._sizes is not None:
                self._upkeep.compact(now, self._sizes, merges_max=MERGES_MAX)
            self._upkeep.retain(now, self._limits)
            if time.monotonic() >= self._clean_at_s:
                self._upkeep.clean(now)
                self._clean_at_s = time.monotonic() + CLEAN_EVERY_S
            files = self._upkeep.logs[LINES].files()
        except (Refused, OSError) as error:
            self.problem = sentence_of(error)
            log.error("the table's upkeep failed, and is tried again: %s", self.problem)
            return
        self.problem = ""
        self._numbers.files.labels().set(len(files))
        self._numbers.table_rows.labels().set(sum(entry.rows for entry in files))

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Do the upkeep again and again for as long as the block lasts."""
        thread = threading.Thread(target=self._keep_on, name="upkeep")
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _keep_on(self) -> None:
        while not self._ended.is_set():
            self.keep()
            self._ended.wait(EVERY_S)
