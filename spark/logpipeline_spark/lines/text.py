"""Slices of a buffer as Arrow strings. Bytes that are no UTF-8 are replaced (U+FFFD), line by line
only where there are such lines.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]


def slices(buffer: npt.NDArray[np.uint8], starts: Numbers, ends: Numbers) -> pa.BinaryArray:
    """Return the bytes ``[starts, ends)`` of *buffer*; the slices rise, and do not overlap."""
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    # Every second element of an array that shares the buffer is wanted: taking those is one copy.
    offsets = np.empty(2 * count, np.int32)
    base = int(starts[0])
    offsets[0::2] = starts - base
    offsets[1::2] = ends - base
    whole = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(buffer[base:])]
    )
    return whole.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def strings(raw: pa.BinaryArray) -> tuple[pa.StringArray, pa.BinaryArray]:
    """Return *raw* as text; and the bytes of those that are no text, null for all others."""
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
