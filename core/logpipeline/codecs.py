"""Codecs: the name of each, its suffix, and how files are unpacked and packed. A codec is added
here, and nowhere else.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from logpipeline import zstd

# Bytes that one step may produce: a bomb unpacks no faster than it is read.
OUTPUT_BYTES = 256 * 1024
XZ_MEMORY_BYTES_MAX = 128 * 1024 * 1024
ZSTD_LEVEL = 3
GZIP_LEVEL = 6
_GZIP_WINDOW = 31  # zlib's way of saying: with a gzip header

# Raised by unpackers where the input is not the codec's.
DAMAGES = (zlib.error, lzma.LZMAError, zstd.ZstdError, OSError, EOFError)


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
        """Unpack something of *data*, and return it, and what of *data* is left.

        Raises:
            one of `DAMAGES`: *data* is not what the codec makes.
        """


class Packer(Protocol):
    """The common part of zlib's and zstd's streaming compressors."""

    def compress(self, data: bytes, /) -> bytes:
        """Return what is ready of the packed bytes."""

    def flush(self) -> bytes:
        """Return the rest of them."""


class Readable(Protocol):
    """A file, or what unpacks one."""

    def read(self, size: int, /) -> bytes:
        """Return up to *size* bytes, none at the end."""


@dataclass(frozen=True, slots=True)
class Codec:
    """A way to pack a file; *suffix* is what the name of such a file ends with."""

    name: str
    suffix: str
    # In bounded steps, since a file may come from any program.
    unpacker: Callable[[], Unpacker]
    # Faster, for files that a collector made.
    open: Callable[[BinaryIO], Readable]
    # None where collectors do not pack so.
    packer: Callable[[], Packer] | None = None
    # Whether the last four bytes of a file are the length of its content, modulo 4 GiB.
    tells_size: bool = False


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
    """An unpacker that itself keeps the input that it did not unpack yet: all but zlib's."""

    def __init__(
        self, unpack: bz2.BZ2Decompressor | lzma.LZMADecompressor | zstd.Decompressor
    ) -> None:
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


GZIP = Codec(
    "gzip",
    ".gz",
    unpacker=_Gzip,
    open=lambda file: gzip.GzipFile(fileobj=file),
    packer=lambda: zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW),
    tells_size=True,
)
ZSTD = Codec(
    "zstd",
    ".zst",
    unpacker=lambda: _Holding(zstd.Decompressor()),
    open=zstd.ZstdFile,
    packer=lambda: zstd.packer(ZSTD_LEVEL),
)
BZIP2 = Codec("bzip2", ".bz2", unpacker=lambda: _Holding(bz2.BZ2Decompressor()), open=bz2.BZ2File)
XZ = Codec(
    "xz",
    ".xz",
    unpacker=lambda: _Holding(lzma.LZMADecompressor(memlimit=XZ_MEMORY_BYTES_MAX)),
    open=lzma.LZMAFile,
)
CODECS = (GZIP, ZSTD, BZIP2, XZ)
# Those in which collectors pack, by name.
PACKED_IN = {codec.name: codec for codec in CODECS if codec.packer is not None}


def codec_of(name: str) -> Codec | None:
    """Return how the file *name* is packed, None for one that is not."""
    return next((codec for codec in CODECS if name.endswith(codec.suffix)), None)


def unpacked(name: str) -> str:
    """Return *name* without what says how it is packed."""
    codec = codec_of(name)
    return name.removesuffix(codec.suffix) if codec is not None else name
