"""What is known of a partition's sources, as bytes for another collector's folder to go on from."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable

import zstandard

from logpipeline.knowledge import Knowledge, decode
from logpipeline_collector.archive.errors import BadSnapshot
from logpipeline_collector.archive.rows import SourceName

VERSION = 1
# 250,000 sources of some 300 bytes; a damaged one shall not take all memory.
SNAPSHOT_BYTES_MAX = 512 * 1024 * 1024
LEVEL = 1


def encode(rows: Iterable[tuple[str, str]]) -> bytes:
    """Return a snapshot of *rows*: name and knowledge as they are stored, in JSON."""
    sources = ",".join(f"[{name},{knowledge}]" for name, knowledge in rows)
    body = f'{{"version":{VERSION},"sources":[{sources}]}}'.encode()
    return zlib.crc32(body).to_bytes(4, "big") + zstandard.ZstdCompressor(LEVEL).compress(body)


def decode_snapshot(data: bytes) -> dict[SourceName, Knowledge]:
    """Return the sources of a snapshot; the empty one has none.

    Raises:
        BadSnapshot: it is damaged, or of another version.
    """
    if not data:
        return {}
    try:
        body = zstandard.ZstdDecompressor().decompress(data[4:], max_output_size=SNAPSHOT_BYTES_MAX)
        if zlib.crc32(body).to_bytes(4, "big") != data[:4]:
            raise BadSnapshot("the snapshot's checksum does not match")
        told = json.loads(body)
        if told["version"] != VERSION:
            raise BadSnapshot(f"version {told['version']}; this program knows {VERSION}")
        return {(str(h), str(s)): decode(known) for (h, s), known in told["sources"]}
    except (zstandard.ZstdError, ValueError, KeyError, TypeError) as error:
        raise BadSnapshot(f"no snapshot of sources: {error}") from error
