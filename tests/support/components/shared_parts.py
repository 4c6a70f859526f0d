"""What the sources of a shipper share, with a server that takes everything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

from logpipeline.nats.jetstream import PubAck
from logpipeline.redaction import NOTHING_REDACTED
from logpipeline_shipper.checkpoint import IntentLog
from logpipeline_shipper.config import BatchOptions
from logpipeline_shipper.message import Message
from logpipeline_shipper.publish import Sender
from logpipeline_shipper.quarantine import Quarantine
from logpipeline_shipper.shared import ByteBudget, Shared


class Server:
    """Acknowledges each message, and keeps what it brought."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    def check_size(self, message: Message) -> None:
        """Take a message of any size."""

    async def send(self, message: Message, *, resend: bool) -> PubAck:
        """Acknowledge *message*."""
        self.payloads.append(message.payload)
        return PubAck("LOGS_0", len(self.payloads), duplicate=False)


def shared_by(server: Server, folder: Path, clock: Callable[[], float]) -> Shared:
    """Return what sources share that send to *server*, with a data folder in *folder*."""
    return Shared(
        sender=cast(Sender, server),
        budget=ByteBudget(10_000_000),
        intents=IntentLog(folder, ""),
        quarantine=Quarantine(folder / "quarantine", bytes_max=1000),
        options=BatchOptions(),
        redactor=NOTHING_REDACTED,
        threads=ThreadPoolExecutor(1),
        spawn=asyncio.create_task,
        changed=lambda: None,
        clock=clock,
    )
