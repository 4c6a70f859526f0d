"""Writes a table out as files, where collectors would have them: the same check looks at both."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from logpipeline_cli.tables.duck import opened
from logpipeline_demo.realfiles import default_place
from logpipeline_spark.formats.log import logs_of
from logpipeline_spark.table.s3 import S3Options
from logpipeline_spark.table.storage import Storage

ROWS_AT_ONCE = 20_000
FILES_OPEN_MAX = 128
_COLUMNS = "host, namespace, pod, container, source, line, piece, raw"


class Row(NamedTuple):
    """A line, and whose it is."""

    host: str
    namespace: str | None
    pod: str | None
    container: str | None
    source: str | None
    line: str
    piece: str | None
    raw: bytes | None

    @property
    def content(self) -> bytes:
        """The line's bytes, with its end where that came with it."""
        line = self.line.encode() if self.raw is None else self.raw
        return line + b"\n" if self.piece in (None, "end") else line


def write_out(
    storage: Storage, folder: Path, on_progress: Callable[[int], None] = lambda rows: None
) -> int:
    """Write the lines of the table in *storage* into files below *folder*, in the order in which
    the streams held them; return how many there are. *on_progress* is called with how many are
    written.
    """
    logs = logs_of("delta", storage, catalog={}, s3=S3Options())
    with opened(storage, logs) as connection, _Files(folder) as files:
        answer = connection.execute(
            f"SELECT {_COLUMNS} FROM lines ORDER BY stream, incarnation, seq, idx"
        )
        count = 0
        while rows := answer.fetchmany(ROWS_AT_ONCE):
            for values in rows:
                row = Row(*values)
                files.of(place_of(row)).write(row.content)
            count += len(rows)
            on_progress(count)
    return count


def place_of(row: Row) -> str:
    """Return where a collector has the lines of *row*'s source, by its default paths."""
    if row.pod:
        return f"{row.host}/{row.namespace}/{row.pod}/{row.container}.log"
    return default_place(row.host, Path(row.source or ""))


class _Files:
    """Files that are appended to; few are open at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: OrderedDict[str, BinaryIO] = OrderedDict()

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.close()

    def of(self, place: str) -> BinaryIO:
        """Return the file at *place*."""
        file = self._open.pop(place, None)
        if file is None:
            if len(self._open) >= FILES_OPEN_MAX:
                self._open.popitem(last=False)[1].close()
            path = self._folder / "logs" / place
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("ab")
        self._open[place] = file
        return file
