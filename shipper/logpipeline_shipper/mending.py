"""Sends bytes again that were lost after their acknowledgement, while the files hold them; what of
them is gone for good is noted as lost.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import replace

from logpipeline_shipper import cutting
from logpipeline_shipper.account import Account, Gap
from logpipeline_shipper.delivery import Delivery
from logpipeline_shipper.files.chain import Chain
from logpipeline_shipper.intents import Key
from logpipeline_shipper.parcels import ATTEMPT_BYTES
from logpipeline_shipper.shared import Shared

log = logging.getLogger(__name__)


async def mend(
    gap: Gap, chain: Chain, account: Account, delivery: Delivery, shared: Shared
) -> None:
    """Publish exactly the bytes of *gap* once more; those whose file is gone become a loss.

    Raises:
        NotNow: the rest cannot be read now, and stays owed.
    """
    generation, at, end = gap.generation, gap.start, gap.end
    attempt, inside = secrets.token_hex(ATTEMPT_BYTES), False
    checksum = chain.checksum_at(generation, at, shared.clock())
    log.warning("what the server lost is sent again", extra=_fields(delivery.key, gap))
    while at < end and not shared.is_stopping:
        size = min(end - at, shared.options.bytes_max)
        await shared.budget.take(2 * size)
        try:
            data = chain.read_range(generation, at, at + size, shared.clock())
            if checksum is None or not data:
                rest = gap._replace(start=at)
                account.lose(rest)
                shared.totals.unhealed_bytes += end - at
                log.error(
                    "the server lost lines whose file is gone", extra=_fields(delivery.key, rest)
                )
                return
            chunk = cutting.piece_of(
                data,
                generation=generation,
                start=at,
                checksum=checksum,
                log_format=delivery.id.format,
                is_last=at + size >= end,
                inside=inside,
            )
            begins = account.begins_at(generation, at)
            await delivery.repeat(replace(chunk, begins=begins), attempt)
        finally:
            shared.budget.give_back(2 * size)
        account.pay(generation, (chunk.start, chunk.end))
        at, inside = chunk.end, chunk.ends_inside_line
        checksum = chunk.checksums.after
        shared.totals.filled_bytes += len(chunk.data)


def _fields(key: Key, gap: Gap) -> dict[str, object]:
    return {**key._asdict(), **gap._asdict()}
