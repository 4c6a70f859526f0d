"""Which losses a person has seen. They stay listed; a check is silent about them."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from logpipeline.nats.bucket import Bucket, Conflict

KEY = "losses.acknowledged"
# One is 30 bytes: far below what a message may have. The oldest go first.
ACKNOWLEDGED_MAX = 10_000
ID_BYTES = 5


def id_of(row: Mapping[str, Any]) -> str:
    """Return the name of a loss, by which a person means it."""
    name = "\0".join(str(row[field]) for field in ("host", "source", "generation", "start", "end"))
    data = name.encode("utf-8", "surrogateescape")
    return hashlib.blake2b(data, digest_size=ID_BYTES).hexdigest()


async def acknowledged(bucket: Bucket) -> dict[str, float]:
    """Return when each loss was acknowledged, in seconds since 1970, by its id.

    Raises:
        NotSent, OutcomeUnknown, ApiError: the bucket could not be read.
    """
    entry = await bucket.get(KEY)
    return _decoded(entry.value) if entry is not None else {}


async def acknowledge(bucket: Bucket, ids: Iterable[str]) -> None:
    """Note that a person knows of the losses *ids*.

    Raises:
        NotSent, OutcomeUnknown, ApiError: the bucket could not be written.
    """
    wanted = dict.fromkeys(ids, time.time())
    while True:
        entry = await bucket.get(KEY)
        known = _decoded(entry.value) if entry is not None else {}
        kept = dict([*(wanted | known).items()][-ACKNOWLEDGED_MAX:])
        try:
            revision = entry.revision if entry is not None else 0
            await bucket.swap(KEY, json.dumps(kept).encode(), revision=revision)
        except Conflict:
            continue  # another command has written the key since we read it
        return


def _decoded(value: bytes) -> dict[str, float]:
    try:
        data = json.loads(value)
        return {str(name): float(when_s) for name, when_s in data.items()}
    except (ValueError, TypeError, AttributeError):
        return {}  # not written by this command: treated as no acknowledgement
