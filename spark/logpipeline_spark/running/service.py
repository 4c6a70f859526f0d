"""``logpipeline table run``: the job as a process, with its page, until it is asked to stop."""

from __future__ import annotations

import fcntl
import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pyspark.sql import SparkSession

from logpipeline_spark.errors import Refused
from logpipeline_spark.formats.choosing import check
from logpipeline_spark.running import native
from logpipeline_spark.running.engine import Engine, session
from logpipeline_spark.running.job import Job, JobNumbers, served
from logpipeline_spark.running.settings import JobSettings

log = logging.getLogger(__name__)

# Locked for as long as the process lives.
LOCK = "run.lock"


def run(settings: JobSettings, *, host: str, port: int, is_once: bool = False) -> None:
    """Keep the table that *settings* describe, until somebody asks to stop. On schedule that is a
    run, and a wait without a JVM, again and again; *is_once* ends it after the first run.

    Raises:
        Refused: it cannot go on; the sentence says what to do.
        OSError: the address is taken.
    """
    check(settings.format, settings.catalog)
    # It tells of each connection to the JVM that ends.
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
            log.info("the table has all; the next run comes", extra={"in_s": round(wait_s)})
            stop.wait(wait_s)


def _listen(stop: threading.Event) -> None:
    """Set *stop* when somebody asks to stop."""

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


@contextmanager
def _alone(settings: JobSettings) -> Iterator[None]:
    """See that no other process keeps a table from the same folder: by its name the two could not
    be told apart, and would take it from each other again and again.

    Raises:
        Refused: one does.
    """
    settings.folder.mkdir(parents=True, exist_ok=True)
    with (settings.folder / LOCK).open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(
                f"another process keeps the table of {settings.pipeline} from {settings.folder}: "
                "stop it first (`logpipeline up` does this by itself)"
            ) from None
        yield


def _keep(settings: JobSettings, stop: threading.Event, numbers: JobNumbers) -> None:
    """Do one run, with a Spark of its own."""
    place = native.here()
    is_submitted = native.is_submitted()

    def start() -> SparkSession:
        spark = session(
            f"table of {settings.pipeline}",
            folder=settings.folder / "work",
            master=None if is_submitted else place.master if place else settings.master,
            memory_bytes=settings.driver_memory_bytes,
            more=native.options(place, settings.executors) if place else None,
        )
        # Spark put a handler of its own, which would end a batch half-way.
        _listen(stop)
        if place:
            native.sweep(spark, place)
        return spark

    # Executors that others have to find room for are not given back.
    engine = Engine(start, rests=place is None and not is_submitted)
    try:
        Job(settings, engine, stop, numbers).run()
    finally:
        engine.end()
