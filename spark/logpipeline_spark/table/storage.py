"""Where a table lives: a folder of this machine or a bucket, behind the few verbs that it needs.

All that is written appears whole or not at all. One verb decides races: `put_if_absent`.
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

# The largest object read at once is a state of 250,000 sources.
OBJECT_BYTES_MAX = 512 * 1024 * 1024
# A place that lets two writers win does so each time.
CHECKS_MAX = 5

T = TypeVar("T")

# Whoever removes files takes empty folders away, maybe the one in which another is about to write.
PLACINGS_MAX = 20


class StorageFailed(Refused):
    """The disk or the bucket did not do what it was asked for."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One object: its path within the table, its size, and when it was last written."""

    path: str
    size_bytes: int
    modified: datetime


class Storage(Protocol):
    """Whole objects by path. Storages travel to Spark's tasks, so each can be pickled."""

    @property
    def url(self) -> str:
        """Where it is, as readers are told."""

    def lake_options(self) -> dict[str, str]:
        """Return how delta-rs reaches it."""

    def read(self, path: str) -> bytes | None:
        """Return an object, or None where there is none."""

    def write(self, path: str, data: bytes) -> None:
        """Put an object in the place of its former self."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Put an object that must not exist yet; of several writers, one is told True."""

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Write a large object piece by piece; it appears when the block ends well."""

    def open(self, path: str) -> BinaryIO:
        """Open an object for reading from any place in it.

        Raises:
            FileNotFoundError: it is not there.
        """

    def read_range(self, path: str, start: int, length: int) -> bytes | None:
        """Return *length* bytes of an object, fewer where it ends, or None where there is none."""

    def list(self, folder: str) -> Iterator[Stored]:
        """Give all objects beneath *folder*, in no order."""

    def delete(self, paths: Iterable[str]) -> None:
        """Remove objects; one that is not there is removed already."""

    def check(self) -> None:
        """Try whether this place lets one writer win.

        Raises:
            Refused: it does not, so that two writers would damage a table.
        """


@contextmanager
def said_of(url: str) -> Iterator[None]:
    """Turn what the operating system says about a disk into a sentence that says what to do."""
    try:
        yield
    except (FileNotFoundError, ConnectionError, TimeoutError):
        # Not the disk's: what is written may come from a network.
        raise
    except OSError as error:
        raise StorageFailed(_sentence(url, error)) from error


def _sentence(url: str, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{url} is full: make room there, or let retention keep less."
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{url} may not be written: give this user the right to write there."
    if error.errno == errno.ENOTDIR:
        return f"{url} is no folder: choose another path."
    return f"{url} fails ({error.strerror or error}): repair the disk, or choose another path."


# Files are made in a folder of their own, made durable, and renamed: a reader sees them whole, and
# no glob of a reader sees one that is not ready. (DuckDB and polars do match names that begin with
# a dot.)
class LocalStorage:
    """Objects are files beneath *root*."""

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
        with said_of(self.url):
            try:
                with (self._root / path).open("rb") as file:
                    data = file.read(OBJECT_BYTES_MAX + 1)
            except FileNotFoundError:
                return None
        if len(data) > OBJECT_BYTES_MAX:
            raise StorageFailed(f"{self.url}/{path} is too large to be ours: look at it.")
        return data

    def write(self, path: str, data: bytes) -> None:
        def create() -> None:
            with self.create(path) as file:
                file.write(data)

        _repeated(create)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        target = self._root / path

        def put() -> bool:
            with self._made(data) as temporary:
                try:
                    # Unlike a rename, a link refuses a name that is taken.
                    self._place(os.link, temporary, target)
                except FileExistsError:
                    # NFS: a request that is sent twice, since its answer was lost, meets itself.
                    if temporary.stat().st_nlink == 1:
                        return False
                sync_folder(target.parent)
            return True

        with said_of(self.url):
            return _repeated(put)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        target = self._root / path
        with said_of(self.url):
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
        with said_of(self.url):
            return cast(BinaryIO, (self._root / path).open("rb"))

    def read_range(self, path: str, start: int, length: int) -> bytes | None:
        with said_of(self.url):
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
                with suppress(FileNotFoundError), said_of(self.url):
                    found = path.stat()
                    modified = datetime.fromtimestamp(found.st_mtime, UTC)
                    relative = path.relative_to(self._root).as_posix()
                    yield Stored(relative, found.st_size, modified)

    def delete(self, paths: Iterable[str]) -> None:
        folders = set()
        with said_of(self.url):
            for path in paths:
                place = self._root / path
                with suppress(FileNotFoundError):
                    place.unlink()
                    folders.add(place.parent)
                reach("table.file-removed")
            for folder in sorted(folders, reverse=True):
                self._settle(folder)

    def check(self) -> None:
        """Links decide who is first: see whether this file system has them."""
        # Another writer that begins now tidies up, and may take what is written here for a rest.
        if not any(self._lets_one_win() for _ in range(CHECKS_MAX)):
            raise StorageFailed(f"{self.url} lets two writers win: choose another disk.")

    def _lets_one_win(self) -> bool:
        path = f"{WRITING}/{uuid4().hex}"
        try:
            return self.put_if_absent(path, b"one") and not self.put_if_absent(path, b"two")
        finally:
            self.delete([path])

    def _settle(self, folder: Path) -> None:
        """Make removals durable, and take folders away that are empty now, but for those in which
        every writer makes its files first.
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
        """Have *put* place *source* at *target*, in a folder that is made as often as another one
        takes it away, since it is empty.
        """
        for number in range(PLACINGS_MAX):
            try:
                self._make_folder(target.parent)
                put(source, target)
                return
            except FileNotFoundError:
                if number + 1 == PLACINGS_MAX or not source.exists():
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
        """Make *folder* with all above it, durably."""
        if folder.is_dir():
            return
        if folder != folder.parent:
            self._make_folder(folder.parent)
        try:
            folder.mkdir()
        except FileExistsError:
            # It may be a folder by now, and even that taken away again: then it is tried once more.
            if folder.is_file():
                raise NotADirectoryError(20, "Not a directory", str(folder)) from None
        sync_folder(folder.parent)


def _walk(url: str, folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    def unreadable(error: OSError) -> None:
        # A listing beside a writer meets folders that are gone a moment later. Any other folder
        # that cannot be read has files, which must not be taken for gone.
        if not isinstance(error, FileNotFoundError):
            raise error

    with said_of(url):
        yield from os.walk(folder, onerror=unreadable)


def _repeated(put: Callable[[], T]) -> T:
    """Return what *put* does. It is repeated where its file is gone before it is in its place: a
    writer that takes the table over removes what it takes for a former one's leftovers.
    """
    for _ in range(CHECKS_MAX - 1):
        with suppress(FileNotFoundError):
            return put()
    return put()
