"""`logpipeline table run`: the job that keeps a table. It commits batches, runs the upkeep beside
them, reports its progress, and serves metrics and probes, until it is asked to stop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import FrameType

from pyspark.sql import SparkSession

from logpipeline.filelock import FileLock, FileLocked
from logpipeline.nats.bucket import Bucket
from logpipeline.observe.http import serve
from logpipeline.observe.metrics import Metrics
from logpipeline.records import BadRecord, StreamPosition
from logpipeline.tables.progress import TableProgress
from logpipeline_spark.errors import Refused, sentence_of
from logpipeline_spark.formats.choice import check, logs_of
from logpipeline_spark.formats.log import Logs, Overtaken
from logpipeline_spark.job import kubernetes
from logpipeline_spark.job.batch import Batches, Committed
from logpipeline_spark.job.settings import JobSettings
from logpipeline_spark.job.spark import Engine, session
from logpipeline_spark.job.stream_state import StreamState
from logpipeline_spark.job.task import Work
from logpipeline_spark.lines.schema import encoded_schema_of
from logpipeline_spark.source.client import Client
from logpipeline_spark.source.options import SourceOptions
from logpipeline_spark.table.compaction import Sizes
from logpipeline_spark.table.files import LINES
from logpipeline_spark.table.s3 import S3Options, storage_of
from logpipeline_spark.table.storage import Storage
from logpipeline_spark.table.upkeep import Limits, Upkeep
from logpipeline_spark.table.writer import Held, TableWriter

log = logging.getLogger(__name__)

EVERY_S = 60.0
# To find files that no version needs, all files are listed.
CLEAN_EVERY_S = 1800.0
# After a long stop, hours are merged in portions; retention runs between them.
MERGES_MAX = 8

# If the server is away for longer, the job ends; its supervisor starts it again.
PATIENCE_S = 60


class ProgressReport:
    """Writes the progress of one table to the pipeline's bucket at *key*, if there is a key. The
    operator waits for it before it trims streams, and `status` shows it. It is never ahead of the
    table.
    """

    def __init__(self, client: Client, bucket: str, key: str) -> None:
        self._client = client
        self._bucket = Bucket(client.js, bucket)
        self._key = key
        self._written: TableProgress | None = None

    def write(
        self, url: str, table: TableWriter, states: Mapping[str, StreamState], *, problem: str = ""
    ) -> None:
        """Report the committed positions of *states*, and the *problem* of the upkeep, if any.

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

    def write_problem(self, sentence: str) -> None:
        """Report why the job cannot go on; the reported positions stay."""
        if not self._key:
            return
        try:
            former = self._written or self._former()
            self._write(replace(former, problem=sentence, at_ns=time.time_ns()))
        except Refused as error:
            # The caller reports the first problem, not this one.
            log.warning("the problem could not be reported: %s", error)

    def last_path(self) -> str:
        """Return the path of the table that was reported last; empty if there was none."""
        return self._former().path

    def _former(self) -> TableProgress:
        """Return the report of an earlier process: its positions are still true."""
        entry = self._client.ask(lambda: self._bucket.get(self._key))
        if entry is not None:
            with suppress(BadRecord):
                return TableProgress.decode(entry.value)
        return TableProgress(path="", commit=-1, rows=0, at_ns=0, streams={})

    def _write(self, progress: TableProgress) -> None:
        if not self._key:
            return
        self._client.ask(lambda: self._bucket.put(self._key, progress.encode()))
        self._written = progress


@dataclass(eq=False)
class JobNumbers:
    """The numbers for Prometheus, and the state for probes."""

    metrics: Metrics = field(default_factory=lambda: Metrics("table"))
    problem: str | None = "it starts"

    def __post_init__(self) -> None:
        counter, gauge = self.metrics.counter, self.metrics.gauge
        self.commits = counter("commits", "Batches that were committed")
        self.rows = counter("rows", "Lines that were added to the table")
        self.twice = counter("twice_bytes", "Bytes that came twice without a mark")
        self.missing = gauge("missing_bytes", "Bytes of sources that never came")
        self.lost = counter("lost_messages", "Messages that were deleted before they were read")
        self.forgotten = counter(
            "forgotten_sources", "Sources forgotten, in whole or in part, since hosts had too much"
        )
        self.seconds = self.metrics.histogram(
            "batch_seconds", "From reading the state of the streams to the commit"
        )
        self.last = gauge("last_commit_seconds", "When the last batch was committed, since 1970")
        self.files = gauge("files", "Files of lines in the table, after its last upkeep")
        self.table_rows = gauge("table_rows", "Lines in the table, after its last upkeep")

    def count(self, committed: Committed, took_s: float) -> None:
        """Count one batch."""
        self.commits.labels().inc()
        self.rows.labels().inc(committed.rows)
        self.twice.labels().inc(committed.twice_bytes)
        self.missing.labels().set(committed.missing_bytes)
        self.lost.labels().inc(committed.lost)
        self.forgotten.labels().inc(committed.forgotten)
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


class Keeper:
    """The upkeep of one table. *problem* says why the last run failed, in a sentence, or is empty;
    batches go on in either case.
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
        """Do all upkeep that is due, and set *problem*. A part that fails keeps no other part from
        being done: retention may remove what a merge could not read.
        """
        now = datetime.now(UTC)
        parts = (self._compact, self._retain, self._clean, self._count)
        problems = [found for part in parts if (found := self._done(part, now))]
        self.problem = problems[0] if problems else ""

    def _done(self, part: Callable[[datetime], None], now: datetime) -> str:
        """Do a *part*, and return in a sentence why it failed; empty if it did not."""
        try:
            part(now)
        except Exception as error:
            # An error of any kind is reported and tried again. It would else end the upkeep's
            # thread, and with it compaction and retention, while batches go on.
            problem = sentence_of(error)
            is_expected = isinstance(error, Refused | OSError)
            log.error(
                "the table's upkeep failed, and is tried again: %s",
                problem,
                exc_info=None if is_expected else error,
            )
            return problem
        return ""

    def _compact(self, now: datetime) -> None:
        if self._sizes is not None:
            self._upkeep.compact(now, self._sizes, merges_max=MERGES_MAX)

    def _retain(self, now: datetime) -> None:
        self._upkeep.retain(now, self._limits)

    def _clean(self, now: datetime) -> None:
        if time.monotonic() >= self._clean_at_s:
            self._upkeep.clean(now)
            self._clean_at_s = time.monotonic() + CLEAN_EVERY_S

    def _count(self, now: datetime) -> None:
        files = self._upkeep.logs[LINES].files()
        self._numbers.files.labels().set(len(files))
        self._numbers.table_rows.labels().set(sum(entry.rows for entry in files))

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Repeat the upkeep for as long as the block lasts."""
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


@dataclass(slots=True)
class Job:
    """The job of one table; *stop* ends it after the current batch."""

    settings: JobSettings
    engine: Engine
    stop: threading.Event = field(default_factory=threading.Event)
    numbers: JobNumbers = field(default_factory=JobNumbers)

    def run(self) -> None:
        """Keep the table until `stop`; on a schedule, until everything that waits is in it.

        Raises:
            Refused: it cannot go on; the sentence says what to do.
        """
        with Client(source_options(self.settings)) as client:
            report = ProgressReport(client, self.settings.bucket, self.settings.key)
            self._refuse_displacing(report)
            try:
                self._keep(client, report)
            except (Held, Overtaken):
                # The process that has the table reports its progress.
                raise
            except Refused as error:
                report.write_problem(str(error))
                raise

    def _refuse_displacing(self, report: ProgressReport) -> None:
        """Refuse to report this table's progress where the pipeline's own table, at another path,
        reports: streams would be trimmed by what this one has read.
        """
        own = self.settings.own_path
        if not own or not self.settings.key or self.settings.path == own:
            return
        if report.last_path() == storage_of(own, s3_options(self.settings)).url:
            raise Refused(
                f"the table of {self.settings.pipeline} is at {own}: to keep another one, at "
                f"{self.settings.path}, say where it begins (--from earliest); to move the table, "
                "change spec.table.path"
            )

    def _keep(self, client: Client, report: ProgressReport) -> None:
        self.engine.begin()
        settings, storage = self.settings, storage_for(self.settings)
        table = TableWriter.open(
            storage,
            logs_for(settings, storage),
            pipeline=settings.pipeline,
            subjects=settings.subject,
            holder=settings.holder,
            schema=encoded_schema_of(settings.columns),
        )
        batches = Batches(
            client=client,
            table=table,
            work=Work(
                options=source_options(settings),
                storage=storage,
                writer=table.writer,
                has_rollups=settings.has_rollups,
                columns=settings.columns,
            ),
            run=self.engine.run,
            bytes_max=settings.max_bytes,
            at_once=lambda: self.engine.parallelism,
            streams=settings.streams,
            begin=settings.begin,
            stops_on_loss=settings.stops_on_loss,
        )
        keeper = self._keeper(storage)
        if settings.is_scheduled:
            self._loop(batches, report, storage, keeper)
            keeper.keep()
            if keeper.problem:
                report.write(storage.url, table, batches.states, problem=keeper.problem)
        else:
            with keeper.beside():
                self._loop(batches, report, storage, keeper)
        table.close()

    def _keeper(self, storage: Storage) -> Keeper:
        settings = self.settings
        age = None if settings.retain_s is None else timedelta(seconds=settings.retain_s)
        return Keeper(
            Upkeep(storage, logs_for(settings, storage), has_words=settings.has_words),
            self.numbers,
            limits=Limits(age=age, total_bytes=settings.retain_bytes),
            sizes=Sizes.of(settings.target_bytes) if settings.is_compacting else None,
        )

    def _loop(
        self, batches: Batches, report: ProgressReport, storage: Storage, keeper: Keeper
    ) -> None:
        batches.load()
        self.numbers.missing.labels().set(batches.missing_bytes)
        report.write(storage.url, batches.table, batches.states)
        self.numbers.problem = None
        while not self.stop.is_set():
            begun_s = time.monotonic()
            committed = batches.next()
            if committed is not None:
                report.write(storage.url, batches.table, batches.states, problem=keeper.problem)
                log.info("committed", extra={"rows": committed.rows})
                self.numbers.count(committed, time.monotonic() - begun_s)
                batches.table.prune()
            if committed is not None and committed.has_more:
                continue
            if self.settings.is_scheduled:
                return
            self.engine.rest()
            # Lines that come meanwhile make one good file.
            self.stop.wait(max(0.0, self.settings.every_s - (time.monotonic() - begun_s)))


def storage_for(settings: JobSettings) -> Storage:
    """Return the storage of the table."""
    return storage_of(settings.path, s3_options(settings))


def logs_for(settings: JobSettings, storage: Storage) -> Logs:
    """Return the logs of the table, as new objects.

    Raises:
        Refused: the format is not available here.
    """
    return logs_of(settings.format, storage, catalog=settings.catalog, s3=s3_options(settings))


def s3_options(settings: JobSettings) -> S3Options:
    """Return the options of its bucket; keys come from the environment."""
    return S3Options(endpoint=settings.endpoint, region=settings.region)


def source_options(settings: JobSettings) -> SourceOptions:
    """Return the options with which tasks read."""
    return SourceOptions(
        nats=settings.nats.named("logpipeline-table"),
        streams=settings.streams,
        partitions=settings.partitions,
        subject=settings.subject,
        patience_s=PATIENCE_S,
        # The table itself records what was lost.
        fail_on_data_loss=False,
    )


log = logging.getLogger(__name__)

# Locked until the process ends.
LOCK = "run.lock"


def run(settings: JobSettings, *, host: str, port: int, is_once: bool = False) -> None:
    """Keep the table that *settings* describe, until a signal asks to stop. On a schedule it
    repeats a run and a wait without a JVM; *is_once* ends it after the first run.

    Raises:
        Refused: it cannot go on; the sentence says what to do.
        OSError: the address is taken.
    """
    check(settings.format, settings.catalog)
    # It logs each connection to a JVM that ends.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    stop, numbers = threading.Event(), JobNumbers()
    _listen(stop)
    with _alone(settings), served(numbers, host, port):
        while not stop.is_set():
            begun_s = time.monotonic()
            _keep(settings, stop, numbers)
            if is_once or not settings.is_scheduled:
                return
            wait_s = max(0.0, settings.every_s - (time.monotonic() - begun_s))
            log.info(
                "the table is complete; the job waits for its next run",
                extra={"in_s": round(wait_s)},
            )
            stop.wait(wait_s)


def _listen(stop: threading.Event) -> None:
    """Set *stop* when a signal asks to stop."""

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


@contextmanager
def _alone(settings: JobSettings) -> Iterator[None]:
    """Refuse a second process that keeps a table from the same folder: both would have the same
    name, and would take the table from each other again and again.

    Raises:
        Refused: there is one.
    """
    settings.folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock.take(settings.folder / LOCK)
    except FileLocked as error:
        raise Refused(
            f"another process ({error.owner}) keeps the table of {settings.pipeline} in "
            f"{settings.folder}: stop it first (`logpipeline up` keeps the table by itself)"
        ) from None
    with lock:
        lock.write_owner(os.getpid())
        yield


def _keep(settings: JobSettings, stop: threading.Event, numbers: JobNumbers) -> None:
    """Do one run, with its own Spark."""
    place = kubernetes.here()
    is_submitted = kubernetes.is_submitted()

    def start() -> SparkSession:
        spark = session(
            f"table of {settings.pipeline}",
            folder=settings.folder / "work",
            master=None if is_submitted else place.master if place else settings.master,
            memory_bytes=settings.driver_memory_bytes,
            more=kubernetes.options(place, settings.executors) if place else None,
        )
        # Spark has set its own handler, which would end a batch half-way.
        _listen(stop)
        if place:
            kubernetes.sweep(spark, place)
        return spark

    # Executors in a cluster are kept: to get them again may take long.
    engine = Engine(start, rests=place is None and not is_submitted)
    try:
        Job(settings, engine, stop, numbers).run()
    finally:
        engine.end()
