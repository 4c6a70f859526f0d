"""The order of rows in merged files: those of a source stand together, so that the statistics of a
group of rows tell readers which hosts it holds, and like lines are packed with like.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# What people ask for first stands first. Within a source rows keep the order of the stream, and so
# that of time.
BY = ("cluster", "host", "namespace", "pod", "container", "source")
# So much is put in order at once: some groups of rows, each of few hosts, of one life of one
# stream. It is in memory three times.
PORTION_BYTES_MAX = 128 * 1024 * 1024
# Beyond that ranks are numbered anew, so that the next factor still fits.
_RANK_MAX = 1 << 40

_Numbers = npt.NDArray[np.int64]


def in_portions(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Put *tables*, each of one life of one stream, together as far as they are of one and fit
    into memory.
    """
    waiting: list[pa.Table] = []
    size, life = 0, None
    for table in tables:
        found = (table["stream"][0].as_py(), table["incarnation"][0].as_py())
        if waiting and (found != life or size + table.nbytes > PORTION_BYTES_MAX):
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
        waiting.append(table)
        size, life = size + table.nbytes, found
    if waiting:
        yield pa.concat_tables(waiting)


def by_source(table: pa.Table) -> pa.Table:
    """Return the rows of *table* by their sources; those of a source in their order of before. The
    columns of `BY` are dictionaries of strings.
    """
    if not table.num_rows:
        return table
    table = table.unify_dictionaries().combine_chunks()
    ranks = np.zeros(table.num_rows, np.int64)
    for name in BY:
        found, count = _ranks(table[name])
        if ranks.max() >= _RANK_MAX:
            ranks = _dense(ranks)
        ranks = ranks * count + found
    ranks = _dense(ranks)
    if np.all(ranks[1:] >= ranks[:-1]):
        return table
    # Few numbers are sorted by counting them.
    small = ranks.astype(np.uint16) if ranks.max() < 1 << 16 else ranks
    return table.take(pa.array(np.argsort(small, kind="stable")))


def _ranks(column: pa.ChunkedArray) -> tuple[_Numbers, int]:
    """Return for each row of *column*, whose chunks share a dictionary, the rank of its value,
    nulls last, and how many ranks there may be.
    """
    values = column.chunk(0).dictionary
    rank_of = np.empty(len(values) + 1, np.int64)
    rank_of[pc.sort_indices(values).to_numpy()] = np.arange(len(values))
    rank_of[-1] = len(values)
    indices = [chunk.indices.fill_null(len(values)).to_numpy() for chunk in column.chunks]
    return rank_of[np.concatenate(indices)], len(rank_of)


def _dense(ranks: _Numbers) -> _Numbers:
    """Return ranks of the same order without gaps."""
    encoded = pa.array(ranks).dictionary_encode()
    values = encoded.dictionary.to_numpy()
    rank_of = np.empty(len(values), np.int64)
    rank_of[np.argsort(values)] = np.arange(len(values))
    found: _Numbers = rank_of[encoded.indices.to_numpy()]
    return found
