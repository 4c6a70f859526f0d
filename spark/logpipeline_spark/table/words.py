"""The words of lines, as numbers: a search for a word skips groups of rows that lack its number.

A word is as long as it can be: ASCII letters, digits, `_`, and all characters that are not ASCII,
in small ASCII letters. So a trace id is a word, and a UUID is five. No line is looked at by itself:
that would cost more than all else that compaction does.
"""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_letters, digits

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# What parts words, in the syntax of RE2, as DuckDB has it.
NOT_IN_WORDS = r"[^0-9A-Za-z_\x{80}-\x{10FFFF}]"
# Whole lines of so much are taken apart at once: all that is made of them fits into a cache.
PORTION_BYTES = 256 * 1024
# Of a longer word (a picture, a certificate) the beginning counts alone: no search needs more.
WORD_BYTES_MAX = 64
# Most words were met a moment ago, and are not sorted again. 512 KB fit into a cache as well.
RECENT = 1 << 16

Hashes = npt.NDArray[np.uint64]

# Each byte of a word in small letters, and 0 for all that parts words.
_FOLDED = bytes(
    byte if byte >= 0x80 or chr(byte) in f"{ascii_letters}{digits}_" else 0 for byte in range(256)
).lower()
# A word is read as numbers of eight bytes, of which the last one may reach behind it.
_EIGHT = 8
_PADDING = bytes(_EIGHT)
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(_EIGHT + 1)], np.uint64)
# Those of MurmurHash3's last step: each bit of a word changes half of the bits of its number.
_FACTORS = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
_SHIFT = np.uint64(33)


def distinct(lines: pa.ChunkedArray) -> Hashes:
    """Return the number of each word of *lines*, which are strings: once, the smallest first."""
    # Before the first word, no place has a number that belongs there.
    recent = np.arange(RECENT, dtype=np.uint64) ^ np.uint64(1)
    found = [np.empty(0, np.uint64)]
    for chunk in lines.fill_null("").chunks:
        for text in _portions(chunk):
            hashes = _hashed(text)
            places = (hashes & np.uint64(RECENT - 1)).view(np.int64)
            is_new = recent.take(places) != hashes
            new = hashes[is_new]
            recent[places[is_new]] = new
            found.append(new)
    return _once(np.concatenate(found))


def words_of(text: str) -> Hashes:
    """Return the numbers of the words of one text."""
    return distinct(pa.chunked_array([pa.array([text], pa.string())]))


def _portions(lines: pa.Array) -> Iterator[bytes]:
    """Give the text of some whole lines, with a byte between them that is in no word."""
    ends = pc.cumulative_sum(pc.binary_length(lines).cast(pa.int64())).to_numpy()
    first = read = 0
    while first < len(lines):
        end = max(first + 1, int(np.searchsorted(ends, read + PORTION_BYTES, "right")))
        some = pa.ListArray.from_arrays([0, end - first], lines.slice(first, end - first))
        yield pc.binary_join(some, "\n")[0].as_buffer().to_pybytes()
        first, read = end, int(ends[end - 1])


def _hashed(text: bytes) -> Hashes:
    """Return the number of each word of *text*."""
    # What stands before the first word parts it as well, so that edges come in pairs.
    codes = np.frombuffer(b"\0" + text.translate(_FOLDED) + _PADDING, np.uint8)
    is_word = codes != 0
    edges = np.flatnonzero(is_word[1:] != is_word[:-1])
    starts, lengths = edges[::2] + 1, edges[1::2] - edges[::2]
    eights = np.ndarray((len(codes) - _EIGHT + 1,), "<u8", codes, strides=(1,))
    hashes = _mixed(eights.take(starts) & _MASKS.take(lengths, mode="clip"))
    longer = np.flatnonzero(lengths > _EIGHT)
    for begin in range(_EIGHT, WORD_BYTES_MAX, _EIGHT):
        if not len(longer):
            break
        rest = lengths[longer] - begin
        following = eights.take(starts[longer] + begin) & _MASKS.take(rest, mode="clip")
        hashes[longer] = _mixed(hashes[longer] ^ following)
        longer = longer[rest > _EIGHT]
    return hashes


def _once(hashes: Hashes) -> Hashes:
    # Unlike numpy's unique, which in some versions takes ten times as long.
    hashes.sort()
    is_first = np.ones(len(hashes), np.bool_)
    is_first[1:] = hashes[1:] != hashes[:-1]
    return hashes[is_first]


def _mixed(numbers: Hashes) -> Hashes:
    for factor in _FACTORS:
        numbers = numbers ^ (numbers >> _SHIFT)
        numbers *= factor
    numbers ^= numbers >> _SHIFT
    return numbers
