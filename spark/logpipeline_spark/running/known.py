"""Decides which of the marked messages of a batch bring new bytes, by the collectors' own rule.

Pure: the same messages lead to the same knowledge, however a batch was cut into tasks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

import zstandard

from logpipeline.knowledge import NOTHING, Knowledge, Range, decide, decode, encode
from logpipeline_spark.errors import Refused
from logpipeline_spark.lines.sources import Seen

# As many as a collector knows; those that were silent the longest are forgotten first.
SOURCES_MAX = 250_000
# 250,000 sources of some 300 bytes; a damaged object shall not take all memory.
STATE_BYTES_MAX = 512 * 1024 * 1024
LEVEL = 3

SourceName = tuple[str, str]
Known = dict[SourceName, Knowledge]


class Wanted(NamedTuple):
    """A marked message of which these *ranges* of bytes are new."""

    sequence: int
    ranges: tuple[Range, ...]


class Learned(NamedTuple):
    """What a batch taught of one stream: marked messages that are *wanted*, and, to be looked at
    by people, bytes that came twice *unmarked*, and bytes that are *missing*.
    """

    wanted: tuple[Wanted, ...]
    unmarked_bytes: int
    missing_bytes: int


def learn(known: Known, seen: Seen) -> Learned:
    """Bring *known* up to date with what was *seen* of a range of one stream.

    *known* is changed in place; the source that changed last stands last in it.
    """
    wanted: list[Wanted] = []
    unmarked = missing = 0
    runs = [(run, False) for run in seen.runs] + [(run, True) for run in seen.marked]
    for run, is_marked in sorted(runs, key=lambda pair: pair[0].first):
        name = (run.host, run.source)
        before = known.pop(name, NOTHING)
        decision = decide(before, run.batch)
        known[name] = decision.after
        missing += decision.after.missing - before.missing
        new = sum(part.end - part.start for part in decision.ranges)
        if not is_marked:
            unmarked += run.end - run.start - new
        elif decision.ranges:
            wanted.append(Wanted(run.first, decision.ranges))
    while len(known) > SOURCES_MAX:
        del known[next(iter(known))]
    return Learned(tuple(wanted), unmarked, missing)


def pack(known: Mapping[SourceName, Knowledge]) -> bytes:
    """Return *known* as bytes, to be kept beside a commit."""
    rows = [[host, source, encode(knowledge)] for (host, source), knowledge in known.items()]
    text = json.dumps(rows, separators=(",", ":"))
    return zstandard.ZstdCompressor(LEVEL).compress(text.encode())


def unpack(data: bytes, *, where: str) -> Known:
    """Return what `pack` made.

    Raises:
        Refused: it is something else; *where* tells the reader which object.
    """
    try:
        text = zstandard.ZstdDecompressor().decompress(data, max_output_size=STATE_BYTES_MAX)
        return {(str(h), str(s)): decode(knowledge) for h, s, knowledge in json.loads(text)}
    except (zstandard.ZstdError, ValueError, TypeError) as error:
        raise Refused(
            f"{where} is damaged ({error}): bring the table's folder _table back from a backup"
        ) from error
