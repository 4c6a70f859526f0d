"""Judges the lines of one chain as they come: which runs of which source it holds, and what is no
line of its own.

A line that carries no number, an empty or a damaged one, is known by its neighbours only; where
these leave it open, it is settled when every chain has been read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from logpipeline_demo.expected import ExpectedSource
from logpipeline_demo.lines import SourceKey
from logpipeline_demo.outputs import Location, OutputChain
from logpipeline_demo.verdict import excerpt

# Beyond this, lines without a number are no longer matched with the numbers that are missing.
PENDING_LINES_MAX = 1000
GAP_LINES_MAX = 100_000


class Run(NamedTuple):
    """Lines from *first* up to *end* that follow each other in a chain, all intact."""

    first: int
    end: int
    start_at: Location
    end_at: Location


class Bad(NamedTuple):
    """A line that is not what it should be; *seq* and *key* are what it claims to be."""

    key: SourceKey | None
    seq: int | None
    at: Location
    note: str


class Blanks(NamedTuple):
    """Empty lines that could be several ones, between two lines that are known."""

    before: tuple[SourceKey, int] | None
    after: tuple[SourceKey, int] | None
    homes: tuple[SourceKey, ...]
    places: tuple[Location, ...]


@dataclass(slots=True)
class ChainFindings:
    """What is in one chain."""

    chain: OutputChain
    runs: dict[SourceKey, list[Run]] = field(default_factory=dict)
    corrupt: list[Bad] = field(default_factory=list)
    invented: list[Bad] = field(default_factory=list)
    blanks: list[Blanks] = field(default_factory=list)
    banners: int = 0


class ChainJudge:
    """Takes the lines of a chain in their order."""

    def __init__(self, chain: OutputChain, homes: Sequence[ExpectedSource]) -> None:
        self.findings = ChainFindings(chain)
        self._homes = {home.key: home for home in homes}
        self._last: tuple[SourceKey, int] | None = None
        self._blanks: list[Location] = []
        self._bad: list[Bad] = []

    @property
    def next_line(self) -> tuple[SourceKey, int] | None:
        """The line that should come next, if the last one was good."""
        if self._last is None or self._blanks or self._bad:
            return None
        return self._last[0], self._last[1] + 1

    def good(self, key: SourceKey, run: Run) -> None:
        """Take intact lines of a source that is at home here."""
        if self._blanks or self._bad:
            self._resolve((key, run.first))
        runs = self.findings.runs.setdefault(key, [])
        if runs and runs[-1].end == run.first and self._last == (key, run.first - 1):
            runs[-1] = runs[-1]._replace(end=run.end, end_at=run.end_at)
        else:
            runs.append(run)
        self._last = (key, run.end - 1)

    def banner(self) -> None:
        """Take a line that files begin with."""
        self.findings.banners += 1

    def blank(self, at: Location) -> None:
        """Take an empty line."""
        self._blanks.append(at)
        self._bound()

    def bad(self, text: bytes, claim: tuple[ExpectedSource, int] | None, at: Location) -> None:
        """Take a line that is not the one it *claims* to be, or claims nothing."""
        if claim is None:
            self._bad.append(Bad(None, None, at, f"unknown line {excerpt(text)}"))
        else:
            self._claim(text, *claim, at)
        self._bound()

    def finish(self) -> ChainFindings:
        """Return what is in the chain, which is at its end."""
        self._resolve(None)
        return self.findings

    def _claim(self, text: bytes, source: ExpectedSource, seq: int, at: Location) -> None:
        key = source.key
        if key not in self._homes:
            place = self.findings.chain.place
            self.findings.invented.append(Bad(key, seq, at, f"does not belong into {place}"))
        elif seq >= source.attempted_end:
            self._bad.append(Bad(None, None, at, f"line {seq} was never written: {excerpt(text)}"))
        elif seq < source.written_end or not source.line(seq).startswith(text):
            self._bad.append(Bad(key, seq, at, excerpt(text)))

    def _bound(self) -> None:
        if len(self._blanks) + len(self._bad) > PENDING_LINES_MAX:
            self._resolve(None)

    def _resolve(self, after: tuple[SourceKey, int] | None) -> None:
        """Decide on the lines without a number, now that the line *after* them is known."""
        gap = self._gap(after)
        source = self._homes[self._last[0]] if self._last and gap else None
        missing = {seq for seq in gap if source and not source.is_blank(seq)}
        standing = []
        for line in self._bad:
            if line.seq in missing:
                missing.remove(line.seq)
                self.findings.corrupt.append(line)
            else:
                standing.append(line)
        self._bad = []
        if source and len(standing) == len(missing):
            # Exactly as many damaged lines as are missing right here: these are they.
            for line, seq in zip(standing, sorted(missing), strict=True):
                self.findings.corrupt.append(line._replace(key=source.key, seq=seq))
        else:
            self.findings.corrupt += [line for line in standing if line.key is not None]
            self.findings.invented += [line for line in standing if line.key is None]
        self._resolve_blanks(after, source, [seq for seq in gap if source and source.is_blank(seq)])

    def _resolve_blanks(
        self,
        after: tuple[SourceKey, int] | None,
        source: ExpectedSource | None,
        missing: Sequence[int],
    ) -> None:
        places, self._blanks = self._blanks, []
        if source and len(places) == len(missing):
            runs = self.findings.runs[source.key]
            runs += [Run(seq, seq + 1, at, at) for seq, at in zip(missing, places, strict=True)]
        elif places:
            homes = tuple(self._homes)
            self.findings.blanks.append(Blanks(self._last, after, homes, tuple(places)))

    def _gap(self, after: tuple[SourceKey, int] | None) -> list[int]:
        """Return the numbers between the last line and *after*, if they are of one source."""
        if self._last is None or after is None or self._last[0] != after[0]:
            return []
        first, end = self._last[1] + 1, after[1]
        return list(range(first, end)) if end - first <= GAP_LINES_MAX else []
