"""How small objects of a table are written: versioned and checked, so that damage is found before
it is believed.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from logpipeline_spark.errors import Refused

VERSION = 1
_ADVICE = "bring _table back from a backup, or choose another path"


class Damaged(Refused):
    """An object of the manifest is missing, or is not what was written."""


def pack(kind: str, data: Any) -> bytes:
    """Return *data* as an object of *kind*."""
    body = json.dumps(data, separators=(",", ":"), sort_keys=True).encode()
    return f"{kind} {VERSION} {zlib.crc32(body):08x} {len(body)}\n".encode() + body


def unpack(kind: str, path: str, raw: bytes) -> Any:
    """Return what was packed.

    Raises:
        Damaged: it was cut short, changed, or written by another version.
    """
    head, _, body = raw.partition(b"\n")
    fields = head.split(b" ")
    if len(fields) != 4 or fields[0] != kind.encode():
        raise Damaged(f"{path} is damaged (it is no {kind}): {_ADVICE}.")
    if fields[1] != str(VERSION).encode():
        raise Damaged(f"{path} was written by another version: run that version, or a newer one.")
    if fields[2:] != [f"{zlib.crc32(body):08x}".encode(), str(len(body)).encode()]:
        raise Damaged(f"{path} is damaged (its checksum does not match): {_ADVICE}.")
    return json.loads(body)


def missing(path: str) -> Damaged:
    """Return what is said of an object that must be there."""
    return Damaged(f"{path} is missing: {_ADVICE}.")
