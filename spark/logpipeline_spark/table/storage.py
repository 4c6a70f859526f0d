"""The storage of a table: a folder of this machine or a bucket, with the few operations that a
table needs.

Everything that is written appears whole or not at all. `put_if_absent` decides between writers that
race.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar, cast
from uuid import uuid4

from logpipeline.failpoints import reach
from logpipeline.statefile import sync_folder
from logpipeline_spark.errors import Refused
from logpipeline_spark.table.files import TABLE, WRITING

# The largest object that is read at once is a state of 250,000 sources.
OBJECT_BYTES_MAX = 512 * 1024 * 1024
# A storage that lets two writers win does so each time.
CHECKS_MAX = 5

T = TypeVar("T")

# A process that removes files also removes empty folders, maybe one in which another process is
# about to write.
PLACINGS_MAX = 20


class StorageFailed(Refused):
    """The disk or the bucket refused a request, or failed."""


class StorageAway(StorageFailed):
    """It could not be asked, or did not work: later it may, with the very same request."""


class _Gone(FileNotFoundError):
    """What was written is not there any more, and is in no place yet."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An object: its path within the table, its size, and when it was last written."""

    path: str
    size_bytes: int
    modified: datetime


class Storage(Protocol):
    """Whole objects by path. Storages travel to Spark's tasks, so they can be pickled."""

    @property
    def url(self) -> str:
        """Its address, for readers."""

    def lake_options(self) -> dict[str, str]:
        """Return the options with which delta-rs reaches it."""

    def read(self, path: str) -> bytes | None:
        """Return an object, or None if there is none."""

    def write(self, path: str, data: bytes) -> None:
        """Write an object, and replace an earlier one."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write an object that must not exist yet; only one of several writers gets True.

        No two writers give the same *data*: after a lost answer a writer knows its object by it.
        """

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Write a large object piece by piece; it appears when the block ends without an error."""

    def open(self, path: str) -> BinaryIO:
        """Open an object for reading from any position.

        Raises:
            FileNotFoundError: it does not exist.
        """

    def read_range(self, path: str, start: int, length: int) -> bytes | None:
        """Return *length* bytes of an object, fewer if it ends before, or None if there is none."""

    def list(self, folder: str) -> Iterator[Stored]:
        """Give all objects below *folder*, in any order."""

    def delete(self, paths: Iterable[str]) -> None:
        """Remove objects; a missing one counts as removed."""

    def check(self) -> None:
        """Check that only one of two writers wins here.

        Raises:
            Refused: both win, so that two writers would damage a table.
        """


@contextmanager
def reporting(url: str) -> Iterator[None]:
    """Turn the operating system's errors about a disk into a sentence that says what to do."""
    try:
        yield
    except (FileNotFoundError, ConnectionError, TimeoutError):
        # These are not errors of the disk: the data may come from a network.
        raise
    except OSError as error:
        raise StorageFailed(_sentence(url, error)) from error


def _sentence(url: str, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{url} is full: make room there, or let retention keep less."
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{url} may not be read or written: give this user the right to do so."
    if error.errno == errno.ENOTDIR:
        return f"{url} is not a folder: choose another path."
    return f"{url} fails ({error.strerror or error}): repair the disk, or choose another path."


# Files are written in a separate folder, made durable, and renamed: readers see them whole, and no
# glob of a reader finds an unfinished one. (DuckDB and polars do match names that begin with a
# dot.)
class LocalStorage:
    """Objects are files below *root*."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    def __reduce__(self) -> tuple[type[LocalStorage], tuple[Path]]:
        return LocalStorage, (self._root,)

    @property
    def url(self) -> str:
        return str(self._root)

    def lake_options(self) -> dict[str, str]:
        return {}

    def read(self, path: str) -> bytes | None:
        with reporting(self.url):
            try:
                with (self._root / path).open("rb") as file:
                    data = file.read(OBJECT_BYTES_MAX + 1)
            except FileNotFoundError:
                return None
        if len(data) > OBJECT_BYTES_MAX:
            raise StorageFailed(
                f"{self.url}/{path} is too large to be a file of this table: look at it."
            )
        return data

    def write(self, path: str, data: bytes) -> None:
        def create() -> None:
            with self._create(path) as file:
                file.write(data)

        _repeated(create)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        target = self._root / path

        def put() -> bool:
            with self._made(data) as temporary:
                try:
                    # Unlike a rename, a link fails if the name exists.
                    self._place(os.link, temporary, target)
                except FileExistsError:
                    # NFS: a request that is sent twice, since its answer was lost, meets itself.
                    if temporary.stat().st_nlink == 1:
                        return False
                sync_folder(target.parent)
            return True

        with reporting(self.url):
            return _repeated(put)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        try:
            with self._create(path) as file:
                yield file
        except _Gone as error:
            raise StorageFailed(
                f"What was being written to {self.url}/{path} is gone: another writer took the "
                "table over, or this process was suspended for hours. Write it again."
            ) from error

    @contextmanager
    def _create(self, path: str) -> Iterator[BinaryIO]:
        target = self._root / path
        with reporting(self.url):
            temporary = self._temporary()
            try:
                with temporary.open("xb") as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                reach("table.file-written")
                self._place(os.rename, temporary, target)
                sync_folder(target.parent)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise

    def open(self, path: str) -> BinaryIO:
        with reporting(self.url):
            return cast(BinaryIO, (self._root / path).open("rb"))

    def read_range(self, path: str, start: int, length: int) -> bytes | None:
        with reporting(self.url):
            try:
                with (self._root / path).open("rb", buffering=0) as file:
                    file.seek(start)
                    return file.read(length)
            except FileNotFoundError:
                return None

    def list(self, folder: str) -> Iterator[Stored]:
        for place, _, names in _walk(self.url, self._root / folder):
            for name in names:
                path = Path(place, name)
                with suppress(FileNotFoundError), reporting(self.url):
                    found = path.stat()
                    modified = datetime.fromtimestamp(found.st_mtime, UTC)
                    relative = path.relative_to(self._root).as_posix()
                    yield Stored(relative, found.st_size, modified)

    def delete(self, paths: Iterable[str]) -> None:
        folders = set()
        with reporting(self.url):
            for path in paths:
                place = self._root / path
                with suppress(FileNotFoundError):
                    place.unlink()
                    folders.add(place.parent)
                reach("table.file-removed")
            for folder in sorted(folders, reverse=True):
                self._settle(folder)

    def check(self) -> None:
        """Links decide which writer is first: check that this file system has them."""
        # Another writer that begins now may remove what is written here as a leftover.
        if not any(self._lets_one_win() for _ in range(CHECKS_MAX)):
            raise StorageFailed(
                f"{self.url} lets two writers create the same file: choose another disk."
            )

    def _lets_one_win(self) -> bool:
        path = f"{WRITING}/{uuid4().hex}"
        try:
            return self.put_if_absent(path, b"one") and not self.put_if_absent(path, b"two")
        finally:
            self.delete([path])

    def _settle(self, folder: Path) -> None:
        """Make removals durable, and remove folders that are empty now, except those in which
        writers create their files.
        """
        own = self._root / TABLE
        while folder != self._root:
            with suppress(FileNotFoundError):
                sync_folder(folder)
            if own in (folder, *folder.parents):
                return
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent

    def _place(self, put: Callable[[Path, Path], None], source: Path, target: Path) -> None:
        """Let *put* place *source* at *target*. Its folder is created again whenever another
        process removes it, as it is empty.
        """
        for number in range(PLACINGS_MAX):
            try:
                self._make_folder(target.parent)
                put(source, target)
                return
            except FileNotFoundError as error:
                if not source.exists():
                    raise _Gone(source) from error
                if number + 1 == PLACINGS_MAX:
                    raise

    @contextmanager
    def _made(self, data: bytes) -> Iterator[Path]:
        temporary = self._temporary()
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)

    def _temporary(self) -> Path:
        folder = self._root / WRITING
        self._make_folder(folder)
        return folder / uuid4().hex

    def _make_folder(self, folder: Path) -> None:
        """Make *folder* and all folders above it, durably."""
        if folder.is_dir():
            return
        if folder != folder.parent:
            self._make_folder(folder.parent)
        try:
            folder.mkdir()
        except FileExistsError:
            # It may be a folder by now, or a removed one: then it is tried again.
            if folder.is_file():
                raise NotADirectoryError(20, "Not a directory", str(folder)) from None
        sync_folder(folder.parent)


def _walk(url: str, folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    def unreadable(error: OSError) -> None:
        # A listing beside a writer meets folders that are gone a moment later. Any other folder
        # that cannot be read has files, which must not be taken for gone.
        if not isinstance(error, FileNotFoundError):
            raise error

    with reporting(url):
        yield from os.walk(folder, onerror=unreadable)


def _repeated(put: Callable[[], T]) -> T:
    """Return the result of *put*. It is repeated if its file disappears before it is in its place:
    a writer that takes the table over removes it as a leftover of an earlier writer.
    """
    for _ in range(CHECKS_MAX - 1):
        with suppress(FileNotFoundError):
            return put()
    return put()
