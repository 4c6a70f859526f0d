"""Writes one source as a program and its runtime would: whole lines, torn ones, fragments.

Every attempt is in the ledger before it is made, so a line in a collector's file was announced.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from pathlib import Path

from logpipeline_demo.ledger import Ledger
from logpipeline_demo.lines import LINE_STEP_NS, LineMaker, cri_lines
from logpipeline_demo.sources import FILES_MAX_DEFAULT, LogSource, SourceFiles


class LogWriter(SourceFiles):
    """The log of one source: its lines, the one that is open, and its files."""

    def __init__(
        self,
        source: LogSource,
        root: Path,
        ledger: Ledger,
        *,
        files_max: int | None = FILES_MAX_DEFAULT,
        clock_ns: Callable[[], int] = time.time_ns,
        has_banner: bool = False,
    ) -> None:
        number = ledger.source(source.key, source.kind)
        path = source.live_path(root)
        super().__init__(
            path,
            ledger,
            number,
            files_max=files_max,
            clock_ns=clock_ns,
            has_banner=has_banner and source.kind == "plain",
        )
        self.source = source
        self.maker = LineMaker(ledger.seed, source.key, source.kind)
        self._last_ns = 0
        self._prepared = b""
        self._open = b""  # what is missing of what was begun
        self._abandonable: int | None = None  # bytes of the open line's text, where recognisable

    @property
    def has_open_line(self) -> bool:
        """Whether a line was begun and not finished."""
        return bool(self._open)

    def write(self, lines: int) -> None:
        """Write *lines* lines, after the open one is finished."""
        self.prepare(lines)
        self._ledger.flush()
        self.commit()

    def prepare(self, lines: int) -> None:
        """Announce *lines* lines, to be written by `commit` once the ledger is flushed: so the
        announcements of many sources cost one write.
        """
        assert not self._prepared, "commit what was prepared before"
        self._prepared = self._open
        self._open, self._abandonable = b"", None
        time_ns = self._time_ns(lines)
        self._prepared += self._announced(self._block(lines, time_ns), lines, time_ns)

    def commit(self) -> None:
        """Write what was prepared."""
        self.append(self._prepared)
        self._prepared = b""
        self._ledger.written(self._number, self.next_seq)

    def write_torn(self, lines: int, keep_bytes: int) -> None:
        """Write only the first *keep_bytes* bytes of *lines* lines; `finish` writes the rest."""
        self.finish()
        time_ns = self._time_ns(lines)
        block = self._block(lines, time_ns)
        if not 0 < keep_bytes < len(block):
            raise ValueError(f"{lines} lines of {len(block)} bytes are not torn at {keep_bytes}")
        self._begin(self._announced(block, lines, time_ns), keep_bytes)
        if lines == 1 and self.source.kind == "plain":
            self._offer_to_abandon(block[:-1], keep_bytes)

    def write_partial(self, text_bytes: int) -> None:
        """Begin a line: its first bytes in a plain file, a fragment of its own in a container's
        log.
        """
        if self.source.kind == "plain":
            self.write_torn(1, text_bytes)
            return
        self.finish()
        seq, time_ns = self.next_seq, self._time_ns(2)
        text, stream = self.maker.line(seq), self.maker.stream(seq)
        if not 0 < text_bytes < len(text):
            raise ValueError(f"a line of {len(text)} bytes has no two parts at {text_bytes}")
        begun, rest = cri_lines(stream, [text[:text_bytes], text[text_bytes:]], time_ns)
        self._ledger.begun(self._number, seq, text_bytes, time_ns)
        self._begin(self._announced(begun + rest, 1, time_ns), len(begun))
        self._offer_to_abandon(text, text_bytes)

    def write_long(self, payload_bytes: int) -> None:
        """Write one line with a payload of *payload_bytes*, however long, in one fragment."""
        self.finish()
        seq, time_ns = self.next_seq, self._time_ns(1)
        line = self.maker.long_line(seq, payload_bytes)
        block = line + b"\n"
        if self.source.kind == "cri":
            [block] = cri_lines(self.maker.stream(seq), [line], time_ns)
        self._ledger.long_line(self._number, seq, payload_bytes)
        self._begin(self._announced(block, 1, time_ns), len(block))
        self._ledger.written(self._number, self.next_seq)

    def finish(self) -> None:
        """Finish what is open, if anything is."""
        if self._open:
            rest, self._open, self._abandonable = self._open, b"", None
            self.append(rest)
            self._ledger.written(self._number, self.next_seq)

    def abandon(self) -> None:
        """Never finish the open line, as a program that dies. Its file must get no line after it:
        rotate, recreate or close.

        Raises:
            ValueError: the line is not begun, or not so far that anybody could recognise it.
        """
        if self._abandonable is None:
            raise ValueError("only a line that is begun beyond its checksum can be abandoned")
        self._ledger.abandoned(self._number, self.next_seq - 1, self._abandonable)
        self._ledger.written(self._number, self.next_seq)
        self._ledger.flush()
        self._open, self._abandonable = b"", None

    def rotate_kubelet(self, *, lines_between: int = 0) -> None:
        """Rotate as kubelet does, with *lines_between* lines between rename and reopen."""
        self.finish()
        self.rename_kubelet()
        if lines_between:
            self.write(lines_between)
        self.reopen()

    def rotate_numbered(self, *, lines_between: int = 0) -> None:
        """Rotate as logrotate does, with *lines_between* lines between rename and reopen."""
        self.finish()
        self.rename_numbered()
        if lines_between:
            self.write(lines_between)
        self.reopen()

    def close(self) -> None:
        """Finish the open line and close the file; a second call does nothing."""
        if self._descriptor >= 0:
            self.finish()
            self._let_go()
            self._ledger.flush()

    def _block(self, lines: int, time_ns: int) -> bytes:
        return self.maker.written(self.next_seq, lines, time_ns)

    def _announced(self, block: bytes, lines: int, time_ns: int) -> bytes:
        self._ledger.attempt(
            self._number,
            first=self.next_seq,
            count=lines,
            time_ns=time_ns,
            size=len(block),
            crc=zlib.crc32(block),
        )
        self.next_seq += lines
        return block

    def _begin(self, block: bytes, keep_bytes: int) -> None:
        self._ledger.flush()
        self._open = block[keep_bytes:]
        self.append(block[:keep_bytes])

    def _offer_to_abandon(self, text: bytes, text_bytes: int) -> None:
        """To find the line later takes its number and checksum, and a byte beyond them."""
        head_bytes = len(self.maker.head) + len(b"%d 01234567 " % (self.next_seq - 1))
        if head_bytes < text_bytes < len(text):
            self._abandonable = text_bytes

    def _time_ns(self, lines: int) -> int:
        """Return now, or later: the times of a source's lines never go back."""
        time_ns = max(self._clock_ns(), self._last_ns)
        self._last_ns = time_ns + lines * LINE_STEP_NS
        return time_ns
