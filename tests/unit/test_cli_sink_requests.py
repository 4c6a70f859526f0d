"""Which requests a batch becomes, and which of them are not sent again."""

from __future__ import annotations

import pytest

from components.sink_batches import plain_batch
from logpipeline_cli.sinks import destination
from logpipeline_cli.sinks.destination import Refused, TryAgain, name_of
from logpipeline_cli.sinks.line_requests import LineRequests


@pytest.mark.parametrize("error", [Refused("it is bad"), TryAgain("no answer")])
async def test_what_was_taken_of_a_batch_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Neither with the same batch, which goes on where it ended, nor when the reader hands out each
    message alone, whatever the batch ended with.
    """
    monkeypatch.setattr(destination, "REQUEST_BYTES_MAX", 1)
    sent: list[str] = []

    async def send(name: str, lines: list[bytes]) -> None:
        sent.append(name)
        if len(sent) in (2, 3):
            raise error

    requests, texts = LineRequests(send), (b"one", b"two", b"three")
    batch = plain_batch(*texts)
    for _ in range(2):
        with pytest.raises(type(error)):
            await requests.write(batch)
    for number, text in enumerate(texts):
        await requests.write(plain_batch(text, first=1 + number))

    alone = [name_of(plain_batch(text, first=2 + at)) for at, text in enumerate(texts[1:])]
    assert sent == [name_of(batch), f"{name_of(batch)}.1", f"{name_of(batch)}.1", *alone]


async def test_a_stream_that_was_made_anew_has_other_messages() -> None:
    """It counts from 1 again."""
    sent: list[str] = []

    async def send(name: str, lines: list[bytes]) -> None:
        sent.append(name)

    requests = LineRequests(send)
    batches = [plain_batch(b"one"), plain_batch(b"one", created="2026-11-25T11:00:00.000000001Z")]
    for batch in batches:
        await requests.write(batch)

    assert sent == [name_of(batch) for batch in batches]
