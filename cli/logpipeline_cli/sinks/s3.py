"""Objects in a bucket with S3's protocol, one for each batch. Its name is the batch's, so that a
batch that is written again replaces itself.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from logpipeline import zstd
from logpipeline.consuming.message import Batch
from logpipeline_cli.batches import json_lines
from logpipeline_cli.errors import UsageError
from logpipeline_cli.sinks.destination import Misdirected, TryAgain, created_of
from logpipeline_spark.table.s3 import S3Options, S3Storage
from logpipeline_spark.table.storage import StorageAway, StorageFailed

# Digits of a sequence in a name, so that names sort as batches do; 2^64 has 20.
SEQUENCE_DIGITS = 20
ZSTD_LEVEL = 3


class S3Destination:
    """Puts each batch into *storage*: its lines as objects of JSON, or as they were written."""

    def __init__(self, storage: S3Storage, form: str, compression: str) -> None:
        self._storage = storage
        self._form = form
        self._compression = compression

    async def open(self) -> None:
        """Look whether the bucket can be read.

        Raises:
            Misdirected: there is none, or we have no right to it.
            TryAgain: the server is away.
        """
        try:
            # Some servers create a bucket for any name in a write, also for a mistyped one.
            await asyncio.to_thread(lambda: any(self._storage.list("")))
        except StorageAway as error:
            raise TryAgain(str(error)) from error
        except StorageFailed as error:
            raise Misdirected(str(error)) from error

    async def write(self, batch: Batch) -> None:
        """Put the object; see `Destination.write`."""
        data = b"".join(line + b"\n" for line in self._lines(batch))
        if self._compression == "zstd":
            data = zstd.Compressor(ZSTD_LEVEL, has_checksum=True).compress(data)
        try:
            await asyncio.to_thread(self._storage.write, self.place(batch), data)
        except StorageAway as error:
            raise TryAgain(str(error)) from error
        except StorageFailed as error:
            raise Misdirected(str(error)) from error

    async def close(self) -> None:
        """There is nothing to let go."""

    def _lines(self, batch: Batch) -> Iterator[bytes]:
        for message in batch.messages:
            if self._form == "ndjson":
                yield from json_lines(message)
            else:
                yield from (line.text for line in message.lines)

    def place(self, batch: Batch) -> str:
        """Return the name of the object of *batch*, below the prefix."""
        first, last = (f"{number:0{SEQUENCE_DIGITS}d}" for number in (batch.first, batch.last))
        kind = "ndjson" if self._form == "ndjson" else "log"
        suffix = ".zst" if self._compression == "zstd" else ""
        return f"{batch.stream}/{created_of(batch)}/{first}-{last}.{kind}{suffix}"


def destination_of(args: argparse.Namespace) -> S3Destination:
    """Return the destination that the arguments name.

    Raises:
        UsageError: one of them is wrong.
    """
    parts = urlsplit(args.url)
    if parts.scheme != "s3" or not parts.netloc:
        raise UsageError("--url: give a bucket and a prefix, such as s3://logs/shop")
    keys = [
        None if path is None else Path(path)
        for path in (args.access_key_file, args.secret_key_file)
    ]
    options = S3Options(args.endpoint, args.region, *keys)
    return S3Destination(
        S3Storage(parts.netloc, parts.path, options), args.output, args.compression
    )
