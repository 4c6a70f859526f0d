"""How a pipeline's storage is shared among its streams, where the resource gives no sizes.

Everything that JetStream keeps for the pipeline has a limit, so that the disk never fills: a server
with a full disk does not recover by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from logpipeline.plan.model import Account
from logpipeline.spec import LogPipeline

MIB = 1024 * 1024
GIB = 1024 * MIB
# The rest, some tenth, is for indexes and for what is deleted but not yet given back.
LOG_PERCENT = 80
SNAPSHOT_DIVISOR = 16
DEAD_LETTER_DIVISOR = 32
STATE_DIVISOR = 64
# A thousand partitions of some groups, with history, need a tenth of it.
STATE_BYTES_MAX = 64 * MIB
SNAPSHOT_BYTES_MAX = GIB
DEAD_LETTER_BYTES_MAX = GIB
# What streams in memory share, whatever the disk has.
MEMORY_BYTES_MAX = GIB
BLOCK_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Shares:
    """Sizes of each log stream, and of the three streams beside them."""

    log_bytes: int
    state_bytes: int
    snapshot_bytes: int
    dead_letter_bytes: int


def shares_of(pipeline: LogPipeline, account: Account | None, storage_bytes: int | None) -> Shares:
    """Return the shares of what there is: the resource's storage, or less if *storage_bytes* or the
    *account* have less.
    """
    wanted = pipeline.spec.stream
    disk = pipeline.spec.nats.managed.storage
    if storage_bytes is not None:
        disk = min(disk, storage_bytes)
    disk = _allowed(disk, account, wanted.replicas, is_file=True)
    lines = disk
    if wanted.storage == "memory":
        memory = min(disk, MEMORY_BYTES_MAX)
        lines = _allowed(memory, account, wanted.replicas, is_file=False)
    each = lines * LOG_PERCENT // 100 // max(pipeline.spec.partitions, 1)
    return Shares(
        log_bytes=_most_of_a_stream(each, account, wanted.replicas, wanted.storage == "file"),
        state_bytes=_blocks(min(STATE_BYTES_MAX, disk // STATE_DIVISOR)),
        snapshot_bytes=_blocks(min(SNAPSHOT_BYTES_MAX, disk // SNAPSHOT_DIVISOR)),
        dead_letter_bytes=_blocks(min(DEAD_LETTER_BYTES_MAX, disk // DEAD_LETTER_DIVISOR)),
    )


def _allowed(size: int, account: Account | None, replicas: int, *, is_file: bool) -> int:
    if account is None:
        return size
    limits = account.tier(replicas).limits
    most = limits.storage_bytes if is_file else limits.memory_bytes
    # Only a tier's limit is for one copy.
    copies = 1 if account.tiers else replicas
    return min(size, most // copies) if most > 0 else size


def _most_of_a_stream(size: int, account: Account | None, replicas: int, is_file: bool) -> int:
    if account is None:
        return _blocks(size)
    limits = account.tier(replicas).limits
    most = limits.storage_stream_bytes if is_file else limits.memory_stream_bytes
    return _blocks(min(size, most) if most > 0 else size)


def _blocks(size: int) -> int:
    return max(size // BLOCK_BYTES, 1) * BLOCK_BYTES
