"""The running checksum of a file: of all its bytes from where shipping began up to an offset.

It is CRC-64/XZ (ECMA-182 reflected; https://reveng.sourceforge.io/crc-catalogue, "CRC-64/XZ"),
because a CRC can be continued from its value alone, after a restart and by another program, and
because a native library computes it at more than 50 GB a CPU-second: 0.02 CPU s/GB were measured,
where shipping costs 9.
"""

from __future__ import annotations

from typing import NewType

from fastcrc import crc64

Checksum = NewType("Checksum", int)

NOTHING = Checksum(0)
_DIGITS = 16


def extend(before: Checksum, data: bytes) -> Checksum:
    """Return the checksum behind *data*, where it was *before* in front of it."""
    return Checksum(crc64.xz(data, before))


def encode(checksum: Checksum) -> str:
    """Return 16 hex digits."""
    return f"{checksum:0{_DIGITS}x}"


def decode(text: str) -> Checksum:
    """Return the checksum that `encode` wrote.

    Raises:
        ValueError: it is not a checksum.
    """
    if len(text) != _DIGITS or not all(digit in "0123456789abcdef" for digit in text):
        raise ValueError(f"a checksum has {_DIGITS} hex digits, not {text[:40]!r}")
    return Checksum(int(text, 16))
