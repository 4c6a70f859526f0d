"""A collector tells shippers, probes and people where it stands, and means it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from components.collecting import (
    GROUP,
    HOSTS,
    PARTITIONS,
    STREAM_BASE,
    Pipeline,
    Source,
    collecting,
    config_for,
    log_stream,
    pipeline,
)
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.pull import Delivered
from logpipeline.nats.session import RawMessage
from logpipeline.records import Committed, Progress, assign, assignment_key
from logpipeline.subjects import ControlSubjects, Names
from logpipeline_collector import groups
from logpipeline_collector.stream_reader import StreamReader
from ports import free_port
from waiting import eventually

CONTROL = ControlSubjects("_lp.logs")


async def test_a_shipper_hears_how_far_its_source_is_committed(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Within a second or so after the commit, without asking."""
    source = Source(HOSTS[0])
    heard: list[Progress] = []
    async with pipeline(nats_server) as made:
        await made.js.connection.listen(
            CONTROL.committed(0, source.host),
            lambda message: heard.append(Progress.decode(message.data)),
        )
        await made.assign("collector-0")
        async with collecting(config_for(nats_server, tmp_path / "c")):
            await source.send(made.js, "one")
            await eventually(lambda: heard)

    assert heard[0].sources == (Committed(source.path, source.generation, 4),)
    assert (heard[0].group, heard[0].partition, heard[0].epoch) == (GROUP, 0, 1)


async def test_a_shipper_that_asks_is_answered_by_the_owner(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Also after a restart of the collector, when nothing new was committed."""
    source = Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        async with collecting(config_for(nats_server, tmp_path / "c")):
            await source.send(made.js, "one")
            await made.until_committed(1)
        async with collecting(config_for(nats_server, tmp_path / "c")):
            answers = await ask_until_answered(made, CONTROL.ask_committed(0, source.host))

    told = Progress.decode(answers[0].data)
    assert told.sources == (Committed(source.path, source.generation, 4),)


@pytest.mark.parametrize("is_single", [False, True], ids=["own stream", "shared stream"])
async def test_an_answer_says_what_is_stored_and_not_delivered_yet(
    nats_server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_single: bool
) -> None:
    """A shipper that lost its positions waits until all that was stored is collected. A collector
    that is late knows of less.
    """
    source = Source(HOSTS[0])
    in_time = asyncio.Event()
    in_time.set()
    take = StreamReader.take

    async def take_late(reader: StreamReader, *, timeout_s: float) -> list[Delivered]:
        taken = await take(reader, timeout_s=timeout_s)
        await in_time.wait()
        return taken

    monkeypatch.setattr(StreamReader, "take", take_late)
    config = config_for(nats_server, tmp_path / "c")
    if is_single:
        config = replace(config, names=Names("logs", STREAM_BASE, is_single=True))
    async with pipeline(nats_server, is_single=is_single) as made, collecting(config):
        await made.assign("collector-0")
        await source.send(made.js, "one")
        await made.until_committed(1)
        in_time.clear()
        await source.send(made.js, "two")
        answers = await ask_until_answered(made, CONTROL.ask_committed(0, source.host))
        early = Progress.decode(answers[0].data)
        in_time.set()
        await made.until_committed(2)
        answers = await ask_until_answered(made, CONTROL.ask_committed(0, source.host))
        late = Progress.decode(answers[-1].data)

    assert (early.sequence, early.pending) == (1, 1)
    assert (late.sequence, late.pending) == (2, 0)


async def test_an_answer_names_the_groups_that_there_are(
    nats_server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no longer one that was deleted."""
    monkeypatch.setattr(groups, "LOOK_EVERY_S", 0.1)
    source = Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        await made.bucket.put(
            assignment_key("audit"), assign(["a"], partitions=1, generation=1).encode()
        )
        async with collecting(config_for(nats_server, tmp_path / "c")):
            await source.send(made.js, "one")
            await made.until_committed(1)

            async def names(*wanted: str) -> bool:
                answers = await ask_until_answered(made, CONTROL.ask_committed(0, source.host))
                return Progress.decode(answers[-1].data).groups == wanted

            await eventually(lambda: names("audit", GROUP))
            await made.bucket.erase(assignment_key("audit"))
            await eventually(lambda: names(GROUP))


async def test_the_status_names_each_partition_with_epoch_and_position(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Whoever asks all collectors hears member, partitions and what they count."""
    source = Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        async with collecting(config_for(nats_server, tmp_path / "c")):
            await source.send(made.js, "one", "two")
            await made.until_committed(1)
            answers = await ask_until_answered(made, CONTROL.status("collector"))
    status = json.loads(answers[0].data)

    assert (status["component"], status["member"]) == ("collector", "collector-0")
    assert [entry["partition"] for entry in status["partitions"]] == list(range(PARTITIONS))
    first = status["partitions"][0]
    assert (first["epoch"], first["position"], first["lines"]) == (1, 1, 2)
    assert (first["pending_messages"], first["missing_bytes"], first["problem"]) == (0, 0, None)


async def test_the_record_says_what_is_missing_until_it_has_come(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Who reads the bucket only, as an operator does, sees a hole, and sees it filled."""
    source = Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        for line in ("one", "two", "three"):
            await source.send(made.js, line)
        await made.js.call("STREAM.MSG.DELETE.LOGS_0", {"seq": 2})
        await made.assign("collector-0")
        async with collecting(config_for(nats_server, tmp_path / "c")):
            await made.until_committed(3)
            with_hole = await made.epoch(0)
            await source.send_again(made.js, 1, attempt="again")
            await made.until_committed(4)
            filled = await made.epoch(0)

    assert with_hole is not None
    assert filled is not None
    assert (with_hole.missing_bytes, filled.missing_bytes) == (len("two\n"), 0)


async def test_a_collector_is_ready_only_with_all_its_partitions(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Before there is an assignment it says so, and when a stream is missing, which."""
    config = config_for(nats_server, tmp_path / "c", http_port=free_port())
    page = f"http://127.0.0.1:{config.http_port}"
    async with pipeline(nats_server) as made, collecting(config):
        await until_page(page, "readyz", "no assignment has been written")
        await made.js.call("STREAM.DELETE.LOGS_1")
        await made.assign("collector-0")
        await until_page(page, "readyz", "LOGS_1 does not exist")
        await until_page(page, "healthz", "ok")
        await made.js.call("STREAM.CREATE.LOGS_1", log_stream(1))
        await until_page(page, "readyz", "ok")
        await until_page(page, "metrics", 'logpipeline_collector_epoch{partition="1"} 1.0')


async def test_a_broken_assignment_changes_nothing(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The last good one stays, and readiness says why."""
    source = Source(HOSTS[0])
    config = config_for(nats_server, tmp_path / "c", http_port=free_port())
    page = f"http://127.0.0.1:{config.http_port}"
    async with pipeline(nats_server) as made, collecting(config):
        await made.assign("collector-0")
        await source.send(made.js, "one")
        await made.until_committed(1)
        await made.bucket.put(assignment_key(GROUP), b"{}")
        await until_page(page, "readyz", "the last good one stays")
        await source.send(made.js, "two")
        await made.until_committed(2)


async def test_a_consumer_that_was_deleted_is_made_again(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Whoever deletes it stops nothing for long."""
    source = Source(HOSTS[0])
    async with pipeline(nats_server) as made, collecting(config_for(nats_server, tmp_path / "c")):
        await made.assign("collector-0")
        await source.send(made.js, "one")
        await made.until_committed(1)
        names = (await made.js.call("CONSUMER.NAMES.LOGS_0"))["consumers"]
        for name in names:
            await made.js.consumer_delete("LOGS_0", name)
        await source.send(made.js, "two")
        await made.until_committed(2)
        after = (await made.js.call("CONSUMER.NAMES.LOGS_0"))["consumers"]

    assert len(names) == len(after) == 1
    assert names != after
    assert source.collected(tmp_path / "c") == source.sent


async def ask_until_answered(made: Pipeline, subject: str) -> list[RawMessage]:
    """Ask as a shipper does, until an answer comes that holds something."""
    connection = made.js.connection
    answers: list[RawMessage] = []
    inbox = connection.new_inbox()
    await connection.listen(inbox, answers.append)

    async def is_answered() -> bool:
        await connection.publish(subject, b"", reply=inbox)
        await asyncio.sleep(0.05)
        return any(has_content(answer) for answer in answers)

    await eventually(is_answered, what=f"an answer on {subject}")
    return [answer for answer in answers if has_content(answer)]


def has_content(answer: RawMessage) -> bool:
    if answer.status:
        return False  # Nobody listens yet.
    content: dict[str, Any] = json.loads(answer.data)
    if "partitions" in content:
        return all("epoch" in entry for entry in content["partitions"])
    return bool(content["sources"])


async def until_page(page: str, path: str, text: str) -> None:
    """Return when the collector's page at *path* holds *text*."""

    async def is_there() -> bool:
        assert text in await asyncio.to_thread(read, f"{page}/{path}")
        return True

    await eventually(is_there)


def read(url: str) -> str:
    try:
        with urlopen(url, timeout=2) as answer:
            return str(answer.read(), "utf-8")
    except HTTPError as error:
        return error.read().decode()
    except OSError:
        return ""
