"""What a message says of itself when it is sent, and when it is sent again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from logpipeline import wire
from logpipeline.nats.connection import OutcomeUnknown
from logpipeline.nats.jetstream import JetStream, PubAck
from logpipeline_shipper import publish
from logpipeline_shipper.message import Message
from logpipeline_shipper.publish import Sender


class _Unanswering:
    """A JetStream that stores the second try, and keeps the headers of each."""

    def __init__(self) -> None:
        self.tries: list[Mapping[str, str]] = []

    async def publish(
        self, subject: str, payload: bytes, headers: Mapping[str, str], *, timeout_s: float
    ) -> PubAck:
        self.tries.append(headers)
        if len(self.tries) == 1:
            raise OutcomeUnknown("no answer")
        return PubAck("LOGS_0", 1, duplicate=False)


class _Open:
    async def wait(self) -> None:
        """Sending may always begin."""


def message(*, unsure: bool) -> Message:
    """A message of one line."""
    batch = wire.Batch(
        source="/a.log", generation="0" * 16, start=0, end=2, lines=1, format="plain", unsure=unsure
    )
    return Message("logs.p0.web", batch, "id", b"x\n")


@pytest.mark.parametrize("unsure", [True, False])
async def test_a_message_without_an_answer_is_known_to_be_sent_again(
    unsure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was in doubt about it before its first try."""
    monkeypatch.setattr(publish, "BACKOFF_FIRST_S", 0.0)
    js = _Unanswering()
    sender = Sender(
        cast(JetStream, js), _Open(), ack_timeout_s=1.0,
        on_ack=lambda *_: None, floor=lambda subject: 0,
    )  # fmt: skip

    await sender.send(message(unsure=unsure), resend=unsure)

    said: list[tuple[Any, Any]] = [
        (headers.get("Log-Resend"), headers.get("Log-Unsure")) for headers in js.tries
    ]
    assert said == [("1", "1") if unsure else (None, None), ("1", None)]
