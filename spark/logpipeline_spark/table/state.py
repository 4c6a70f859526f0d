"""The state of a table, beside its files: the ranges of streams that it covers, and rows that its
writer keeps for each stream. A transaction in the table's log has a number, which is also the name
of its state: so both become valid together.

Most states hold only what changed since earlier ones, which they name; now and then one holds
everything. So a batch costs what it changes, however much is known.
"""

from __future__ import annotations

import itertools
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from uuid import uuid4

from logpipeline import json_text, zstd
from logpipeline_spark.errors import Damaged, Refused
from logpipeline_spark.formats.log import Logs
from logpipeline_spark.table.files import LINES, TABLE, FileEntry, Range, name_of
from logpipeline_spark.table.storage import Storage

STATE = f"{TABLE}/state"
SUFFIX = ".state"
NUMBER_DIGITS = 20
VERSION = 1
# A start reads at most so many objects, and at most as many changed rows as there are rows.
DIFFERENCES_MAX = 64
ROWS_MIN = 1000
# Four times what sources may take: in the keys of rows, some characters of their names take twice
# as much. A damaged object must not take all memory.
STATE_BYTES_MAX = 512 * 1024 * 1024
# Losses of a stream that are listed, of each kind: holes between ranges, and parts of ranges. The
# whole cover is in each state, and a table that is always too slow loses messages at each batch.
LOSSES_LISTED_MAX = 64
LEVEL = 3
# A writer keeps former states for a while, so hardly anybody needs a second look at the log.
LOADS_MAX = 10
_ADVICE = "restore it from a backup, or run `logpipeline table rebuild`"

# Rows by their key; None is a row that was removed.
Rows = Mapping[str, Any]


class WrongRange(Refused):
    """A batch that would repeat lines, or leave some out."""


@dataclass(frozen=True, slots=True)
class Cover:
    """*read* holds each stream's ranges in the order of their batches, joined where they adjoin;
    *lost* what was deleted before it was read: parts of them, or what was before the first range of
    an incarnation. Of many losses the newest are listed; *unlisted* counts the messages of others,
    whose ranges are joined.
    """

    read: Mapping[str, tuple[Range, ...]] = field(default_factory=dict)
    lost: Mapping[str, tuple[Range, ...]] = field(default_factory=dict)
    unlisted: Mapping[str, int] = field(default_factory=dict)

    def end_of(self, stream: str) -> Range | None:
        """Return the range in which the committed part of *stream* ends."""
        ranges = self.read.get(stream)
        return ranges[-1] if ranges else None

    def after(
        self,
        ranges: Mapping[str, Range],
        *,
        skipped: frozenset[str] = frozenset(),
        lost: Mapping[str, Sequence[Range]] | None = None,
    ) -> Cover:
        """Return the cover with a batch's *ranges* added. Before the range of a stream in *skipped*
        there may be a hole; *lost* are parts of ranges, or what was before the first one of an
        incarnation, that were deleted before they were read.

        Raises:
            WrongRange: a range overlaps the committed ones, or leaves a hole that is not named.
        """
        read, gone, unlisted = dict(self.read), dict(self.lost), Counter(self.unlisted)
        for stream, found in ranges.items():
            joined = _joined(stream, read.get(stream, ()), found, stream in skipped)
            read[stream], count = _without_old_holes(joined)
            unlisted[stream] += count
        for stream, parts in (lost or {}).items():
            listed = adjoined((*gone.get(stream, ()), *parts))
            gone[stream] = listed[-LOSSES_LISTED_MAX:]
            unlisted[stream] += sum(map(_size, listed[:-LOSSES_LISTED_MAX]))
        return Cover(read, gone, +unlisted)

    def missing(self) -> Iterator[tuple[str, Range]]:
        """Give what was deleted before it was read: the sequences between two ranges of one
        incarnation of a stream, and what is in *lost*. What is *unlisted* comes on top.
        """
        for stream, ranges in sorted(self.read.items()):
            for one, following in itertools.pairwise(ranges):
                if (hole := _hole(one, following)) is not None:
                    yield stream, hole
            for gone in self.lost.get(stream, ()):
                yield stream, gone

    def to_data(self) -> Any:
        """Return this as JSON values."""
        return {
            "read": _to_data(self.read),
            "lost": _to_data(self.lost),
            "unlisted": dict(self.unlisted),
        }

    @staticmethod
    def from_data(data: Any) -> Cover:
        """Read what `to_data` gave.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it is something else.
        """
        # A former version lists all.
        unlisted = {str(stream): int(n) for stream, n in data.get("unlisted", {}).items()}
        return Cover(_from_data(data["read"]), _from_data(data["lost"]), unlisted)


def _joined(
    stream: str, ranges: tuple[Range, ...], found: Range, is_hole_known: bool
) -> tuple[Range, ...]:
    same = [known for known in ranges if known.incarnation == found.incarnation]
    if not same:
        return (*ranges, found)
    last = same[-1]
    if last is not ranges[-1]:
        raise WrongRange(
            f"{stream} was {found.incarnation} before it became {ranges[-1].incarnation}: "
            "start from the stream as it is now."
        )
    if found.first <= last.last:
        raise WrongRange(
            f"{stream} is committed to {last.last}, and {found.first}-{found.last} begins before "
            f"its end: start at {last.last + 1}."
        )
    if found.first > last.last + 1:
        if not is_hole_known:
            raise WrongRange(
                f"{stream} is committed to {last.last}, and {found.first}-{found.last} leaves out "
                f"what is between: start at {last.last + 1}."
            )
        return (*ranges, found)
    return (*ranges[:-1], Range(last.incarnation, last.first, found.last))


def _hole(one: Range, following: Range) -> Range | None:
    """Return what is missing between two neighbours, None if each is of another incarnation."""
    if one.incarnation != following.incarnation:
        return None
    return Range(one.incarnation, one.last + 1, following.first - 1)


def _without_old_holes(ranges: tuple[Range, ...]) -> tuple[tuple[Range, ...], int]:
    """Return *ranges* with `LOSSES_LISTED_MAX` holes at most, and how many messages the others
    have, whose neighbours are joined.
    """
    holes = [_hole(*pair) for pair in itertools.pairwise(ranges)]
    excess = sum(hole is not None for hole in holes) - LOSSES_LISTED_MAX
    if excess <= 0:
        return ranges, 0
    made, count = [ranges[0]], 0
    for hole, found in zip(holes, ranges[1:], strict=True):
        if hole is None or excess <= 0:
            made.append(found)
            continue
        made[-1] = replace(made[-1], last=found.last)
        count += _size(hole)
        excess -= 1
    return tuple(made), count


def adjoined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return *ranges*, with those joined that continue the one before."""
    made: list[Range] = []
    for found in ranges:
        if made and (made[-1].incarnation, made[-1].last + 1) == (found.incarnation, found.first):
            made[-1] = replace(made[-1], last=found.last)
        else:
            made.append(found)
    return tuple(made)


def _size(found: Range) -> int:
    return found.last - found.first + 1


def _to_data(ranges: Mapping[str, tuple[Range, ...]]) -> Any:
    return {
        stream: [[each.incarnation, each.first, each.last] for each in found]
        for stream, found in ranges.items()
    }


def _from_data(data: Any) -> dict[str, tuple[Range, ...]]:
    return {stream: tuple(Range(*each) for each in found) for stream, found in data.items()}


@dataclass(frozen=True, slots=True)
class Kept:
    """The stored form of one stream: a *head* of JSON values, the rows that *changed* with it, and
    a function that returns *all* rows.
    """

    head: Any
    changed: Rows
    all: Callable[[], Rows]


@dataclass(frozen=True, slots=True)
class Counted:
    """The files of counts of the batch *transaction*, by area. Their logs follow that of lines."""

    transaction: int = 0
    files: Mapping[str, tuple[FileEntry, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A table's state as of *transaction*. *holder* wrote it; *batch* is the name of the last
    batch; *heads* are those of the streams; so many *batches* and *lines* were added since the
    table began. The state *whole* has all rows, but for changes in *differences* and in this one.
    """

    transaction: int = 0
    holder: str = ""
    batch: str | None = None
    cover: Cover = field(default_factory=Cover)
    counted: Counted = field(default_factory=Counted)
    heads: Mapping[str, Any] = field(default_factory=dict)
    batches: int = 0
    lines: int = 0
    whole: int = 0
    differences: tuple[int, ...] = ()
    rows: int = 0  # of the whole one
    rows_changed: int = 0  # since then

    @property
    def first_needed(self) -> int:
        """The number of the oldest state that this one is read with."""
        return self.whole or self.transaction


@dataclass(frozen=True, slots=True)
class Left:
    """The remains of a state of a damaged table. *rows* are all rows if it *is whole*, else those
    of the objects that can be read.
    """

    state: State
    rows: Mapping[str, Rows]
    is_whole: bool


class States:
    """The states of one table."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def load(self, transaction: int) -> tuple[State, dict[str, dict[str, Any]]]:
        """Return the state of *transaction*, and all rows by stream.

        Raises:
            Damaged: it is missing or is not what was written.
        """
        if not transaction:
            return State(), {}
        data = self._read(transaction)
        state = _state_of(data, self._where(transaction))
        rows: dict[str, dict[str, Any]] = {}
        for number in _behind(state, transaction):
            _apply(rows, self._read(number)["rows"])
        _apply(rows, data["rows"])
        return state, rows

    def left(self) -> Iterator[Left]:
        """Give the remains of each state, the newest first, committed or not."""
        stored = (number_of(each.path) for each in self._storage.list(STATE))
        for number in sorted((each for each in stored if each is not None), reverse=True):
            with suppress(Damaged):
                data = self._read(number)
                state = _state_of(data, self._where(number))
                rows: dict[str, dict[str, Any]] = {}
                is_whole = True
                for former in _behind(state, number):
                    try:
                        _apply(rows, self._read(former)["rows"])
                    except Damaged:
                        is_whole = False
                _apply(rows, data["rows"])
                yield Left(state, rows, is_whole)

    def counted(self, transaction: int) -> Counted | None:
        """Return the counts in the state of *transaction*, None if there is no such state.

        Raises:
            Damaged: it is not what was written.
        """
        data = self._found(transaction)
        return None if data is None else _state_of(data, self._where(transaction)).counted

    def save(self, state: State, kept: Mapping[str, Kept]) -> State | None:
        """Store *state*, with the stored form of all streams (*kept*), under the number of its
        transaction. Return it in the form from which the next one continues; None if another writer
        took the number.

        Raises:
            Refused: it is larger than `load` reads.
        """
        changed = {stream: each.changed for stream, each in kept.items() if each.changed}
        count = sum(map(len, changed.values()))
        is_large = state.rows_changed + count > max(ROWS_MIN, state.rows)
        if count and (not state.whole or is_large or len(state.differences) >= DIFFERENCES_MAX):
            everything = {stream: each.all() for stream, each in kept.items()}
            whole = replace(
                state,
                whole=state.transaction,
                differences=(),
                rows=sum(map(len, everything.values())),
                rows_changed=0,
            )
            return whole if self._put(whole, everything) else None
        following = replace(state, rows_changed=state.rows_changed + count)
        if not self._put(following, changed):
            return None
        if not count:
            return following
        return replace(following, differences=(*state.differences, state.transaction))

    def newest(self) -> int:
        """Return the greatest number of a stored state, committed or not; 0 if there is none."""
        numbers = (number_of(stored.path) for stored in self._storage.list(STATE))
        return max((number for number in numbers if number is not None), default=0)

    def remove_before(self, first: int) -> None:
        """Remove the states of all transactions before *first*."""
        numbers = {stored.path: number_of(stored.path) for stored in self._storage.list(STATE)}
        self._storage.delete(
            path for path, number in numbers.items() if number is not None and number < first
        )

    def _put(self, state: State, rows: Mapping[str, Rows]) -> bool:
        data = _data_of(state) | {"rows": {name: dict(each) for name, each in rows.items()}}
        # Two writers of the same name may store the same state, and one of them has to lose.
        data["nonce"] = str(uuid4())
        body = json_text.dump(data).encode()
        if len(body) > STATE_BYTES_MAX:
            # No start could read it. The former state stays, and its batch is read again.
            raise Refused(
                f"{self._where(state.transaction)} would have {len(body)} bytes, and a state has "
                f"{STATE_BYTES_MAX} at most: nothing was committed."
            )
        packed = zstd.Compressor(LEVEL).compress(body)
        head = f"state {VERSION} {zlib.crc32(packed):08x} {len(packed)}\n".encode()
        return self._storage.put_if_absent(_path(state.transaction), head + packed)

    def _read(self, number: int) -> Any:
        data = self._found(number)
        if data is None:
            raise Damaged(f"{self._where(number)} is missing: {_ADVICE}.")
        return data

    def _found(self, number: int) -> Any:
        where = self._where(number)
        raw = self._storage.read(_path(number))
        if raw is None:
            return None
        head, _, packed = raw.partition(b"\n")
        fields = head.decode("ascii", "replace").split(" ")
        if fields[:1] != ["state"] or len(fields) != 4:
            raise Damaged(f"{where} is damaged (it is not a state): {_ADVICE}.")
        if fields[1] != str(VERSION):
            raise Damaged(
                f"{where} was written by another version of logpipeline: use that, or a newer one."
            )
        if fields[2:] != [f"{zlib.crc32(packed):08x}", str(len(packed))]:
            raise Damaged(f"{where} is damaged (its checksum does not match): {_ADVICE}.")
        try:
            body = zstd.decompress(packed, STATE_BYTES_MAX)
            data = json_text.parse(body)
        except (zstd.ZstdError, ValueError) as error:
            raise Damaged(f"{where} is damaged ({error}): {_ADVICE}.") from error
        rows = data.get("rows") if isinstance(data, dict) else None
        if not isinstance(rows, dict) or not all(isinstance(each, dict) for each in rows.values()):
            raise Damaged(f"{where} is damaged (it has no rows of streams): {_ADVICE}.")
        return data

    def _where(self, number: int) -> str:
        return f"{self._storage.url}/{_path(number)}"


def last_state(storage: Storage, logs: Logs) -> tuple[State, dict[str, dict[str, Any]]]:
    """Return the state of the last transaction in the log, and all rows by stream.

    Raises:
        Damaged: it is missing or is not what was written.
        Refused: the log cannot be read, or states are gone before they are read.
    """
    for _ in range(LOADS_MAX):
        number = logs[LINES].transaction() or 0
        try:
            return States(storage).load(number)
        except Damaged:
            # A writer may have committed, and removed this state, since the log was read.
            if (logs[LINES].transaction() or 0) == number:
                raise
    raise Refused(
        f"{storage.url} is written so fast that what its log names is gone before it is read: run "
        "this nearer to the table, or while the table's writer is stopped."
    )


def number_of(path: str) -> int | None:
    """Return the transaction of the state at *path*, None if it is another file."""
    name = name_of(path).removesuffix(SUFFIX)
    is_number = name.isascii() and name.isdecimal() and len(name) <= NUMBER_DIGITS
    return int(name) if is_number else None


def _path(number: int) -> str:
    return f"{STATE}/{number:0{NUMBER_DIGITS}d}{SUFFIX}"


def _behind(state: State, number: int) -> list[int]:
    """Return the numbers of the other states that hold rows of state *number*."""
    return [each for each in (state.whole, *state.differences) if each and each != number]


def _apply(rows: dict[str, dict[str, Any]], changed: Mapping[str, Rows]) -> None:
    """Update *rows*; what changed last stands last."""
    for stream, each in changed.items():
        known = rows.setdefault(stream, {})
        for key, value in each.items():
            known.pop(key, None)
            if value is not None:
                known[key] = value


def _data_of(state: State) -> dict[str, Any]:
    files = state.counted.files.items()
    return {
        "transaction": state.transaction,
        "holder": state.holder,
        "batch": state.batch,
        "cover": state.cover.to_data(),
        "counted": {
            "transaction": state.counted.transaction,
            "files": {area: [asdict(entry) for entry in entries] for area, entries in files},
        },
        "heads": dict(state.heads),
        "batches": state.batches,
        "lines": state.lines,
        "whole": state.whole,
        "differences": list(state.differences),
        "counts": [state.rows, state.rows_changed],
    }


def _state_of(data: Any, where: str) -> State:
    try:
        counted = data["counted"]
        files = {
            area: tuple(FileEntry(**entry) for entry in entries)
            for area, entries in counted["files"].items()
        }
        rows, rows_changed = data["counts"]
        number, whole = data["transaction"], data["whole"]
        numbers = [number, whole, *data["differences"]]
        if not all(type(each) is int for each in numbers):
            raise TypeError("a number of a transaction is none")
        said = {name: each for name, each in data["rows"].items() if each}
        return State(
            transaction=number,
            holder=data["holder"],
            batch=data["batch"],
            cover=Cover.from_data(data["cover"]),
            counted=Counted(counted["transaction"], files),
            heads=data["heads"],
            batches=data["batches"],
            lines=data["lines"],
            whole=whole,
            # In the form that `save` returned.
            differences=(*data["differences"], *([number] if said and whole != number else ())),
            rows=rows,
            rows_changed=rows_changed,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"{where} is damaged ({error!r}): {_ADVICE}.") from error
