"""Full and old files are set aside, compressed and removed, and no line is lost by it."""

from __future__ import annotations

import errno
import gzip
import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import zstandard

from components.partition_files import (
    PLACE,
    FailingDescriptors,
    Writer,
    config_of,
    contents,
    opened,
)
from logpipeline.listing import files_below
from logpipeline_collector.files import maintenance, safe_open
from logpipeline_collector.files.committed import committed_files
from logpipeline_collector.files.output import Descriptors
from logpipeline_collector.files.state import State
from logpipeline_collector.partition_writer import PartitionWriter
from logpipeline_collector.sink import SinkFull

# Room for two of the files that a partition sets aside.
LITTLE: dict[str, Any] = {"rotate_bytes": 1, "retention_bytes": 25}


def kept(writer: Writer, *texts: bytes) -> None:
    """Commit each of *texts*, with a round of upkeep behind it."""
    for text in texts:
        writer.take(text)
        writer.commit()
        writer.partition.sink.maintain(time.time())


def rotated(folder: Path) -> list[Path]:
    """Return the rotated files, the oldest first."""
    parent = (folder / "logs" / PLACE).parent
    return sorted(path for path in parent.iterdir() if path.name != Path(PLACE).name)


def test_a_full_file_is_set_aside_and_a_new_one_begun(tmp_path: Path) -> None:
    """In order by their names."""
    writer = Writer(opened(tmp_path, rotate_bytes=4))
    kept(writer, b"one\n", b"two\n", b"three\n")
    writer.take(b"four\n")
    writer.commit()

    assert b"".join(path.read_bytes() for path in rotated(tmp_path)) == b"one\ntwo\nthree\n"
    assert contents(tmp_path) == b"four\n"


def test_an_old_file_is_set_aside(tmp_path: Path) -> None:
    """Whatever its size."""
    writer = Writer(opened(tmp_path, rotate_age_s=60))
    writer.take(b"one\n")
    writer.commit()
    writer.partition.sink.maintain(time.time() + 30)
    assert rotated(tmp_path) == []
    writer.partition.sink.maintain(time.time() + 90)
    assert len(rotated(tmp_path)) == 1


@pytest.mark.parametrize("is_confirmed", [False, True])
def test_only_what_the_group_knows_is_set_aside(tmp_path: Path, is_confirmed: bool) -> None:
    """What may have to be taken back stays where it is."""
    writer = Writer(opened(tmp_path, rotate_bytes=1))
    writer.take(b"one\n")
    writer.commit(is_confirmed=is_confirmed)
    writer.partition.sink.maintain(time.time())

    assert bool(rotated(tmp_path)) == is_confirmed


def test_a_file_is_not_set_aside_in_the_middle_of_a_line(tmp_path: Path) -> None:
    """The rest of the line belongs to it."""
    writer = Writer(opened(tmp_path, rotate_bytes=1))
    writer.take(b"half a ", ends_inside_line=True)
    writer.commit()
    writer.partition.sink.maintain(time.time())
    assert rotated(tmp_path) == []
    writer.take(b"line\n", starts_inside_line=True)
    writer.commit()
    writer.partition.sink.maintain(time.time())
    assert [path.read_bytes() for path in rotated(tmp_path)] == [b"half a line\n"]


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_rotated_files_are_compressed(tmp_path: Path, compression: str) -> None:
    """And can be read by the usual tools."""
    writer = Writer(opened(tmp_path, rotate_bytes=1, compression=compression))
    kept(writer, b"one\n" * 1000)
    (path,) = rotated(tmp_path)
    raw = path.read_bytes()
    data = (
        gzip.decompress(raw)
        if compression == "gzip"
        else zstandard.ZstdDecompressor().decompressobj().decompress(raw)
    )

    assert data == b"one\n" * 1000
    assert path.suffix == {"gzip": ".gz", "zstd": ".zst"}[compression]


def test_old_files_are_removed_by_age_and_by_size_but_never_the_active_one(tmp_path: Path) -> None:
    """The oldest first."""
    writer = Writer(opened(tmp_path, rotate_bytes=4, retention_bytes=9))
    kept(writer, b"one\n", b"two\n", b"six\n")
    assert [path.read_bytes() for path in rotated(tmp_path)] == [b"two\n", b"six\n"]
    writer.take(b"active\n")
    writer.commit()
    writer.partition.close()
    later = opened(tmp_path, retention_age_s=60, rotate_age_s=1e12)
    later.sink.maintain(time.time() + 100)

    assert rotated(tmp_path) == []
    assert contents(tmp_path) == b"active\n"


def test_what_is_rotated_is_known_after_a_restart(tmp_path: Path) -> None:
    """Nothing is written twice, nothing is forgotten."""
    writer = Writer(opened(tmp_path, rotate_bytes=1, compression="zstd"))
    kept(writer, b"one\n")
    writer.partition.close()
    again = Writer(opened(tmp_path))
    again.take(b"one\n")
    again.take(b"two\n")
    again.commit()

    assert contents(tmp_path) == b"two\n"
    assert [file.is_compressed for file in committed_files(tmp_path)] == [True, False]


def test_a_file_that_is_written_all_the_time_is_set_aside(tmp_path: Path) -> None:
    """With its bytes that are not committed yet; a crash takes these back, and nothing else."""
    writer = Writer(opened(tmp_path, rotate_bytes=4))
    writer.take(b"one\n")
    writer.commit()
    writer.take(b"two\n")
    writer.partition.sink.maintain(time.time())
    writer.take(b"three\n")
    assert [path.read_bytes() for path in rotated(tmp_path)] == [b"one\ntwo\n"]
    writer.partition.close()
    again = Writer(opened(tmp_path), start=4, sequence=1)
    again.take(b"two\n")
    again.commit()

    assert [path.read_bytes() for path in rotated(tmp_path)] == [b"one\n"]
    assert contents(tmp_path) == b"two\n"


def test_a_rotated_file_is_compressed_when_all_of_it_is_committed(tmp_path: Path) -> None:
    """Else what came after the last commit would be left out."""
    writer = Writer(opened(tmp_path, rotate_bytes=4, compression="zstd"))
    writer.take(b"one\n")
    writer.commit()
    writer.take(b"two\n")
    writer.partition.sink.maintain(time.time())
    assert [path.suffix for path in rotated(tmp_path)] == [".000001"]
    writer.commit()
    writer.partition.sink.maintain(time.time())
    (path,) = rotated(tmp_path)
    packed = zstandard.ZstdDecompressor().decompressobj()

    assert packed.decompress(path.read_bytes()) == b"one\ntwo\n"
    assert [file.length for file in committed_files(tmp_path)] == [8]


def test_rotated_names_sort_in_the_order_of_rotation_when_the_clock_goes_back(
    tmp_path: Path,
) -> None:
    """Who reads them by name reads the lines in order."""
    writer = Writer(opened(tmp_path, rotate_bytes=1))
    for number, now_s in enumerate((2_000_000_000, 1_900_000_000, 1_950_000_000)):
        writer.take(b"%d\n" % number)
        writer.commit()
        writer.partition.sink.maintain(now_s)

    assert [path.read_bytes() for path in rotated(tmp_path)] == [b"0\n", b"1\n", b"2\n"]


def test_the_limit_of_size_is_one_for_all_partitions_and_the_oldest_goes_first(
    tmp_path: Path,
) -> None:
    """A collector has one disk, whatever it owns."""
    descriptors = Descriptors(16)
    writers = [
        Writer(opened(tmp_path, partition=n, descriptors=descriptors, **LITTLE)) for n in range(3)
    ]
    for number, writer in enumerate(writers):
        writer.take(b"x" * 9 + b"\n", host=f"h{number}")
        writer.commit()
        writer.partition.sink.maintain(time.time() + number)
    for _ in range(2):
        for writer in reversed(writers):
            writer.partition.sink.maintain(time.time() + 3)

    kept = [path.relative_to(tmp_path / "logs").parts[0] for path in files_in(tmp_path)]
    assert sorted(kept) == ["h1", "h2"]


def test_a_disk_that_gets_full_costs_old_files_and_never_the_active_one(tmp_path: Path) -> None:
    """Until the wanted part of it is free."""
    disk = FailingDescriptors()
    writer = Writer(opened(tmp_path, descriptors=disk, rotate_bytes=50, min_free_percent=50))
    disk.free = (600, 1000)
    kept(writer, b"a" * 99 + b"\n", b"b" * 99 + b"\n", b"c" * 99 + b"\n")
    writer.take(b"active\n")
    writer.commit()
    disk.free = (350, 1000)
    writer.partition.sink.maintain(time.time())

    assert [path.read_bytes()[:1] for path in rotated(tmp_path)] == [b"c"]
    assert contents(tmp_path) == b"active\n"
    assert writer.partition.removed.bytes == {"age": 0, "size": 0, "disk": 200}
    assert writer.partition.removed.for_room_s > time.time() - 60


def test_folders_that_are_empty_go_with_their_last_file(tmp_path: Path) -> None:
    """A path with a date would leave one a day."""
    writer = Writer(opened(tmp_path, rotate_bytes=1, retention_age_s=10))
    kept(writer, b"one\n")
    writer.partition.sink.maintain(time.time() + 60)

    assert list((tmp_path / "logs").iterdir()) == []


def half_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Writer, bytes]:
    """A partition whose only file, with what does not shrink, is being compressed."""
    # Two pieces a round, however busy the machine is.
    moments, run = itertools.count(), maintenance.Upkeep.run

    def in_steps(upkeep: maintenance.Upkeep, now_s: float, clock: Callable[[], float]) -> None:
        run(upkeep, now_s, lambda: float(next(moments)))

    monkeypatch.setattr(maintenance.Upkeep, "run", in_steps)
    monkeypatch.setattr(maintenance, "ROUND_S", 3.5)
    monkeypatch.setattr(maintenance, "PIECE_BYTES", 4096)
    data = os.urandom(1 << 19).replace(b"\n", b"|") + b"\n"
    writer = Writer(opened(tmp_path, rotate_bytes=1, compression="zstd"))
    kept(writer, data)
    assert [path.suffix for path in rotated(tmp_path)][-1] == ".tmp"
    return writer, data


def test_a_large_file_is_compressed_in_several_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that commits do not wait for it; what is cut short by the end of the process begins
    anew.
    """
    writer, data = half_packed(tmp_path, monkeypatch)
    writer.partition.close()
    again = opened(tmp_path, rotate_bytes=1, compression="zstd")
    assert [path.read_bytes() for path in rotated(tmp_path)] == [data]
    rounds = 0
    while rotated(tmp_path)[0].suffix != ".zst":
        again.sink.maintain(time.time())
        rounds += 1

    assert rounds > 1
    packed = zstandard.ZstdDecompressor().decompressobj()
    assert packed.decompress(rotated(tmp_path)[0].read_bytes()) == data


@pytest.mark.parametrize("ending", ["reopened", "discarded"])
def test_a_commit_can_be_taken_back_though_another_file_was_being_compressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """Its owner was frozen or killed after the commit. Another folder has the lines since."""
    writer, data = half_packed(tmp_path, monkeypatch)
    writer.take(b"late\n")
    writer.commit(is_confirmed=False)
    again = left(tmp_path, writer, ending)
    last = again.committed()
    assert last is not None
    assert last.previous is not None
    again.undo()

    assert contents(tmp_path) == b""
    assert [file.length for file in committed_files(tmp_path)] == [len(data)]
    assert [path.read_bytes() for path in rotated(tmp_path)] == [data]


def test_what_a_disk_took_is_counted_once_whether_a_commit_is_taken_back_or_not(
    tmp_path: Path,
) -> None:
    """Of a file that the commit wrote, and of one that it did not."""
    writer = Writer(opened(tmp_path, rotate_bytes=4))
    kept(writer, b"one\n", b"two\n")
    writer.take(b"a\n")
    writer.commit()
    writer.take(b"b\n")
    writer.commit(is_confirmed=False)
    writer.partition.close()
    rotated(tmp_path)[0].unlink()
    os.truncate(tmp_path / "logs" / PLACE, 1)
    again = opened(tmp_path)
    assert again.damaged_bytes == len(b"one\n") + 3
    assert again.newly_damaged_bytes == again.damaged_bytes
    again.undo()
    assert again.damaged_bytes == len(b"one\n") + 1
    assert again.newly_damaged_bytes == again.damaged_bytes
    again.close()

    last = opened(tmp_path)
    assert last.damaged_bytes == len(b"one\n") + 1
    assert last.newly_damaged_bytes == 0


def left(tmp_path: Path, writer: Writer, ending: str) -> PartitionWriter:
    """The partition of *writer* after the end of its epoch."""
    if ending == "discarded":
        writer.partition.discard()
        return writer.partition
    writer.partition.close()
    return opened(tmp_path)


def test_a_file_whose_compression_ends_in_a_later_round_is_compressed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With time left in that round, it must not be its own successor: what does not shrink would
    be cut to its former length.
    """
    writer, data = half_packed(tmp_path, monkeypatch)
    monkeypatch.setattr(maintenance, "ROUND_S", 3600.0)
    writer.partition.sink.maintain(time.time())

    [file] = rotated(tmp_path)
    packed = zstandard.ZstdDecompressor().decompressobj()
    assert packed.decompress(file.read_bytes()) == data


def test_a_rotated_file_that_somebody_removed_holds_nothing_up(tmp_path: Path) -> None:
    """It is named; the others are compressed."""
    writer = Writer(opened(tmp_path, rotate_bytes=1))
    kept(writer, b"one\n", b"two\n")
    writer.partition.close()
    rotated(tmp_path)[0].unlink()
    again = opened(tmp_path, compression="gzip")
    again.sink.maintain(time.time())

    assert [path.suffix for path in rotated(tmp_path)] == [".gz"]
    assert again.damaged_bytes == 4


@contextmanager
def full_once(owner: Any, name: str, n: int) -> Iterator[list[str]]:
    """Let the disk have no room at the *n*-th call of *name* within the block; yield whether it
    came to that.
    """
    function = getattr(owner, name)
    calls, met = itertools.count(1), list[str]()

    def call(*args: Any, **kwargs: Any) -> Any:
        if next(calls) != n:
            return function(*args, **kwargs)
        met.append(name)
        raise SinkFull(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch, suppress(SinkFull):
        patch.setattr(owner, name, call)
        yield met


@pytest.mark.parametrize(
    ("owner", "name"),
    [(State, "change"), (safe_open, "rename"), (safe_open, "remove"), (safe_open, "sync_folder")],
)
def test_what_a_full_disk_ends_midway_is_done_in_the_next_round(
    tmp_path: Path, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file is forgotten, and none is counted as damaged, wherever the room ends."""
    # A round does all there is, however busy the machine is.
    monkeypatch.setattr(maintenance, "ROUND_S", 3600.0)
    for n in itertools.count(1):
        is_met = check_upkeep(tmp_path / str(n), partial(full_once, owner, name, n))
        if not is_met:
            assert n > 1
            return


def check_upkeep(folder: Path, full: Callable[[], AbstractContextManager[list[str]]]) -> bool:
    """Rotate, compress and remove files in *folder*, each first on a *full* disk; compare it with
    what is listed, and return whether the disk was ever full.
    """
    now_s, is_met = time.time(), False
    limits: dict[str, Any] = {"rotate_bytes": 4, "compression": "gzip", "retention_age_s": 1000}
    writer = Writer(opened(folder, **limits))
    sink = writer.partition.sink
    for number, text in enumerate((b"one\n", b"two\n", b"six\n", b"ten\n")):
        writer.take(text)
        writer.commit()
        with full() as met:
            sink.maintain(now_s + 500 * number)
        sink.maintain(now_s + 500 * number)
        is_met |= bool(met)
    listed = sorted(committed_files(folder), key=lambda file: file.name)
    assert {file.path for file in listed} == set(files_in(folder))
    assert all(file.is_compressed for file in listed)
    assert [gzip.decompress(file.path.read_bytes()) for file in listed] == [b"six\n", b"ten\n"]
    assert sink.damaged_bytes == 0
    with full() as met:
        sink.maintain(now_s + 5000)
    sink.maintain(now_s + 5000)
    assert files_in(folder) == []
    writer.partition.close()
    assert not State(config_of(folder).state(3)).files()
    return is_met or bool(met)


def test_a_file_that_is_gone_is_counted_once_though_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round meets it again, as long as the state has no room."""
    writer = Writer(opened(tmp_path, rotate_bytes=1))
    kept(writer, b"one\n")
    writer.partition.close()
    again = opened(tmp_path, compression="gzip")
    rotated(tmp_path)[0].unlink()
    for n in (1, 1, 2):
        with full_once(State, "change", n):
            again.sink.maintain(time.time())

    assert again.damaged_bytes == 4


@pytest.mark.parametrize("what", ["a bad sector", "a cut"])
def test_a_rotated_file_that_cannot_be_read_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """It is named and counted, and stays as it is; the others are compressed."""
    writer = Writer(opened(tmp_path, rotate_bytes=1))
    kept(writer, b"one\n", b"two\n")
    writer.partition.close()
    again = Writer(opened(tmp_path, compression="gzip"), start=8, sequence=2)
    bad, read = rotated(tmp_path)[0], os.pread
    inode = bad.stat().st_ino

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        if os.fstat(descriptor).st_ino == inode:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(descriptor, size, offset)

    if what == "a cut":
        os.truncate(bad, 0)
    else:
        monkeypatch.setattr(os, "pread", pread)
    for _ in range(2):
        again.partition.sink.maintain(time.time())

    assert [path.suffix for path in rotated(tmp_path)] == [".000001", ".gz"]
    assert again.partition.damaged_bytes == 4
    again.take(b"six\n")
    again.commit()
    again.partition.close()
    last = opened(tmp_path, compression="gzip")
    last.sink.maintain(time.time())
    assert last.damaged_bytes == 4


def files_in(folder: Path) -> list[Path]:
    """Return all output files."""
    return list(files_below(folder / "logs"))
