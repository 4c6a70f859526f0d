"""The files of a table: their entries in the log, and their names. A file is named by the first
range that it holds, so that a task that is repeated writes the same names, and no two tasks share
one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of the table; times are microseconds since 1970, of the lines' `ts`. If a log stores
    milliseconds, they reach a little further than the lines.
    """

    path: str
    rows: int
    bytes: int
    first_us: int
    last_us: int


@dataclass(frozen=True, slots=True)
class Range:
    """Sequences of one incarnation of a stream, from *first* to *last*, both included."""

    incarnation: str
    first: int
    last: int

    def __post_init__(self) -> None:
        if not 0 < self.first <= self.last:
            raise ValueError(f"no range of sequences: {self.first}-{self.last}")


LINES = "lines"
ROLLUP = "rollup"
ROLLUP_MINUTE = f"{ROLLUP}/minute"
ROLLUP_SOURCE = f"{ROLLUP}/source"
# The state of streams, and files that are being written: outside of every glob that a reader may
# use.
TABLE = "_table"
WRITING = f"{TABLE}/writing"
# The word filters of files that merges wrote: they say which groups of rows may hold a word.
WORDS = f"{TABLE}/words"
SUFFIX = ".parquet"
HOUR = timedelta(hours=1)

_RANGE = re.compile(
    r"(?P<stream>[A-Za-z0-9_~-]+)\.(?P<incarnation>[0-9a-f]+r\d+)"
    r"-(?P<first>\d+)-(?P<last>\d+)\.w(?P<writer>\d+)"
    r"(?:\.and(?P<more>\d+))?(?:\.part(?P<part>\d+))?"
    r"(?:\.try(?P<attempt>\d+))?(?:\.(?P<kind>[a-z]+))?\.parquet",
    re.ASCII,
)
_COMPACTED = re.compile(r"compacted-[0-9a-f]{32}-\d+\.parquet")
_HOUR = re.compile(r"dt=(\d{4}-\d{2}-\d{2})(?:/hour=(\d{2}))?$")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]|^[_-]")
_ESCAPE = re.compile(r"~([0-9A-F]+)~")


class BadName(ValueError):
    """The name of a file or folder that no table writes."""


@dataclass(frozen=True, slots=True)
class FileName:
    """The name of a file with the lines of *stream* from sequence *first* to *last*, within one
    hour, and those of *more* ranges by which no other file is named. *writer* is a number that no
    other writer of the table has, so no file of another writer is ever overwritten. A task that
    returns to an hour whose file it had to close writes another *part*. A repeated task, whose
    *attempt* is not 0, does not write the names of the first try, which may still run and end long
    after the batch is committed.

    *kind* is empty for lines whose bytes certainly come for the first time, and `resent` for lines
    of marked messages.
    """

    stream: str
    incarnation: str
    first: int
    last: int
    writer: int
    kind: str = ""
    more: int = 0
    part: int = 0
    attempt: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.first <= self.last:
            raise BadName(f"no range of sequences: {self.first}-{self.last}")

    def __str__(self) -> str:
        more = f".and{self.more}" if self.more else ""
        part = f".part{self.part}" if self.part else ""
        attempt = f".try{self.attempt}" if self.attempt else ""
        kind = f".{self.kind}" if self.kind else ""
        life = f"{escaped(self.stream)}.{self.incarnation}"
        numbers = f"{self.first}-{self.last}.w{self.writer}{more}{part}{attempt}"
        return f"{life}-{numbers}{kind}{SUFFIX}"

    @classmethod
    def parse(cls, name: str) -> FileName:
        """Read a name.

        Raises:
            BadName: it names another kind of file.
        """
        match = _RANGE.fullmatch(name)
        if match is None:
            raise BadName(f"no name of a range: {name}")
        try:
            return cls(
                stream=unescaped(match["stream"]),
                incarnation=match["incarnation"],
                first=int(match["first"]),
                last=int(match["last"]),
                writer=int(match["writer"]),
                kind=match["kind"] or "",
                more=int(match["more"] or 0),
                part=int(match["part"] or 0),
                attempt=int(match["attempt"] or 0),
            )
        except ValueError as error:
            # An escape that is none, or more digits than Python reads.
            raise BadName(f"no name of a range: {name[:80]}") from error


def compacted_name(*, number: str, part: int) -> str:
    """Return the name of a file that the merge *number*, a UUID in hex, writes."""
    return f"compacted-{number}-{part}{SUFFIX}"


def words_path(path: str) -> str | None:
    """Return the path of a file's word filters; None if the file was not written by a merge, and so
    has none.
    """
    name = name_of(path)
    is_merged = has_lines(path) and _COMPACTED.fullmatch(name) is not None
    return f"{WORDS}/{name.removesuffix(SUFFIX)}" if is_merged else None


def is_ours(name: str) -> bool:
    """Return whether a table writes files of this name, so that its upkeep may remove it."""
    return _RANGE.fullmatch(name) is not None or _COMPACTED.fullmatch(name) is not None


def hour_folder(hour: datetime, area: str = LINES) -> str:
    """Return the folder of an *hour* (UTC); counts, being small, have one folder a day."""
    day = f"{area}/dt={hour:%Y-%m-%d}"
    return f"{day}/hour={hour:%H}" if area == LINES else day


def hour_of(folder: str) -> datetime:
    """Return the hour (or day) at which *folder* begins.

    Raises:
        BadName: it is no such folder.
    """
    match = _HOUR.search(folder)
    if match is None:
        raise BadName(f"no folder of an hour: {folder}")
    try:
        hour = datetime.strptime(f"{match[1]} {match[2] or '00'}", "%Y-%m-%d %H")
    except ValueError as error:
        raise BadName(f"no folder of an hour: {folder}") from error
    return hour.replace(tzinfo=UTC)


def end_of(folder: str) -> datetime:
    """Return the end of the time of *folder*."""
    is_hourly = "/hour=" in folder
    return hour_of(folder) + (HOUR if is_hourly else 24 * HOUR)


def is_of_time(path: str) -> bool:
    """Return whether a file lies in a folder of an hour or a day. In Iceberg, which knows no
    folders, other programs put files elsewhere.
    """
    return _HOUR.search(folder_of(path)) is not None


def folder_of(path: str) -> str:
    """Return the folder of a file."""
    return path.rpartition("/")[0]


def name_of(path: str) -> str:
    """Return a file's name without its folder."""
    return path.rpartition("/")[2]


def escaped(stream: str) -> str:
    """Return *stream* in a form that fits into a file name; each stream has its own."""
    return _UNSAFE.sub(lambda match: f"~{match[0].encode().hex().upper()}~", stream)


def unescaped(text: str) -> str:
    """Return the stream whose escaped form is *text*."""
    parts = _ESCAPE.split(text)
    return "".join(
        bytes.fromhex(part).decode() if index % 2 else part for index, part in enumerate(parts)
    )


def has_lines(path: str) -> bool:
    """Return whether a file holds lines, and not counts."""
    return path.startswith(f"{LINES}/")


def partition_of(folder: str) -> dict[str, str]:
    """Return the columns and values in the name of *folder*."""
    pairs = (part.partition("=") for part in folder.split("/") if "=" in part)
    return {name: value for name, _, value in pairs}


def partitions_of(area: str) -> tuple[str, ...]:
    """Return the columns in the names of folders of *area*."""
    return ("dt", "hour") if area == LINES else ("dt",)
