"""One connection for each pipeline, kept open between looks and made anew when the way changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logpipeline.nats.connection import ConnectFailed, Connection, NatsOptions
from logpipeline.nats.jetstream import API_TIMEOUT_S, JetStream, PubAck
from logpipeline_operator.cluster.client import Fence
from logpipeline_operator.jetstream import credentials
from logpipeline_operator.queue import Key

# A server that is away makes one look slow, and there are only so many workers.
PATIENCE_S = 5.0


class FencedJetStream(JetStream):
    """Asks the *fence* before each request of the API and each message."""

    def __init__(self, connection: Connection, fence: Fence) -> None:
        super().__init__(connection)
        self._fence = fence

    async def call(
        self, request: str, body: dict[str, Any] | None = None, *, timeout_s: float = API_TIMEOUT_S
    ) -> Any:
        """Return the answer, as `JetStream.call` does.

        Raises:
            ClusterAway: we may not lead any more.
        """
        self._fence.check()
        return await super().call(request, body, timeout_s=timeout_s)

    async def publish(
        self,
        subject: str,
        payload: bytes,
        headers: dict[str, str] | None = None,
        *,
        timeout_s: float = API_TIMEOUT_S,
    ) -> PubAck:
        """Store a message, as `JetStream.publish` does.

        Raises:
            ClusterAway: we may not lead any more.
        """
        self._fence.check()
        return await super().publish(subject, payload, headers, timeout_s=timeout_s)


@dataclass(slots=True)
class _Link:
    fingerprint: str
    connection: Connection


@dataclass(slots=True)
class Links:
    """The connections; credentials lie below *folder*, and requests pass the *fence*."""

    folder: Path
    fence: Fence
    _links: dict[Key, _Link] = field(default_factory=dict)

    async def get(
        self,
        key: Key,
        files: Mapping[str, bytes],
        servers: tuple[str, ...],
        options: Callable[[Path], NatsOptions],
    ) -> JetStream:
        """Return the pipeline's JetStream over a connection that stands.

        *options* says how to connect, with credentials in the folder that it is given.

        Raises:
            ConnectFailed: there is none; the message says why.
        """
        fingerprint = credentials.fingerprint(files, *servers)
        link = self._links.get(key)
        if link is not None and link.fingerprint != fingerprint:
            await self.drop(key)
            link = None
        if link is not None and link.connection.is_connected:
            return FencedJetStream(link.connection, self.fence)
        if link is not None:
            # It keeps trying by itself; this look is told why it does not stand, by a try of its
            # own.
            await self.drop(key)
        folder = self._folder(key)
        credentials.write(files, folder)
        connection = Connection(options(folder).named("logpipeline operator"))
        await connection.start(patience_s=PATIENCE_S)
        self._links[key] = _Link(fingerprint, connection)
        return FencedJetStream(connection, self.fence)

    def known(self) -> list[Key]:
        """Return the pipelines that have a connection."""
        return list(self._links)

    async def drop(self, key: Key) -> None:
        """End the pipeline's connection, and forget its credentials."""
        link = self._links.pop(key, None)
        if link is not None:
            await link.connection.close()
        shutil.rmtree(self._folder(key), ignore_errors=True)

    async def close(self) -> None:
        """End all connections."""
        for key in list(self._links):
            await self.drop(key)

    def _folder(self, key: Key) -> Path:
        return self.folder / f"{key.namespace}_{key.name}"


__all__ = ["ConnectFailed", "Links"]
