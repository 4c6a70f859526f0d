"""The rows of a table in the order of their keys, from files whose ranges may overlap: so a line
that is there twice is its own neighbour.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from logpipeline_spark.errors import Damaged
from logpipeline_spark.lines.schema import KEY, LIFE
from logpipeline_spark.table.order import not_before
from logpipeline_spark.table.parquet import checked_file
from logpipeline_spark.table.scan import fitted
from logpipeline_spark.table.storage import Storage


# Files seldom overlap: the file of a range has all of its sequences, but for the few lines of
# marked messages. So groups are taken in the order of their first row, and all rows before the
# first row of the next group are ready.
@dataclass(frozen=True, slots=True, order=True)
class Group:
    """The rows of one incarnation of one stream in a group of rows of a file. Where the file's
    group *is mixed*, it has rows of others, too, or does not say so.
    """

    stream: str
    incarnation: str
    first: int
    path: str
    number: int
    is_mixed: bool = False

    @property
    def life(self) -> tuple[str, str]:
        """The stream and the incarnation of its sequences."""
        return self.stream, self.incarnation


def groups_of(storage: Storage, path: str) -> list[Group]:
    """Return the groups of a file by its footer; by the keys of its rows, where a group has several
    streams.

    Raises:
        Damaged: the file is missing or altered, lacks a column, or has a row without a key.
    """
    try:
        with checked_file(storage, path) as file:
            return [group for n in range(file.num_row_groups) for group in _groups(file, path, n)]
    except (AttributeError, KeyError) as error:
        raise Damaged(
            f"{storage.url}/{path} cannot be read ({error}): run verify, and restore it."
        ) from error


def merged(storage: Storage, groups: Sequence[Group], schema: pa.Schema) -> Iterator[pa.Table]:
    """Give the rows of *groups* in the order of (stream, incarnation, seq, idx); a table has one
    incarnation.
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
    with checked_file(storage, group.path) as file:
        table = fitted(file.read_row_group(group.number, columns=schema.names), schema)
    if not group.is_mixed:
        return table
    is_here = (pc.equal(table[name], said) for name, said in zip(LIFE, group.life, strict=True))
    return table.filter(pc.and_(*is_here))


def _cut(table: pa.Table, first: int) -> tuple[pa.Table, pa.Table]:
    """Return the rows before the sequence *first*, and the others."""
    is_before = pc.less(table["seq"], first)
    if pc.all(is_before).as_py():
        # The usual case: nothing is copied.
        return table, table.schema.empty_table()
    return table.filter(is_before), table.filter(pc.invert(is_before))


def _in_order(table: pa.Table) -> pa.Table:
    """Return the rows of one incarnation in the order of (seq, idx)."""
    seq, idx = (table[name].to_numpy() for name in KEY[2:])
    is_sorted = not_before(seq, idx).all()
    return table if is_sorted else table.sort_by([(name, "ascending") for name in KEY[2:]])


def _groups(file: pq.ParquetFile, path: str, number: int) -> Iterator[Group]:
    meta = file.metadata.row_group(number)
    columns = {meta.column(n).path_in_schema: meta.column(n) for n in range(meta.num_columns)}
    stream, incarnation, seq = (columns[name].statistics for name in KEY[:3])
    is_said = all(each is not None and each.has_min_max for each in (stream, incarnation, seq))
    if is_said and (stream.min, incarnation.min) == (stream.max, incarnation.max):
        yield Group(stream.min, incarnation.min, seq.min, path, number)
        return
    # Streams with few rows share a group, and another program knows nothing of streams.
    keys = file.read_row_group(number, columns=list(KEY[:3]))
    for row in keys.group_by(list(LIFE)).aggregate([("seq", "min")]).to_pylist():
        if None in row.values():
            raise KeyError("a row has no key")
        first = row["seq_min"]
        yield Group(row["stream"], row["incarnation"], first, path, number, is_mixed=True)
