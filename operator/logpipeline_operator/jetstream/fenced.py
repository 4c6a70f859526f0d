"""JetStream for one who may stop leading between any two requests."""

from __future__ import annotations

from typing import Any

from logpipeline.nats.connection import Connection
from logpipeline.nats.jetstream import API_TIMEOUT_S, JetStream, PubAck
from logpipeline_operator.cluster.fence import Fence


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
