"""Merge sorted files into one order, a few groups of rows in memory at a time.

Files seldom overlap: a range's file has its sequences alone, but for the few lines of marked
messages. So groups are taken in the order of their first row, and what is before the next group's
first row is ready.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from logpipeline_spark.table.damage import Damaged
from logpipeline_spark.table.parquet import checked_file
from logpipeline_spark.table.reading import fitted
from logpipeline_spark.table.storage import Storage

KEY = ("stream", "incarnation", "seq", "idx")


@dataclass(frozen=True, slots=True, order=True)
class Group:
    """One group of rows of a file, of one life of one stream."""

    stream: str
    incarnation: str
    first: int
    path: str
    number: int

    @property
    def life(self) -> tuple[str, str]:
        """Whose sequences these are."""
        return self.stream, self.incarnation


def groups_of(storage: Storage, path: str) -> list[Group]:
    """Read from a file's footer where its groups begin.

    Raises:
        Damaged: it is no file of a table.
    """
    try:
        with checked_file(storage, path) as file:
            return [_group(file.metadata.row_group(n), path, n) for n in range(file.num_row_groups)]
    except (AttributeError, KeyError) as error:
        raise Damaged(
            f"{storage.url}/{path} cannot be read ({error}): run verify, and bring it back."
        ) from error


def merged(storage: Storage, groups: Sequence[Group], schema: pa.Schema) -> Iterator[pa.Table]:
    """Give the rows of *groups* by (stream, incarnation, seq, idx); a table is of one life. Columns
    that are dictionaries in *schema* are read as such.
    """
    ordered = sorted(groups)
    pending = schema.empty_table()
    for group, following in zip_longest(ordered, ordered[1:]):
        pending = pa.concat_tables([pending, _read(storage, group, schema)])
        if following is None or following.life != group.life:
            ready, pending = pending, schema.empty_table()
        else:
            ready, pending = _cut(pending, following.first)
        if ready.num_rows:
            yield _in_order(ready)


def _read(storage: Storage, group: Group, schema: pa.Schema) -> pa.Table:
    dictionaries = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    with checked_file(storage, group.path, dictionaries=dictionaries) as file:
        return fitted(file.read_row_group(group.number, columns=schema.names), schema)


def _cut(table: pa.Table, first: int) -> tuple[pa.Table, pa.Table]:
    """Return the rows before the sequence *first*, and the others."""
    is_before = pc.less(table["seq"], first)
    if pc.all(is_before).as_py():
        # As nearly always: nothing is copied.
        return table, table.schema.empty_table()
    return table.filter(is_before), table.filter(pc.invert(is_before))


def _in_order(table: pa.Table) -> pa.Table:
    """Return the rows of one life by (seq, idx)."""
    seq, idx = (table[name].to_numpy() for name in KEY[2:])
    is_behind = (seq[1:] > seq[:-1]) | ((seq[1:] == seq[:-1]) & (idx[1:] >= idx[:-1]))
    return table if is_behind.all() else table.sort_by([(name, "ascending") for name in KEY[2:]])


def _group(meta: pq.RowGroupMetaData, path: str, number: int) -> Group:
    columns = {meta.column(n).path_in_schema: meta.column(n) for n in range(meta.num_columns)}
    stream, incarnation, seq = (columns[name].statistics for name in KEY[:3])
    if (stream.min, incarnation.min) != (stream.max, incarnation.max):
        raise KeyError("a group of rows holds more than one stream")
    return Group(stream.min, incarnation.min, seq.min, path, number)
