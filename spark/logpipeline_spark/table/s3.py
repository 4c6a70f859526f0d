"""A table in a bucket with S3's protocol, through obstore.

Tried as well: pyarrow.fs, which has no conditional put, and completes an upload even if the writer
failed half-way. `If-None-Match: *` decides which writer is first; a server that does not support it
is detected when a table is opened. Large objects are written to a local file first and uploaded in
parts; the upload is completed with the last part.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import S3Store

from logpipeline.failpoints import reach
from logpipeline_spark.errors import Refused
from logpipeline_spark.table.files import WRITING
from logpipeline_spark.table.storage import (
    CHECKS_MAX,
    OBJECT_BYTES_MAX,
    LocalStorage,
    Storage,
    StorageAway,
    StorageFailed,
    Stored,
    reporting,
)

# If the bucket is away for longer, the batch fails, and is repeated.
RETRY_TIMEOUT_S = 60
# So much of a server's message is shown; the sentence must still hold what to do.
SAID_CHARS_MAX = 300
# A key is one line; a larger file is another kind of file.
SECRET_BYTES_MAX = 16 * 1024
# Parquet reads a footer and then columns: small reads are answered from what came with earlier
# ones.
READ_BUFFER_BYTES = 1024 * 1024
# Libraries that are given a URL end its path at the first two, decode the third, and some take the
# last for a slash: they would look at another folder than we.
NOT_IN_PATHS = "?#%\\"


@dataclass(frozen=True, slots=True)
class S3Options:
    """The address and region of a bucket. Options that are not set come from the environment, as
    with AWS's tools.

    Secrets are given by their files, and read where they are used: they never travel with a task.
    """

    endpoint: str | None = None
    region: str | None = None
    access_key_file: Path | None = None
    secret_key_file: Path | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments for obstore."""
        said: dict[str, Any] = self.named(
            "endpoint", "region", "access_key_id", "secret_access_key"
        )
        if self.endpoint is not None and self.endpoint.startswith("http://"):
            said["client_options"] = {"allow_http": True}
        return said

    def named(self, endpoint: str, region: str, access: str, secret: str) -> dict[str, str]:
        """Return the options that are set, under the given names of another library."""
        files = {access: self.access_key_file, secret: self.secret_key_file}
        said = {name: _secret(file) for name, file in files.items() if file is not None}
        said |= {endpoint: self.endpoint or "", region: self.region or ""}
        return {name: value for name, value in said.items() if value}


class S3Storage:
    """Objects are those of *bucket* whose keys begin with *prefix*."""

    def __init__(self, bucket: str, prefix: str, options: S3Options) -> None:
        self._bucket = bucket
        self._prefix = prefix.strip("/")
        self._options = options

    def __reduce__(self) -> tuple[type[S3Storage], tuple[str, str, S3Options]]:
        return S3Storage, (self._bucket, self._prefix, self._options)

    @property
    def url(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def lake_options(self) -> dict[str, str]:
        said = self._options.named(
            "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
        )
        is_plain = said.get("AWS_ENDPOINT_URL", "").startswith("http://")
        return {**said, **({"AWS_ALLOW_HTTP": "true"} if is_plain else {})}

    @cached_property
    def _store(self) -> S3Store:
        return S3Store(
            self._bucket,
            prefix=self._prefix or None,
            retry_config={"retry_timeout": timedelta(seconds=RETRY_TIMEOUT_S)},
            **self._options.arguments(),
        )

    def read(self, path: str) -> bytes | None:
        with self._said():
            try:
                answer = obstore.get(self._store, path)
                if answer.meta["size"] > OBJECT_BYTES_MAX:
                    raise StorageFailed(
                        f"{self.url}/{path} is too large to be a file of this table: look at it."
                    )
                return bytes(answer.bytes())
            except (FileNotFoundError, NotFoundError):
                return None

    def write(self, path: str, data: bytes) -> None:
        with self._said():
            try:
                obstore.put(self._store, path, data, use_multipart=False)
            except (FileNotFoundError, NotFoundError) as error:
                # Nothing else can be lacking where something is written.
                raise self._no_bucket() from error

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with self._said():
            try:
                obstore.put(self._store, path, data, mode="create")
            except AlreadyExistsError:
                # If the answer of a put was lost, it is sent again, and then finds its own object.
                return self.read(path) == data
        return True

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        with reporting(tempfile.gettempdir()), tempfile.TemporaryFile() as file:
            yield cast(BinaryIO, file)
            reach("table.file-written")
            file.seek(0)
            with self._said():
                obstore.put(self._store, path, file)

    def open(self, path: str) -> BinaryIO:
        with self._said():
            size_bytes = obstore.head(self._store, path)["size"]
        return cast(
            BinaryIO,
            io.BufferedReader(_Object(partial(self._range, path), size_bytes), READ_BUFFER_BYTES),
        )

    def read_range(self, path: str, start: int, length: int) -> bytes | None:
        with self._said():
            try:
                return bytes(obstore.get_range(self._store, path, start=start, length=length))
            except (FileNotFoundError, NotFoundError):
                return None

    def list(self, folder: str) -> Iterator[Stored]:
        with self._said():
            for objects in obstore.list(self._store, f"{folder}/" if folder else None):
                for found in objects:
                    yield Stored(found["path"], found["size"], found["last_modified"])

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            with self._said(), suppress(FileNotFoundError, NotFoundError):
                obstore.delete(self._store, path)
            reach("table.file-removed")

    def check(self) -> None:
        """Check that only one of two writers wins on this server.

        Raises:
            Refused: it overwrites existing objects, so that two writers would damage a table; or
                there is no such bucket.
        """
        # Some servers create a bucket for any name in a write, also for a mistyped one.
        any(self.list(WRITING))
        # Another writer that begins now may remove what is written here as a leftover.
        if not any(self._lets_one_win() for _ in range(CHECKS_MAX)):
            raise Refused(
                f"{self.url} does not keep the first of two writers (If-None-Match): "
                "use a server that does."
            )

    def _lets_one_win(self) -> bool:
        path = f"{WRITING}/{uuid4().hex}"
        try:
            return self.put_if_absent(path, b"one") and not self.put_if_absent(path, b"two")
        finally:
            self.delete([path])

    def _range(self, path: str, start: int, length: int) -> memoryview:
        with self._said():
            return memoryview(obstore.get_range(self._store, path, start=start, length=length))

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except BaseError as error:
            raise self._failure(error) from error

    def _failure(self, error: BaseError) -> StorageFailed:
        said = str(error)
        if "NoSuchBucket" in said:
            return self._no_bucket()
        if any(word in said for word in _KEYLESS):
            return StorageFailed(
                f"{self.url} needs keys, and there are none: set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, in Kubernetes by spec.table.s3.secret."
            )
        if any(word in said for word in _DENIED):
            return StorageFailed(
                f"{self.url} refuses access: check the access key, the secret and its rights."
            )
        if any(word in said for word in _FULL):
            return StorageAway(f"{self.url} is full: make room there, or let retention keep less.")
        where = self._options.endpoint or "S3"
        return StorageAway(
            f"{self.url} failed: check that {where} works and has room ({said:.{SAID_CHARS_MAX}})."
        )

    def _no_bucket(self) -> StorageFailed:
        return StorageFailed(f"There is no bucket {self._bucket}: create it, or name another one.")


# Without a key, the library asks the cloud's machine for one.
_KEYLESS = ("/latest/api/token", "/latest/meta-data")

_DENIED = ("403 Forbidden", "401 Unauthorized", "AccessDenied", "InvalidAccessKeyId")

_FULL = ("507 ", "QuotaExceeded", "XMinioStorageFull", "InsufficientStorage")


class _Object(io.RawIOBase):
    """An object as a file that can be read from any position."""

    def __init__(self, read: Callable[[int, int], memoryview], size_bytes: int) -> None:
        self._read = read
        self._size_bytes = size_bytes
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), self._size_bytes - self._at)
        if length <= 0:
            return 0
        buffer[:length] = self._read(self._at, length)
        self._at += length
        return length


def _secret(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(SECRET_BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path} cannot be read: write the key of the bucket to it.") from error


def storage_of(url: str, s3: S3Options | None = None) -> Storage:
    """Return the storage at *url*: a folder, `file://…` or `s3://bucket/prefix`.

    *s3* has the options that the environment lacks.

    Raises:
        Refused: it is none of these.
    """
    parts = urlsplit(url)
    if not url:
        raise Refused("There is no path: pass a folder or s3://bucket/prefix.")
    path = unquote(parts.path) if parts.scheme == "file" else url
    if wrong := next((each for each in NOT_IN_PATHS if each in path), ""):
        raise Refused(
            f"{url} has {wrong!r}, which in a URL is no part of a path: rename the folder, or pass "
            "another one."
        )
    if parts.scheme in ("s3", "s3a"):
        if not parts.netloc:
            raise Refused(f"{url} names no bucket: write s3://bucket/prefix.")
        return S3Storage(parts.netloc, parts.path, s3 or S3Options())
    if parts.scheme == "file":
        return LocalStorage(Path(unquote(parts.path)))
    if "://" in url:
        raise Refused(f"{url} cannot be the path of a table: pass a folder or s3://bucket/prefix.")
    return LocalStorage(Path(url).expanduser())
