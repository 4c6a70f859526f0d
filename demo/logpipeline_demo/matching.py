"""Finds the lines of a collected log in what is expected.

The clean case is fast: the next few hundred lines are computed and compared in one go, which
checks every byte, the order and the count together. Where that fails, line by line, each is
known by the host, source and number it carries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from logpipeline_demo.expected import ExpectedSource
from logpipeline_demo.lines import SourceKey
from logpipeline_demo.outputs import ChainStream, Location, OutputChain
from logpipeline_demo.sources import BANNER
from logpipeline_demo.verdict import excerpt

# With more of them, lines without a number are not matched with missing numbers any more.
PENDING_LINES_MAX = 1000
GAP_LINES_MAX = 100_000

Output = Literal["raw", "cri"]

BLOCK_LINES_MIN = 2
BLOCK_LINES_MAX = 256
# A number with more digits was not written by the generator.
SEQ_DIGITS_MAX = 18


# A line that carries no number, an empty or a damaged one, is known by its neighbours only; where
# these leave it open, it is settled when every chain has been read.
class Run(NamedTuple):
    """Lines from *first* up to *end* that follow each other in a chain, all intact."""

    first: int
    end: int
    start_at: Location
    end_at: Location


class Bad(NamedTuple):
    """A wrong line; *seq* and *key* are the number and origin that it claims."""

    key: SourceKey | None
    seq: int | None
    at: Location
    note: str


class Blanks(NamedTuple):
    """Empty lines between two known lines, which may be one of several empty lines each."""

    before: tuple[SourceKey, int] | None
    after: tuple[SourceKey, int] | None
    homes: tuple[SourceKey, ...]
    places: tuple[Location, ...]


@dataclass(slots=True)
class ChainFindings:
    """The lines found in one chain."""

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
        """The next expected line, if the last one was intact."""
        if self._last is None or self._blanks or self._bad:
            return None
        return self._last[0], self._last[1] + 1

    def good(self, key: SourceKey, run: Run) -> None:
        """Take intact lines of a source that is collected here."""
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
        """Take a line that is not the one that it *claims* to be, or claims no number."""
        if claim is None:
            self._bad.append(Bad(None, None, at, f"unknown line {excerpt(text)}"))
        else:
            self._claim(text, *claim, at)
        self._bound()

    def finish(self) -> ChainFindings:
        """Return the result, at the end of the chain."""
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
            # As many damaged lines as numbers are missing here: these are the same lines.
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


class Line(NamedTuple):
    """A line of the collectors' files: its *text*, its bytes there, where they begin and end."""

    text: bytes
    written: bytes
    start: int
    end: int


class Heads:
    """Recognises lines by the origin that they name."""

    def __init__(self, sources: Mapping[SourceKey, ExpectedSource]) -> None:
        self._sources = {
            (key.host.encode(), key.name.encode()): source for key, source in sources.items()
        }

    def claim(self, text: bytes) -> tuple[ExpectedSource, int] | None:
        """Return the source and the number that *text* claims."""
        fields = text.split(b" ", 3)
        if len(fields) < 4:
            return None
        host, name, digits, _ = fields
        source = self._sources.get((host, name))
        if source is None or not digits.isdigit() or len(digits) > SEQ_DIGITS_MAX:
            return None
        return source, int(digits)


def match(
    stream: ChainStream,
    judge: ChainJudge,
    homes: Sequence[ExpectedSource],
    heads: Heads,
    output: Output,
) -> ChainFindings:
    """Match all lines of *stream* and return the result."""
    if output == "cri" and any(home.maker.kind == "cri" for home in homes):
        _ContainerMatcher(stream, judge, homes, heads).run()
    else:
        _RawMatcher(stream, judge, homes, heads).run()
    return judge.finish()


class _Matcher:
    def __init__(
        self,
        stream: ChainStream,
        judge: ChainJudge,
        homes: Sequence[ExpectedSource],
        heads: Heads,
    ) -> None:
        self._stream = stream
        self._judge = judge
        self._homes = {home.key: home for home in homes}
        self._heads = heads
        self._position = 0

    def _fill(self) -> bool:
        is_more = self._stream.fill(self._position)
        self._position = 0
        return is_more

    def _line_end(self) -> int:
        """Return the end of the line at the position, without its newline; -1 if it has none."""
        searched = self._position
        while (end := self._stream.buffer.find(b"\n", searched)) < 0:
            searched = len(self._stream.buffer) - self._position
            if not self._fill():
                return -1
        return end

    def _good(self, source: ExpectedSource, first: int, end: int, *, start: int, stop: int) -> None:
        location = self._stream.location
        self._judge.good(source.key, Run(first, end, location(start), location(stop)))


class _RawMatcher(_Matcher):
    """For lines as the program wrote them."""

    def run(self) -> None:
        block_lines = BLOCK_LINES_MAX
        while True:
            if self._match_block(block_lines):
                block_lines = min(block_lines * 2, BLOCK_LINES_MAX)
                continue
            if not self._match_line():
                return
            block_lines = max(block_lines // 2, BLOCK_LINES_MIN)

    def _match_block(self, lines: int) -> bool:
        expected = self._judge.next_line
        if expected is None:
            return False
        key, first = expected
        source = self._homes[key]
        end = min(first + lines, source.attempted_end)
        if source.special:
            end = min([end, *(seq for seq in source.special if seq >= first)])
        while end > first and source.is_blank(end - 1):
            end -= 1  # an empty line belongs to this source only if a line after it says so
        block = source.maker.lines(first, max(end - first, 0))
        while len(self._stream.buffer) - self._position < len(block):
            if not self._fill():
                break
        if not block or not self._stream.buffer.startswith(block, self._position):
            return False
        start, self._position = self._position, self._position + len(block)
        self._good(source, first, end, start=start, stop=self._position)
        return True

    def _match_line(self) -> bool:
        end = self._line_end()
        is_unfinished = end < 0
        if is_unfinished:
            end = len(self._stream.buffer)
            if end == self._position:
                return False
        start, text = self._position, self._stream.buffer[self._position : end]
        self._position = end if is_unfinished else end + 1
        claim = self._heads.claim(text)
        if not text:
            self._judge.blank(self._stream.location(start))
        elif text == BANNER:
            self._judge.banner()
        elif claim and claim[0].key in self._homes and claim[1] < claim[0].attempted_end:
            self._match_claimed(text, *claim, start=start, is_unfinished=is_unfinished)
        else:
            self._judge.bad(text, claim, self._stream.location(start))
        return True

    def _match_claimed(
        self, text: bytes, source: ExpectedSource, seq: int, *, start: int, is_unfinished: bool
    ) -> None:
        expected = source.line(seq)
        is_abandoned = seq in source.abandoned
        if is_abandoned and text.startswith(expected):
            if text != expected:
                self._position = start + len(expected)  # the next line follows without a newline
            self._good(source, seq, seq + 1, start=start, stop=self._position)
        elif text == expected and not is_unfinished:
            self._good(source, seq, seq + 1, start=start, stop=self._position)
        else:
            self._judge.bad(text, (source, seq), self._stream.location(start))


class _ContainerMatcher(_Matcher):
    """For lines as the container's runtime wrote them, time and fragments included."""

    def run(self) -> None:
        for line in self._lines():
            claim = self._heads.claim(line.text)
            if claim and claim[0].key in self._homes and claim[1] < claim[0].attempted_end:
                source, seq = claim
                if line.written == source.fragments(seq):
                    self._good(source, seq, seq + 1, start=line.start, stop=line.end)
                    continue
            self._judge.bad(line.text, claim, self._stream.location(line.start))

    def _lines(self) -> Iterator[Line]:
        """Yield the lines in the order of their ends; runs that stay open last."""
        runs: dict[bytes, list[bytes]] = {}
        while (end := self._line_end()) >= 0:
            start, self._position = self._position, end + 1
            written = self._stream.buffer[start : end + 1]
            fields = written[:-1].split(b" ", 3)
            if len(fields) < 4 or fields[2] not in (b"P", b"F"):
                yield Line(written[:-1], written, start, end + 1)
                continue
            run = runs.setdefault(fields[1], [])
            run.append(written)
            if fields[2] == b"F":
                del runs[fields[1]]
                yield Line(_text(run), b"".join(run), start, end + 1)
        for run in runs.values():
            yield Line(_text(run), b"".join(run), self._position, self._position)
        if rest := self._stream.buffer[self._position :]:
            yield Line(rest, rest, self._position, len(self._stream.buffer))


def _text(run: Sequence[bytes]) -> bytes:
    return b"".join(written[:-1].split(b" ", 3)[3] for written in run)
