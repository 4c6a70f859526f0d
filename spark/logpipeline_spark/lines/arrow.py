"""Lines as Arrow tables. The values in a message's headers are written once, and its lines refer to
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logpipeline.line_fields import names_of, number_of_rule
from logpipeline.spec.table import ParseRule
from logpipeline_spark.lines import levels
from logpipeline_spark.lines.crilines import NO_FD
from logpipeline_spark.lines.fields import declared, event_times
from logpipeline_spark.lines.layout import Layout, layout
from logpipeline_spark.lines.messages import Opened
from logpipeline_spark.lines.schema import (
    NO_RULE,
    NONE,
    TIME,
    UNDECODABLE,
    Columns,
    Origin,
    encoded_schema_of,
)
from logpipeline_spark.lines.timestamps import Instants

Numbers = npt.NDArray[np.int64]

# A message may consist of newlines; at most so many lines become one table.
ROWS_MAX = 262_144

# By the numbers of `crilines`, from 1 on.
_FDS = pa.array(["stdout", "stderr"], pa.string())
# The values that lines of a message share, in the order of `_shared`.
_SHARED = ("cluster", "host", "namespace", "pod", "container", "source", "generation")


def slices(buffer: npt.NDArray[np.uint8], starts: Numbers, ends: Numbers) -> pa.BinaryArray:
    """Return the bytes ``[starts, ends)`` of *buffer*; the slices rise, and do not overlap."""
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    # Takes every second element of an array that shares the buffer: that is one copy.
    offsets = np.empty(2 * count, np.int32)
    base = int(starts[0])
    offsets[0::2] = starts - base
    offsets[1::2] = ends - base
    whole = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(buffer[base:])]
    )
    return whole.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def strings(raw: pa.BinaryArray) -> tuple[pa.StringArray, pa.BinaryArray]:
    """Return *raw* as text, and the bytes of values that are not valid text, null for all
    others.
    """
    try:
        return raw.cast(pa.string()), pa.nulls(len(raw), pa.binary())
    except pa.ArrowInvalid:
        repaired = _repaired(raw)
        is_text = pc.equal(repaired.cast(pa.binary()), raw)
        return repaired, pc.if_else(is_text, None, raw)


def _repaired(raw: pa.BinaryArray) -> pa.StringArray:
    offsets = np.frombuffer(raw.buffers()[1], np.int32)[raw.offset : raw.offset + len(raw) + 1]
    content = np.frombuffer(raw.buffers()[2], np.uint8)[: offsets[-1]]
    foreign = np.flatnonzero(content[offsets[0] :] >= 0x80) + offsets[0]
    rows = np.unique(np.searchsorted(offsets, foreign, side="right") - 1)
    is_foreign = np.zeros(len(raw), np.bool_)
    is_foreign[rows] = True
    fixed = [raw[row].as_py().decode("utf-8", "replace").encode() for row in rows.tolist()]
    mask = pa.array(is_foreign)
    return pc.replace_with_mask(raw, mask, pa.array(fixed, pa.binary())).cast(pa.string())


def tables_of(
    group: Sequence[Opened], origin: Origin, columns: Columns = NONE
) -> Iterator[pa.Table]:
    """Yield the lines of *group* as tables with the schema `encoded_schema_of` *columns*, of at
    most ROWS_MAX lines each.
    """
    found = layout(group)
    shared = _Shared(group, origin, columns)
    for begin in range(0, len(found.starts), ROWS_MAX):
        yield _table(found, shared, begin, min(begin + ROWS_MAX, len(found.starts)))


def rules_of(group: Sequence[Opened], columns: Columns) -> npt.NDArray[np.int64]:
    """Return for each message of *group* the number of the rule for its lines, or NO_RULE."""
    return np.array([_rule(opened, columns.rules) for opened in group], np.int64)


def _rule(opened: Opened, rules: tuple[ParseRule, ...]) -> int:
    # A message that cannot be decoded has no format.
    if opened.reason:
        return NO_RULE
    number = number_of_rule(names_of(opened.host or "", opened.batch), rules)
    return NO_RULE if number is None else number


class _Shared:
    """The values that lines have from their messages, one for each message."""

    def __init__(self, group: Sequence[Opened], origin: Origin, asked: Columns) -> None:
        messages = [opened.message for opened in group]
        self.origin = origin
        self.asked = asked
        self.rules = rules_of(group, asked)
        self.sequences = np.array([m.sequence for m in messages], np.int64)
        self.times = np.array([m.time_ns // 1000 for m in messages], np.int64)
        self.partitions = pa.array([opened.partition for opened in group], pa.int32())
        self.is_resent = np.array([opened.is_resent for opened in group], np.bool_)
        self.is_bad = np.array([bool(opened.reason) for opened in group], np.bool_)
        rows = list(zip(*(_shared(opened) for opened in group), strict=True))
        self.columns = {
            name: pa.array(values, pa.string()).dictionary_encode()
            for name, values in zip(_SHARED, rows, strict=True)
        }


def _shared(opened: Opened) -> tuple[str | None, ...]:
    batch = opened.batch
    if batch is None:
        return (None, opened.host, None, None, None, None, None)
    names = (batch.cluster, opened.host, batch.namespace, batch.pod, batch.container, batch.source)
    return (*(_text(name) for name in names), batch.generation)


def _text(name: str | None) -> str | None:
    if not name:
        return None
    if name.isascii():
        return name
    # A path may hold bytes that are not UTF-8; with one replacement character for all, two paths
    # could become equal.
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _table(found: Layout, shared: _Shared, begin: int, end: int) -> pa.Table:
    rows = slice(begin, end)
    owners = found.owners[rows]
    columns = _texts(found, shared, rows)
    indices = pa.array(owners, pa.int32())
    for name, values in shared.columns.items():
        columns[name] = values.take(indices)
    count = end - begin
    columns |= {
        "stream": _constant(shared.origin.stream, count),
        "incarnation": _constant(shared.origin.incarnation, count),
        "seq": pa.array(shared.sequences[owners]),
        "idx": pa.array((np.arange(begin, end) - found.firsts[owners]).astype(np.int32)),
        "ts": pa.array(shared.times[owners]).view(TIME),
        "partition": shared.partitions.take(indices),
        "piece": _pieces(found, begin, end),
        "offset": pa.array(found.offsets[rows], mask=found.offsets[rows] < 0),
        "resent": pa.array(shared.is_resent[owners]),
    }
    columns |= _asked(columns, shared, owners)
    schema = encoded_schema_of(shared.asked)
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _asked(
    columns: dict[str, pa.Array], shared: _Shared, owners: npt.NDArray[np.int64]
) -> dict[str, pa.Array]:
    """Return the declared columns of lines; *columns* are those that are there already."""
    asked = shared.asked
    if not asked.rules and not asked.times:
        return {}
    lines, near_us = columns["line"], shared.times[owners]
    are_pieces = columns["piece"].is_valid().to_numpy(zero_copy_only=False)
    filled = declared(lines, shared.rules[owners], are_pieces, near_us, asked)
    if not asked.times:
        return filled
    found: Instants = event_times(lines, filled, near_us, asked)
    return {**filled, "event_ts": pc.coalesce(found.column, columns["event_ts"])}


def _texts(found: Layout, shared: _Shared, rows: slice) -> dict[str, pa.Array]:
    times, fds = found.cri.times[rows], found.cri.fds[rows]
    raw = slices(found.buffer, found.cri.texts[rows], found.ends[rows])
    lines, no_text = strings(raw)
    return {
        "event_ts": pa.array(times, mask=times == 0).view(TIME),
        "fd": pa.DictionaryArray.from_arrays(
            pa.array(fds.astype(np.int32) - 1, mask=fds == NO_FD), _FDS
        ),
        "level": _levels(raw, shared.is_bad[found.owners[rows]]),
        "line": lines,
        "raw": no_text,
    }


def _levels(raw: pa.BinaryArray, is_bad: npt.NDArray[np.bool_]) -> pa.DictionaryArray:
    found = levels.levels(raw)
    if not is_bad.any():
        return found
    names = pa.concat_arrays([found.dictionary, pa.array([UNDECODABLE])])
    codes = pc.if_else(pa.array(is_bad), len(names) - 1, found.indices)
    return pa.DictionaryArray.from_arrays(codes.cast(pa.int32()), names)


def _pieces(found: Layout, begin: int, end: int) -> pa.Array:
    here = {row - begin: piece for row, piece in found.pieces.items() if begin <= row < end}
    if not here:
        return pa.nulls(end - begin, pa.string())
    return pa.array([here.get(row) for row in range(end - begin)], pa.string())


def _constant(value: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(count, np.int32)), pa.array([value], pa.string())
    )
