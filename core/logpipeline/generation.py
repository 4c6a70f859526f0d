"""Names a generation, one incarnation of a source's file, by its content, so that a renamed or
gzipped file keeps it.
"""

from __future__ import annotations

import hashlib

# A head longer than this names its file by its first bytes: a 64 MB line must not be read to be
# named.
HEAD_BYTES_MAX = 4096
_NAME_BYTES = 8


def head_of(data: bytes, *, closed: bool = False) -> bytes | None:
    """Return the part of a file's first bytes that names it, or None while that can still grow.

    It is the first line with its newline, or the first `HEAD_BYTES_MAX` bytes of a longer one.
    *closed* says that the file will not grow any more, so that an unfinished line is its head.
    """
    newline = data.find(b"\n", 0, HEAD_BYTES_MAX)
    if newline >= 0:
        return data[: newline + 1]
    if len(data) >= HEAD_BYTES_MAX:
        return data[:HEAD_BYTES_MAX]
    return data if closed and data else None


def generation_of(head: bytes, *, distinction: str = "") -> str:
    """Return the 16 hex digits that name the generation beginning with *head*.

    *distinction* (device and inode) is given only where an older generation of the same source has
    the same head.
    """
    return hashlib.blake2b(head, digest_size=_NAME_BYTES, key=distinction.encode()[:64]).hexdigest()
