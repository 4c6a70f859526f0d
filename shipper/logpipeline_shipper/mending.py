"""Sends bytes again that were lost after their acknowledgement, while the files hold them."""

from __future__ import annotations

import logging
import secrets

from logpipeline.checksum import extend
from logpipeline_shipper import cutting, healing
from logpipeline_shipper.delivery import Delivery
from logpipeline_shipper.files.chain import Chain
from logpipeline_shipper.intents import Key
from logpipeline_shipper.past import Past
from logpipeline_shipper.shared import Shared
from logpipeline_shipper.standing import Standing

log = logging.getLogger(__name__)

# The suffix of a message id: no two attempts at the same bytes may look alike to the server.
ATTEMPT_BYTES = 4


def rewind(key: Key, chain: Chain, past: Past, standing: Standing, shared: Shared) -> None:
    """Go back to where every collector has confirmed, or to what the files still hold after it."""
    chain.rewind()
    frontier = chain.position()
    target = standing.unconfirmed(frontier) if frontier is not None else None
    if frontier is None or target is None:
        return
    for generation, offset in _starts(target, standing.generations):
        if chain.rewind_to(generation, offset):
            past.rewound(frontier, secrets.token_hex(ATTEMPT_BYTES))
            shared.totals.rewinds += 1
            shared.changed()
            log.warning(
                "what no collector has confirmed is sent again",
                extra={**key._asdict(), "generation": generation, "offset": offset},
            )
            return
    log.error(
        "lines may be lost: the server lost them, and their file is gone",
        extra={**key._asdict(), "generation": target[0], "offset": target[1]},
    )


async def mend(hole: healing.Hole, chain: Chain, delivery: Delivery, shared: Shared) -> None:
    """Send exactly the bytes of *hole* again."""
    generation, start, end = hole
    attempt, inside = secrets.token_hex(ATTEMPT_BYTES), False
    log.warning(
        "a hole is filled from the file",
        extra={**delivery.key._asdict(), "generation": generation, "start": start, "end": end},
    )
    checksum = chain.checksum_at(generation, start)
    if checksum is None:
        _count_unhealed(delivery.key, hole, shared)
        return
    while start < end and not shared.is_stopping:
        size = min(end - start, shared.options.bytes_max)
        await shared.budget.take(2 * size)
        try:
            data = chain.read_range(generation, start, start + size)
            if not data:
                _count_unhealed(delivery.key, (generation, start, end), shared)
                return
            chunk = cutting.piece_of(
                data,
                generation=generation,
                start=start,
                checksum=checksum,
                log_format=delivery.id.format,
                is_last=start + size >= end,
                inside=inside,
            )
            await delivery.repeat(chunk, attempt)
        finally:
            shared.budget.give_back(2 * size)
        start, inside = chunk.end, chunk.ends_inside_line
        checksum = extend(checksum, chunk.data)
        shared.totals.filled_bytes += len(chunk.data)


def _starts(target: tuple[str, int], generations: list[str]) -> list[tuple[str, int]]:
    is_known = target[0] in generations
    later = generations[generations.index(target[0]) + 1 :] if is_known else generations
    return [target, *((generation, 0) for generation in later)]


def _count_unhealed(key: Key, hole: healing.Hole, shared: Shared) -> None:
    generation, start, end = hole
    shared.totals.unhealed_bytes += end - start
    log.error(
        "missing lines cannot be sent again: their file is gone",
        extra={**key._asdict(), "generation": generation, "start": start, "end": end},
    )
