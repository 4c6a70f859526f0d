"""What a data-deleting change would delete, reckoned from a stream's state: at most so much."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from logpipeline.nats.jetstream import time_ns_of
from logpipeline.plan.model import FoundStream, Loss

NOTHING = Loss(0, 0, "nothing now")


def reckon(field: str, wanted: Mapping[str, Any], stream: FoundStream) -> Loss:
    """Return what the change of *field* to *wanted* (normalised) would delete of *stream* now."""
    held = stream.state.get("messages", 0)
    if field == "max_msgs":
        return _oldest(stream, held - wanted[field])
    if field == "max_bytes":
        return _oldest(stream, _share(stream, stream.state.get("bytes", 0) - wanted[field]))
    if field == "discard":
        beyond_msgs = held - wanted["max_msgs"] if wanted["max_msgs"] > 0 else 0
        beyond_bytes = stream.state.get("bytes", 0) - wanted["max_bytes"]
        share = _share(stream, beyond_bytes) if wanted["max_bytes"] > 0 else 0
        return _oldest(stream, max(beyond_msgs, share))
    if field == "max_age":
        return _older(stream, wanted[field])
    if field == "max_msgs_per_subject":
        return _of_subjects(stream, wanted[field])
    return _loss(stream, held, "at most {messages} messages, those that no consumer waits for")


def _oldest(stream: FoundStream, messages: int) -> Loss:
    return _loss(stream, messages, "about the {messages} oldest of {held} messages")


def _older(stream: FoundStream, age_ns: int) -> Loss:
    if not stream.state.get("messages", 0):
        return NOTHING
    border = time_ns_of(stream.now) - age_ns
    first = time_ns_of(stream.state["first_ts"])
    last = time_ns_of(stream.state["last_ts"])
    if first >= border:
        return NOTHING
    # Messages are taken as spread evenly in time; only reading them all would tell more.
    share = min(1.0, (border - first) / max(last - first, 1))
    messages = max(1, round(stream.state["messages"] * share))
    day = datetime.fromtimestamp(border // 1_000_000_000, UTC)
    when = day.strftime("%Y-%m-%dT%H:%M:%SZ")
    return _loss(stream, messages, f"about {{messages}} of {{held}} messages, from before {when}")


def _of_subjects(stream: FoundStream, kept: int) -> Loss:
    text = "at most {messages} of {held} messages, the oldest of each subject"
    return _loss(stream, stream.state.get("messages", 0) - kept, text)


def _share(stream: FoundStream, size: int) -> int:
    held = max(stream.state.get("bytes", 0), 1)
    messages = int(stream.state.get("messages", 0))
    # Rounded up: a part of a message is a whole one lost.
    return min(messages, -(-messages * size // held)) if size > 0 else 0


def _loss(stream: FoundStream, messages: int, text: str) -> Loss:
    held = stream.state.get("messages", 0)
    messages = min(messages, held)
    if messages <= 0:
        return NOTHING
    size = stream.state.get("bytes", 0) * messages // held
    return Loss(messages, size, text.format(messages=messages, held=held))
