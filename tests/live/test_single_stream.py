"""One stream for all partitions (`stream.layout: single`): collectors read it by its subjects."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import logpipeline
from components.collecting import CollectorProcess, Source, collecting
from components.collecting import pipeline as collectors_pipeline
from components.contents import contents_below
from components.pipeline_up import PipelineUp, run_command
from components.shipping import jetstream
from logpipeline.embedded import EmbeddedServer
from logpipeline.lag import survey
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.partition import partition_of
from logpipeline.plan.apply import apply, plan_pipeline
from logpipeline.plan.trim import trim_once
from logpipeline.records import assign, assignment_key
from logpipeline.spec import LogPipeline, load, parse
from logpipeline_collector import stream_reader
from logpipeline_collector.config import from_pipeline
from waiting import eventually

PARTITIONS = 4
COUNTS = range(9)
HOSTS_PER_COUNT = 5
# Of kills, with half a minute at most.
ROUNDS = 12


async def test_each_line_is_in_the_files_of_one_collector(
    tmp_path: Path, nats_server: EmbeddedServer
) -> None:
    """Also of shippers that count other partitions; a collector is killed between."""
    hosts = {f"host-{count}-{n}": count for count in COUNTS for n in range(HOSTS_PER_COUNT)}
    sent: dict[str, list[str]] = {host: [] for host in hosts}
    async with PipelineUp(
        tmp_path,
        "--nats",
        nats_server.url,
        partitions=PARTITIONS,
        collectors={"replicas": 2},
        stream={"layout": "single"},
    ) as up:
        root = load(up.file).names.subject

        def collected() -> dict[str, list[str]]:
            found: dict[str, list[str]] = {}
            for path, _, data in contents_below(up.layout.data):
                if path.name == "_lines.log":
                    found.setdefault(path.parents[1].name, []).extend(data.decode().splitlines())
            return found

        async with jetstream(nats_server) as js:
            for number in range(3):
                for host, count in hosts.items():
                    line = f"{host} line {number}"
                    subject = f"{root}.p{partition_of(host, count)}.{host}"
                    await js.publish(subject, line.encode())
                    sent[host].append(line)
                await up.kill(f"collector-{number % 2}")
            streams = await js.call("STREAM.NAMES", {"subject": f"{root}.>"})

        await eventually(lambda: collected() == sent, what="all lines are in files")
        words = ["-f", str(up.file), "--data", str(up.layout.data), "--nats", nats_server.url]
        check = await run_command("status", "--check", *words)
        replayed = await run_command("replay", "--out", "-", *words)
        nats: Any = {"nats": nats_server.url, "state": "kv", "until_caught_up": True}
        of_one = await run_command("replay", "--out", "-", "--host", "host-3-1", *words)
        consumed = [
            (line.host, line.text.decode())
            async for batch in logpipeline.consume("all", pipeline=up.file, **nats)
            for line in batch.lines
        ]
        by_name = logpipeline.consume("other", stream="LP_default_test", **nats)
        counted = sum([len(list(batch.lines)) async for batch in by_name])
        removed = await run_command("stream", "purge", "--all", "--yes", *words)

    every = [(host, line) for host, lines in sent.items() for line in lines]
    assert sorted(consumed) == sorted(every)
    assert counted == len(every)
    assert replayed.returncode == 0, replayed.stderr
    assert sorted(replayed.stdout.splitlines()) == sorted(line for _, line in every)
    assert of_one.stdout.splitlines() == sent["host-3-1"]
    assert f"{len(every)} messages were deleted" in removed.stdout
    assert streams["streams"] == ["LP_default_test"]
    assert check.returncode == 0, check.stdout


def pipeline(**stream: object) -> LogPipeline:
    """A pipeline of `PARTITIONS` in one stream."""
    spec = {
        "subject": "logs",
        "partitions": PARTITIONS,
        "stream": {"layout": "single", "name": "LOGS", "foreignPartitions": 6, **stream},
        "collectors": {"commit": {"interval": "20ms"}, "snapshotEvery": "100ms"},
    }
    head = {"apiVersion": "logpipeline.dev/v1alpha1", "kind": "LogPipeline"}
    return parse({**head, "metadata": {"name": "logs"}, "spec": spec})


@asynccontextmanager
async def made(server: EmbeddedServer, wanted: LogPipeline) -> AsyncIterator[JetStream]:
    """The streams of *wanted*, and the connection of a test."""
    async with jetstream(server) as js:
        assert (await apply(js, await plan_pipeline(js, wanted), allow_data_loss=False)).is_complete
        yield js


async def shared(js: JetStream, *members: str, generation: int = 1) -> None:
    """Give the partitions to *members*."""
    found = assign(list(members), partitions=PARTITIONS, generation=generation)
    await Bucket(js, "LOGS_state").put(assignment_key("main"), found.encode())


@asynccontextmanager
async def running(
    server: EmbeddedServer, wanted: LogPipeline, folder: Path, member: str = "collector-0"
) -> AsyncIterator[None]:
    """A collector of *wanted* in this process."""
    nats = NatsOptions(servers=(server.url,))
    config = from_pipeline(wanted, member=member, data=folder, nats=nats)
    async with collecting(config):
        yield


async def test_a_partition_without_messages_holds_no_others_back(
    tmp_path: Path, nats_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one that never had any, nor one that had: both say how far they have looked."""
    monkeypatch.setattr(stream_reader, "SILENCE_BEFORE_LOOK_S", 0.05)
    wanted = pipeline(maxMsgs=100)
    async with made(nats_server, wanted) as js:
        await shared(js, "collector-0")
        async with running(nats_server, wanted, tmp_path):
            await js.publish("logs.p1.once", b"long ago")
            for number in range(90):
                await js.publish("logs.p0.busy", b"line %d" % number)

            async def is_trimmed() -> bool:
                await trim_once(js, wanted)
                found = await js.stream_info("LOGS")
                return found is not None and found["state"]["first_seq"] > 40

            await eventually(is_trimmed, what="the stream is trimmed")
            info = await js.stream_info("LOGS")
            seen = await survey(js, wanted)

    assert info is not None
    assert {(each.partition, each.lag_messages) for each in seen} == {(n, 0) for n in range(4)}
    assert sum(each.messages for each in seen) == info["state"]["messages"]


async def test_whatever_is_killed_each_line_is_there_once(
    tmp_path: Path, nats_server: EmbeddedServer
) -> None:
    """Collectors die while some partitions are idle, and have passed what others hold."""
    draw = random.Random(11)
    hosts = [f"node-{letter}" for letter in "abcdefgh"]
    sources = [Source(host, partitions=PARTITIONS) for host in hosts]
    folders = {member: tmp_path / member for member in ("collector-0", "collector-1")}

    def started(member: str) -> CollectorProcess:
        return CollectorProcess(
            nats_server,
            folders[member],
            member,
            partitions=PARTITIONS,
            single_stream_silence_s=0.05,
            takeover_after_s=0.3,
        )

    with ExitStack() as processes:
        async with collectors_pipeline(nats_server, PARTITIONS, is_single=True) as world:
            running = {member: processes.enter_context(started(member)) for member in folders}
            for number in range(ROUNDS):
                members = draw.choice((["collector-0"], ["collector-1"], list(folders)))
                await world.assign(*members)
                for source in draw.sample(sources, draw.randint(1, 3)):
                    for each in range(draw.randint(1, 20)):
                        await source.send(world.js, f"{source.host} {number} {each}")
                # Long enough for looks in some rounds, and for none in others.
                await asyncio.sleep(draw.choice((0.0, 0.2, 2.5)))
                victim = draw.choice(list(folders))
                running[victim].kill()
                running[victim] = processes.enter_context(started(victim))

            def counted() -> Counter[bytes]:
                return Counter(
                    line
                    for source in sources
                    for line in source.collected(*folders.values()).splitlines()
                )

            sent = Counter(line for source in sources for line in source.sent.splitlines())
            await eventually(lambda: counted() == sent, within_s=60, what="each line is there once")


async def test_a_stream_that_is_there_becomes_a_pipeline(
    tmp_path: Path, nats_server: EmbeddedServer
) -> None:
    """What stands in it is collected, what its shippers send goes on to where it went."""
    async with jetstream(nats_server) as js:
        config = {"name": "LOGS", "subjects": ["logs.>"], "max_bytes": 10**8, "discard": "new"}
        await js.call("STREAM.CREATE.LOGS", {**config, "allow_direct": True})
        host = "node-a"
        subject = f"logs.p{partition_of(host, PARTITIONS)}.{host}"
        await js.publish(subject, b"before")
        exported = await run_command(
            "export", "LOGS", "--partitions", str(PARTITIONS), "--nats", nats_server.url
        )
        wanted = parse(yaml.safe_load(exported.stdout))

        report = await apply(js, await plan_pipeline(js, wanted), allow_data_loss=False)
        await js.publish(subject, b"after")
        await shared(js, "collector-0")
        async with running(nats_server, wanted, tmp_path):
            path = tmp_path / "logs" / host / "_files" / "_lines.log"
            await eventually(
                lambda: path.exists() and path.read_text() == "before\nafter\n",
                what="both lines are there",
            )

    assert report.is_complete
    assert wanted.is_single_stream
