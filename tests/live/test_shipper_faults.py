"""Servers stop, networks swallow answers, streams fill: lines wait in their files, and arrive."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from components.limited_account import jetstream_at, limited_server
from components.shipper_proxy import proxied
from components.shipping import (
    CONTROL,
    STREAM,
    append,
    batch_of,
    config_of,
    jetstream,
    lines_of,
    make_stream,
    shipping,
    stored,
    until,
    until_stored,
)
from logpipeline.embedded import EmbeddedServer, ServerOptions
from logpipeline.nats.connection import NatsOptions, NoResponders
from logpipeline.nats.jetstream import JetStream
from logpipeline_shipper.config import BatchOptions
from waiting import eventually


async def status(js: JetStream) -> dict[str, Any]:
    """Return what the shipper says about itself, once it is there."""

    async def ask() -> dict[str, Any] | None:
        try:
            answer = await js.connection.request(f"{CONTROL}.status.shipper")
        except NoResponders:
            return None
        return dict(json.loads(answer.data))

    return await until(ask)


async def test_lines_written_while_the_server_was_away_arrive_in_order(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """A server that is killed and comes back is a pause, and nothing more."""
    path = tmp_path / "logs" / "app.log"
    async with shipping(config_of(tmp_path, nats_server.url)):
        async with jetstream(nats_server) as js:
            await make_stream(js)
            append(path, lines_of(0, 200))
            await until_stored(js, path, lines_of(0, 200))
        nats_server.kill()
        append(path, lines_of(200, 400))
        await nats_server.start()

        async with jetstream(nats_server) as js:
            await until_stored(js, path, lines_of(0, 400))


async def test_a_lost_acknowledgement_stores_nothing_twice(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """An answer that does not come means nothing: the same bytes go again under the same id."""
    path = tmp_path / "logs" / "app.log"
    async with proxied(nats_server.url) as proxy, jetstream(nats_server) as js:
        await make_stream(js)
        async with shipping(config_of(tmp_path, proxy.url)):
            append(path, lines_of(0, 10))
            await until_stored(js, path, lines_of(0, 10))
            proxy.is_silent = True
            append(path, lines_of(10, 20))
            await until_stored(js, path, lines_of(0, 20))
            append(path, lines_of(20, 30))
            sent = proxy.client_bytes
            await eventually(lambda: proxy.client_bytes > sent, what="a second try")
            proxy.is_silent = False
            proxy.cut()
            await until_stored(js, path, lines_of(0, 30))

        ranges = [(batch.start, batch.end) for batch in map(batch_of, await stored(js))]
        assert ranges == [(0, 160), (160, 330), (330, 500)]


async def test_a_server_that_stands_still_is_waited_for(
    nats_server: EmbeddedServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Stopped between a batch and its acknowledgement, and continued: stored once."""
    path = tmp_path / "logs" / "app.log"
    async with jetstream(nats_server) as js, shipping(config_of(tmp_path, nats_server.url)):
        await make_stream(js)
        append(path, lines_of(0, 10))
        await until_stored(js, path, lines_of(0, 10))
        nats_server.suspend()
        append(path, lines_of(10, 1000))
        await eventually(lambda: "a batch cannot be delivered yet" in caplog.text)
        nats_server.resume()
        await until_stored(js, path, lines_of(0, 1000))

        batches = [batch_of(message) for message in await stored(js)]
        assert [b.start for b in batches[1:]] == [b.end for b in batches[:-1]]


async def test_a_full_stream_holds_lines_back_and_loses_none(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """While the stream refuses messages the files are the buffer; the status names the reason."""
    path = tmp_path / "logs" / "app.log"
    async with jetstream(nats_server) as js, shipping(config_of(tmp_path, nats_server.url)):
        await make_stream(js, max_msgs=2)
        append(path, lines_of(0, 500))
        await until_it_says(js, "refuses messages")
        before = await stored(js)
        config = (await js.stream_info(STREAM) or {})["config"]
        await js.call(f"STREAM.UPDATE.{STREAM}", config | {"max_msgs": -1})

        await until_stored(js, path, lines_of(0, 500))
        assert len(before) == 2
        await until_it_says(js, None)


async def test_an_account_without_storage_left_holds_lines_back_and_loses_none(
    tmp_path: Path,
) -> None:
    """A limit that is reached is raised by somebody one day: no line is put aside for it."""
    path = tmp_path / "logs" / "app.log"
    lines = b"".join(os.urandom(32).hex().encode() + b"\n" for _ in range(3000))
    async with (
        limited_server(tmp_path / "nats", 40_000) as server,
        jetstream_at(server.url) as js,
        shipping(config_of(tmp_path, server.url)),
    ):
        await make_stream(js)
        append(path, lines)
        await until_it_says(js, "account")
        before = await stored(js)
        await server.allow(js, 10_000_000)

        await until_stored(js, path, lines)
        assert len(before) < len(await stored(js))
        assert (await status(js))["quarantined"] == 0


async def test_a_missing_stream_is_named_and_waited_for(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Nothing is put aside because somebody forgot to make the stream."""
    path = tmp_path / "logs" / "app.log"
    append(path, lines_of(0, 10))
    async with jetstream(nats_server) as js, shipping(config_of(tmp_path, nats_server.url)):
        await until_it_says(js, "no stream has the subject logs.p0.node-a; run `logpipeline apply`")
        await make_stream(js)

        await until_stored(js, path, lines_of(0, 10))


async def test_a_server_that_asks_for_credentials_is_waited_for_until_they_are_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Files with secrets are read again at each try: no restart is needed."""
    secret = tmp_path / "password"
    secret.write_text("wrong")
    (tmp_path / "user").write_text("ship")
    options = ServerOptions(user="ship", password="right")
    async with EmbeddedServer(tmp_path / "nats", options) as server:
        files: dict[str, Any] = {"user_file": tmp_path / "user", "password_file": secret}
        path = tmp_path / "logs" / "app.log"
        config = config_of(tmp_path, server.url, nats=NatsOptions(servers=(server.url,), **files))
        append(path, lines_of(0, 10))
        async with shipping(config) as shipper:
            await eventually(lambda: "cannot connect to NATS" in caplog.text)
            assert not shipper.task.done()
            secret.write_text("right")
            async with jetstream(server, **files) as js:
                await make_stream(js)

                await until_stored(js, path, lines_of(0, 10))


async def test_batches_above_the_servers_limit_are_split_between_lines(tmp_path: Path) -> None:
    """A server with a smaller limit than ours gets smaller messages, and the client lives on."""
    options = ServerOptions(max_payload_bytes=8 * 1024)
    async with EmbeddedServer(tmp_path / "nats", options) as server, jetstream(server) as js:
        await make_stream(js)
        batch = BatchOptions(bytes_max=128 * 1024, compression="none")
        path = tmp_path / "logs" / "app.log"
        config = config_of(tmp_path, server.url, batch=batch)
        append(path, lines_of(0, 5000) + b"x" * 30_000 + b"\n" + lines_of(0, 10))
        async with shipping(config):
            await until_stored(js, path, path.read_bytes())

        batches = [batch_of(message) for message in await stored(js)]
        inside = [b for b in batches if b.starts_inside_line or b.ends_inside_line]
        assert sum(b.end - b.start for b in inside) < 60_000, "only the long line is cut"
        assert not any((tmp_path / "data").glob("quarantine/*"))


async def test_batches_above_the_streams_limit_are_split_too(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """A stream may take smaller messages than its server does."""
    path = tmp_path / "logs" / "app.log"
    batch = BatchOptions(bytes_max=64 * 1024, compression="none")
    append(path, lines_of(0, 3000))
    async with jetstream(nats_server) as js:
        await make_stream(js, max_msg_size=8 * 1024)
        async with shipping(config_of(tmp_path, nats_server.url, batch=batch)):
            await until_stored(js, path, lines_of(0, 3000))


async def test_what_is_refused_for_good_is_put_aside_and_stops_nothing(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """A message that no size makes acceptable is kept on disk with its range and the reason."""
    path = tmp_path / "logs" / "app.log"
    append(path, os.urandom(700).replace(b"\n", b" ") + b"\n")
    async with jetstream(nats_server) as js:
        await make_stream(js, max_msg_size=900)
        async with shipping(config_of(tmp_path, nats_server.url)):
            kept = await eventually(lambda: list((tmp_path / "data/quarantine").glob("*.msg")))

            head, _, data = kept[0].read_bytes().partition(b"\n")
            about = json.loads(head)
            assert data == path.read_bytes()
            assert (about["start"], about["end"], about["source"]) == (0, 701, str(path))
            assert (await status(js))["quarantined"] == 1


async def test_a_disk_that_is_full_for_positions_stops_no_lines(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Lines go on; readiness says what is wrong; saving recovers by itself."""
    path = tmp_path / "logs" / "app.log"
    blocker = tmp_path / "data" / "positions.tmp"
    async with jetstream(nats_server) as js, shipping(config_of(tmp_path, nats_server.url)):
        await make_stream(js)
        await eventually((tmp_path / "data" / "positions").exists)
        blocker.mkdir()
        append(path, lines_of(0, 10))
        await until_it_says(js, "cannot save positions")
        await until_stored(js, path, lines_of(0, 10))
        blocker.rmdir()

        await until_it_says(js, None)


async def until_it_says(js: JetStream, text: str | None) -> None:
    """Return when readiness has *text* as its reason, or, with None, nothing against it."""

    async def says() -> bool:
        ready = (await status(js))["ready"]
        return ready is None if text is None else text in (ready or "")

    await until(says)
