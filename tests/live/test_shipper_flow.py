"""What stands in files arrives in the stream: each line once, in order, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path

from components.shipping import (
    CONTROL,
    append,
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
from logpipeline.embedded import EmbeddedServer
from logpipeline_shipper.files.listing import HostSources
from logpipeline_shipper.files.source_filter import Rules


async def test_lines_of_a_file_arrive_once_and_in_order(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """What is there at the start, and what is written later, arrives as it was written."""
    config = config_of(tmp_path, nats_server.url)
    path = tmp_path / "logs" / "app.log"
    append(path, lines_of(0, 1000))
    async with jetstream(nats_server) as js, shipping(config):
        await make_stream(js)
        await until_stored(js, path, lines_of(0, 1000))
        first = [batch_of(message) for message in await stored(js)]
        for number in range(1000, 1050):
            append(path, lines_of(number, number + 1))

        await until_stored(js, path, lines_of(0, 1050))
        # It had no positions, so that readers check what it found; nobody says it was sent twice.
        assert {(batch.resend, batch.unsure) for batch in first} == {(True, True)}
        assert not batch_of((await stored(js))[-1]).resend


async def test_rotated_files_arrive_before_the_live_one(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Rotation while it ships leaves neither a gap nor a line out of order."""
    config = config_of(tmp_path, nats_server.url)
    path = tmp_path / "logs" / "app.log"
    async with jetstream(nats_server) as js, shipping(config):
        await make_stream(js)
        append(path, lines_of(0, 300))
        await until_stored(js, path, lines_of(0, 300))
        append(path, lines_of(300, 400))
        path.rename(path.with_name("app.log.1"))
        append(path, lines_of(400, 500))

        await until_stored(js, path, lines_of(0, 500))


async def test_a_batch_stays_below_its_limit(nats_server: EmbeddedServer, tmp_path: Path) -> None:
    """A long backlog travels in many messages, none larger than configured."""
    config = config_of(tmp_path, nats_server.url)
    path = tmp_path / "logs" / "app.log"
    append(path, lines_of(0, 2000))
    async with jetstream(nats_server) as js, shipping(config):
        await make_stream(js)
        await until_stored(js, path, lines_of(0, 2000))

        batches = [batch_of(message) for message in await stored(js)]
        assert max(batch.end - batch.start for batch in batches) <= 4096
        assert sum(batch.lines for batch in batches) == 2000


async def test_two_hosts_with_the_same_path_do_not_swallow_each_other(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Equal lines in equal places of two hosts are two sources."""
    busy = tmp_path / "busy"
    for host in ("web1", "web2"):
        (busy / host / "files").mkdir(parents=True)
        append(busy / host / "files" / "app.log", lines_of(0, 10))
    hosts = (HostSources(host="", hosts_below=busy),)
    config = config_of(tmp_path, nats_server.url, hosts=hosts)
    async with jetstream(nats_server) as js, shipping(config):
        await make_stream(js)

        async def has_both() -> bool:
            return {host for host, _ in read_once(await stored(js))} == {"web1", "web2"}

        await until(has_both)


async def test_a_bad_host_is_refused_and_the_others_go_on(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """A name that cannot be part of a subject never becomes one."""
    busy = tmp_path / "busy"
    for host in ("good", "a..b", "sp ace", "*"):
        (busy / host / "files").mkdir(parents=True)
        append(busy / host / "files" / "app.log", lines_of(0, 10))
    hosts = (HostSources(host="", hosts_below=busy),)
    config = config_of(tmp_path, nats_server.url, hosts=hosts)
    async with jetstream(nats_server) as js, shipping(config):
        await make_stream(js)
        await until_stored(js, busy / "good" / "files" / "app.log", lines_of(0, 10), host="good")

        answer = await js.connection.request(f"{CONTROL}.status.shipper")
        assert json.loads(answer.data)["refused_hosts"] == ["*", "a..b", "sp ace"]
        assert {host for host, _ in read_once(await stored(js))} == {"good"}


async def test_each_line_travels_alone_where_each_is_to_be_acknowledged(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """For audit logs no line is sent before the one before it is stored."""
    config = config_of(tmp_path, nats_server.url, rules=Rules(ack="each"))
    path = tmp_path / "logs" / "audit.log"
    append(path, lines_of(0, 20))
    async with jetstream(nats_server) as js, shipping(config):
        await make_stream(js)
        await until_stored(js, path, lines_of(0, 20))

        assert [batch_of(message).lines for message in await stored(js)] == [1] * 20


async def test_without_acknowledgements_lines_arrive_as_well(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The way of fshipper: sent, and nobody asks."""
    config = config_of(tmp_path, nats_server.url, rules=Rules(ack="none"))
    path = tmp_path / "logs" / "app.log"
    async with jetstream(nats_server) as js:
        await make_stream(js)
        append(path, lines_of(0, 500))
        async with shipping(config):
            await until_stored(js, path, lines_of(0, 500))


async def test_an_unchanged_restart_sends_nothing(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """A clean stop is remembered to the byte."""
    config = config_of(tmp_path, nats_server.url)
    path = tmp_path / "logs" / "app.log"
    append(path, lines_of(0, 500))
    async with jetstream(nats_server) as js:
        await make_stream(js)
        async with shipping(config) as first:
            await until_stored(js, path, lines_of(0, 500))
            assert await first.stop() == 0
        before = len(await stored(js))
        append(path, lines_of(500, 501))
        async with shipping(config):
            await until_stored(js, path, lines_of(0, 501))

        later = (await stored(js))[before:]
        assert [(batch_of(message).lines, batch_of(message).resend) for message in later] == [
            (1, False)
        ]
