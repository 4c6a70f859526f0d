"""The job's numbers and its health, served from a thread: the job itself waits for Spark."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from logpipeline.observe.http import serve
from logpipeline.observe.metrics import Metrics
from logpipeline_spark.running.batch import Committed


@dataclass(eq=False)
class JobNumbers:
    """What Prometheus and probes are told."""

    metrics: Metrics = field(default_factory=lambda: Metrics("table"))
    problem: str | None = "it starts"

    def __post_init__(self) -> None:
        counter, gauge = self.metrics.counter, self.metrics.gauge
        self.commits = counter("commits", "Batches that are in the table")
        self.rows = counter("rows", "Lines that came into the table")
        self.twice = counter("twice_bytes", "Bytes that came twice without a mark")
        self.missing = gauge("missing_bytes", "Bytes of sources that never came")
        self.lost = counter("lost_messages", "Messages that were gone before they were read")
        self.seconds = self.metrics.histogram(
            "batch_seconds", "From a look at the streams to the commit of what was there"
        )
        self.last = gauge("last_commit_seconds", "When the last batch was committed, since 1970")
        self.files = gauge("files", "Files of lines in the table, when it was last looked after")
        self.table_rows = gauge("table_rows", "Lines in the table, when it was last looked after")

    def count(self, committed: Committed, took_s: float) -> None:
        """Count one batch."""
        self.commits.labels().inc()
        self.rows.labels().inc(committed.rows)
        self.twice.labels().inc(committed.twice_bytes)
        self.missing.labels().inc(committed.missing_bytes)
        self.lost.labels().inc(committed.lost)
        self.seconds.labels().observe(took_s)
        self.last.labels().set(time.time())


@contextmanager
def served(numbers: JobNumbers, host: str, port: int) -> Iterator[None]:
    """Serve *numbers* for the block.

    Raises:
        OSError: the address is taken.
    """
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(
        serve(host, port, numbers.metrics, live=lambda: None, ready=lambda: numbers.problem)
    )
    thread = threading.Thread(target=loop.run_forever, name="http", daemon=True)
    thread.start()
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
