"""Files of this machine that the generator did not write: what is expected of them is what stands
in them at the end, byte for byte.

That is known only of files that were appended to and nothing else: others are left out, by name
and with the reason.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path

from logpipeline.codecs import codec_of, unpacked
from logpipeline_demo.lines import SourceKey
from logpipeline_demo.outputs import CHUNK_BYTES, ChainStream, Location, OutputChain
from logpipeline_demo.verdict import (
    OFFENCES_KEPT_MAX,
    Kind,
    LeftOut,
    Offence,
    SourceVerdict,
    Verdict,
    excerpt,
)

# How many ways to merge the chains are followed at once; repeated lines make more of them.
MERGES_MAX = 10_000

# Lines are compared one by one only where the bytes differ, and then in memory.
DIFF_BYTES_MAX = 256 * 1024 * 1024
_ENCODED = re.compile(rb"[^A-Za-z0-9._-]|^\.")


@dataclass(slots=True)
class LineDiff:
    """The differences, as indices: of expected lines, or (chain, line) of collected ones."""

    lost: list[int] = field(default_factory=list)
    twice: list[tuple[int, int]] = field(default_factory=list)
    out_of_order: list[tuple[int, int]] = field(default_factory=list)
    invented: list[tuple[int, int]] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether there is no difference."""
        return not (self.lost or self.twice or self.out_of_order or self.invented)


def split_lines(data: bytes) -> list[bytes]:
    """Return the lines of *data*, each with its newline, if it has one."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def line_diff(
    must: Sequence[bytes], may: Sequence[bytes], chains: Sequence[Sequence[bytes]]
) -> LineDiff:
    """Compare *chains* with the lines that *must* be there, and those after them that *may*.

    Nothing is wrong exactly if the chains can be merged, each in its order, to *must* and a
    beginning of *may*.
    """
    diff = LineDiff()
    if is_merge(must, may, chains):
        return diff
    places: dict[bytes, deque[int]] = {}
    for index, line in enumerate([*must, *may]):
        places.setdefault(line, deque()).append(index)
    for number, chain in enumerate(chains):
        highest = -1
        for position, line in enumerate(chain):
            waiting = places.get(line)
            if waiting is None:
                diff.invented.append((number, position))
            elif not waiting:
                diff.twice.append((number, position))
            else:
                index = waiting.popleft()
                if index < highest:
                    diff.out_of_order.append((number, position))
                highest = max(highest, index)
    left = {index for waiting in places.values() for index in waiting}
    reached = max([-1, *(set(range(len(must), len(must) + len(may))) - left)])
    diff.lost = sorted(index for index in left if index < max(len(must), reached))
    return diff


def is_merge(
    must: Sequence[bytes], may: Sequence[bytes], chains: Sequence[Sequence[bytes]]
) -> bool:
    """Return whether the chains interleave to *must* and a beginning of *may*."""
    total = sum(len(chain) for chain in chains)
    if not len(must) <= total <= len(must) + len(may):
        return False
    states = {(0,) * len(chains)}
    for line in [*must, *may][:total]:
        following = set()
        for state in states:
            for number, position in enumerate(state):
                chain = chains[number]
                if position < len(chain) and chain[position] == line:
                    following.add((*state[:number], position + 1, *state[number + 1 :]))
        if not following:
            return False
        states = set(islice(following, MERGES_MAX))
    return True


@dataclass(slots=True)
class RealFile:
    """A watched file of the machine: its state when that began, and the end of what must be
    collected.
    """

    host: str
    path: Path
    place: str  # where it is collected, relative to the collector's logs
    older: tuple[Path, ...]  # rotated files before it, oldest first, collected from their beginning
    start: int  # what stood before it is not collected
    inode: tuple[int, int]
    size: int
    digest: bytes  # of the first *size* bytes
    until: int | None = None  # complete lines up to here must be collected; None: up to the end

    @classmethod
    def observe(
        cls,
        path: Path,
        *,
        host: str,
        place: str | None = None,
        older: Sequence[Path] = (),
        start: int = 0,
    ) -> RealFile:
        """Begin to watch *path*, before it is shipped. *place* is by default that of the default
        path template.
        """
        status = path.stat()
        return cls(
            host=host,
            path=path,
            place=place or default_place(host, path),
            older=tuple(older),
            start=start,
            inode=(status.st_dev, status.st_ino),
            size=status.st_size,
            digest=_digest(path, status.st_size),
        )

    @property
    def key(self) -> SourceKey:
        """Its name in the verdict."""
        return SourceKey(self.host, str(self.path))

    def freeze(self) -> None:
        """Expect only the lines that are complete now; later ones may be collected, too."""
        self.until = _complete(self.path)

    def change(self) -> str:
        """Return how the file was changed other than by appending; empty if it was not."""
        try:
            status = self.path.stat()
            if (status.st_dev, status.st_ino) != self.inode:
                return "it was replaced or rotated"
            if status.st_size < max(self.size, self.until or 0):
                return "it was truncated"
            if _digest(self.path, self.size) != self.digest:
                return "what stood in it was changed"
        except OSError as error:
            return f"it can no longer be read: {error.strerror}"
        missing = [path for path in self.older if not path.exists()]
        return f"an older file is gone: {missing[0]}" if missing else ""

    def must(self) -> Iterator[bytes]:
        """Yield the bytes that must be collected."""
        for path in self.older:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as source:
                while chunk := source.read(CHUNK_BYTES):
                    yield chunk
        yield from _range(self.path, self.start, self._until())

    def may(self) -> Iterator[bytes]:
        """Yield the bytes that were written later, and may be collected, too."""
        yield from _range(self.path, max(self.start, self._until()), _complete(self.path))

    def _until(self) -> int:
        return _complete(self.path) if self.until is None else self.until


def default_place(host: str, path: Path) -> str:
    """Return the collected path of the file *path* of *host* by the default path template."""
    names = [_encoded(part) for part in path.parts if part != "/"]
    return "/".join([host, "_files", *names])


def check_real_files(
    files: Sequence[RealFile], chains: Sequence[OutputChain], verdict: Verdict
) -> None:
    """Check *files* against the chains at their places, and add the result to *verdict*."""
    for file in files:
        if reason := file.change():
            verdict.left_out.append(LeftOut(file.path, reason))
            continue
        verdict.real_files += 1
        own = [chain for chain in chains if chain.place == file.place]
        result = SourceVerdict(file.key)
        verdict.sources.append(result)
        if not _is_equal(file, own, result):
            _compare_lines(file, own, result, verdict)


def _is_equal(file: RealFile, chains: Sequence[OutputChain], result: SourceVerdict) -> bool:
    """Return whether one chain holds exactly the file, without holding either in memory."""
    if len(chains) > 1:
        return False
    stream = ChainStream(chains[0]) if chains else None
    lines = 0
    for chunk in file.must():
        lines += chunk.count(b"\n")
        while stream and len(stream.buffer) < len(chunk) and stream.fill(0):
            pass
        if stream is None or not stream.buffer.startswith(chunk):
            return False
        stream.fill(len(chunk))
    for chunk in file.may():
        while stream and len(stream.buffer) < len(chunk) and stream.fill(0):
            pass
        if stream is None or not chunk.startswith(stream.buffer[: len(chunk)]):
            break
        stream.fill(min(len(chunk), len(stream.buffer)))
    if stream and (stream.damaged or stream.buffer or stream.fill(0)):
        return False
    result.expected = result.arrived = lines
    return True


def _compare_lines(
    file: RealFile, chains: Sequence[OutputChain], result: SourceVerdict, verdict: Verdict
) -> None:
    must = b"".join(file.must())
    if len(must) > DIFF_BYTES_MAX:
        verdict.damaged.append(LeftOut(file.path, "it differs, and is too large to say where"))
        return
    streams = [_loaded(chain, verdict) for chain in chains]
    wanted, got = split_lines(must), [split_lines(stream.buffer) for stream in streams]
    diff = line_diff(wanted, split_lines(b"".join(file.may())), got)
    result.expected = len(wanted)
    result.arrived = len(wanted) - sum(index < len(wanted) for index in diff.lost)
    _count_lost(file, wanted, diff, result)
    for kind, places in (
        (Kind.TWICE, diff.twice),
        (Kind.OUT_OF_ORDER, diff.out_of_order),
        (Kind.INVENTED, diff.invented),
    ):
        for chain, position in places[:OFFENCES_KEPT_MAX]:
            at = streams[chain].location(sum(map(len, got[chain][:position])))
            note = excerpt(got[chain][position])
            result.tell(Offence(kind, file.key, None, None, at, note))
    result.twice = len(diff.twice)
    result.out_of_order = len(diff.out_of_order)
    result.invented = len(diff.invented)


def _loaded(chain: OutputChain, verdict: Verdict) -> ChainStream:
    stream = ChainStream(chain)
    while stream.fill(0):
        pass
    verdict.damaged += [LeftOut(path, reason) for path, reason in stream.damaged]
    return stream


def _count_lost(
    file: RealFile, wanted: Sequence[bytes], diff: LineDiff, result: SourceVerdict
) -> None:
    lost = set(diff.lost)
    arrived = [index for index in range(len(wanted)) if index not in lost]
    for index in diff.lost:
        if not arrived or index > arrived[-1]:
            result.lost_tail += 1
        elif index < arrived[0]:
            result.lost_prefix += 1
        else:
            result.lost_middle += 1
        if index < len(wanted) and not file.older:
            at = Location(file.path, file.start + sum(map(len, wanted[:index])))
            note = f"in the source; {excerpt(wanted[index])}"
            result.tell(Offence(Kind.LOST, file.key, index, index + 1, at, note))


def _encoded(name: str) -> str:
    def escape(match: re.Match[bytes]) -> bytes:
        return b"%%%02X" % match[0][0]

    return _ENCODED.sub(escape, os.fsencode(name)).decode()


def _complete(path: Path) -> int:
    """Return the end of the last complete line of *path*."""
    with path.open("rb") as source:
        end = source.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - CHUNK_BYTES)
            source.seek(start)
            newline = source.read(end - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
    return 0


def _range(path: Path, start: int, end: int) -> Iterator[bytes]:
    with path.open("rb") as source:
        source.seek(start)
        while start < end and (chunk := source.read(min(CHUNK_BYTES, end - start))):
            start += len(chunk)
            yield chunk


def _digest(path: Path, size: int) -> bytes:
    digest = hashlib.blake2b()
    for chunk in _range(path, 0, size):
        digest.update(chunk)
    return digest.digest()


# A binary log (wtmp, the journal) shows a NUL in its first bytes; a text log never does.
HEAD_BYTES = 4096
FILES_MAX = 10_000
# logrotate's names for the generations of NAME, unpacked: NAME.1.
_ROTATED = re.compile(r"(?P<live>.+)\.(?P<number>[0-9]+)")


@dataclass(frozen=True, slots=True)
class Found:
    """A file of the machine; *reason* says why it is left out, and is empty where it is shipped.

    *older* are its rotated generations, the oldest first.
    """

    path: Path
    reason: str
    older: tuple[Path, ...] = ()

    @property
    def collected_as(self) -> Path:
        """The file name without compression: a compressed file is shipped under that name."""
        return self.path.with_name(unpacked(self.path.name))


def look_below(root: Path, exclude: Sequence[str]) -> list[Found]:
    """Return all files below *root*, each with the reason if it is left out, in order of their
    paths.
    """
    paths = sorted(path for path, _ in zip(_walk(root), range(FILES_MAX), strict=False))
    live = {path for path in paths if not _reason(path, exclude)}
    older: dict[Path, list[tuple[int, Path]]] = {}
    found = []
    for path in paths:
        rotated = _ROTATED.fullmatch(unpacked(str(path)))
        if rotated and (of := Path(rotated["live"])) in live:
            older.setdefault(of, []).append((int(rotated["number"]), path))
            live.discard(path)
            found.append(Found(path, f"rotated: it is shipped before {of.name}"))
    for path in paths:
        if not any(entry.path == path for entry in found):
            generations = sorted(older.get(path, []), reverse=True)
            reason = _reason(path, exclude)
            found.append(Found(path, reason, tuple(name for _, name in generations)))
    return sorted(found, key=lambda entry: entry.path)


def _walk(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        yield from (Path(folder, name) for name in names)


def _reason(path: Path, exclude: Sequence[str]) -> str:
    matching = next((pattern for pattern in exclude if fnmatchcase(str(path), pattern)), None)
    if matching is not None:
        return f"excluded by {matching}"
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return "a symbolic link"
        if not stat.S_ISREG(mode):
            return "not a regular file"
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if codec_of(path.name) is not None:
        return "compressed, and no live file is beside it: it is shipped, and not checked"
    if not head:
        return "empty"
    if b"\0" in head:
        return "binary"
    return "" if b"\n" in head else "no complete line yet"
