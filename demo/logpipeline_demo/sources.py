"""Which hosts and sources the small busy application has, and where their lines are written and
collected.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from logpipeline.partition import partition_of
from logpipeline_demo import rotation
from logpipeline_demo.ledger import Ledger
from logpipeline_demo.lines import Kind, SourceKey

# What a LogPipeline has unless it says otherwise: the hosts are chosen so that none is idle.
PARTITIONS_DEFAULT = 10
FILE_NAME = "app.log"
SECOND_POD_EVERY = 3
_APPLICATIONS = ("cart", "orders", "payment", "search", "stock", "web")
_NAMESPACES = ("shop", "shop-backend", "shop-data")
_SUFFIXES = ("", ".example.net", ".eu-west-1.compute.internal")

# What a plain file may begin with, and all others of the run as well.
BANNER = b"# the same first line in every file"
# kubelet's containerLogMaxFiles.
FILES_MAX_DEFAULT = 5


@dataclass(frozen=True, slots=True)
class LogSource:
    """One log of one host: a container's, or a plain file."""

    host: str
    kind: Kind
    pod: str = ""
    pod_uid: str = ""
    namespace: str = ""
    container: str = ""
    file: str = FILE_NAME

    @property
    def key(self) -> SourceKey:
        """The origin that the lines name."""
        if self.kind == "plain":
            return SourceKey(self.host, f"files/{self.file}")
        return SourceKey(self.host, f"{self.namespace}/{self.pod}/{self.container}")

    def live_path(self, root: Path) -> Path:
        """Return the file below *root* that is written now."""
        if self.kind == "plain":
            return root / self.host / "files" / self.file
        pod = f"{self.namespace}_{self.pod}_{self.pod_uid}"
        return root / self.host / "pods" / pod / self.container / "0.log"


def is_place_of(key: SourceKey, place: str) -> bool:
    """Tell whether the lines of *key* belong into the collectors' file *place*, by its default
    paths.

    A plain file keeps its own path below ``_files``, and only the end of that is known here.
    """
    if not key.name.startswith("files/"):
        return place == f"{key.host}/{key.name}.log"
    name = key.name.removeprefix("files/")
    return place.startswith(f"{key.host}/_files/") and place.endswith(f"/{name}")


def host_names(count: int, *, seed: int, partitions: int = PARTITIONS_DEFAULT) -> list[str]:
    """Return *count* names of nodes that keep all *partitions* as equally busy as can be."""
    rng = random.Random(f"{seed}/hosts")
    names: list[str] = []
    load = [0] * max(partitions, 1)
    while len(names) < count:
        suffix = _SUFFIXES[len(names) % len(_SUFFIXES)]
        name = f"node-{rng.randrange(16**6):06x}{suffix}"
        partition = partition_of(name, partitions)
        if load[partition] == min(load) and name not in names:
            load[partition] += 1
            names.append(name)
    return names


def sources_of(hosts: Sequence[str], *, seed: int) -> list[LogSource]:
    """Return the sources of *hosts*: a plain file each, a container, and now and then two."""
    rng = random.Random(f"{seed}/sources")
    sources = []
    for index, host in enumerate(hosts):
        sources.append(LogSource(host, "plain"))
        for _ in range(2 if index % SECOND_POD_EVERY == 0 else 1):
            sources.append(_container(rng, host))
    return sources


def _container(rng: random.Random, host: str) -> LogSource:
    application = rng.choice(_APPLICATIONS)
    uid = f"{rng.getrandbits(128):032x}"
    return LogSource(
        host,
        "cri",
        pod=f"{application}-{rng.getrandbits(32):08x}-{rng.getrandbits(20):05x}",
        pod_uid="-".join((uid[:8], uid[8:12], uid[12:16], uid[16:20], uid[20:])),
        namespace=rng.choice(_NAMESPACES),
        container=application,
    )


class SourceFiles:
    """A live file that is appended to, and its rotated files."""

    def __init__(
        self,
        path: Path,
        ledger: Ledger,
        number: int,
        *,
        files_max: int | None = FILES_MAX_DEFAULT,
        clock_ns: Callable[[], int] = time.time_ns,
        has_banner: bool = False,
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.next_seq = 0
        self.size = 0
        self.rotations = 0
        self._ledger = ledger
        self._number = number
        self._files_max = files_max
        self._clock_ns = clock_ns
        self._first_seq = 0  # of the live file
        self._held: dict[Path, tuple[int, int]] = {}  # the lines of each rotated file
        self._renamed_to: Path | None = None
        self._is_unlinked = False
        self._has_banner = has_banner
        self.banners = 0
        self._descriptor = self._opened()

    def append(self, data: bytes) -> None:
        """Append *data* to the file that is open, whatever its name is by now."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        self.size += len(data)

    def rename_kubelet(self) -> None:
        """Rename the live file as kubelet does; the runtime still appends to it until `reopen`."""
        self._note(rotation.kubelet_prepare(self.path, files_max=self._files_max))
        self._rename_to(rotation.kubelet_name(self.path, self._clock_ns() / 1e9))

    def rename_numbered(self) -> None:
        """Rename the live file as logrotate does; the program still appends to it until
        `reopen`.
        """
        self._note(rotation.numbered_prepare(self.path, files_max=self._files_max))
        self._rename_to(rotation.numbered_name(self.path))

    def reopen(self) -> None:
        """Let go of the renamed or deleted file and begin a new one. An open line goes on
        there.
        """
        self._let_go()
        self._descriptor = self._opened()

    def gzip(self) -> None:
        """Compress every rotated file that is not."""
        for path in rotation.rotated_files(self.path):
            if path.suffix not in (".gz", ".tmp"):
                self._note([rotation.compress_beside(path)])

    def copytruncate(self) -> None:
        """Copy the live file to ``<name>.1`` and truncate it, while it is read."""
        self._note(rotation.numbered_prepare(self.path, files_max=self._files_max))
        copy = rotation.numbered_name(self.path)
        copy.write_bytes(self.path.read_bytes())
        self._held[copy] = (self._first_seq, self.next_seq)
        os.ftruncate(self._descriptor, 0)
        self._tell("truncate", self.path)
        self._first_seq, self.size = self.next_seq, 0
        self.rotations += 1

    def delete(self) -> None:
        """Remove the live file; the program writes on into it, unseen, until `reopen`."""
        self.path.unlink()
        self._is_unlinked = True
        self._tell("delete", self.path)

    def delete_rotated(self) -> None:
        """Remove every rotated file."""
        for path in rotation.rotated_files(self.path):
            path.unlink()
            self._note([rotation.Moved(path, None, "delete")])

    def recreate(self) -> None:
        """Replace the live file, or the deleted one, with a new and empty one."""
        if not self._is_unlinked:
            self.delete()
        self.reopen()

    def _let_go(self) -> None:
        if self._is_unlinked:
            self._tell("delete", self.path)  # with what was written since
        elif self._renamed_to is not None:
            self._held[self._renamed_to] = (self._first_seq, self.next_seq)
        os.close(self._descriptor)
        self._descriptor = -1
        self._renamed_to, self._is_unlinked = None, False
        self._first_seq, self.size = self.next_seq, 0

    def _opened(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL
        descriptor = os.open(self.path, flags, 0o644)
        if self._has_banner:
            self.banners += 1
            os.write(descriptor, BANNER + b"\n")
        return descriptor

    def _rename_to(self, target: Path) -> None:
        self.path.rename(target)
        self._renamed_to = target
        self._held[target] = (self._first_seq, self.next_seq)
        self.rotations += 1
        self._tell("rotate", target)

    def _note(self, moves: Iterable[rotation.Moved]) -> None:
        for old, new, what in moves:
            first, end = self._held.pop(old, (0, 0))
            if new is not None:
                self._held[new] = (first, end)
            detail = (new or old).name
            self._ledger.event(self._number, what, first=first, end=end, detail=detail)

    def _tell(self, what: str, path: Path) -> None:
        first, end = self._first_seq, self.next_seq
        self._ledger.event(self._number, what, first=first, end=end, detail=path.name)
