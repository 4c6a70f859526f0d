"""Files as collectors leave them, made from what is expected; tests of the oracle damage them."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import zstandard

from logpipeline_demo.expected import Expected
from logpipeline_demo.ledger import Ledger
from logpipeline_demo.lines import SourceKey
from logpipeline_demo.sources import LogSource
from logpipeline_demo.writer import LogWriter

HOST = "node-a"
PLAIN = LogSource(HOST, "plain")
CONTAINER = LogSource(HOST, "cri", "cart-1", "uid-1", "shop", "cart")
# Where the default paths put them.
PLACES = {
    PLAIN.key: f"{HOST}/_files/var/log/app.log",
    CONTAINER.key: f"{HOST}/shop/cart-1/cart.log",
}
# With this one the first 300 lines have three empty ones, two of them in a row, and a pair of
# fragment runs that are interleaved.
SEED = 222


def run_of(
    folder: Path, *, lines: int, sources: Sequence[LogSource] = (PLAIN, CONTAINER), seed: int = SEED
) -> Expected:
    """Write *lines* lines of each of *sources* below *folder*, and return what is expected."""
    with Ledger(folder / "ledger", seed=seed) as ledger:
        for source in sources:
            writer = LogWriter(source, folder / "source", ledger)
            writer.write(lines)
            writer.close()
    return Expected.read(folder / "ledger")


def lines_of(expected: Expected, key: SourceKey) -> list[bytes]:
    """Return the lines of *key* as they are to be collected, raw."""
    source = expected.sources[key]
    return [source.line(seq) + b"\n" for seq in range(source.written_end)]


def collect(
    folder: Path, place: str, lines: Sequence[bytes], *, collector: int = 0, suffix: str = ""
) -> Path:
    """Write *lines* to the file *place* of a collector, rotated and compressed as *suffix* says."""
    path = folder / f"collector-{collector}" / "logs" / f"{place}{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    data = b"".join(lines)
    if suffix.endswith(".gz"):
        data = gzip.compress(data)
    elif suffix.endswith(".zst"):
        data = zstandard.compress(data)
    path.write_bytes(data)
    return path


def collect_all(folder: Path, expected: Expected) -> None:
    """Write everything that is expected, once and in order."""
    for key in expected.sources:
        collect(folder, PLACES[key], lines_of(expected, key))
