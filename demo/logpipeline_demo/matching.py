"""Finds the lines of an archived log in what is expected.

The clean case is fast: the next few hundred lines are computed and compared in one go, which
checks every byte, the order and the count together. Where that fails, line by line, each is
known by the host, source and number it carries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from logpipeline_demo.expected import ExpectedSource
from logpipeline_demo.judge import ChainFindings, ChainJudge, Run
from logpipeline_demo.lines import SourceKey
from logpipeline_demo.outputs import ChainStream
from logpipeline_demo.source_files import BANNER

Output = Literal["raw", "cri"]

BLOCK_LINES_MIN = 2
BLOCK_LINES_MAX = 256
# More digits are no number of ours.
SEQ_DIGITS_MAX = 18


class Line(NamedTuple):
    """A line of the archive: its *text*, its bytes there, and where these begin and end."""

    text: bytes
    written: bytes
    start: int
    end: int


class Heads:
    """Knows lines by what they say of their origin."""

    def __init__(self, sources: Mapping[SourceKey, ExpectedSource]) -> None:
        self._sources = {
            (key.host.encode(), key.name.encode()): source for key, source in sources.items()
        }

    def claim(self, text: bytes) -> tuple[ExpectedSource, int] | None:
        """Return which line of which source *text* claims to be."""
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
    """Match all lines of *stream* and return what was found."""
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
        """Return where the line at the position ends, without its newline; -1 for never."""
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
