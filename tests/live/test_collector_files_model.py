"""Whatever happens to a partition, in whatever order, its files hold what is committed, once, in
order: a model takes the same actions, and says what that is.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from components.partition_files import Writer, opened
from logpipeline_collector.files.committed import CommittedFile, committed_files

SOURCES = ("/var/log/a.log", "/var/log/b.log")


class Files(RuleBasedStateMachine):
    """One partition that reads a stream of messages, each of one of two files."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="files-model-"))
        self.stream: list[tuple[str, int, bytes]] = []
        self.committed = self.confirmed = 0
        self.is_new_epoch = False
        self.now_s = time.time()
        self.limits: dict[str, Any] = {}

    @initialize(
        compression=st.sampled_from(["none", "zstd"]),
        rotate_bytes=st.sampled_from([8, 64, 1 << 30]),
    )
    def begin(self, compression: str, rotate_bytes: int) -> None:
        """Open an empty folder."""
        self.limits = {"compression": compression, "rotate_bytes": rotate_bytes}
        self.open()

    def open(self) -> None:
        """Open the folder, and go on from where it is."""
        self.writer = Writer(opened(self.folder, open_files_max=1, **self.limits))
        self.go_back(self.committed)

    def go_back(self, position: int) -> None:
        """Read on from *position*."""
        self.writer.sequence = self.writer.committed = position

    @rule(source=st.sampled_from(SOURCES), text=st.binary(max_size=12), ends=st.integers(0, 3))
    def publish(self, source: str, text: bytes, ends: int) -> None:
        """One more message comes into the stream; a line may go on in its file's next one."""
        data = text.replace(b"\n", b"|") + (b"\n" if ends else b"")
        if data:
            start = sum(len(other) for name, _, other in self.stream if name == source)
            self.stream.append((source, start, data))

    @rule(count=st.integers(1, 5))
    def take(self, count: int) -> None:
        """Read the next messages."""
        for source, start, data in self.stream[self.writer.sequence :][:count]:
            self.writer.start = start
            is_open = not data.endswith(b"\n")
            self.writer.take(data, source=source, ends_inside_line=is_open)

    @rule()
    def take_again(self) -> None:
        """A message comes a second time."""
        if self.writer.sequence:
            source, start, data = self.stream[self.writer.sequence - 1]
            self.writer.start = start
            self.writer.take(data, source=source)
            self.writer.sequence -= 1

    @precondition(lambda self: self.committed == self.confirmed or self.is_new_epoch)
    @rule(is_confirmed=st.booleans())
    def commit(self, is_confirmed: bool) -> None:
        """Commit, and tell the group, or not yet."""
        self.confirmed, self.is_new_epoch = self.committed, False
        self.writer.commit(is_confirmed=is_confirmed)
        self.committed = self.writer.sequence
        if is_confirmed:
            self.confirmed = self.committed

    @precondition(lambda self: self.committed == self.confirmed)
    @rule()
    def commit_while_taking(self) -> None:
        """Messages are taken between the preparation of a commit and its end."""
        position = self.writer.sequence
        pending = self.writer.prepare()
        self.take(2)
        self.writer.partition.write(pending)
        self.writer.partition.confirm(pending)
        self.committed = self.confirmed = self.writer.committed = position

    @precondition(lambda self: self.committed != self.confirmed)
    @rule()
    def undo(self) -> None:
        """A successor began before the last commit, which the group never heard of."""
        self.writer.partition.undo()
        self.committed = self.confirmed
        self.go_back(self.committed)

    @rule()
    def discard(self) -> None:
        """The epoch ended."""
        self.writer.partition.discard()
        self.is_new_epoch = True
        self.go_back(self.committed)

    @rule()
    def reopen(self) -> None:
        """The process ends, and another one begins."""
        self.writer.partition.close()
        self.is_new_epoch = True
        self.open()

    @rule()
    def maintain(self) -> None:
        """Rotation and compression have their turn. In a new epoch they begin when the last commit
        counts.
        """
        if self.is_new_epoch:
            self.confirmed = self.committed
        self.now_s += 1
        self.writer.partition.sink.maintain(self.now_s)

    @invariant()
    def committed_bytes_stand_in_the_files_once_and_in_order(self) -> None:
        """In what other programs read, at any time."""
        if self.limits:
            for source in SOURCES:
                sent = b"".join(d for s, _, d in self.stream[: self.committed] if s == source)
                assert contents_of(self.folder, source) == sent

    def teardown(self) -> None:
        """Leave nothing behind."""
        if self.limits:
            self.writer.partition.close()
        shutil.rmtree(self.folder)


def contents_of(folder: Path, source: str) -> bytes:
    """Return what is committed of *source*: its rotated files and the active one."""
    place = f"h/_files{source}"
    return b"".join(content(file) for file in committed_files(folder) if file.place == place)


def content(file: CommittedFile) -> bytes:
    """Return the committed bytes of *file*."""
    data = file.path.read_bytes()
    if file.is_compressed:
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return data[: file.length]


TestFiles = pytest.mark.long(Files.TestCase)
# Most faults need a file, a commit, a rotation and some more; the default of 50 has few of them. An
# example writes hundreds of real files: half as many as the profile says are enough.
TestFiles.settings = settings(stateful_step_count=80, max_examples=settings().max_examples // 2)
