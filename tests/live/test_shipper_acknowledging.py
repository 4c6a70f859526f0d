"""Writing modes on a real server: each line waited for, none at all, a mode that changes."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

from components.kube_api import NAMESPACES, PODS, kube_api
from components.shipping import (
    CONTROL,
    HOST,
    ROOT,
    STREAM,
    append,
    arrived,
    batch_of,
    config_of,
    jetstream,
    lines_of,
    make_stream,
    read_once,
    shipping,
    stored,
    until,
    until_stored,
)
from logpipeline import wire
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import JetStream, StoredMessage
from logpipeline.partition import partition_of
from logpipeline_shipper.config import BatchOptions
from logpipeline_shipper.files.listing import HostSources
from logpipeline_shipper.files.source_filter import Rules

# By their partitions.
HOSTS = ("localhost", "node-b", "web1.example.net")
# Most of them are there at once: lines that nobody waits for would be lost by the hundred.
LINES, LINES_AT_ONCE = 400, 300
WRITE_EVERY_S = 0.005


async def write_slowly(files: list[Path], lines: int) -> None:
    """Write while the server comes and goes."""
    for path in files:
        append(path, lines_of(0, LINES_AT_ONCE))
    for number in range(LINES_AT_ONCE, lines):
        for path in files:
            append(path, lines_of(number, number + 1))
        await asyncio.sleep(WRITE_EVERY_S)


async def test_audit_lines_survive_a_killed_server_each_once_and_in_order(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """One line at a time, on three partitions: what was not acknowledged is sent until it is."""
    busy = tmp_path / "busy"
    files = [busy / host / "files" / "audit.log" for host in HOSTS]
    for path in files:
        path.parent.mkdir(parents=True)
    config = config_of(
        tmp_path,
        nats_server.url,
        hosts=(HostSources(host="", hosts_below=busy),),
        partitions=len(HOSTS),
        rules=Rules(ack="each"),
    )
    async with jetstream(nats_server) as js:
        for number in range(len(HOSTS)):
            await make_stream(js, f"LOGS_{number}", subjects=[f"{ROOT}.p{number}.>"])
        async with shipping(config), asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(write_slowly(files, LINES))
            for kill_after in (20, 150):
                await until(lambda after=kill_after: has_stored(js, after))  # type: ignore[misc]
                nats_server.kill()
                await nats_server.start()
            await writing
            await js.connection.wait_connected()
            for host, path in zip(HOSTS, files, strict=True):
                name = f"LOGS_{partition_of(host, len(HOSTS))}"

                async def is_whole(path: Path = path, host: str = host, name: str = name) -> bool:
                    return await arrived(js, path, host, name) == lines_of(0, LINES)

                await until(is_whole)
                lines = [message.data for message in await stored(js, name)]
                assert lines == lines_of(0, LINES).splitlines(keepends=True)


async def has_stored(js: JetStream, count: int) -> bool:
    try:
        info = await js.stream_info("LOGS_0")
    except (NotSent, OutcomeUnknown):
        return False  # the server is just coming back
    return info is not None and int(info["state"]["messages"]) >= count


async def test_lines_that_nobody_waits_for_are_not_sent_again(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Where the server lost what it stored, the lines that were asked for are healed alone."""
    logs = tmp_path / "logs"
    careless = HostSources(host=HOST, include=(f"{logs}/noise.log",), ack="none")
    config = config_of(
        tmp_path, nats_server.url,
        hosts=(careless, HostSources(host=HOST, include=(f"{logs}/*.log",))),
    )  # fmt: skip
    noise, app = logs / "noise.log", logs / "app.log"
    async with jetstream(nats_server) as js:
        await make_stream(js)
    store, copy = nats_server.store, tmp_path / "copy"
    await nats_server.stop()
    shutil.copytree(store, copy)
    await nats_server.start()
    async with shipping(config):
        async with jetstream(nats_server) as js:
            append(noise, lines_of(0, 100))
            await until_stored(js, noise, lines_of(0, 100))
            append(app, lines_of(0, 50))
            await until_stored(js, app, lines_of(0, 50))
        await nats_server.stop()
        shutil.rmtree(store)
        shutil.copytree(copy, store)
        await nats_server.start()
        async with jetstream(nats_server) as js:
            await until_stored(js, app, lines_of(0, 50))
            append(app, lines_of(50, 60))
            await until_stored(js, app, lines_of(0, 60))

            assert await arrived(js, noise) == b""


async def test_an_annotation_that_changes_loses_nothing(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The next batch takes the new mode, whatever is on its way in the old one; an unknown mode is
    none at all.
    """
    path = tmp_path / "pods" / "shop_web_web" / "app" / "0.log"
    path.parent.mkdir(parents=True)
    written = b""
    async with kube_api() as api, jetstream(nats_server) as js:
        await make_stream(js)
        api.put(NAMESPACES, "shop")
        config = config_of(
            tmp_path, nats_server.url,
            hosts=(HostSources(host=HOST, pods_dir=tmp_path / "pods"),),
            kubernetes=api.access(),
            node=HOST,
        )  # fmt: skip
        async with shipping(config):
            for turn in range(60):
                ack = ("batch", "each", "none", "never")[turn % 4]
                api.put(PODS, "web", namespace="shop", annotations={"logpipeline.dev/ack": ack})
                more = b"".join(
                    b"2026-11-21T10:00:00.%09dZ stdout F line %d\n" % (number, number)
                    for number in range(turn * 50, turn * 50 + 50)
                )
                append(path, more)
                written += more
                await asyncio.sleep(WRITE_EVERY_S)

            async def is_whole() -> bool:
                return list(read_once(await stored(js)).values()) == [written]

            await until(is_whole)
            kinds = {batch_of(message).lines == 1 for message in await stored(js)}

    assert kinds == {True, False}


def is_bare(message: StoredMessage) -> bool:
    """Whether a message is a line alone; the id, and what begins like it, are the server's."""
    return all(name.startswith("Nats-") for name in wire.parse_headers(message.headers))


async def test_lines_alone_are_acknowledged_too(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """A reader that knows no headers gets each line once, while the server comes and goes."""
    config = config_of(tmp_path, nats_server.url, batch=BatchOptions(message="line"))
    path = tmp_path / "logs" / "app.log"
    async with jetstream(nats_server) as js:
        await make_stream(js)
        async with shipping(config), asyncio.TaskGroup() as tasks:
            tasks.create_task(write_slowly([path], LINES))
            await until(lambda: has_stored(js, 20))
            nats_server.kill()
            await nats_server.start()
            await js.connection.wait_connected()

            async def is_whole() -> bool:
                return len(await stored(js)) >= LINES

            await until(is_whole)
            messages = await stored(js)

    assert [message.data for message in messages] == lines_of(0, LINES).splitlines()
    assert all(map(is_bare, messages))


async def test_a_loss_of_lines_alone_is_counted_for_the_status(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Their messages have no place in which it could be named to collectors."""
    config = config_of(tmp_path, nats_server.url, batch=BatchOptions(bytes_max=256, message="line"))
    path = tmp_path / "logs" / "app.log"
    async with jetstream(nats_server) as js, shipping(config):
        await make_stream(js, max_msgs=5)
        append(path, lines_of(0, 1000))
        await until(lambda: has_stored(js, 5))
        await until(lambda: shipper_status(js, "backlog_bytes"))
        path.write_bytes(b"")
        stream = (await js.stream_info(STREAM) or {})["config"]
        await js.call(f"STREAM.UPDATE.{STREAM}", stream | {"max_msgs": -1})
        append(path, lines_of(0, 1))

        missing = await until(lambda: shipper_status(js, "missing_bytes"))
        assert await until(lambda: shipper_status(js, "unnamed_bytes")) == missing


async def shipper_status(js: JetStream, name: str) -> int:
    """Return a number of the shipper's status."""
    answer = await js.connection.request(f"{CONTROL}.status.shipper")
    return int(json.loads(answer.data)[name])


async def test_a_mass_of_short_lines_is_sent_in_parts(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """What is kept in mind of lines on their way is bounded by their number too, not by bytes."""
    config = config_of(
        tmp_path, nats_server.url, batch=BatchOptions(message="line"), rules=Rules(ack="none")
    )
    path = tmp_path / "logs" / "app.log"
    lines = b"%d\n" * 5000 % tuple(range(5000))
    assert len(lines) < config.batch.bytes_max
    async with jetstream(nats_server) as js:
        await make_stream(js)
        append(path, lines)
        async with shipping(config):

            async def is_whole() -> bool:
                info = await js.stream_info("LOGS_0")
                return info is not None and int(info["state"]["messages"]) >= 5000

            await until(is_whole)
            messages = await stored(js)

    assert b"".join(message.data + b"\n" for message in messages) == lines
