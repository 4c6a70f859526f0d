"""What the collectors' files must hold, computed from the ledger alone: neither from the log files,
which may be gone, nor from any counter of the pipeline.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from logpipeline_demo.ledger import VERSION, Intervals
from logpipeline_demo.lines import LINE_STEP_NS, LineMaker, SourceKey, cri_lines


class LedgerBroken(ValueError):
    """The ledger is damaged, so that nothing can be checked against it."""


@dataclass(slots=True)
class ExpectedSource:
    """The lines of one source: the attempted ones, the written ones, and the removed ones."""

    maker: LineMaker
    attempted_end: int = 0
    written_end: int = 0
    long_bytes: dict[int, int] = field(default_factory=dict)
    begun: dict[int, tuple[int, int]] = field(default_factory=dict)  # text bytes, time
    abandoned: dict[int, int] = field(default_factory=dict)  # text bytes that were written
    removed: Intervals = field(default_factory=Intervals)  # stood in a file that was taken away
    rotations: int = 0
    calls: array[int] = field(default_factory=lambda: array("q"))  # the first line of each call
    times: array[int] = field(default_factory=lambda: array("q"))
    special: frozenset[int] = frozenset()  # lines that are not just `LineMaker.line`
    last_call: tuple[int, int, int, int] | None = None  # first, count, time, crc32

    @property
    def key(self) -> SourceKey:
        """The origin that the lines name."""
        return self.maker.key

    def line(self, seq: int) -> bytes:
        """Return the text of line *seq*, without its newline; of an abandoned one, what it has."""
        text = self.maker.line(seq)
        if seq in self.long_bytes:
            text = self.maker.long_line(seq, self.long_bytes[seq])
        return text[: self.abandoned.get(seq, len(text))]

    def is_blank(self, seq: int) -> bool:
        """Return whether line *seq* is empty."""
        return seq not in self.special and self.maker.is_blank(seq)

    def fragments(self, seq: int) -> bytes:
        """Return line *seq* as it stands in a container's log, without what is between."""
        index = bisect_right(self.calls, seq) - 1
        time_ns = self.times[index] + (seq - self.calls[index]) * LINE_STEP_NS
        if seq in self.begun:
            at, begun_ns = self.begun[seq]
            text = self.maker.line(seq)
            pieces = cri_lines(self.maker.stream(seq), [text[:at], text[at:]], begun_ns)
            return b"".join(pieces[:1] if seq in self.abandoned else pieces)
        if seq in self.long_bytes:
            return b"".join(cri_lines(self.maker.stream(seq), [self.line(seq)], time_ns))
        return b"".join(self.maker.fragments(seq, time_ns))


@dataclass(slots=True)
class Expected:
    """The lines that the collectors' files must hold after one run of the generator."""

    seed: int
    sources: dict[SourceKey, ExpectedSource]

    @property
    def lines(self) -> int:
        """Number of lines that were certainly written."""
        return sum(source.written_end for source in self.sources.values())

    @property
    def rotations(self) -> int:
        """Number of rotations."""
        return sum(source.rotations for source in self.sources.values())

    @classmethod
    def read(cls, ledger: Path) -> Expected:
        """Read *ledger*. A torn last record is the end of a generator that was killed.

        Raises:
            LedgerBroken: it is no ledger of this version, or its lines cannot be computed again.
        """
        expected: Expected | None = None
        numbered: list[ExpectedSource] = []
        with ledger.open("rb") as records:
            for number, record in enumerate(records, 1):
                if not record.endswith(b"\n"):
                    break
                fields = record.decode().split()
                try:
                    if expected is None:
                        expected = cls(_seed(fields), {})
                    elif fields[0] == "s":
                        numbered.append(_source(expected, fields))
                    else:
                        _apply(numbered[int(fields[1])], fields)
                except (ValueError, IndexError, KeyError) as error:
                    raise LedgerBroken(f"{ledger}, record {number}: {error!r}") from error
        if expected is None:
            raise LedgerBroken(f"{ledger} is empty: the generator did not start")
        for source in numbered:
            source.special = frozenset([*source.long_bytes, *source.begun, *source.abandoned])
            _verify(source, ledger)
        return expected


def _seed(fields: list[str]) -> int:
    kind, version, seed = fields
    if kind != "v" or int(version) != VERSION:
        raise ValueError(f"a ledger of version {VERSION} is needed")
    return int(seed)


def _source(expected: Expected, fields: list[str]) -> ExpectedSource:
    _, _, kind, host, name = fields
    key = SourceKey(unquote(host), unquote(name))
    if key in expected.sources:
        raise ValueError(f"{key} is announced twice")
    maker = LineMaker(expected.seed, key, "cri" if kind == "cri" else "plain")
    source = expected.sources[key] = ExpectedSource(maker)
    return source


def _apply(source: ExpectedSource, fields: list[str]) -> None:
    numbers = [int(value) for value in fields[2:5] if fields[0] != "e"]
    match fields[0]:
        case "a":
            first, count, time_ns = numbers
            if first != source.attempted_end:
                raise ValueError(f"line {source.attempted_end} is missing, not {first}")
            source.attempted_end = first + count
            source.calls.append(first)
            source.times.append(time_ns)
            source.last_call = (first, count, time_ns, int(fields[6], 16))
        case "w":
            source.written_end = numbers[0]
        case "l":
            source.long_bytes[numbers[0]] = numbers[1]
        case "p":
            source.begun[numbers[0]] = (numbers[1], numbers[2])
        case "x":
            source.abandoned[numbers[0]] = numbers[1]
        case "e":
            _happened(source, fields[2], int(fields[3]), int(fields[4]))
        case other:
            raise ValueError(f"unknown record {other!r}")


def _happened(source: ExpectedSource, what: str, first: int, end: int) -> None:
    if what in ("delete", "truncate"):
        source.removed.add(first, end)
    # A rename to make room for the next rotation is none; the live file's is.
    if what in ("rotate", "truncate"):
        source.rotations += 1


def _verify(source: ExpectedSource, ledger: Path) -> None:
    """Compute the last call again: an oracle that expects other bytes than those written would
    blame the pipeline.
    """
    if source.last_call is None:
        return
    first, count, time_ns, crc = source.last_call
    if not source.special.isdisjoint(range(first, first + count)):
        return
    if zlib.crc32(source.maker.written(first, count, time_ns)) != crc:
        raise LedgerBroken(f"{ledger} is of another generator: the lines of {source.key} differ")
