"""Lists and reads the files that collectors have committed, in order, while collectors write,
rotate, compress and remove them.

A name does not identify a file here: while files are read, the active file becomes a rotated one,
and later a compressed one. So an active file is opened first; it is the listed one only if the
files, listed again, show no rotation in between.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby, islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from logpipeline.codecs import DAMAGES, PACKED_IN, Codec, codec_of, unpacked
from logpipeline_cli.errors import CliError
from logpipeline_collector.files.committed import CommittedFile, read_folder, settled_files

CHUNK_BYTES = 64 * 1024
# So many chains are opened for each listing: descriptors are few, and listings take long.
CHAINS_AT_ONCE = 32
# A file that was rotated in so many attempts is rotated many times a second: an error says so.
ATTEMPTS_MAX = 10
# The suffix that a collector appends to the name of a rotated file.
_ROTATED = re.compile(r"(?P<chain>.+)\.(?P<stamp>\d{8}-\d{6}\.\d{6})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Piece:
    """One committed file of *collector*. The files of one *chain* were written one after the other,
    in the order of *stamp*, which is empty for the active file.
    """

    collector: str
    chain: str
    stamp: str
    file: CommittedFile


Key = tuple[str, str]


def pieces_of(
    folders: Sequence[Path],
    host: str | None = None,
    group: str | None = None,
    glob: str | None = None,
) -> list[Piece]:
    """Return the committed files, chosen as by `files_in`, by path and age.

    Raises:
        CliError: a collector's state cannot be read.
    """
    files = files_in(folders, group=group, host=host, glob=glob)
    return sorted((_piece(folder.name, file) for folder, file in files), key=_order)


def files_in(
    folders: Sequence[Path],
    *,
    group: str | None = None,
    host: str | None = None,
    glob: str | None = None,
) -> list[tuple[Path, CommittedFile]]:
    """Return the files that the collectors in *folders* committed, each with its folder; if given,
    only those of *group* and *host* whose path matches *glob*.

    Raises:
        CliError: a collector's state cannot be read.
    """
    stored = []
    for folder in folders:
        with _explained(folder):
            stored.append(read_folder(folder.absolute(), group))
    with _explained(*folders):
        return [
            (folder, file)
            for folder, file in settled_files(stored)
            if host in (None, file.host) and (glob is None or _matches(file, glob))
        ]


@contextmanager
def _explained(*folders: Path) -> Iterator[None]:
    """Turn an error of reading *folders* into one that a user understands."""
    try:
        yield
    except (sqlite3.DatabaseError, TypeError, ValueError) as error:
        names = ", ".join(map(str, folders))
        raise CliError(
            f"the state of {names} cannot be read: {error}; is its collector of another version, "
            "or its disk damaged?"
        ) from error


def _matches(file: CommittedFile, glob: str) -> bool:
    """Return whether the path of *file* matches *glob*: the one that it has, the one that it had
    before it was rotated, or the one that it would have if another file had not had it already.
    """
    return any(fnmatchcase(name, glob) for name in (file.name, _chain_of(file)[0], file.place))


class Lost(NamedTuple):
    """So many committed *bytes* of a file that are not there."""

    name: str
    bytes: int


class Incomplete(Exception):
    """A file is shorter than its committed length, by *missing* bytes."""

    def __init__(self, missing: int) -> None:
        super().__init__(f"{missing} bytes are not there")
        self.missing = missing


class Reading:
    """The committed content of one host's files; *lost* is what was not there: removed while the
    files were read, or before.
    """

    def __init__(
        self, folders: Sequence[Path], host: str, glob: str | None, *, group: str | None = None
    ) -> None:
        self._folders = folders
        self._host = host
        self._group = group
        self._glob = glob
        self.lost: list[Lost] = []

    def files(self) -> Iterator[Iterator[bytes]]:
        """Yield the content of each file, as chunks to be read in turn; of a chain the oldest file
        first, whichever collector has it.
        """
        left = groupby(self._list(), lambda piece: piece.chain)
        pieces = (list(chain) for _, chain in left)
        while batch := list(islice(pieces, CHAINS_AT_ONCE)):
            yield from self._batch([piece for chain in batch for piece in chain])

    def _list(self) -> list[Piece]:
        return pieces_of(self._folders, self._host, self._group, self._glob)

    def _batch(self, pieces: list[Piece]) -> Iterator[Iterator[bytes]]:
        chains = [list(chain) for _, chain in groupby(pieces, _key)]
        with ExitStack() as stack:
            settled, active = self._settle(chains, stack)
            for piece in sorted((p for chain in settled for p in chain), key=_by_age):
                file = self._open_rotated(piece) if piece.stamp else active.get(_key(piece))
                if file is None:
                    self._note_lost(piece, piece.file.length)
                    continue
                with file:
                    yield self._content(piece, file)

    def _content(self, piece: Piece, file: BinaryIO) -> Iterator[bytes]:
        try:
            yield from content_of(file, piece.file.length)
        except Incomplete as error:
            self._note_lost(piece, error.missing)

    def _note_lost(self, piece: Piece, missing: int) -> None:
        if missing:
            self.lost.append(Lost(piece.file.name, missing))

    def _settle(
        self, chains: list[list[Piece]], stack: ExitStack
    ) -> tuple[list[list[Piece]], dict[Key, BinaryIO]]:
        """Return *chains* as they are now, and the open active files, none of which was rotated in
        between.
        """
        active: dict[Key, BinaryIO] = {}
        for _ in range(ATTEMPTS_MAX):
            for chain in chains:
                if (file := _open_active(chain)) is not None:
                    active[_key(chain[0])] = stack.enter_context(file)
            wanted = {_key(chain[0]) for chain in chains}
            fresh = [list(chain) for _, chain in groupby(self._list(), _key)]
            now = {_key(chain[0]): chain for chain in fresh if _key(chain[0]) in wanted}
            if all(_stamps(now.get(_key(c[0]), [])) == _stamps(c) for c in chains):
                return chains, active
            chains = list(now.values())
            active.clear()
        raise CliError(
            f"the files of {self._host} are rotated faster than they can be opened; raise "
            "spec.collectors.rotation.maxBytes"
        )

    def _open_rotated(self, piece: Piece) -> BinaryIO | None:
        """Open *piece* under its present name; its content is the same."""
        names = names_of(piece.file.path, is_compressed=piece.file.is_compressed)
        return open_first(names)


def _piece(collector: str, file: CommittedFile) -> Piece:
    return Piece(collector, *_chain_of(file), file)


def _chain_of(file: CommittedFile) -> tuple[str, str]:
    """Return the name that *file* had before it was rotated, and the stamp of the rotation."""
    rotated = _ROTATED.fullmatch(unpacked(file.name)) if file.is_rotated else None
    return (rotated["chain"], rotated["stamp"]) if rotated is not None else (file.name, "")


def _order(piece: Piece) -> tuple[str, str, bool, str]:
    return piece.chain, piece.collector, not piece.stamp, piece.stamp


def _by_age(piece: Piece) -> tuple[str, int, bool, str]:
    # A host's lines continue at another collector when its partition moves.
    return piece.chain, piece.file.begun_ns, not piece.stamp, piece.stamp


def _key(piece: Piece) -> Key:
    return piece.chain, piece.collector


def _stamps(chain: Sequence[Piece]) -> list[str]:
    return [piece.stamp for piece in chain if piece.stamp]


def _open_active(chain: Sequence[Piece]) -> BinaryIO | None:
    # One that is not there was renamed since, and the next listing shows it, or is gone.
    return None if chain[-1].stamp else open_first([chain[-1].file.path])


def names_of(path: Path, *, is_compressed: bool) -> Iterator[Path]:
    """Yield the names that a listed rotated file may have by now: it may be packed meanwhile."""
    yield path
    if not is_compressed:
        yield from (path.with_name(path.name + codec.suffix) for codec in PACKED_IN.values())


def open_first(names: Iterable[Path]) -> BinaryIO | None:
    """Open the first of *names* that exists."""
    for name in names:
        try:
            return name.open("rb")
        except FileNotFoundError:
            continue
    return None


def content_of(file: BinaryIO, length: int) -> Iterator[bytes]:
    """Yield the uncompressed content of an open file, *length* bytes, as they are committed. The
    file's name, which only collectors give, says how it is compressed.

    Raises:
        Incomplete: all that is there was yielded, and it is less.
        CliError: a packed file is damaged.
    """
    codec = codec_of(str(file.name))
    left = length
    for chunk in _chunks(file, length) if codec is None else _content(file, codec):
        left -= len(chunk)
        yield chunk
    if left > 0:
        raise Incomplete(left)


def _chunks(file: BinaryIO, length: int) -> Iterator[bytes]:
    """Yield *length* bytes of *file*; those behind are written, but not committed yet."""
    while length > 0 and (chunk := file.read(min(CHUNK_BYTES, length))):
        length -= len(chunk)
        yield chunk


def _content(file: BinaryIO, codec: Codec) -> Iterator[bytes]:
    try:
        content = codec.open(file)
        while chunk := content.read(CHUNK_BYTES):
            yield chunk
    except DAMAGES as error:
        raise CliError(f"the packed file {file.name} is damaged: {error}") from error
