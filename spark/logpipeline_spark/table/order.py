"""The order of rows in merged files: those of a source stand together, so that readers of one host
pass over the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logpipeline.parts import in_parts
from logpipeline_spark.lines.schema import KEY, LIFE

# Within an incarnation of a stream rows are sorted by what queries select first, and those of a
# source as they were stored.
BY = ("cluster", "host", "namespace", "pod", "container", "source")
# So much is sorted at once. It is in memory twice, and a part of it three times. More would bring
# more lines of a host together, but each page of memory costs as much as its lines.
WINDOW_BYTES_MAX = 64 * 1024 * 1024
# Beyond this, ranks are numbered again, so that the next factor still fits.
_RANK_MAX = 1 << 40

_Numbers = npt.NDArray[np.int64]


def in_windows(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Concatenate consecutive *tables* as far as they fit into memory."""
    for part in in_parts(tables, lambda table: int(table.nbytes), size_max=WINDOW_BYTES_MAX):
        yield pa.concat_tables(part)


def by_source(table: pa.Table) -> Iterator[pa.Table]:
    """Give the rows of *table*, sorted, in one table for each incarnation of a stream. The columns
    of `LIFE` and `BY` are dictionaries of strings; no row lacks its key.
    """
    if not table.num_rows:
        return
    table = table.unify_dictionaries().combine_chunks()
    lives = _ranked(table, LIFE)
    order = _order(table, _ranked(table, BY, lives))
    lives = lives[order]
    starts = [0, *(np.flatnonzero(lives[1:] != lives[:-1]) + 1).tolist()]
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        yield table.take(pa.array(order[start:end]))


def _order(table: pa.Table, ranks: _Numbers) -> _Numbers:
    """Return where the rows of *table* are that come first, second, and so on: by *ranks*, and of
    the same rank as they were stored.
    """
    # Small numbers are sorted by counting.
    small = ranks.astype(np.uint16) if ranks.max() < 1 << 16 else ranks
    order = np.argsort(small, kind="stable")
    seq, idx = (table[name].to_numpy() for name in KEY[2:])
    is_next = np.diff(ranks[order]) > 0
    if not np.all(is_next | not_before(seq[order], idx[order])):
        # Lines that were marked, or sent again, stand in files of their own.
        order = np.lexsort((idx, seq, ranks))
    return order


def not_before(seq: _Numbers, idx: _Numbers) -> npt.NDArray[np.bool_]:
    """Return for each row but the first whether its (seq, idx) is not before that of the row
    above.
    """
    is_later, is_same = seq[1:] > seq[:-1], seq[1:] == seq[:-1]
    found: npt.NDArray[np.bool_] = is_later | (is_same & (idx[1:] >= idx[:-1]))
    return found


def _ranked(table: pa.Table, names: Iterable[str], above: _Numbers | None = None) -> _Numbers:
    """Return for each row the rank of its values of *names* within the ranks *above*, without
    gaps.
    """
    ranks = np.zeros(table.num_rows, np.int64) if above is None else above
    for name in names:
        found, count = _ranks(table[name])
        if ranks.max() >= _RANK_MAX:
            ranks = _dense(ranks)
        ranks = ranks * count + found
    return _dense(ranks)


def _ranks(column: pa.ChunkedArray) -> tuple[_Numbers, int]:
    """Return for each row of *column*, whose chunks share a dictionary, the rank of its value
    (nulls last), and how many ranks there may be.
    """
    values = column.chunk(0).dictionary
    rank_of = np.empty(len(values) + 1, np.int64)
    rank_of[pc.sort_indices(values).to_numpy()] = np.arange(len(values))
    rank_of[-1] = len(values)
    indices = [chunk.indices.fill_null(len(values)).to_numpy() for chunk in column.chunks]
    return rank_of[np.concatenate(indices)], len(rank_of)


def _dense(ranks: _Numbers) -> _Numbers:
    """Return ranks in the same order without gaps."""
    encoded = pa.array(ranks).dictionary_encode()
    values = encoded.dictionary.to_numpy()
    rank_of = np.empty(len(values), np.int64)
    rank_of[np.argsort(values)] = np.arange(len(values))
    found: _Numbers = rank_of[encoded.indices.to_numpy()]
    return found
