"""The table at the managed server: its job reads and tells with the rights of its role alone, and
the operator sees how its table stands.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.managed_server import Managed, connected, managed, resource
from logpipeline.lag import PartitionState, StreamLag
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.jetstream import JetStream
from logpipeline.records import StreamPosition
from logpipeline.spec import LogPipeline
from logpipeline.tables.progress import Missed, MissedRange, TableProgress, missed_key_of, table_key
from logpipeline.tables.state import TableState, table_of, tables_of
from logpipeline_operator.children import config, credentials
from logpipeline_operator.jetstream import Permission, reconcile
from logpipeline_operator.status import JetStreamFacts
from logpipeline_spark.job import task
from logpipeline_spark.job.batch import Batches
from logpipeline_spark.job.service import ProgressReport, source_options
from logpipeline_spark.job.settings import settings_of
from logpipeline_spark.job.task import Done, Task, Work
from logpipeline_spark.lines.schema import LINES_ENCODED
from logpipeline_spark.source.client import Client
from logpipeline_spark.table.storage import LocalStorage
from tables.made import opened

PIPELINE = resource(table={"enabled": True})
KEY = table_key("logging", "prod")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Managed]:
    """A managed server of a pipeline that keeps a table."""
    async with managed(PIPELINE, tmp_path / "nats") as at:
        yield at


@pytest.fixture
async def js(server: Managed) -> AsyncIterator[JetStream]:
    """What the operator sees of it; the streams are made."""
    async with connected(server.operator()) as js:
        await seen(js)
        yield js


async def seen(js: JetStream, pipeline: LogPipeline = PIPELINE) -> JetStreamFacts:
    """What a look at the pipeline sees."""
    permission = Permission(may_write=True)
    return await reconcile(js, pipeline, permission, lambda assigned: ["prod-collector-0"])


async def send(js: JetStream, count: int) -> None:
    """Store *count* lines, one a message, of a shipper that sends no headers."""
    for number in range(count):
        await js.publish(f"{PIPELINE.names.subject}.p0.node-a", f"line {number}".encode())


def here(work: Work, tasks: Sequence[Task]) -> list[Done]:
    """Do tasks in this process, as an executor would in its own."""
    return [task.run(work, each) for each in tasks]


def batch(at: Managed, folder: Path) -> tuple[int, str | None]:
    """Do what the job does once, with its own user; return the table's rows, and what the server
    denied.
    """
    local = config.for_table(at.pipeline)
    nats = at.options(credentials.TABLE, local)
    settings = settings_of(local, key=KEY, path="", folder=folder, nats=nats)
    storage, options = LocalStorage(folder / "table"), source_options(settings)
    with Client(options) as client:
        table = opened(storage, pipeline=settings.pipeline, schema=LINES_ENCODED)
        work = Work(options=options, storage=storage, writer=table.writer, has_rollups=False)
        batches = Batches(
            client=client, table=table, work=work, run=here, bytes_max=2**20, at_once=lambda: 2,
            streams=settings.streams,
        )  # fmt: skip
        batches.load()
        while batches.next() is not None:
            pass
        ProgressReport(client, settings.bucket, KEY).write(storage.url, table, batches.states)
        rows = table.state.lines
        table.close()
        return rows, client.connection.problem


async def test_the_job_does_its_work_with_its_own_rights(
    server: Managed, js: JetStream, tmp_path: Path
) -> None:
    """It reads the streams, tells how far it is, and is denied nothing; the operator hears it."""
    await send(js, 3)
    rows, denied = await asyncio.to_thread(batch, server, tmp_path)
    state = (await seen(js)).table

    assert (rows, denied) == (3, None)
    assert state is not None
    assert state.progress is not None
    assert (state.progress.rows, state.progress.problem) == (3, "")
    assert [each.lag.messages for each in state.streams] == [0, 0]
    assert state.overtaken_soon == ()


def lag_in(state: TableState) -> StreamLag:
    """The lag of the first stream."""
    return next(each.lag for each in state.streams if each.stream == PIPELINE.names.stream(0))


async def test_what_came_since_is_behind(server: Managed, js: JetStream, tmp_path: Path) -> None:
    """Counted, and as old as the first line that is not in the table."""
    await send(js, 3)
    await asyncio.to_thread(batch, server, tmp_path)
    before_ns = time.time_ns()
    await send(js, 2)
    state = await table_of(js, PIPELINE)
    elapsed_s = (time.time_ns() - before_ns) / 1e9

    lags = lag_in(state)
    assert lags.messages == 2
    assert 0 <= lags.age_s <= elapsed_s
    assert lags.bytes > 0


async def test_before_the_first_commit_everything_is_behind(js: JetStream) -> None:
    """Nobody told anything, so that nothing is in a table."""
    await send(js, 2)
    state = await table_of(js, PIPELINE)

    assert state.progress is None
    assert lag_in(state).messages == 2


async def told(js: JetStream, *, created: str, sequence: int = 5, commit: int = 1) -> None:
    """Have the bucket say that the first stream is in the table up to *sequence*."""
    streams = {PIPELINE.names.stream(0): StreamPosition(created, sequence, 1)}
    progress = TableProgress(path="/t", commit=commit, rows=1, at_ns=1, streams=streams)
    await Bucket(js, PIPELINE.names.state_bucket).put(KEY, progress.encode())


async def test_a_stream_that_was_made_anew_is_in_no_table(js: JetStream) -> None:
    """The position is one of another stream, whatever its number."""
    await send(js, 2)
    await told(js, created="2020-01-01T00:00:00Z", sequence=1)

    state = await table_of(js, PIPELINE)

    assert lag_in(state).messages == 2


async def test_a_line_that_is_gone_is_not_waited_for(js: JetStream) -> None:
    """The age is that of the next one that is there."""
    await send(js, 3)
    stream = PIPELINE.names.stream(0)
    await js.call(f"STREAM.MSG.DELETE.{stream}", {"seq": 1})
    await js.call(f"STREAM.MSG.DELETE.{stream}", {"seq": 2})

    lag = lag_in(await table_of(js, PIPELINE))

    assert lag.messages == 1
    assert lag.age_s < 60


async def test_the_warning_comes_while_the_lines_are_there(js: JetStream) -> None:
    """Of a stream that makes room for newer lines, as soon as they fill most of it."""
    await send(js, 1)
    stream = PIPELINE.names.stream(0)
    info = await js.call(f"STREAM.INFO.{stream}")
    calm = await table_of(js, PIPELINE)
    full = {**info["config"], "max_bytes": info["state"]["bytes"], "discard": "old"}
    await js.call(f"STREAM.UPDATE.{stream}", full)
    late = await table_of(js, PIPELINE)

    assert calm.overtaken_soon == ()
    assert late.overtaken_soon == (stream,)
    assert (await js.call(f"STREAM.INFO.{stream}"))["state"]["messages"] == 1


async def test_a_table_whose_job_never_began_is_seen_holding_trimming_back(
    js: JetStream,
) -> None:
    """What it has not read fills the stream, though the files have all of it; then it misses the
    oldest. Whoever only looks sees the same.
    """
    stream = PIPELINE.names.stream(0)
    await told(js, created="", sequence=0, commit=-1)
    await js.call(f"STREAM.UPDATE.{stream}", {**await config_of(js, stream), "max_msgs": 10})
    await send(js, 7)
    seven = [partition_of(7)]
    held, tables = await table_of(js, PIPELINE, seven), await tables_of(js, PIPELINE, seven)
    await send(js, 3)
    created, at = (await js.call(f"STREAM.INFO.{stream}"))["created"], missed_key_of(KEY)
    gone = MissedRange(created=created, first=1, last=2, at_ns=1)
    bucket = Bucket(js, PIPELINE.names.state_bucket)
    await bucket.put(at, Missed().with_range(stream, gone).encode())
    overtaken = await table_of(js, PIPELINE, [partition_of(10)])

    assert (held.held_back, held.misses) == ((stream,), ())
    assert [(each.name, each.is_unknown) for each in tables] == [("logging/prod", True)]
    assert [row.holds_back for each in tables for row in each.streams] == [True]
    assert (overtaken.misses, overtaken.missed_messages) == ((stream,), 2)


async def config_of(js: JetStream, stream: str) -> dict[str, Any]:
    """How the server has *stream*."""
    return dict((await js.call(f"STREAM.INFO.{stream}"))["config"])


def partition_of(committed: int) -> PartitionState:
    """The first partition, of which everything up to there is in files."""
    stream = PIPELINE.names.stream(0)
    return PartitionState(partition=0, stream=stream, is_there=True, committed=committed)


async def test_nonsense_in_the_bucket_is_no_table(js: JetStream) -> None:
    """Whoever may write the key can write anything."""
    bucket = Bucket(js, PIPELINE.names.state_bucket)
    odd = b'{"path": 1, "commit": "x", "rows": 0, "at_ns": 0, "streams": {}}'
    for nonsense in (b"", b"[]", odd):
        await bucket.put(KEY, nonsense)
        assert (await table_of(js, PIPELINE)).progress is None


async def test_a_job_that_could_not_begin_is_heard(js: JetStream) -> None:
    """It knows nothing of the table, and so the lag is not known either."""
    await told(js, created="", commit=-1)

    state = await table_of(js, PIPELINE)

    assert state.progress is not None
    assert (state.is_unknown, state.overtaken_soon) == (True, ())


async def test_a_table_that_is_no_longer_kept_holds_external_streams_no_more(
    js: JetStream,
) -> None:
    """Their owner asks who reads them, and would wait for it for ever; its own it knows of."""
    names = PIPELINE.names
    external = {"name": names.stream_base, "external": True}
    guest = resource(stream=external, subject=names.subject, collectors={"group": "audit"})
    guest = replace(guest, name="guest")
    key, bucket = table_key("logging", "guest"), Bucket(js, names.state_bucket)
    progress = TableProgress(path="/t", commit=1, rows=1, at_ns=1, streams={})
    await bucket.put(key, progress.encode())
    await bucket.put(KEY, progress.encode())
    await bucket.put(missed_key_of(key), Missed().encode())

    await seen(js, guest)

    assert await bucket.get(key) is None
    assert await bucket.get(missed_key_of(key)) is None
    assert await bucket.get(KEY) is not None
