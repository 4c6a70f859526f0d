"""zstd, as Python has it from 3.14 on, and by its backport before."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# Takes windows of up to 128 MiB, as zstd does by default; larger ones are for archives.
Decompressor = zstd.ZstdDecompressor
ZstdError = zstd.ZstdError
ZstdFile = zstd.ZstdFile


class Compressor:
    """Packs frames of *level*; two threads must not share it. Making one costs more than packing a
    batch.
    """

    def __init__(self, level: int, *, has_checksum: bool = False) -> None:
        self._compressor = _compressor(level, has_checksum=has_checksum)

    def compress(self, data: bytes) -> bytes:
        """Return *data* as a frame, which tells its length."""
        return self._compressor.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)


def packer(level: int) -> zstd.ZstdCompressor:
    """Return what packs one frame of *level* in pieces, with a checksum at its end."""
    return _compressor(level, has_checksum=True)


def content_size(data: bytes) -> int | None:
    """Return the length of the content that the frame in *data* tells, None if it does not.

    Raises:
        ZstdError: it is no frame.
    """
    return zstd.get_frame_info(data).decompressed_size


def decompress(data: bytes, bytes_max: int) -> bytes:
    """Return the content of *data*, a frame.

    Raises:
        ZstdError: it is not a whole frame, or its content is longer than *bytes_max*.
    """
    frame = zstd.ZstdDecompressor()
    # One more, so that the end of the longest one that is taken is seen.
    content = frame.decompress(data, bytes_max + 1)
    if len(content) > bytes_max:
        raise ZstdError(f"its content is longer than {bytes_max} bytes")
    if not frame.eof:
        raise ZstdError("it is cut off")
    return content


def _compressor(level: int, *, has_checksum: bool) -> zstd.ZstdCompressor:
    options = {
        int(zstd.CompressionParameter.compression_level): level,
        int(zstd.CompressionParameter.checksum_flag): int(has_checksum),
    }
    return zstd.ZstdCompressor(options=options)
