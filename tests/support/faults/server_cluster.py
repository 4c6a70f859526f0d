"""Three nats-servers that are one JetStream cluster, in the place of the one server of a pipeline
under test.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path

from logpipeline.nats.connection import Connection, NatsOptions, NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.server_binary import find_binary
from ports import free_port
from waiting import eventually

SERVERS = 3
# Streams reserve their greatest size: no test depends on how much disk is free.
STORE_BYTES = 1 << 40
READY_WITHIN_S = 60.0


class ServerCluster:
    """The servers, each with a folder below *folder*; clients of `url` begin at the first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports = [free_port() for _ in range(SERVERS)]
        self._routes = [free_port() for _ in range(SERVERS)]
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        """The address of the first server."""
        return self.url_of(0)

    def url_of(self, number: int) -> str:
        """Return the address of one server."""
        return f"nats://127.0.0.1:{self._ports[number]}"

    async def start(self) -> None:
        """Start all, and return when a stream with replicas can be written to."""
        for number in range(SERVERS):
            self.start_one(number)
        connection = Connection(NatsOptions(servers=(self.url,), name="test"))
        await connection.start()
        try:
            await eventually(
                lambda: _stores(connection), within_s=READY_WITHIN_S, what="the servers store"
            )
        finally:
            await connection.close()

    def start_one(self, number: int) -> None:
        """Start one server, with its former store."""
        folder = self.folder / f"server-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        config = {
            "server_name": f"server-{number}",
            "listen": f"127.0.0.1:{self._ports[number]}",
            "jetstream": {
                "store_dir": str(folder / "store"),
                "max_file_store": STORE_BYTES,
            },
            "cluster": {
                "name": "faults",
                "listen": f"127.0.0.1:{self._routes[number]}",
                "routes": [f"nats-route://127.0.0.1:{port}" for port in self._routes],
            },
        }
        path = folder / "server.conf"
        path.write_text(json.dumps(config))
        with (folder / "server.log").open("ab") as log:
            self._running[number] = subprocess.Popen(
                [find_binary(), "-c", path], stdout=log, stderr=log
            )

    def kill_one(self, number: int) -> None:
        """End one server at once."""
        process = self._running.pop(number)
        process.kill()
        process.wait()

    async def stop_one(self, number: int) -> None:
        """End one server in good order, as a rolling restart does."""
        process = self._running.pop(number)
        process.terminate()
        await asyncio.to_thread(process.wait)

    def freeze_one(self, number: int) -> None:
        """Stop one server from running; its connections stay."""
        os.kill(self._running[number].pid, signal.SIGSTOP)

    def thaw_one(self, number: int) -> None:
        """Let it go on."""
        os.kill(self._running[number].pid, signal.SIGCONT)

    def kill(self) -> None:
        """End all."""
        for number in list(self._running):
            self.kill_one(number)

    def log_tail(self) -> str:
        """Return the end of each server's log."""
        logs = [self.folder / f"server-{number}" / "server.log" for number in range(SERVERS)]
        return "\n".join(log.read_text(errors="replace")[-3000:] for log in logs)


async def _stores(connection: Connection) -> bool:
    """Return whether a stream with replicas can be made and written to."""
    js = JetStream(connection)
    config = {"name": "READY", "subjects": ["ready"], "num_replicas": SERVERS}
    try:
        await js.call(f"STREAM.CREATE.{config['name']}", config)
        await js.publish("ready", b"")
        await js.call(f"STREAM.DELETE.{config['name']}")
    except (ApiError, NotSent, OutcomeUnknown):
        return False
    return True
