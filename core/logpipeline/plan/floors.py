"""How far a stream is done with: for each reader, the last message that it needs no more.

A floor is a promise that nobody will ask for a message again, so whatever is in doubt is 0: a
position of another incarnation of the stream, one that the server has rolled back, no snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from logpipeline.records import EpochRecord, assignment_key, epoch_key

# Below these stand the keys that name a group.
_EPOCHS = epoch_key("", 0).split(".")[0] + "."
_ASSIGNMENTS = assignment_key("")


def groups_of(keys: Iterable[str]) -> set[str]:
    """Return the groups of collectors that the state bucket's *keys* tell of."""
    groups = set()
    for key in keys:
        if key.startswith(_EPOCHS):
            groups.add(key.removeprefix(_EPOCHS).rpartition(".")[0])
        elif key.startswith(_ASSIGNMENTS):
            groups.add(key.removeprefix(_ASSIGNMENTS))
    return groups - {""}


def group_floor(
    record: EpochRecord | None, *, created: str, last_sequence: int, time_ns: int | None
) -> int:
    """Return the floor of a group of collectors, whose *record* it is.

    *created* and *last_sequence* are the stream's; *time_ns* is the server's time of the message
    at the record's position, None where it has no such message.
    """
    if record is None or record.position.created != created:
        return 0
    position = record.position
    if position.sequence > last_sequence or position.time_ns != time_ns:
        return 0
    # The message at the position stays: by its time the position is verified. What comes after
    # the snapshot stays: a successor with another folder reads its headers, from where the group
    # began if there is no snapshot yet.
    known = max(record.snapshot_at if record.snapshot else 0, record.begun)
    return max(0, min(position.sequence - 1, known))


def durable_floors(consumers: Iterable[Mapping[str, Any]], *, last_sequence: int) -> dict[str, int]:
    """Return the floors of the durables among *consumers*, as the server lists them.

    *last_sequence* is the stream's from before the listing: to who waits for nothing, everything
    up to there is done.
    """
    return {
        f"consumer {consumer['name']}": _durable_floor(consumer, last_sequence)
        for consumer in consumers
        if consumer["config"].get("durable_name")
    }


def _durable_floor(consumer: Mapping[str, Any], last_sequence: int) -> int:
    is_acked = consumer["config"].get("ack_policy", "none") != "none"
    waiting = consumer.get("num_pending", 0) + (
        consumer.get("num_ack_pending", 0) if is_acked else 0
    )
    if not waiting:
        # With a filter, its own figures may be far behind.
        return last_sequence
    return int(consumer["ack_floor" if is_acked else "delivered"].get("stream_seq", 0))
