"""Scans the folders in which logs are searched: which sources and files each of them holds."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

from logpipeline.codecs import Codec
from logpipeline_shipper.files.listing import ChainFile, HostSources, Listing, SourceId
from logpipeline_shipper.files.open_file import (
    Moved,
    OpenFolder,
    TooManyOpen,
    Unreadable,
    look_at,
    open_reader,
)
from logpipeline_shipper.files.reader import NUL_RUN_MIN, leading_nuls
from logpipeline_shipper.files.rotation_names import (
    asides_of,
    chains_of,
    is_numbered,
    restart_of,
    rotation_of,
)
from logpipeline_shipper.files.source_filter import Patterns, State

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)

# So many bytes, after leading NULs, are examined to see whether a file is text.
SAMPLE_BYTES = 64 * 1024
# A shorter sample with a line in it counts as text, whatever it holds.
_SAMPLE_BYTES_MIN = 256
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\x0b\x0c\x08\x1b"))
_CONTROL_SHARE_MAX = 0.3
_HOLE = re.compile(rb"\0{%d,}" % NUL_RUN_MIN)
_JOURNAL_MAGIC = b"LPKSHHRH"

# A deeper folder is a mistake, or an attack.
_DEPTH_MAX = 32
# Half a dozen files are renamed in one rotation. If the files of a folder never stand still, the
# last look counts.
LOOKS_MAX = 20
# Everything below a host's own `files` folder.
_EVERYTHING = Patterns((("**", "*"),))
_EVERYTHING_STATES: frozenset[State] = frozenset({(0, 0), (0, 1)})

Kind = Literal["hosts", "host", "pods", "pod", "container", "files"]
Skipped = Callable[[Path, str], None]


# A folder that cannot be read is an error, never an absence: it must not look as if its files were
# deleted.
class FolderGone(Exception):
    """The folder does not exist."""


class FolderUnreadable(Exception):
    """The folder could not be read; the message is one token."""


@dataclass(slots=True)
class View:
    """The entries of a folder. *odd* are all others, with the reason why they are never read."""

    files: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)
    odd: dict[str, str] = field(default_factory=dict)


def open_folder(path: Path, root: Path) -> OpenFolder:
    """Return the folder *path*, in the tree that is searched from *root* on.

    Raises:
        FolderGone: it does not exist, or a link is in its place.
        FolderUnreadable: it could not be opened.
    """
    try:
        return OpenFolder(path, root)
    except OSError as error:
        if error.errno in _GONE:
            raise FolderGone from error
        raise _unreadable(error) from error


def look_into(folder: OpenFolder) -> View:
    """Return the entries of *folder*.

    Raises:
        FolderUnreadable: it could not be read.
    """
    view = View()
    try:
        with os.scandir(folder.descriptor) as entries:
            for entry in entries:
                _sort_in(view, entry)
    except OSError as error:
        raise _unreadable(error) from error
    return view


def _unreadable(error: OSError) -> FolderUnreadable:
    return FolderUnreadable(errno.errorcode.get(error.errno or 0, "unknown"))


def _sort_in(view: View, entry: os.DirEntry[str]) -> None:
    if entry.is_symlink():
        view.links.add(entry.name)
    elif entry.is_dir(follow_symlinks=False):
        view.folders.add(entry.name)
    elif entry.is_file(follow_symlinks=False):
        view.files.add(entry.name)
    else:
        view.odd[entry.name] = "not-a-regular-file"


def _by_age(files: list[ChainFile]) -> list[ChainFile]:
    """Return *files*, which are in the order of their names, in the order in which they were
    written.
    """
    # logrotate and Python give the youngest file the number 1, and rename all others. log4j2 (with
    # `fileIndex="max"`, its default) and others give it the next number. Names do not show which of
    # both a rotator does; the times of the last writes do, which rotators leave alone. Not all
    # packers do so.
    if len(files) < 2:
        return files  # the usual case, and names are not looked at again
    places = [place for place, file in enumerate(files) if is_numbered(file.path.name)]
    numbered = [files[place] for place in places]
    is_rising = all(file.mtime_ns > other.mtime_ns for file, other in pairwise(numbered))
    if is_rising and not any(file.compressed for file in numbered):
        for place, file in zip(places, reversed(numbered), strict=True):
            files[place] = file
    return files


def chain_files(
    folder: OpenFolder, names: set[str], *, follow_link: bool
) -> dict[str, list[ChainFile]]:
    """Return the chains among the files *names* of *folder*, by the name of the live file.

    Raises:
        FolderUnreadable: a file could not be examined.
    """
    chains: dict[str, list[ChainFile]] = {}
    asides = asides_of(names)
    for live, members in chains_of(names).items():
        files: dict[tuple[int, int], ChainFile] = {}
        for name, codec in members:
            file = _observe(folder, name, codec, follow_link, is_live=name == live)
            if file is not None:
                files[file.key] = file  # of two hard links the newer name counts
        if not files:
            continue
        chains[live] = _by_age(list(files.values()))
        aside = _youngest(folder, asides.get(live, ()), follow_link)
        if aside is not None and aside.key not in files:
            # It was the live file before the one that is there now.
            place = len(files) - chains[live][-1].is_live
            chains[live].insert(place, replace(aside, is_aside=True))
    return chains


def _youngest(folder: OpenFolder, names: Iterable[str], follow_link: bool) -> ChainFile | None:
    """Return the youngest of the files *names* that are there."""
    observed = [_observe(folder, name, None, follow_link, is_live=False) for name in names]
    there = [file for file in observed if file is not None]
    return max(there, key=lambda file: (file.born_ns, file.mtime_ns), default=None)


def _observe(
    folder: OpenFolder, name: str, codec: Codec | None, follow_link: bool, *, is_live: bool
) -> ChainFile | None:
    try:
        found = look_at(name, follow_link=follow_link, folder=folder)
    except OSError as error:
        if error.errno in (*_GONE, errno.ELOOP):
            return None
        raise _unreadable(error) from error
    if not found.is_regular:
        return None
    return ChainFile(
        folder.path / name,
        device=found.device,
        inode=found.inode,
        size=found.size,
        mtime_ns=found.mtime_ns,
        codec=codec,
        born_ns=found.born_ns,
        is_live=is_live,
        root=folder.root,
    )


def unread_reason(name: str) -> str | None:
    """Return the reason why a file with this *name* is never read, None if it is read."""
    return None if rotation_of(name) is not None else "temporary-or-unknown-compression"


class TextCheck:
    """Decides which files of one folder are text; each file is examined once."""

    def __init__(self, report: Callable[[Path, str], None]) -> None:
        self._report = report
        self._verdicts: dict[str, tuple[tuple[int, int, int], bool]] = {}

    def is_text(self, file: ChainFile) -> bool | None:
        """Return whether *file* is text; None while it holds nothing, or only NULs."""
        known = self._verdicts.get(file.path.name)
        if known is not None and known[0] == file.identity:
            return known[1]
        if not file.size:
            return None
        try:
            reader = open_reader(file, follow_link=False)
        except (Moved, TooManyOpen):
            return True
        except Unreadable as error:
            # It stays in its chain, which tries it again and counts the failure.
            self._report(file.path, error.reason)
            return True
        try:
            sample = reader.read(leading_nuls(reader), SAMPLE_BYTES)
        except OSError:
            return True
        finally:
            reader.close()
        if not sample:
            return None
        is_text = not is_binary(sample)
        # A first line that is still being written may hold a NUL, and have no newline yet.
        if is_text or b"\n" in sample or len(sample) == SAMPLE_BYTES:
            self._verdicts[file.path.name] = (file.identity, is_text)
        return is_text

    def keep(self, names: set[str]) -> None:
        """Forget files that are not among *names*."""
        self._verdicts = {name: known for name, known in self._verdicts.items() if name in names}


def is_binary(sample: bytes) -> bool:
    """Return whether a file that begins with *sample* is binary: many of its bytes are control
    characters.
    """
    if sample.startswith(_JOURNAL_MAGIC):
        return True
    # A power cut, or a program that does not append, leaves a hole in a log: it is no content.
    sample = _HOLE.sub(b"", sample)
    if b"\0" not in sample or (b"\n" in sample and len(sample) < _SAMPLE_BYTES_MIN):
        return False
    controls = len(sample) - len(sample.translate(None, _CONTROL))
    return controls > len(sample) * _CONTROL_SHARE_MAX


@dataclass(slots=True, eq=False)
class Folder:
    """One folder: what is searched in it, and what was found at the last look."""

    path: Path
    root: Path
    kind: Kind
    host: str
    exclude: Patterns
    skipped: Skipped
    include: Patterns = _EVERYTHING
    states: frozenset[State] = _EVERYTHING_STATES
    names: tuple[str, ...] = ()  # namespace, pod, uid, container: as many as are known here
    depth: int = 0
    subfolders: dict[str, Folder] = field(default_factory=dict)
    listings: dict[SourceId, Listing] = field(default_factory=dict)
    sources: dict[str, SourceId] = field(default_factory=dict)  # by the name of a file
    trouble: str = ""  # why the last look failed
    text: TextCheck = field(init=False)

    def __post_init__(self) -> None:
        self.text = TextCheck(self.skipped)

    def look(self) -> bool:
        """Look once more; return whether the folder exists.

        If it cannot be read, the former listings stay.
        """
        try:
            view, listings, sources = self._look_steadily()
        except FolderUnreadable as error:
            self.trouble = str(error)
            self.skipped(self.path, self.trouble)
            return True
        except FolderGone:
            self.subfolders, self.listings, self.sources, self.trouble = {}, {}, {}, ""
            return False
        self.listings, self.sources, self.trouble = listings, sources, ""
        known = self.subfolders
        self.subfolders = {}
        for name in sorted(view.folders):
            child = known.get(name) or self._child(name)
            if child is not None:
                self.subfolders[name] = child
        return True

    def _look_steadily(self) -> tuple[View, dict[SourceId, Listing], dict[str, SourceId]]:
        """Look, and if files have moved, look again until two looks show the same: during a
        rotation one look may lack the file that is being renamed, which would then be read last, or
        show a half packed file without its original.
        """
        view, listings, sources = self._look_once()
        before = self.listings
        for _ in range(LOOKS_MAX):
            if _places(listings) == _places(before):
                break
            before = listings
            view, listings, sources = self._look_once()
        return view, listings, sources

    def _look_once(self) -> tuple[View, dict[SourceId, Listing], dict[str, SourceId]]:
        with open_folder(self.path, self.root) as folder:
            view = look_into(folder)
            return view, *self._find_sources(view, folder)

    def walk(self) -> Iterator[Folder]:
        """Yield this folder and all below it that are known."""
        yield self
        for child in self.subfolders.values():
            yield from child.walk()

    def _child(self, name: str) -> Folder | None:
        path, kind, names = self.path / name, self.kind, self.names
        include, states = self.include, self.states
        host = self.host
        if kind == "hosts":
            kind, host = "host", name
        elif kind == "host" and name in ("pods", "files"):
            kind = "pods" if name == "pods" else "files"
        elif kind == "pods":
            kind, names = "pod", tuple(name.split("_"))
            if len(names) != 3 or not all(names):
                self.skipped(path, "not-a-pod")
                return None
        elif kind == "pod":
            kind, names = "container", (*names, name)
        elif kind == "files":
            states = include.below(states, name)
            if not states or self.exclude.match_path(path):
                return None
            if self.depth >= _DEPTH_MAX:
                self.skipped(path, "too-deep")
                return None
        else:
            return None
        return Folder(
            path,
            self.root,
            kind,
            host,
            self.exclude,
            self.skipped,
            include,
            states,
            names,
            self.depth + 1,
        )

    def _find_sources(
        self, view: View, folder: OpenFolder
    ) -> tuple[dict[SourceId, Listing], dict[str, SourceId]]:
        listings: dict[SourceId, Listing] = {}
        sources: dict[str, SourceId] = {}
        if self.kind == "container":
            self._find_container_logs(view, folder, listings, sources)
        elif self.kind == "files":
            self._find_plain_files(view, folder, listings, sources)
        return listings, sources

    def _find_container_logs(
        self,
        view: View,
        folder: OpenFolder,
        listings: dict[SourceId, Listing],
        sources: dict[str, SourceId],
    ) -> None:
        namespace, pod, _, container = self.names
        for name, reason in view.odd.items():
            self.skipped(self.path / name, reason)
        # Nodes with Docker have links here; where a link leads is checked when it is opened.
        names = view.files | view.links
        for live, files in chain_files(folder, names, follow_link=True).items():
            restart = restart_of(live)
            if restart is None or self.exclude.match_path(self.path / live):
                continue
            source = SourceId(
                host=self.host,
                source="/".join((*self.names, restart)),
                format="cri",
                namespace=namespace,
                pod=pod,
                container=container,
            )
            listings[source] = Listing(source, tuple(files))
            sources |= {file.path.name: source for file in files}

    def _find_plain_files(
        self,
        view: View,
        folder: OpenFolder,
        listings: dict[SourceId, Listing],
        sources: dict[str, SourceId],
    ) -> None:
        self._report_odd(view)
        self.text.keep(view.files)
        for live, files in chain_files(folder, view.files, follow_link=False).items():
            path = self.path / live
            members = {live, *(file.path.name for file in files)}
            if not any(self.include.match(self.states, name) for name in members):
                continue
            files = [file for file in files if not self.exclude.match_path(file.path)]
            if not files or self.exclude.match_path(path):
                self.skipped(path, "excluded")
                continue
            verdicts = {file: self.text.is_text(file) for file in files}
            for file in files:
                if verdicts[file] is False:
                    self.skipped(file.path, "binary")
            files = [file for file in files if verdicts[file] is not False]
            if not files:
                continue
            source = SourceId(host=self.host, source=str(path), format="plain")
            listings[source] = Listing(source, tuple(files))
            if any(verdicts[file] for file in files):
                sources |= {file.path.name: source for file in files}

    def _report_odd(self, view: View) -> None:
        reasons = view.odd | dict.fromkeys(view.links, "symbolic-link")
        reasons |= {name: reason for name in view.files if (reason := unread_reason(name))}
        for name, reason in reasons.items():
            if self.include.match(self.states, name):
                self.skipped(self.path / name, reason)


def _places(listings: dict[SourceId, Listing]) -> set[tuple[Path, tuple[int, int, int]]]:
    """Return which file is at which path."""
    return {(file.path, file.identity) for listing in listings.values() for file in listing.files}


def roots_of(host: HostSources, skipped: Skipped) -> list[Folder]:
    """Return the top folders of *host*."""
    exclude = host.exclude
    roots = []
    if host.pods_dir is not None:
        # A pattern that also matches the containers' logs must not ship them twice.
        below_pods = f"{host.pods_dir}/**"
        roots.append(
            Folder(host.pods_dir, host.pods_dir, "pods", host.host, Patterns.of(exclude), skipped)
        )
        exclude = (*exclude, below_pods)
    if host.hosts_below is not None:
        roots.append(
            Folder(
                host.hosts_below,
                host.hosts_below,
                "hosts",
                host.host,
                Patterns.of(exclude),
                skipped,
            )
        )
    include = Patterns.of(host.include)
    for path, states in include.roots().items():
        roots.append(
            Folder(path, path, "files", host.host, Patterns.of(exclude), skipped, include, states)
        )
    return roots
