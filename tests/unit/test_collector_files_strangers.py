"""Names and files that nobody expected: each line finds a place inside the folder, and nothing of
others is touched.
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.partition_files import (
    NS,
    PLACE,
    FailingDescriptors,
    Writer,
    contents,
    opened,
)
from logpipeline.records import Question
from logpipeline_collector.files import commit, volume
from logpipeline_collector.files.commit import FILES_ONE_BY_ONE_MAX
from logpipeline_collector.files.committed import committed_files
from logpipeline_collector.sink import SinkFailed, SinkFull

# Hundreds of folders: on a disk that is synchronised for each commit they take their time.
MEMORY = Path("/dev/shm")
HOSTILE = ["..", ".", "/", "a", "a/b", "a/b/c", "//a", "a/../b", "/../../etc/x", "a\0b", "~", "é"]
PATHS = st.sampled_from(HOSTILE) | st.text(min_size=1, max_size=30) | st.text("./a", min_size=1)


@given(st.lists(PATHS, min_size=1, max_size=6, unique=True))
def test_every_path_has_a_file_of_its_own_below_the_folder(paths: list[str]) -> None:
    """Also where one path is a folder of another one."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        _check_files(Path(name), paths)


def _check_files(folder: Path, paths: list[str]) -> None:
    writer = Writer(opened(folder))
    for path in paths:
        writer.start = 0
        writer.take(f"line of {path!r}\n".encode(), source=path)
    writer.commit()
    files = list(committed_files(folder))

    assert len(files) == len(paths)
    for file in files:
        assert file.path.resolve().is_relative_to((folder / "logs/h/_files").resolve())
    texts = {f"line of {path!r}\n".encode() for path in paths}
    assert {file.path.read_bytes() for file in files} == texts
    writer.partition.close()


def test_a_new_file_has_no_name_before_it_is_committed(tmp_path: Path) -> None:
    """Others see finished files only, and a crash leaves none behind."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    assert list((tmp_path / "logs").iterdir()) == []
    writer.commit()

    assert contents(tmp_path) == b"one\n"
    assert list((tmp_path / "state/main/p3.new").iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "nothing"])
def test_an_active_file_that_was_taken_away_is_named_and_replaced(
    tmp_path: Path, kind: str
) -> None:
    """What stands in its place is left alone, and never followed; lines go on beside it."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"secret")
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.commit()
    writer.partition.close()
    put(tmp_path / "logs" / PLACE, kind, outside)
    again = Writer(opened(tmp_path), start=4, sequence=1)
    again.take(b"two\n")
    again.commit()

    assert again.partition.damaged_bytes == 4
    assert outside.read_bytes() == b"secret"
    assert contents(tmp_path, PLACE + ("" if kind == "nothing" else "~1")) == b"two\n"


def test_a_file_that_was_taken_away_while_it_was_closed_is_replaced(tmp_path: Path) -> None:
    """Its descriptor was needed for another file; the commit before it is not undone by that."""
    writer = Writer(opened(tmp_path, open_files_max=1))
    writer.take(b"one\n")
    writer.commit()
    writer.take(b"x\n", host="other")
    (tmp_path / "logs" / PLACE).unlink()
    writer.start = 4
    writer.take(b"two\n")
    writer.commit()

    assert contents(tmp_path) == b"two\n"
    assert writer.partition.damaged_bytes == 4


def test_uncommitted_lines_in_a_file_that_was_taken_away_are_read_again(tmp_path: Path) -> None:
    """The process ends: the stream still has them."""
    writer = Writer(opened(tmp_path, open_files_max=1))
    writer.take(b"one\n")
    writer.commit()
    writer.take(b"two\n")
    writer.take(b"x\n", host="other")
    (tmp_path / "logs" / PLACE).unlink()
    with pytest.raises(SinkFailed, match="removed by another program"):
        writer.take(b"three\n")
    writer.partition.close()
    again = opened(tmp_path)

    assert [known.offset for known in again.asked("h", Question())] == [4]


@pytest.mark.parametrize("others", [0, FILES_ONE_BY_ONE_MAX])
def test_no_commit_is_made_of_a_file_that_was_taken_away(tmp_path: Path, others: int) -> None:
    """An open file can still be written when it has no name any more; nobody could read it. However
    many files the commit has.
    """
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.commit()
    (tmp_path / "logs" / PLACE).unlink()
    writer.take(b"two\n")
    for number in range(others):
        writer.take(b"x\n", host=f"other{number}")
    with pytest.raises(SinkFailed, match="removed by another program"):
        writer.commit()
    writer.partition.close()
    again = opened(tmp_path)

    assert again.damaged_bytes == 4
    assert [known.offset for known in again.asked("h", Question())] == [4]


@pytest.mark.parametrize("left", [0, 4])
def test_lines_go_on_behind_a_cut(tmp_path: Path, left: int) -> None:
    """Of an active file, as `: > app.log` and logrotate's copytruncate make one. What was cut is
    damage, counted once, and no zeros stand in its place; also after a crash before the next
    commit.
    """
    writer = Writer(opened(tmp_path))
    writer.take(b"one\ntwo\n")
    writer.commit()
    os.truncate(tmp_path / "logs" / PLACE, left)
    writer.take(b"three\nfour\n")
    assert writer.partition.damaged_bytes == 8 - left
    writer.partition.close()
    again = Writer(opened(tmp_path), start=8, sequence=1)
    assert contents(tmp_path) == b"one\ntwo\n"[:left]
    again.take(b"three\n")
    again.commit()

    assert contents(tmp_path) == b"one\ntwo\n"[:left] + b"three\n"
    assert again.partition.damaged_bytes == 8 - left


def test_a_message_that_is_not_taken_leaves_a_cut_as_it_is(tmp_path: Path) -> None:
    """Bytes that are taken back are not replaced by zeros."""
    descriptors = FailingDescriptors()
    writer = Writer(opened(tmp_path, descriptors=descriptors))
    writer.take(b"one\n")
    writer.commit()
    os.truncate(tmp_path / "logs" / PLACE, 0)
    descriptors.write_errno = errno.ENOSPC
    with pytest.raises(SinkFull):
        writer.take(b"two\n")

    assert contents(tmp_path) == b""
    assert writer.partition.damaged_bytes == 4


@pytest.mark.parametrize("others", [0, FILES_ONE_BY_ONE_MAX])
def test_no_commit_is_made_of_a_file_that_was_cut(tmp_path: Path, others: int) -> None:
    """The stream still has what is not committed. However many files the commit has."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.commit()
    writer.take(b"two\n")
    for number in range(others):
        writer.take(b"x\n", host=f"other{number}")
    os.truncate(tmp_path / "logs" / PLACE, 6)
    with pytest.raises(SinkFailed, match="cut by another program"):
        writer.commit()
    writer.partition.close()
    again = opened(tmp_path)

    assert contents(tmp_path) == b"one\n"
    assert [known.offset for known in again.asked("h", Question())] == [4]


def test_uncommitted_lines_in_a_file_that_was_cut_are_read_again(tmp_path: Path) -> None:
    """The process ends: the stream still has them."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.commit()
    writer.take(b"two\n")
    os.truncate(tmp_path / "logs" / PLACE, 0)
    with pytest.raises(SinkFailed, match="cut by another program"):
        writer.take(b"three\n")
    writer.partition.close()
    again = opened(tmp_path)

    assert again.damaged_bytes == 4
    assert contents(tmp_path) == b""


def packed_file(folder: Path) -> Path:
    """Return a compressed file of ten lines, of 400 bytes."""
    writer = Writer(opened(folder, rotate_bytes=400, compression="gzip"))
    writer.take(b"".join(os.urandom(19).hex().encode() + b" \n" for _ in range(10)))
    writer.commit()
    sink = writer.partition.sink
    sink.rotate(NS / 1e9)
    sink.maintain(NS / 1e9)
    writer.partition.close()
    (path,) = (folder / "logs").rglob("*.gz")
    return path


def test_a_compressed_file_that_was_taken_away_is_named(tmp_path: Path) -> None:
    """At the next start, once; and it is no longer listed."""
    packed_file(tmp_path).unlink()

    for _ in range(2):
        partition = opened(tmp_path)
        assert partition.damaged_bytes == 400
        partition.close()
    assert list(committed_files(tmp_path)) == []


def test_a_compressed_file_that_was_cut_is_named_and_kept(tmp_path: Path) -> None:
    """About as much is gone of its lines as of its bytes; what is left can still be read."""
    path = packed_file(tmp_path)
    os.truncate(path, path.stat().st_size // 2)

    for _ in range(2):
        partition = opened(tmp_path)
        assert partition.damaged_bytes == pytest.approx(200, abs=2)
        partition.close()
    assert [file.path for file in committed_files(tmp_path)] == [path]


def test_retention_names_what_it_does_not_find(tmp_path: Path) -> None:
    """Another program removed it before; the rest of what is due is removed."""
    path = packed_file(tmp_path)
    partition = opened(tmp_path, retention_age_s=1.0)
    path.unlink()
    partition.sink.maintain(NS / 1e9 + 3600)
    partition.sink.maintain(NS / 1e9 + 3600)

    assert partition.damaged_bytes == 400
    assert list(committed_files(tmp_path)) == []


class FailingKernel:
    """How Linux reports a failed write: to each descriptor that was open before, once; and to later
    ones as long as none was told.
    """

    def __init__(self) -> None:
        self.failures = 0
        self._is_told = True
        self._known: dict[int, int] = {}

    def open(self, root: Path) -> int:
        """Open *root*."""
        descriptor = os.open(root, os.O_RDONLY | os.O_CLOEXEC)
        self._known[descriptor] = self.failures if self._is_told else self.failures - 1
        return descriptor

    def fail(self) -> None:
        """Lose written bytes."""
        self.failures += 1
        self._is_told = False

    def syncfs(self, descriptor: int) -> int:
        """Tell of it."""
        if self._known[descriptor] == self.failures:
            return 0
        self._known[descriptor] = self.failures
        self._is_told = True
        return errno.EIO


def test_a_failed_write_is_noticed_by_each_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where another one, or another program, was told of it before."""
    kernel = FailingKernel()
    monkeypatch.setattr(volume, "_open", kernel.open)
    monkeypatch.setattr(volume, "_syncfs", kernel.syncfs)
    monkeypatch.setattr(commit, "FILES_ONE_BY_ONE_MAX", 0)
    writers = [Writer(opened(tmp_path, partition=number)) for number in range(2)]
    for number, writer in enumerate(writers):
        writer.take(b"one\n", host=f"h{number}")
    kernel.fail()

    for writer in writers:
        with pytest.raises(SinkFailed, match="not durable"):
            writer.commit()


def test_a_kernel_that_tells_of_no_failure_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file is made durable by itself there."""
    former = os.uname_result(("Linux", "host", "5.4.0-generic", "", "x86_64"))
    monkeypatch.setattr(os, "uname", lambda: former)

    assert not volume.Volume(tmp_path).sync()


def test_a_file_shorter_than_committed_is_damage_and_goes_on(tmp_path: Path) -> None:
    """A disk that lied costs what it lied about, and no more."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\ntwo\n")
    writer.commit()
    writer.partition.close()
    os.truncate(tmp_path / "logs" / PLACE, 4)
    again = Writer(opened(tmp_path), start=8, sequence=1)
    again.take(b"three\n")
    again.commit()

    assert again.partition.damaged_bytes == 4
    assert contents(tmp_path) == b"one\nthree\n"


def test_what_was_taken_away_is_counted_once_and_for_ever(tmp_path: Path) -> None:
    """Another process of the same folder tells it as well; a commit that is taken back does not
    have it counted twice.
    """
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.commit()
    writer.partition.close()
    (tmp_path / "logs" / PLACE).unlink()
    again = Writer(opened(tmp_path), start=4, sequence=1)
    again.take(b"two\n")
    again.commit()
    again.partition.undo()
    again.partition.close()

    for _ in range(2):
        partition = opened(tmp_path)
        assert partition.damaged_bytes == 4
        partition.close()


def put(path: Path, kind: str, target: Path) -> None:
    """Put something else in the place of the file *path*."""
    path.unlink()
    match kind:
        case "link":
            path.symlink_to(target)
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
