"""Word filters: they say which groups of rows of a file may hold a word. There is a Bloom filter
for each group, all of them in one object beside the table, from which a search reads a head and one
slice for each word.

A filter is a split-block Bloom filter like Parquet's: a word sets eight bits of one block of 32
bytes, and the first half of its hash selects the block. The blocks of all groups of a file for the
same words stand together, in one slice, so that a word takes one request to a bucket, and not one
for each group.

    magic, size of the file, groups, slices, checksum
    for each group: rows, blocks
    for each slice: its share of each group's blocks, checksum

If filters are missing, damaged, or of another file, the file is read whole.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from string import ascii_letters, digits

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logpipeline_spark.table.files import LINES, WORDS, FileEntry, words_path
from logpipeline_spark.table.storage import Storage

# The separators of words, in the syntax of RE2, for DuckDB.
NOT_IN_WORDS = r"[^0-9A-Za-z_\x{80}-\x{10FFFF}]"
# So many bytes of whole lines are split at once: all that is made of them fits into a cache.
PORTION_BYTES = 256 * 1024
# Only the beginning of a longer word (a picture, a certificate) counts: no search needs more.
WORD_BYTES_MAX = 64
# Most words occurred a moment ago, and are not sorted again. 512 KB fit into a cache as well.
RECENT = 1 << 16

Hashes = npt.NDArray[np.uint64]

# Each byte of a word in lower case, and 0 for all separators.
_FOLDED = bytes(
    byte if byte >= 0x80 or chr(byte) in f"{ascii_letters}{digits}_" else 0 for byte in range(256)
).lower()
# A word is read as numbers of eight bytes; the last one may extend past the word.
_EIGHT = 8
_PADDING = bytes(_EIGHT)
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(_EIGHT + 1)], np.uint64)
# The factors of MurmurHash3's last step: each bit of a word changes half of the bits of its hash.
_FACTORS = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
_SHIFT = np.uint64(33)

# One in 75 groups without a word is read in vain. Two bits more would halve that.
BITS_A_WORD = 10
# The number of slices of a large filter: 1 MB of filters for each 4 KB that a word reads.
SLICES_MAX = 256
# A small group has at least one block in each slice; all of these together add no more than this
# share.
SLICING_SHARE = 0.05
# The head for a file of 250 groups fits; a longer one takes a second read.
HEAD_BYTES = 4096
# Each group has a page with its description for each of 21 columns: a head with smaller groups is
# damaged, and must not take all memory.
GROUP_BYTES_MIN = 512

_MAGIC = b"lpwords1"
_HEAD = struct.Struct("<8sQIII")
_GROUP = np.dtype([("rows", "<u8"), ("blocks", "<u8")])
_CHECKSUM_BYTES = 4
_BLOCK_BYTES = 32
_BLOCK_BITS = 8 * _BLOCK_BYTES
_HALF = np.uint64(32)
# Parquet's salts: one for each of the eight 32-bit numbers of a block.
_SALTS = np.array(
    [
        0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D,
        0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31,
    ],
    np.uint32,
)  # fmt: skip
_BITS_FIRST = np.arange(0, _BLOCK_BITS, 32)

_Bytes = npt.NDArray[np.uint8]
_Places = npt.NDArray[np.int64]


# A word is a longest sequence of ASCII letters, digits, `_`, and all characters that are not ASCII;
# ASCII letters count in lower case. So a trace id is one word, and a UUID is five. No line is
# processed by itself: that would cost more than all else in compaction.
def distinct(lines: pa.ChunkedArray) -> Hashes:
    """Return the hash of each word of *lines*, which are strings: each once, the smallest first."""
    # At first, no place holds a hash that belongs there.
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
    """Return the hashes of the words of one text."""
    return distinct(pa.chunked_array([pa.array([text], pa.string())]))


def _portions(lines: pa.Array) -> Iterator[bytes]:
    """Give the text of some whole lines at a time, separated by a byte that is in no word."""
    ends = pc.cumulative_sum(pc.binary_length(lines).cast(pa.int64())).to_numpy()
    first = read = 0
    while first < len(lines):
        end = max(first + 1, int(np.searchsorted(ends, read + PORTION_BYTES, "right")))
        some = pa.ListArray.from_arrays([0, end - first], lines.slice(first, end - first))
        yield pc.binary_join(some, "\n")[0].as_buffer().to_pybytes()
        first, read = end, int(ends[end - 1])


def _hashed(text: bytes) -> Hashes:
    """Return the hash of each word of *text*."""
    # A separator before the first word, so that edges come in pairs.
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
    # numpy's unique takes ten times as long in some versions.
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


class Filters:
    """The filters of a file that is being written, group by group."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._filters: list[_Bytes] = []

    def add(self, lines: pa.ChunkedArray) -> None:
        """Add the filter of a group with these lines."""
        self._rows.append(len(lines))
        self._filters.append(_filter_of(distinct(lines)))

    def write(self, storage: Storage, entry: FileEntry) -> None:
        """Write the filters of a file that exists already: `remove_unneeded` relies on this order.

        Raises:
            StorageFailed: the disk or the bucket is full, or refuses.
        """
        place = words_path(entry.path)
        assert place is not None, f"{entry.path} was not written by a merge"
        storage.write(place, self._packed(entry))

    def _packed(self, entry: FileEntry) -> bytes:
        slices = _slices_of([len(each) for each in self._filters])
        # A filter with fewer blocks than slices is repeated: each copy gives the same answer.
        sliced = [
            np.repeat(each, max(1, slices // len(each)), axis=0).reshape(slices, -1)
            for each in self._filters
        ]
        groups = np.empty(len(sliced), _GROUP)
        groups["rows"] = self._rows
        groups["blocks"] = [each.size // _BLOCK_BYTES for each in sliced]
        head = _head(entry, slices, groups.tobytes())
        body = np.concatenate(sliced, axis=1)
        parts = [head]
        for number in range(slices):
            data = body[number].tobytes()
            parts += [data, _checksum(data, head, number)]
        return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The groups of a file that may hold all words of a search, by *numbers*, and the number of
    *rows* of each of its groups.
    """

    rows: tuple[int, ...]
    numbers: tuple[int, ...]


def chosen(storage: Storage, entry: FileEntry, words: Hashes) -> Chosen | None:
    """Return the groups of a file that may hold all *words*; None if there are no usable filters.

    Raises:
        StorageFailed: the disk or the bucket cannot be read.
    """
    place = words_path(entry.path)
    start = storage.read_range(place, 0, HEAD_BYTES) if place is not None else None
    if place is None or start is None or len(start) < _HEAD.size:
        return None
    magic, _, count, slices, _ = _HEAD.unpack_from(start)
    if magic != _MAGIC or not slices or count * GROUP_BYTES_MIN > entry.bytes:
        return None
    head_bytes = _HEAD.size + count * _GROUP.itemsize
    if head_bytes > len(start):
        start += storage.read_range(place, len(start), head_bytes - len(start)) or b""
    head = start[:head_bytes]
    # The head must match this file, its size, and its checksum.
    if head != _head(entry, slices, head[_HEAD.size :]):
        return None
    groups = np.frombuffer(head, _GROUP, offset=_HEAD.size)
    if int(groups["rows"].sum()) != entry.rows:
        return None
    shares = (groups["blocks"] // slices).astype(np.int64)
    slice_bytes = int(shares.sum()) * _BLOCK_BYTES
    may_hold = np.ones(count, np.bool_)
    for word in words:
        number = int(word >> _HALF) * slices >> 32
        at = head_bytes + number * (slice_bytes + _CHECKSUM_BYTES)
        found = storage.read_range(place, at, slice_bytes + _CHECKSUM_BYTES) or b""
        data = found[:-_CHECKSUM_BYTES]
        if len(data) != slice_bytes or found != data + _checksum(data, head, number):
            return None
        may_hold &= _holding(np.frombuffer(data, np.uint8), shares, word, number, slices)
    return Chosen(tuple(groups["rows"].tolist()), tuple(np.flatnonzero(may_hold).tolist()))


def are_there(storage: Storage, path: str) -> bool:
    """Return whether a file has filters.

    Raises:
        StorageFailed: the disk or the bucket cannot be read.
    """
    place = words_path(path)
    return place is not None and storage.read_range(place, 0, 1) is not None


def drop(storage: Storage, paths: Iterable[str]) -> None:
    """Remove the filters of files, if they have any.

    Raises:
        StorageFailed: the disk or the bucket refuses it.
    """
    storage.delete(place for path in paths if (place := words_path(path)) is not None)


def remove_unneeded(storage: Storage) -> None:
    """Remove filters whose files are gone.

    Raises:
        StorageFailed: the disk or the bucket refuses it.
    """
    # List the filters first: a file is written before its filters, so a new file is not overlooked.
    kept = [stored.path for stored in storage.list(WORDS)]
    if kept:
        needed = {words_path(stored.path) for stored in storage.list(LINES)}
        storage.delete(path for path in kept if path not in needed)


def _filter_of(words: Hashes) -> _Bytes:
    """Return a filter that holds *words*, as rows of blocks. Any number of slices that is a power
    of two divides it evenly, or is a multiple of its blocks.
    """
    blocks = max(1, -(-len(words) * BITS_A_WORD // _BLOCK_BITS))
    if blocks > SLICES_MAX:
        blocks = -(-blocks // SLICES_MAX) * SLICES_MAX
    else:
        blocks = 1 << (blocks - 1).bit_length()
    is_set = np.zeros(blocks * _BLOCK_BITS, np.bool_)
    is_set[_blocks_of(words, blocks)[:, np.newaxis] * _BLOCK_BITS + _bits_of(words)] = True
    return np.packbits(is_set, bitorder="little").reshape(blocks, _BLOCK_BYTES)


def _holding(
    data: _Bytes, shares: _Places, word: np.uint64, number: int, slices: int
) -> npt.NDArray[np.bool_]:
    """Return for each group whether it may hold *word*, whose slice is *data*; *shares* are the
    groups' numbers of blocks in a slice.
    """
    inside = (int(word >> _HALF) * slices * shares >> 32) - number * shares
    firsts = np.cumsum(shares) - shares
    blocks = data.reshape(-1, _BLOCK_BYTES)[firsts + inside]
    bits = np.unpackbits(blocks, axis=1, bitorder="little")
    return np.asarray(bits[:, _bits_of(np.array([word]))[0]].all(axis=1))


def _blocks_of(words: Hashes, blocks: int) -> _Places:
    return ((words >> _HALF) * np.uint64(blocks) >> _HALF).astype(np.int64)


def _bits_of(words: Hashes) -> _Places:
    """Return the eight bits of its block that each word sets."""
    salted = words.astype(np.uint32)[:, np.newaxis] * _SALTS
    return _BITS_FIRST + (salted >> np.uint32(27)).astype(np.int64)


def _slices_of(sizes: Sequence[int]) -> int:
    """Return the number of slices for filters of so many blocks: as many as cost little."""
    allowed = sum(sizes) * (1 + SLICING_SHARE)
    slices = SLICES_MAX
    while sum(max(size, slices) for size in sizes) > allowed:
        slices //= 2
    return slices


def _head(entry: FileEntry, slices: int, groups: bytes) -> bytes:
    count = len(groups) // _GROUP.itemsize
    said = (_MAGIC, entry.bytes, count, slices)
    # The checksum includes the file's name: filters that were copied to another name are not used.
    checksum = zlib.crc32(groups, zlib.crc32(_HEAD.pack(*said, 0) + entry.path.encode()))
    return _HEAD.pack(*said, checksum) + groups


def _checksum(data: bytes, head: bytes, number: int) -> bytes:
    """Return the checksum of a slice; it includes the head and the slice's number, so that slices
    cannot be exchanged.
    """
    return zlib.crc32(data, zlib.crc32(b"%d" % number, zlib.crc32(head))).to_bytes(4, "little")
