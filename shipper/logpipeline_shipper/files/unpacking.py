"""Unpacks what rotators pack, step by step, so that no file unpacks to more than memory holds: a
few packed bytes may stand for gigabytes.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Protocol

import zstandard

# Bytes that one step may produce: a bomb unpacks no faster than it is read.
OUTPUT_BYTES = 256 * 1024
# The library for zstd cannot stop in the midst of its input. A block of three bytes may stand for
# 128 KiB, so that one step of it may produce some 8 MiB.
ZSTD_INPUT_BYTES = 192
# Larger windows are for archives.
ZSTD_WINDOW_BYTES_MAX = 128 * 1024 * 1024
XZ_MEMORY_BYTES_MAX = 128 * 1024 * 1024
_GZIP_WINDOW = 31  # zlib's way of saying: with a gzip header

# What a step raises where its input is none.
DAMAGES = (zlib.error, lzma.LZMAError, zstandard.ZstdError, OSError, EOFError)


class Unpacker(Protocol):
    """One member of a packed file. *eof* says that it is complete, *needs_input* that a step
    without input brings nothing.
    """

    @property
    def eof(self) -> bool:
        """Return whether the member is complete."""

    @property
    def needs_input(self) -> bool:
        """Return whether a step without input brings nothing."""

    def step(self, data: bytes, /) -> tuple[bytes, bytes]:
        """Unpack something of *data*, and return it, and what of *data* is left."""


class _Gzip:
    needs_input = True

    def __init__(self) -> None:
        self._unpack = zlib.decompressobj(_GZIP_WINDOW)

    @property
    def eof(self) -> bool:
        return self._unpack.eof

    def step(self, data: bytes) -> tuple[bytes, bytes]:
        found = self._unpack.decompress(data, OUTPUT_BYTES)
        return found, self._unpack.unused_data if self.eof else self._unpack.unconsumed_tail


class _Holding:
    """What keeps the input that it did not unpack yet for itself: bzip2 and xz."""

    def __init__(self, unpack: bz2.BZ2Decompressor | lzma.LZMADecompressor) -> None:
        self._unpack = unpack

    @property
    def eof(self) -> bool:
        return self._unpack.eof

    @property
    def needs_input(self) -> bool:
        return self._unpack.needs_input or self._unpack.eof

    def step(self, data: bytes) -> tuple[bytes, bytes]:
        if self._unpack.needs_input:
            found, rest = self._unpack.decompress(data, OUTPUT_BYTES), b""
        else:
            found, rest = self._unpack.decompress(b"", OUTPUT_BYTES), data
        return found, self._unpack.unused_data + rest if self.eof else rest


class _Zstd:
    def __init__(self) -> None:
        unpacker = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
        self._unpack = unpacker.decompressobj()
        self._held, self._at = b"", 0

    @property
    def eof(self) -> bool:
        return self._unpack.eof

    @property
    def needs_input(self) -> bool:
        return self._at >= len(self._held) or self._unpack.eof

    def step(self, data: bytes) -> tuple[bytes, bytes]:
        if self._at >= len(self._held):
            self._held, self._at, data = data, 0, b""
        found = self._unpack.decompress(self._held[self._at : self._at + ZSTD_INPUT_BYTES])
        self._at += ZSTD_INPUT_BYTES
        if not self.eof:
            return found, data
        return found, self._unpack.unused_data + self._held[self._at :] + data


# How each is called, by the ending of a file's name.
NAMES = {"gz": "gzip", "zst": "zstd", "bz2": "bzip2", "xz": "xz"}
UNPACKERS: dict[str, Callable[[], Unpacker]] = {
    "gz": _Gzip,
    "zst": _Zstd,
    "bz2": lambda: _Holding(bz2.BZ2Decompressor()),
    "xz": lambda: _Holding(lzma.LZMADecompressor(memlimit=XZ_MEMORY_BYTES_MAX)),
}
