"""What each destination of the command `sink` keeps: the contract of `destination.Destination`, as
a suite that a destination runs through with the server that it writes to.

A sink that is killed after a write and before the position is kept is, for its destination, a
batch that is written once more by a new process, over a new connection; so is an answer that was
lost. The suite does both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from components.sink_batches import CREATED, batch_of, message, plain_batch
from components.sink_servers import RETRY_AFTER_S, StandIn
from logpipeline.consuming.message import Batch
from logpipeline_cli.sinks.destination import (
    REQUEST_BYTES_MAX,
    Destination,
    Misdirected,
    Refused,
    TryAgain,
)

LATER = "2026-11-25T11:00:00.000000001Z"
CRI = b"2026-11-25T10:00:00.000000001Z stdout F one\n2026-11-25T10:00:00.000000002Z stderr F two\n"


@dataclass(frozen=True, slots=True)
class Implementation:
    """A kind of destination, and the server behind it. *is_once*: it promises that a batch that is
    written again is stored once. *cuts* of its connection in a row make a first write fail: 2 where
    the connection is there since `open`, since a kept one that is cut is opened again.
    """

    server: StandIn
    make: Callable[[], Destination]
    is_once: bool
    cuts: int = 1

    async def write(self, batch: Batch) -> None:
        """Write as a process that has just started."""
        destination = self.make()
        await destination.open()
        try:
            await destination.write(batch)
        finally:
            await destination.close()

    def holds(self, *texts: bytes, repeated: bool = False) -> None:
        """Check that the server keeps these lines, once where that is promised; a kind that does
        not promise it may have them more often if they were *repeated*.
        """
        found = self.server.texts()
        if repeated and not self.is_once:
            assert list(dict.fromkeys(found)) == list(texts)
        else:
            assert found == list(texts)


async def check(kind: Implementation) -> None:
    """Run *kind* through the contract; its server holds nothing yet."""
    await _keeps_all_bytes(kind)
    await _repeats(kind)
    await _is_told_to_wait(kind)
    await _large(kind)
    await _refused_in_part(kind)
    await _another_stream(kind)


FIRST = (b"one", b"", b"\xff two", b'a "quoted" \\ line\t', b"one", b"two")


async def _keeps_all_bytes(kind: Implementation) -> None:
    """Empty lines, the same line twice, quotes, and what is not UTF-8 arrive in their order."""
    plain = message(1, b"\n".join(FIRST[:4]) + b"\n")
    await kind.write(batch_of([plain, message(2, CRI, form="cri")]))
    kind.holds(*FIRST)


async def _repeats(kind: Implementation) -> None:
    """Killed before or after the write, or without an answer, it is stored once."""
    batch = plain_batch(b"three", b"three", first=3)
    kind.server.faults.extend(["cut"] * kind.cuts)
    with pytest.raises(TryAgain):
        await kind.write(batch)
    kind.server.faults.extend(["taken-and-cut"] * kind.cuts)
    with pytest.raises(TryAgain):
        await kind.write(batch)
    await kind.write(batch)
    await kind.write(batch)
    found = kind.server.texts()
    assert found.count(b"three") == 2 if kind.is_once else found.count(b"three") >= 2


async def _is_told_to_wait(kind: Implementation) -> None:
    """Busy, refused, and a wrong login are three things, and none stores a line."""
    batch = plain_batch(b"four", first=5)
    for fault, error in (("busy", TryAgain), ("refuse", Refused), ("login", Misdirected)):
        kind.server.faults.append(fault)  # type: ignore[arg-type]
        with pytest.raises(error) as found:
            await kind.write(batch)
        assert kind.server.url in str(found.value)
        assert b"four" not in kind.server.texts()
        if isinstance(found.value, TryAgain):
            assert found.value.after_s == RETRY_AFTER_S
    await kind.write(batch)
    assert kind.server.texts().count(b"four") == 1


async def _large(kind: Implementation) -> None:
    """More than a request holds is written in parts; after a cut between two, all is there."""
    texts = [bytes([65 + number]) * (REQUEST_BYTES_MAX // 3) for number in range(6)]
    batch = plain_batch(*texts, first=10)
    before = len(kind.server.requests)
    # A kept connection that is cut is opened again, once.
    kind.server.faults.extend([None, "cut", "cut"])
    with pytest.raises(TryAgain):
        await kind.write(batch)
    assert len(kind.server.requests) == before + 3
    await kind.write(batch)
    found = [text for text in kind.server.texts() if len(text) > 1000]
    assert sorted(set(found)) == texts
    assert len(found) == len(texts) or not kind.is_once
    assert max(len(each.data) for each in kind.server.requests) < 2 * REQUEST_BYTES_MAX


async def _refused_in_part(kind: Implementation) -> None:
    """Of a batch in parts one is refused: the reader hands out each message alone, and what was
    taken before is not there twice.
    """
    texts = [bytes([97 + number]) * (REQUEST_BYTES_MAX // 3) for number in range(6)]
    kind.server.faults.extend([None, "refuse"])
    destination = kind.make()
    with pytest.raises(Refused):
        await destination.write(plain_batch(*texts, first=20))
    for number, text in enumerate(texts):
        await destination.write(plain_batch(text, first=20 + number))
    await destination.close()
    found = [text for text in kind.server.texts() if text in texts]
    assert sorted(set(found)) == texts
    assert len(found) == len(texts) or not kind.is_once


async def _another_stream(kind: Implementation) -> None:
    """A stream that was made anew counts from 1 again: its first batch is another one."""
    assert CREATED != LATER
    await kind.write(plain_batch(b"made anew", b"again", first=1, created=LATER))
    assert {b"made anew", b"again"} <= set(kind.server.texts())
