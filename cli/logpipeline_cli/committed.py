"""Reads what collectors have committed, in order, while they write, rotate, compress and remove.

A name is no identity here: while somebody reads, the active file becomes a rotated one, and that
one a packed one. So an active file is opened first, and taken for what was listed only when the
list, read again, knows of no rotation since.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby, islice
from pathlib import Path
from typing import BinaryIO

from logpipeline.codecs import DAMAGES, PACKED_IN, Codec, codec_of, unpacked
from logpipeline_cli.errors import CliError
from logpipeline_collector.files.committed import CommittedFile, read_folder, settled_files

CHUNK_BYTES = 64 * 1024
# So many chains are opened between two looks at the list: descriptors are few, and a look is dear.
CHAINS_AT_ONCE = 32
# A file that rotates at each look is rotated many times a second; it is told instead of chased.
ATTEMPTS_MAX = 10
# What a collector appends to the name of a file that it sets aside.
_ROTATED = re.compile(r"(?P<chain>.+)\.(?P<stamp>\d{8}-\d{6}\.\d{6})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Piece:
    """One committed file of *collector*. Those of one *chain* were one file after the other;
    *stamp* orders them, and is empty for the active one.
    """

    collector: str
    chain: str
    stamp: str
    file: CommittedFile


Key = tuple[str, str]


def pieces_of(
    folders: Sequence[Path], host: str | None = None, group: str | None = None
) -> list[Piece]:
    """Return what the collectors in *folders* committed, of *host* and *group* or of all, by path
    and age.

    Raises:
        CliError: a collector's state cannot be read.
    """
    pieces = [
        _piece(folder.name, file)
        for folder, file in files_in(folders, group)
        if host is None or file.host == host
    ]
    return sorted(pieces, key=_order)


def files_in(folders: Sequence[Path], group: str | None = None) -> list[tuple[Path, CommittedFile]]:
    """Return what the collectors in *folders* committed, of *group* or of all, each with its
    folder.

    Raises:
        CliError: a collector's state cannot be read.
    """
    stored = []
    for folder in folders:
        with _told_of(folder):
            stored.append(read_folder(folder.absolute(), group))
    with _told_of(*folders):
        return list(settled_files(stored))


@contextmanager
def _told_of(*folders: Path) -> Iterator[None]:
    """Let what cannot be read of *folders* end the command with a text."""
    try:
        yield
    except (sqlite3.DatabaseError, TypeError, ValueError) as error:
        names = ", ".join(map(str, folders))
        raise CliError(
            f"the state of {names} cannot be read: {error}; is its collector of another version, "
            "or its disk damaged?"
        ) from error


def matching(pieces: Sequence[Piece], glob: str | None) -> list[Piece]:
    """Return those of which the path matches *glob*: as it is, as it was before the file was
    rotated, or as it would be if nothing else had stood there.
    """
    if glob is None:
        return list(pieces)
    return [
        piece
        for piece in pieces
        if any(fnmatchcase(n, glob) for n in (piece.file.name, piece.chain, piece.file.place))
    ]


class Reading:
    """The committed content of one host's files; *lost* are those that were removed meanwhile."""

    def __init__(
        self, folders: Sequence[Path], host: str, glob: str | None, *, group: str | None = None
    ) -> None:
        self._folders = folders
        self._host = host
        self._group = group
        self._glob = glob
        self.lost: list[str] = []

    def files(self) -> Iterator[Iterator[bytes]]:
        """Yield each file's content, the oldest of a chain first whichever collector has it, as
        chunks to be read in turn.
        """
        left = groupby(self._list(), lambda piece: piece.chain)
        pieces = (list(chain) for _, chain in left)
        while batch := list(islice(pieces, CHAINS_AT_ONCE)):
            yield from self._batch([piece for chain in batch for piece in chain])

    def _list(self) -> list[Piece]:
        return matching(pieces_of(self._folders, self._host, self._group), self._glob)

    def _batch(self, pieces: list[Piece]) -> Iterator[Iterator[bytes]]:
        chains = [list(chain) for _, chain in groupby(pieces, _key)]
        with ExitStack() as stack:
            settled, active = self._settle(chains, stack)
            for piece in sorted((p for chain in settled for p in chain), key=_by_age):
                if not piece.stamp:
                    if file := active.get(_key(piece)):
                        yield _chunks(file, piece.file.length)
                elif file := self._open_rotated(piece):
                    with file:
                        yield content_of(file, piece.file.length)

    def _settle(
        self, chains: list[list[Piece]], stack: ExitStack
    ) -> tuple[list[list[Piece]], dict[Key, BinaryIO]]:
        """Return *chains* as they are, with the active files open: none rotated in between."""
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
        """Open *piece* under the name that it has by now; its content is the same."""
        for name in (piece.file.path, *_other_names(piece)):
            try:
                return name.open("rb")
            except FileNotFoundError:
                continue
        self.lost.append(piece.file.name)
        return None


def _piece(collector: str, file: CommittedFile) -> Piece:
    rotated = _ROTATED.fullmatch(unpacked(file.name)) if file.is_rotated else None
    if rotated is None:
        return Piece(collector, file.name, "", file)
    return Piece(collector, rotated["chain"], rotated["stamp"], file)


def _order(piece: Piece) -> tuple[str, str, bool, str]:
    return piece.chain, piece.collector, not piece.stamp, piece.stamp


def _by_age(piece: Piece) -> tuple[str, int, bool, str]:
    # A host's lines go on at another collector when its partition moves.
    return piece.chain, piece.file.begun_ns, not piece.stamp, piece.stamp


def _key(piece: Piece) -> Key:
    return piece.chain, piece.collector


def _stamps(chain: Sequence[Piece]) -> list[str]:
    return [piece.stamp for piece in chain if piece.stamp]


def _open_active(chain: Sequence[Piece]) -> BinaryIO | None:
    if chain[-1].stamp:
        return None
    try:
        return chain[-1].file.path.open("rb")
    except FileNotFoundError:
        # It was renamed since; the next look at the list says so.
        return None


def _other_names(piece: Piece) -> Iterator[Path]:
    path = piece.file.path
    if not piece.file.is_compressed:
        yield from (path.with_name(path.name + codec.suffix) for codec in PACKED_IN.values())


def content_of(file: BinaryIO, length: int) -> Iterator[bytes]:
    """Yield the content of an open file, up to *length* where it is not packed; its name, which
    only a collector gives, says how it is.
    """
    codec = codec_of(str(file.name))
    return _chunks(file, length) if codec is None else _content(file, codec)


def _chunks(file: BinaryIO, length: int) -> Iterator[bytes]:
    """Yield *file* up to *length*: what stands behind it is written, and not yet committed."""
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
