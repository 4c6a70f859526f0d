"""A real nats-server whose only account has a limit of storage that can be raised while it runs."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from logpipeline.nats.connection import Connection, NatsOptions, NoResponders
from logpipeline.nats.jetstream import JetStream
from logpipeline.server_binary import find_binary
from ports import free_port
from waiting import WITHIN_S, eventually

_CONFIG = """
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{store}", sync_interval: always, max_file_store: 1GB }}
accounts {{
  LOGS {{
    jetstream {{ max_file: {limit}, max_memory: -1 }}
    users [ {{ user: "logs", password: "logs" }} ]
  }}
}}
no_auth_user: "logs"
"""


@dataclass(frozen=True, slots=True)
class LimitedServer:
    """See the module."""

    url: str
    config: Path
    process: asyncio.subprocess.Process

    async def allow(self, js: JetStream, limit_bytes: int) -> None:
        """Give the account *limit_bytes* of storage."""
        port = int(self.url.rpartition(":")[2])
        self.config.write_text(_rendered(self.config.parent, port, limit_bytes))
        self.process.send_signal(signal.SIGHUP)

        async def is_allowed() -> bool:
            try:
                return bool((await js.call("INFO"))["limits"]["max_storage"] == limit_bytes)
            except NoResponders:
                # While the server takes the limit in, the account has no JetStream for a moment.
                return False

        await eventually(is_allowed, what="the account has its new limit")


@asynccontextmanager
async def limited_server(folder: Path, limit_bytes: int) -> AsyncIterator[LimitedServer]:
    """Run the server inside the block."""
    folder.mkdir()
    port, config = free_port(), folder / "nats.conf"
    config.write_text(_rendered(folder, port, limit_bytes))
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            str(find_binary()), "-c", str(config), stdout=log, stderr=log
        )
    try:
        yield LimitedServer(f"nats://127.0.0.1:{port}", config, process)
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def jetstream_at(url: str) -> AsyncIterator[JetStream]:
    """Return a connection of the test's own, once the server answers."""
    connection = Connection(NatsOptions(servers=(url,), name="test"))
    await connection.start(patience_s=WITHIN_S)
    try:
        yield JetStream(connection)
    finally:
        await connection.close()


def _rendered(folder: Path, port: int, limit_bytes: int) -> str:
    return _CONFIG.format(port=port, store=folder / "store", limit=limit_bytes)
