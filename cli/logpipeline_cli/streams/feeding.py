"""Messages as bytes for a command's standard input, or for the terminal."""

from __future__ import annotations

from typing import Literal

from logpipeline.consuming.message import Batch, Message
from logpipeline_collector.archive import jsonlines
from logpipeline_collector.archive.naming import origin_of

Output = Literal["raw", "cri", "json"]


def render(batch: Batch, output: Output) -> bytes:
    """Return the lines of *batch*: as the program wrote them, as the runtime did, or as JSON.

    Raises:
        BadMessage: a message cannot be decoded.
    """
    return b"".join(_render(message, output) for message in batch.messages)


def _render(message: Message, output: Output) -> bytes:
    if output == "json":
        batch = message.read.batch
        is_cri = batch is not None and batch.format == "cri"
        origin = origin_of(message.host, batch)
        return jsonlines.render(origin, is_cri, message.data, message.time_ns)
    if output == "cri":
        data = message.data
        return data if not data or data.endswith(b"\n") else data + b"\n"
    return b"".join(line.text + b"\n" for line in message.lines)
