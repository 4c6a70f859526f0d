"""Finds the files of a message's bytes and writes them there, all or nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from logpipeline.knowledge import Range
from logpipeline.wire import Batch
from logpipeline_collector.archive.config import ArchiveConfig
from logpipeline_collector.archive.errors import ArchiveFailed
from logpipeline_collector.archive.naming import Template, origin_of
from logpipeline_collector.archive.output import Append, FileLost, OutputFile, OutputFiles
from logpipeline_collector.archive.render import Piece, Tail, pieces, render

# Paths that are kept ready; a message of another origin makes its path anew.
PLACES_CACHED_MAX = 100_000
# Files of one message that may be found to be gone, each replaced by a new one.
LOST_FILES_MAX = 16


class Writer:
    """Writes the messages of one partition; *lines* and *bytes* count what was written."""

    def __init__(self, config: ArchiveConfig, partition: int, output: OutputFiles) -> None:
        self.lines = 0
        self.bytes = 0
        self._output = output
        self._format = config.output
        self._cri = Template(config.path, cluster=config.cluster, partition=partition)
        self._plain = Template(config.file_path, cluster=config.cluster, partition=partition)
        self._places: dict[object, str] = {}

    def write(
        self, host: str, batch: Batch, data: bytes, ranges: Iterable[Range], time_ns: int
    ) -> int:
        """Write the *ranges* of *batch*, whose bytes are *data*; return how many bytes that took.

        Raises:
            ArchiveFull: the disk is, and nothing was written.
            ArchiveFailed: the disk failed.
        """
        time_ns = batch.last_time_ns or time_ns
        origin = origin_of(host, batch)
        whole = Piece(origin, batch, data, batch.start, time_ns)
        parts = [self._part(whole, part) for part in ranges]
        written = self._write(parts, first_ns=batch.first_time_ns or time_ns, last_ns=time_ns)
        is_whole = parts[0] is whole
        self.lines += batch.lines if is_whole else sum(p.data.count(b"\n") for p in parts)
        return written

    def write_foreign(self, host: str, payload: bytes, time_ns: int) -> int:
        """Write the lines of a message without our headers; return how many bytes that took.

        Raises:
            ArchiveFull: the disk is, and nothing was written.
            ArchiveFailed: the disk failed.
        """
        piece = Piece(origin_of(host, None), None, payload + b"\n", 0, time_ns)
        written = self._write([piece], first_ns=time_ns, last_ns=time_ns)
        self.lines += payload.count(b"\n") + 1
        return written

    def _write(self, parts: list[Piece], *, first_ns: int, last_ns: int) -> int:
        for attempt in itertools.count(1):
            appends = list(self._appends(parts, first_ns=first_ns, last_ns=last_ns))
            try:
                self._output.append(appends)
                break
            except FileLost as lost:
                if attempt == LOST_FILES_MAX:
                    raise ArchiveFailed(f"files are taken away again and again: {lost}") from lost
                self._output.lose(lost)
        written = sum(len(append.data) for append in appends)
        self.bytes += written
        return written

    def _appends(self, parts: list[Piece], *, first_ns: int, last_ns: int) -> Iterator[Append]:
        # A second piece for the same file continues what the first one leaves.
        tails: dict[OutputFile, Tail | None] = {}
        for part in parts:
            is_cri = part.batch is not None and part.batch.format == "cri"
            template = self._cri if is_cri else self._plain
            for period, piece in pieces(template, part, first_ns=first_ns, last_ns=last_ns):
                file = self._output.at(self._place(template, piece, period), piece.origin.host)
                data, tail = render(self._format, piece, tails.get(file, file.tail))
                tails[file] = tail
                yield Append(file, data, tail)

    def _place(self, template: Template, piece: Piece, period: str) -> str:
        key = (template, piece.origin, period)
        place = self._places.get(key)
        if place is None:
            if len(self._places) >= PLACES_CACHED_MAX:
                self._places.clear()
            place = self._places[key] = template.place(piece.origin, period)
        return place

    @staticmethod
    def _part(whole: Piece, part: Range) -> Piece:
        if part.end - part.start == len(whole.data):
            return whole
        data = whole.data[part.start - whole.start : part.end - whole.start]
        return whole._replace(data=data, start=part.start)
