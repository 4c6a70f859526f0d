"""How often a server syncs, as its monitoring page says."""

from __future__ import annotations

import asyncio

from logpipeline.spec import LogPipeline, parse
from logpipeline_operator.jetstream import sync_of

ELSEWHERE = "the-other-host-was-asked"


async def test_a_monitoring_page_sends_nobody_elsewhere() -> None:
    """A class allows the URL of the resource, and no other that the page behind it names."""
    asked: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.split()[1].decode())
        writer.write(
            b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nConnection: close\r\n"
            b"Location: /%s\r\n\r\n" % ELSEWHERE.encode()
        )
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        sync = await sync_of(pipeline(f"http://127.0.0.1:{port}"))

    assert asked == ["/jsz?config=1"]
    assert "302" in (sync.why_unknown or "")


def pipeline(monitoring_url: str) -> LogPipeline:
    """Return a pipeline whose server has this page."""
    nats = {"servers": ["nats://127.0.0.1:4222"], "monitoringUrl": monitoring_url}
    return parse(
        {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": "prod", "namespace": "logging", "uid": "1"},
            "spec": {"nats": nats},
        }
    )
