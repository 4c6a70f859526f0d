"""The job that keeps a table: batches, upkeep, and a word about both, until it is told to stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from logpipeline_spark.errors import Refused, sentence_of
from logpipeline_spark.formats.choosing import format_of
from logpipeline_spark.running import task
from logpipeline_spark.running.batch import Batches, RunTasks
from logpipeline_spark.running.holding import held
from logpipeline_spark.running.numbers import JobNumbers
from logpipeline_spark.running.progress import Teller
from logpipeline_spark.running.settings import JobSettings
from logpipeline_spark.running.task import Done, Task, Work
from logpipeline_spark.source.client import Client
from logpipeline_spark.source.options import SourceOptions
from logpipeline_spark.table.compact import Sizes
from logpipeline_spark.table.lease import LeaseHeld, LeaseLost
from logpipeline_spark.table.manifest import Overtaken
from logpipeline_spark.table.opening import storage_of
from logpipeline_spark.table.owner import Owner
from logpipeline_spark.table.retain import Limits
from logpipeline_spark.table.s3 import S3Options
from logpipeline_spark.table.storage import Storage
from logpipeline_spark.table.table import Table

log = logging.getLogger(__name__)

UPKEEP_EVERY_S = 60.0
# Batches wait for upkeep: after a long stop, hours are merged in portions.
MERGES_MAX = 8
# A server that stays away for longer ends the job; who started it starts it again.
PATIENCE_S = 60


def tasks_by(spark: SparkSession) -> RunTasks:
    """Return what has tasks done by *spark*, which repeats those whose executor died."""

    def run(work: Work, tasks: Sequence[Task]) -> list[Done]:
        if not tasks:
            return []
        ranges = spark.sparkContext.parallelize(tasks, len(tasks))
        try:
            return list(ranges.map(partial(task.run, work)).collect())
        except (Py4JError, PySparkException) as error:
            # Its text is a trace of hundreds of lines, for who looks for a fault of ours.
            log.debug("tasks failed", exc_info=error)
            raise Refused(sentence_of(error)) from None

    return run


@dataclass(slots=True)
class Job:
    """One table's job; *stop* ends it after the batch that is under way."""

    settings: JobSettings
    spark: SparkSession
    stop: threading.Event = field(default_factory=threading.Event)
    numbers: JobNumbers = field(default_factory=JobNumbers)
    _upkeep_at_s: float = 0.0

    def run(self) -> None:
        """Keep the table, until `stop`, or on schedule until everything that waits is in it.

        Raises:
            Refused: it cannot go on; the sentence says what to do.
        """
        with Client(source_options(self.settings)) as client:
            teller = Teller(client, self.settings.bucket, self.settings.key)
            try:
                self._keep(client, teller)
            except (LeaseHeld, LeaseLost, Overtaken):
                # Who has the table tells how far it is.
                raise
            except Refused as error:
                teller.tell_problem(str(error))
                raise

    def _keep(self, client: Client, teller: Teller) -> None:
        settings, storage = self.settings, storage_for(self.settings)
        owner = Owner(settings.pipeline, settings.format, settings.subject)
        format = format_of(
            settings.format,
            storage.url,
            catalog=settings.catalog,
            s3=s3_options(settings),
            spark=self.spark,
        )
        with held(storage, owner, holder=settings.holder, format=format, stop=self.stop) as table:
            batches = Batches(
                client=client,
                table=table,
                work=Work(
                    options=source_options(settings),
                    storage=storage,
                    fence=table.fence,
                    has_rollups=settings.has_rollups,
                    columns=settings.columns,
                ),
                run=tasks_by(self.spark),
                bytes_max=settings.max_bytes,
                tasks_min=self.spark.sparkContext.defaultParallelism,
                streams=settings.streams,
                stops_on_loss=settings.stops_on_loss,
            )
            self._loop(batches, teller, storage)

    def _loop(self, batches: Batches, teller: Teller, storage: Storage) -> None:
        batches.load()
        teller.tell(storage.url, batches.table, batches.states)
        self.numbers.problem = None
        while not self.stop.is_set():
            begun_s = time.monotonic()
            committed = batches.next()
            if committed is not None:
                teller.tell(storage.url, batches.table, batches.states)
                log.info("committed", extra={"rows": committed.rows})
                took_s = time.monotonic() - begun_s
                self.numbers.count(committed, batches.table.snapshot, took_s)
            self._keep_up(batches.table)
            if committed is not None and committed.has_more:
                continue
            if self.settings.is_scheduled:
                return
            # What comes meanwhile makes one good file.
            self.stop.wait(max(0.0, self.settings.every_s - (time.monotonic() - begun_s)))

    def _keep_up(self, table: Table) -> None:
        now_s = time.monotonic()
        if now_s < self._upkeep_at_s:
            return
        self._upkeep_at_s = now_s + UPKEEP_EVERY_S
        settings, now = self.settings, datetime.now(UTC)
        if settings.is_compacting:
            sizes = Sizes.of(settings.target_bytes)
            table.compact(now, sizes, merges_max=MERGES_MAX)
        age = None if settings.retain_s is None else timedelta(seconds=settings.retain_s)
        table.retain(now, Limits(age=age, total_bytes=settings.retain_bytes))
        table.prune()


def storage_for(settings: JobSettings) -> Storage:
    """Return where the table lies."""
    return storage_of(settings.path, s3_options(settings))


def s3_options(settings: JobSettings) -> S3Options:
    """Return how its bucket is reached; keys come from the environment."""
    return S3Options(endpoint=settings.endpoint, region=settings.region)


def source_options(settings: JobSettings) -> SourceOptions:
    """Return what tasks read."""
    return SourceOptions(
        nats=settings.nats.named("logpipeline-archive"),
        streams=settings.streams,
        partitions=settings.partitions,
        subject=settings.subject,
        patience_s=PATIENCE_S,
        # The table says itself what was lost.
        fail_on_data_loss=False,
    )
