"""Programs that use the package wrongly are refused by a type checker; right ones are not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A line that ends with `# error: CODE` is wrong, and gives just that error; all others are right.
USES = """
from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import logpipeline
from logpipeline import Batch, BlockingReader, Line, Message, Reader
from logpipeline import Btch  # error: attr-defined


async def generator() -> None:
    async for batch in logpipeline.consume("billing"):
        text: bytes = b"".join(line.text for line in batch.lines)
        batch.processed()
        batch.retry()
        batch.reject("it cannot be parsed")
        batch.reject()  # error: call-arg
        batch.rejects("it cannot be parsed")  # error: attr-defined
        number: int = batch.id  # error: assignment
    batches = logpipeline.consume("billing", pipeline="logpipeline.yaml")
    first: Batch = await anext(batches)
    await batches.aclose()
    logpipeline.consume()  # error: call-arg
    logpipeline.consume("billing", "logpipeline.yaml")  # error: call-arg
    logpipeline.consume("billing", pipelin="logpipeline.yaml")  # error: call-arg
    for batch in logpipeline.consume("billing"):  # error: attr-defined
        pass


async def arguments(options: logpipeline.NatsOptions, resource: logpipeline.LogPipeline) -> None:
    logpipeline.open_reader("billing", pipeline=Path("logpipeline.yaml"), data=Path("data"))
    logpipeline.open_reader("billing", pipeline=resource, nats=options)
    logpipeline.open_reader("billing", nats="nats://127.0.0.1:4222", ack="every=100", batch=50)
    logpipeline.open_reader("billing", stream="LOGS", nats=options)
    logpipeline.open_reader("billing", since=timedelta(hours=2), max_age="10m", tries=3)
    logpipeline.open_reader("billing", since=datetime.now(), on_error="dead-letter")
    logpipeline.open_reader("billing", event_time="auto", zone="Europe/Berlin")
    logpipeline.open_reader("billing", event_time=["klog", "%d.%m.%Y %H:%M:%S"])
    logpipeline.open_reader("billing", event_time=2)  # error: arg-type
    logpipeline.open_reader("billing", since=2.5)  # error: arg-type
    logpipeline.open_reader("billing", on_error="skip")  # error: arg-type
    logpipeline.open_reader("billing", deliver="nwe")  # error: arg-type
    logpipeline.open_reader("billing", batch="50")  # error: arg-type
    logpipeline.open_reader("billing", tries_max=3)  # error: call-arg
    logpipeline.open_reader("billing", partitions=[1, 2])  # error: arg-type
    logpipeline.open_reader("billing", positions={"LOGS_0": 17})  # error: dict-item
    logpipeline.open_raeder("billing")  # error: attr-defined
    logpipeline.nonsense  # error: attr-defined


async def reader() -> None:
    async with logpipeline.open_reader("billing", count=10, until_caught_up=True) as reader:
        there: Reader = reader
        async for batch in reader:
            same: Batch = batch
        more: Batch | None = await reader.next()
        left: int = sum(lag.messages for lag in (await reader.lag()).values())
        mine: tuple[int, ...] = reader.assignment
        done: int = reader.counts.processed + reader.counts.retried + reader.counts.dead_letters
        reader.lag()  # error: unused-coroutine
        reader.counts.lost  # error: attr-defined
        reader.assignment()  # error: operator
    async for batch in logpipeline.open_reader("billing"):  # error: attr-defined
        pass


def blocking() -> None:
    with logpipeline.open_blocking_reader("billing", state="kv") as reader:
        there: BlockingReader = reader
        for batch in reader:
            same: Batch = batch
        left: Mapping[int, logpipeline.StreamLag] = reader.lag()
        reader.lag().messages  # error: attr-defined
    logpipeline.open_blocking_reader("billing", stat="kv")  # error: call-arg


def line(line: Line) -> None:
    program: datetime | None = line.time
    server: datetime = line.time_stored
    event: datetime | None = line.event_time
    where: str = line.host + line.namespace + line.pod + line.container + line.source
    message: Message = line.message
    line.time.year  # error: union-attr
    line.event_time.year  # error: union-attr
    line.text.encode()  # error: attr-defined
    line.text = b""  # error: misc


def errors() -> None:
    try:
        pass
    except (logpipeline.ReaderBusy, logpipeline.Stopped) as error:
        general: logpipeline.ConsumeError = error
    except (logpipeline.BadOption, logpipeline.NoPipeline, logpipeline.ConnectFailed):
        pass
    except logpipeline.ReaderBsy:  # error: attr-defined
        pass
"""
MARK = re.compile(r"  # error: ([a-z-]+)$")
TOLD = re.compile(r"uses\.py:(\d+): error: .*\[([a-z-]+)\]$")


def test_each_wrong_use_is_one_error_and_no_right_one_is(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """At its line, by `mypy --strict`, with the settings of this project."""
    (tmp_path / "uses.py").write_text(USES)
    marks = ((number, MARK.search(line)) for number, line in enumerate(USES.splitlines(), 1))
    wanted = [(number, mark[1]) for number, mark in marks if mark]
    # Kept, so that only the first run reads all that the package imports.
    cache = pytestconfig.cache.mkdir("mypy")
    words = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(cache)]
    shown = ["--no-error-summary", "--no-pretty", "--hide-error-context", "--strict"]
    # A process of its own: mypy raises the limit of recursion of the one in which it runs.
    command = [sys.executable, "-m", "mypy", *words, *shown, str(tmp_path / "uses.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.stderr == ""
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    found = [TOLD.search(line) for line in errors]
    assert [(int(each[1]), each[2]) for each in found if each] == wanted, done.stdout
    assert len(errors) == len(wanted) > 25, done.stdout
