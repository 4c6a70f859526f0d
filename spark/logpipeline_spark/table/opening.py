"""From the path that a user writes to a storage."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from logpipeline_spark.errors import Refused
from logpipeline_spark.table.local import LocalStorage
from logpipeline_spark.table.s3 import S3Options, S3Storage
from logpipeline_spark.table.storage import Storage


def storage_of(url: str, s3: S3Options | None = None) -> Storage:
    """Return the storage at *url*: a folder, `file://…` or `s3://bucket/prefix`.

    *s3* says what the environment does not.

    Raises:
        Refused: it is none of these.
    """
    parts = urlsplit(url)
    if not url:
        raise Refused("No path was given: name a folder or s3://bucket/prefix.")
    if parts.scheme in ("s3", "s3a"):
        if not parts.netloc:
            raise Refused(f"{url} names no bucket: write s3://bucket/prefix.")
        return S3Storage(parts.netloc, parts.path, s3 or S3Options())
    if parts.scheme == "file":
        return LocalStorage(Path(unquote(parts.path)))
    if "://" in url:
        raise Refused(f"{url} is no path of a table: name a folder or s3://bucket/prefix.")
    return LocalStorage(Path(url).expanduser())
