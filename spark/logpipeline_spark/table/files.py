"""How files are named by the first range that they hold, so that a task that is repeated writes the
same names, and no two tasks share one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of the table; times are microseconds since 1970, of the lines' `ts`. A log may know
    them by the millisecond only: then they reach a little further than the lines.
    """

    path: str
    rows: int
    bytes: int
    first_us: int
    last_us: int


@dataclass(frozen=True, slots=True)
class Range:
    """Sequences of one life of a stream, from *first* to *last*, both included."""

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
# What is kept of streams, and whole objects while they are made: outside of every glob that a
# reader may use.
TABLE = "_table"
WRITING = f"{TABLE}/writing"
# What tells which groups of rows may hold a word, for each file that a merge made.
WORDS = f"{TABLE}/words"
SUFFIX = ".parquet"
HOUR = timedelta(hours=1)

_RANGE = re.compile(
    r"(?P<stream>[A-Za-z0-9_~-]+)\.(?P<incarnation>[0-9a-f]+r\d+)"
    r"-(?P<first>\d+)-(?P<last>\d+)\.w(?P<writer>\d+)"
    r"(?:\.and(?P<more>\d+))?(?:\.part(?P<part>\d+))?"
    r"(?:\.try(?P<attempt>\d+))?(?:\.(?P<kind>[a-z]+))?\.parquet"
)
_COMPACTED = re.compile(r"compacted-[0-9a-f]{32}-\d+\.parquet")
_HOUR = re.compile(r"dt=(\d{4}-\d{2}-\d{2})(?:/hour=(\d{2}))?$")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]|^[_-]")
_ESCAPE = re.compile(r"~([0-9A-F]+)~")


class BadName(ValueError):
    """A name that is none of ours."""


@dataclass(frozen=True, slots=True)
class FileName:
    """A file with the lines of *stream* from sequence *first* to *last*, of one hour, and those of
    *more* ranges that no other file is named by. *writer* is the number that no other writer of the
    table has: so nobody writes a file of another again. A task that comes back to an hour whose
    file it had to close writes another *part*. One that is tried again, by its *attempt*, writes
    no name of the first try: that may still be at it, and end when the batch is long committed.

    *kind* is empty for lines that are certainly the first of their bytes, and `resent` for those
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
            BadName: it is another file's.
        """
        match = _RANGE.fullmatch(name)
        if match is None:
            raise BadName(f"no name of a range: {name}")
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


def compacted_name(*, number: str, part: int) -> str:
    """Return the name of a file that the merge *number*, a UUID in hex, makes of others."""
    return f"compacted-{number}-{part}{SUFFIX}"


def words_path(path: str) -> str | None:
    """Return where the filters of a file's words are; None for files that have none, as no merge
    made them.
    """
    name = name_of(path)
    is_merged = has_lines(path) and _COMPACTED.fullmatch(name) is not None
    return f"{WORDS}/{name.removesuffix(SUFFIX)}" if is_merged else None


def is_ours(name: str) -> bool:
    """Tell whether a file of this name was written by a table, so that one may remove it."""
    return _RANGE.fullmatch(name) is not None or _COMPACTED.fullmatch(name) is not None


def hour_folder(hour: datetime, area: str = LINES) -> str:
    """Return the folder of an *hour* (UTC); rollups, being small, have one for a day."""
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
    """Return when the time of *folder* is over."""
    is_hourly = "/hour=" in folder
    return hour_of(folder) + (HOUR if is_hourly else 24 * HOUR)


def folder_of(path: str) -> str:
    """Return the folder of a file."""
    return path.rpartition("/")[0]


def name_of(path: str) -> str:
    """Return a file's name without its folder."""
    return path.rpartition("/")[2]


def escaped(stream: str) -> str:
    """Return *stream* so that it fits into a file's name, and no two streams share one.

    Readers skip names that begin with `_` or `.`, so that a first `_` is written otherwise too.
    """
    return _UNSAFE.sub(lambda match: f"~{match[0].encode().hex().upper()}~", stream)


def unescaped(text: str) -> str:
    """Return the stream of which *text* is the escaped name."""
    parts = _ESCAPE.split(text)
    return "".join(
        bytes.fromhex(part).decode() if index % 2 else part for index, part in enumerate(parts)
    )


def has_lines(path: str) -> bool:
    """Return whether a file holds lines, and no counts."""
    return path.startswith(f"{LINES}/")


def partition_of(folder: str) -> dict[str, str]:
    """Return the columns and values that *folder* is named by."""
    pairs = (part.partition("=") for part in folder.split("/") if "=" in part)
    return {name: value for name, _, value in pairs}


def partitions_of(area: str) -> tuple[str, ...]:
    """Return the columns that the folders of *area* are named by."""
    return ("dt", "hour") if area == LINES else ("dt",)
