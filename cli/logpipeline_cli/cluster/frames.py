"""How files come out of a pod: in frames, so that their ends, what is missing and a stream that
broke off are told apart, whatever bytes a file holds.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import BinaryIO

# What a frame may carry; a longer one is no frame of ours.
FRAME_BYTES_MAX = 1024 * 1024
_HEAD = struct.Struct(">cI")


class Kind(Enum):
    """What a frame says."""

    DATA = b"D"  # the next bytes of the file
    END = b"E"  # the file is whole
    LOST = b"L"  # the file was removed before it was opened
    FAILED = b"X"  # nothing follows, and why
    DONE = b"Z"  # all files are told


class StreamCut(Exception):
    """The stream ended before it was done."""


class StreamBroken(Exception):
    """The stream is none of ours; another program wrote into it."""


def write_frame(stream: BinaryIO, kind: Kind, data: bytes = b"") -> None:
    """Write one frame."""
    assert len(data) <= FRAME_BYTES_MAX
    stream.write(_HEAD.pack(kind.value, len(data)) + data)


def read_frame(stream: BinaryIO) -> tuple[Kind, bytes]:
    """Return the next frame.

    Raises:
        StreamCut: there is no whole one.
        StreamBroken: it is none.
    """
    code, size = _HEAD.unpack(_exactly(stream, _HEAD.size))
    try:
        kind = Kind(code)
    except ValueError:
        raise StreamBroken(f"a frame begins with {code!r}") from None
    if size > FRAME_BYTES_MAX:
        raise StreamBroken(f"a frame has {size} bytes")
    return kind, _exactly(stream, size)


def _exactly(stream: BinaryIO, size: int) -> bytes:
    # A buffered stream returns less at its end only.
    data = stream.read(size) if size else b""
    if len(data) < size:
        raise StreamCut(f"{len(data)} bytes came where {size} were to come")
    return data
