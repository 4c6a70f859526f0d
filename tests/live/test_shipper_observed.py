"""A shipper shows what it does, and says in words why it does not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from components.shipping import (
    append,
    config_of,
    jetstream,
    lines_of,
    make_stream,
    shipping,
    until,
    until_noted,
    until_stored,
)
from logpipeline.embedded import EmbeddedServer
from waiting import eventually


async def page(port: int, name: str) -> tuple[int, str]:
    """Return status and text of one of the shipper's pages."""

    def get() -> tuple[int, str]:
        try:
            with urlopen(f"http://127.0.0.1:{port}/{name}") as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(get)


async def port_of(caplog: pytest.LogCaptureFixture) -> int:
    """Return the port that the shipper took, once it says so."""

    def ports() -> list[int]:
        return [vars(record)["port"] for record in caplog.records if "port" in vars(record)]

    return (await eventually(ports))[0]


async def test_metrics_tell_what_was_shipped(
    nats_server: EmbeddedServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Lines, bytes and backlog stand on the page that Prometheus reads."""
    caplog.set_level("INFO")
    path = tmp_path / "logs" / "app.log"
    append(path, lines_of(0, 100))
    config = config_of(tmp_path, nats_server.url, http_port=0)
    async with jetstream(nats_server) as js, shipping(config):
        await make_stream(js)
        await until_stored(js, path, lines_of(0, 100))
        port = await port_of(caplog)

        async def counts() -> bool:
            text = (await page(port, "metrics"))[1]
            return (
                "logpipeline_shipper_lines_total 100.0" in text
                and f"logpipeline_shipper_acked_bytes_total {len(lines_of(0, 100))}.0" in text
                and 'logpipeline_shipper_backlog_bytes{host="node-a"} 0.0' in text
            )

        await until(counts)
        assert await page(port, "healthz") == (200, "ok\n")
        assert await page(port, "readyz") == (200, "ok\n")


async def test_readiness_says_that_the_server_is_away(
    nats_server: EmbeddedServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not ready, with the reason, and alive: a restart of the shipper would not help."""
    caplog.set_level("INFO")
    async with shipping(config_of(tmp_path, nats_server.url, http_port=0)):
        port = await port_of(caplog)
        await until(lambda: _is(port, "readyz", 200))
        nats_server.kill()

        await until(lambda: _is(port, "readyz", 503))
        assert "NATS" in (await page(port, "readyz"))[1]
        assert (await page(port, "healthz"))[0] == 200


async def test_a_stop_while_the_server_is_away_ends_in_time(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """What is in flight stays noted, and is finished after the next start."""
    path = tmp_path / "logs" / "app.log"
    config = config_of(tmp_path, nats_server.url, drain_s=0.2)
    async with jetstream(nats_server) as js:
        await make_stream(js)
        async with shipping(config) as shipper:
            append(path, lines_of(0, 10))
            await until_stored(js, path, lines_of(0, 10))
            nats_server.suspend()
            append(path, lines_of(10, 20))
            await until_noted(config, path, len(lines_of(0, 20)))
            assert await shipper.stop() == 0
        assert not (config.data / "stopped").exists()
        nats_server.resume()
        append(path, lines_of(20, 100))
        async with shipping(config):
            await until_stored(js, path, lines_of(0, 100))


async def test_a_taken_address_for_metrics_is_a_clear_error(
    nats_server: EmbeddedServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named, and what to do."""
    port = int(nats_server.url.rsplit(":", 1)[1])
    async with shipping(config_of(tmp_path, nats_server.url, http_port=port)) as shipper:
        assert await shipper.task == 1

    reason = vars(caplog.records[-1])["reason"]
    assert reason.startswith(f"metrics cannot be served on 127.0.0.1:{port}")
    assert "give another address" in reason


async def _is(port: int, name: str, status: int) -> bool:
    return (await page(port, name))[0] == status
