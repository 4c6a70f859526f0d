"""The files of a receiver: what was accepted is in them once, whenever the process ends."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.filelock import FileLocked
from logpipeline_cli.receiving import spool
from logpipeline_cli.receiving.file_names import BadTemplate, NameTemplate
from logpipeline_cli.receiving.redo import REDO, Place, Record, Write, encode
from logpipeline_cli.receiving.spool import OVERFLOW, Spool, SpoolFull, SyncFailed
from logpipeline_shipper.files.rotation_names import rotation_of


def test_what_was_written_before_a_crash_is_completed_in_its_place(tmp_path: Path) -> None:
    """The redo log holds a line of which the file has a half: the file never becomes shorter."""
    Spool(tmp_path).close()
    (tmp_path / "a.log").write_bytes(b"one\ntw")
    record = Record((Write("a.log", 4, b"two\n"), Write("b/c.log", 0, b"x\n")), {"cursor": "c"})
    place = Place("0" * 8)
    records = (Record((), None), record, record)
    logged = [encode(each, place._replace(number=at)) for at, each in enumerate(records)]
    (tmp_path / REDO).write_bytes(b"".join(logged)[:-1])

    with Spool(tmp_path) as again:
        assert again.state == {"cursor": "c"}
    assert (tmp_path / "a.log").read_bytes() == b"one\ntwo\n"
    assert (tmp_path / "b" / "c.log").read_bytes() == b"x\n"


def test_a_start_changes_nothing_that_is_whole(tmp_path: Path) -> None:
    """However often the same redo log is read."""
    for number in range(3):
        opened = Spool(tmp_path)
        opened.commit({"a.log": b"%d\n" % number}, number)
        # As a crash does: nothing is synced, and the log keeps its records.
        opened._close_files()

    with Spool(tmp_path) as again:
        assert again.state == 2
    assert (tmp_path / "a.log").read_bytes() == b"0\n1\n2\n"


def test_a_start_after_a_crash_does_not_touch_a_whole_file(tmp_path: Path) -> None:
    """A file of the same length with another time would be shipped again, as a new one. What stands
    in it is synced all the same, before the log forgets it.
    """
    opened = Spool(tmp_path)
    opened.commit({"a.log": b"one\n", "b.log": b"x\n"}, 1)
    opened.commit({"a.log": b"two\n"}, 2)
    opened._close_files()
    os.utime(tmp_path / "a.log", ns=(1, 1))
    (tmp_path / "b.log").write_bytes(b"\0\0")

    with Spool(tmp_path) as again:
        assert again.state == 2
    assert (tmp_path / "a.log").stat().st_mtime_ns == 1
    assert (tmp_path / "b.log").read_bytes() == b"x\n"


def test_what_a_full_disk_kept_out_touches_no_file_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two files one was written: the next try writes the other one alone."""
    opened = Spool(tmp_path)
    write = spool._Target.write

    def half(target: spool._Target, offset: int, data: bytes) -> None:
        if target.path.name == "b.log":
            raise OSError(errno.ENOSPC, "full")
        write(target, offset, data)

    with monkeypatch.context() as patched:
        patched.setattr(spool._Target, "write", half)
        opened.commit({"a.log": b"one\n", "b.log": b"x\n"}, 1)
    os.utime(tmp_path / "a.log", ns=(1, 1))
    opened.close()

    assert (tmp_path / "a.log").stat().st_mtime_ns == 1
    assert (tmp_path / "b.log").read_bytes() == b"x\n"


def test_half_a_line_of_another_program_is_not_continued(tmp_path: Path) -> None:
    """Ours begins on a line of its own."""
    (tmp_path / "a.log").write_bytes(b"half")
    with Spool(tmp_path) as opened:
        opened.commit({"a.log": b"ours\n"})

    assert (tmp_path / "a.log").read_bytes() == b"half\nours\n"


def test_rotation_keeps_as_many_files_as_it_is_told(tmp_path: Path) -> None:
    """The oldest is removed, and counted; a gap that a crash left is filled."""
    with Spool(tmp_path, rotate_bytes=4, keep=2) as opened:
        for number in range(5):
            opened.commit({"a.log": b"l%d\n" % number + b"--\n"})
        assert opened.removed_files == 3
    assert (tmp_path / "a.log.1").read_bytes() == b"l4\n--\n"
    assert (tmp_path / "a.log.2").read_bytes() == b"l3\n--\n"

    (tmp_path / "a.log.1").unlink()
    with Spool(tmp_path, rotate_bytes=4, keep=2) as opened:
        opened.commit({"a.log": b"l5\n--\n"})
    assert (tmp_path / "a.log.1").read_bytes() == b"l5\n--\n"
    assert (tmp_path / "a.log.2").read_bytes() == b"l3\n--\n"


def test_a_file_that_another_program_renamed_is_begun_anew(tmp_path: Path) -> None:
    """Lines go to the path, and not into the renamed file."""
    with Spool(tmp_path) as opened:
        opened.commit({"a.log": b"one\n"})
        (tmp_path / "a.log").rename(tmp_path / "a.log.1")
        opened.commit({"a.log": b"two\n"})

    assert (tmp_path / "a.log").read_bytes() == b"two\n"


def test_names_and_open_files_are_bounded(tmp_path: Path) -> None:
    """Beyond the limit of names all share one; files beyond the limit are closed, and synced."""
    with Spool(tmp_path, names_max=3, open_files_max=2) as opened:
        for number in range(4):
            opened.commit({f"{number}.log": b"x\n"})
        assert len(opened._targets) == 2
        assert opened.name_of("1.log") == "1.log"
        assert opened.name_of("5.log") == OVERFLOW


def test_names_are_bounded_before_they_are_files(tmp_path: Path) -> None:
    """One request may bring any number of them."""
    with Spool(tmp_path, names_max=2) as opened:
        found = [opened.name_of(f"{number}.log") for number in range(4)]
        assert found == ["0.log", "1.log", OVERFLOW, OVERFLOW]
        assert opened.name_of("1.log") == "1.log"


def test_a_folder_has_one_owner(tmp_path: Path) -> None:
    """Two processes would write over each other's lines."""
    with Spool(tmp_path), pytest.raises(FileLocked):
        Spool(tmp_path)


def test_a_full_disk_refuses_all_or_keeps_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is refused leaves no trace; what was logged is written once there is room."""
    opened = Spool(tmp_path)
    opened.commit({"a.log": b"one\n"}, 1)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", full)
        with pytest.raises(SpoolFull):
            opened.commit({"a.log": b"refused\n"}, 2)
    with monkeypatch.context() as patched:
        patched.setattr(spool._Target, "write", full)
        opened.commit({"a.log": b"two\n"}, 3)
        assert opened.is_waiting
        with pytest.raises(SpoolFull):
            opened.commit({"a.log": b"refused\n"}, 4)
    opened.commit({"a.log": b"three\n"}, 5)
    opened.close()

    assert (tmp_path / "a.log").read_bytes() == b"one\ntwo\nthree\n"


def test_a_process_without_descriptors_goes_on_once_one_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strangers may hold them. Nothing is half done: each name is synced in its folder."""
    opened = Spool(tmp_path)
    synced: list[Path] = []
    sync, really_open = spool._sync_folder, os.open

    def noted(descriptor: int, folder: Path) -> None:
        sync(descriptor, folder)
        synced.append(folder)

    monkeypatch.setattr(spool, "_sync_folder", noted)
    refusals: list[str] = []
    for free in range(10):
        left = [free]

        def limited(path: Path, flags: int, mode: int = 0o777, left: list[int] = left) -> int:
            if not left[0]:
                raise OSError(errno.EMFILE, "Too many open files")
            left[0] -= 1
            return really_open(path, flags, mode)

        with monkeypatch.context() as patched:
            patched.setattr(os, "open", limited)
            try:
                opened.commit({"host/app/a.log": b"one\n"}, 1)
                opened.checkpoint()
                break
            except SpoolFull as error:
                refusals.append(str(error))
    opened.close()

    assert len(refusals) > 1
    assert set(refusals) == {"no file descriptor is free"}
    assert {tmp_path, tmp_path / "host", tmp_path / "host/app"} <= set(synced)
    assert b"one\n" in (tmp_path / "host/app/a.log").read_bytes()


def test_a_try_for_room_that_a_crash_cuts_off_is_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start reads what stands before it."""
    opened = Spool(tmp_path)
    opened.commit({"a.log": b"one\n"}, 1)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "ftruncate", crash)
        with pytest.raises(KeyboardInterrupt):
            opened.try_room(100)
    opened._close_files()

    assert (tmp_path / REDO).read_bytes().endswith(b"\0" * 100)
    with Spool(tmp_path) as again:
        assert again.state == 1


def test_the_owner_of_a_folder_is_told(tmp_path: Path) -> None:
    """A second receiver of it is refused, and says which process has it."""
    with Spool(tmp_path), pytest.raises(FileLocked) as raised:
        Spool(tmp_path)

    assert raised.value.owner == str(os.getpid())


def test_a_sync_that_failed_once_is_not_believed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may have dropped the bytes: the redo log stays, and the next start uses it."""
    opened = Spool(tmp_path)
    opened.commit({"a.log": b"one\n"}, 1)

    def failing(descriptor: int) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing)
        with pytest.raises(OSError, match="sync failed"):
            opened.checkpoint()
    with pytest.raises(SyncFailed):
        opened.checkpoint()
    with pytest.raises(SyncFailed):
        opened.commit({"a.log": b"two\n"}, 2)
    opened.close()
    (tmp_path / "a.log").write_bytes(b"")

    with Spool(tmp_path) as again:
        assert again.state == 1
    assert (tmp_path / "a.log").read_bytes() == b"one\n"


def test_nothing_goes_into_a_redo_log_whose_name_may_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder could not be synced after the new log took the place of the former one."""
    opened = Spool(tmp_path)
    opened.commit({"a.log": b"one\n"}, 1)

    def failing(descriptor: int, folder: Path) -> None:
        raise SyncFailed(errno.EIO, "sync failed")

    with monkeypatch.context() as patched:
        patched.setattr(spool, "_sync_folder", failing)
        with pytest.raises(SyncFailed):
            opened.checkpoint()
    assert os.path.samestat(os.fstat(opened._redo), (tmp_path / REDO).stat())
    with pytest.raises(SyncFailed):
        opened.commit({"a.log": b"two\n"}, 2)
    opened.close()


def test_a_start_makes_the_names_of_files_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former process ended before it had done so: the redo log would be emptied, and the file
    be gone after a power loss.
    """
    opened = Spool(tmp_path)
    opened.commit({"host/a.log": b"one\n"}, 1)
    opened._close_files()
    synced: list[Path] = []

    def noted(descriptor: int, folder: Path) -> None:
        synced.append(folder)

    monkeypatch.setattr(spool, "_sync_folder", noted)
    Spool(tmp_path).close()
    assert synced == [tmp_path / "host", tmp_path]


TEMPLATE = NameTemplate("{host}/{app}.log", frozenset({"host", "app"}))


@given(st.text(max_size=300), st.text(max_size=300))
def test_no_name_of_a_sender_leaves_its_place(host: str, app: str) -> None:
    """It is two parts, which the file system takes, and never a rotated file of another log."""
    name = TEMPLATE.fill({"host": host, "app": app})
    parts = name.split("/")

    assert len(parts) == 2
    assert all(0 < len(part) <= 220 and not part.startswith(".") for part in parts)
    rotation = rotation_of(parts[1])
    assert rotation is not None
    assert rotation.live == parts[1]


@pytest.mark.parametrize("app", ["backup-20261126", "a.20261126", ".hidden", "..", "x" * 300])
def test_a_name_that_looks_like_a_rotated_file_is_changed(app: str) -> None:
    """A shipper would take it for an old file of another log."""
    test_no_name_of_a_sender_leaves_its_place.hypothesis.inner_test("h", app)  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", ["a.txt", "../a.log", "/a.log", "a//b.log", ".a.log", "{x}.log"])
def test_a_template_that_names_no_file_is_refused(text: str) -> None:
    """With what to give."""
    with pytest.raises(BadTemplate, match=r"\{app\}"):
        NameTemplate(text, frozenset({"app"}))
