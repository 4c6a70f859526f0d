"""What a shipper sent and could not save, since its disk was full, or what it forgot, it learns
from collectors: these bytes are not sent again, in whatever file they stand.
"""

from __future__ import annotations

import gzip
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from components.log_chain import Folder, append, joined
from logpipeline.records import Committed
from logpipeline_shipper.files import open_file
from logpipeline_shipper.files.chain import Chunk
from logpipeline_shipper.files.open_file import files_now_ns


def rename(live: Path) -> None:
    """As logrotate does with `create`."""
    live.rename(live.with_name("app.log.1"))
    live.write_bytes(b"")


def copytruncate(live: Path) -> None:
    """As logrotate does with `copytruncate`."""
    shutil.copyfile(live, live.with_name("app.log.1"))
    os.truncate(live, 0)


def truncate(live: Path) -> None:
    """As `> app.log` does."""
    os.truncate(live, 0)


def known(folder: Folder, sent: Chunk) -> Committed:
    """Return what collectors have of a log that was *sent* whole."""
    return Committed(str(folder.live), sent.generation, sent.end, (), 0, sent.checksums.after)


@pytest.mark.parametrize("rotate", [rename, copytruncate, truncate])
@pytest.mark.parametrize("is_other", [False, True])
def test_lines_of_a_log_that_began_when_nothing_could_be_saved_come_once(
    tmp_path: Path, rotate: Callable[[Path], None], *, is_other: bool
) -> None:
    """The shipper was killed, and knows of the former log alone. Where the new one has *other*
    bytes by now, all of them are new.
    """
    folder = Folder(tmp_path)
    append(folder.live, b"one\n")
    folder.drain()
    saved = folder.chain.saved()
    rotate(folder.live)
    append(folder.live, b"two\n")
    (sent,) = folder.drain()
    folder.restart()
    folder.saved = saved
    if is_other:
        os.truncate(folder.live, 0)
        append(folder.live, b"2\n")
    append(folder.live, b"three\n")
    chain = folder.begin()
    assert chain.recall(known(folder, sent), time.time_ns())
    arrived = joined(folder.drain())

    assert arrived == (b"2\nthree\n" if is_other else b"three\n")
    assert chain.take_losses() == []


def test_no_file_is_older_than_what_was_made_after_it(tmp_path: Path) -> None:
    """The clock of files goes by ticks, and is behind that of programs."""
    for number in range(200):
        now_ns = files_now_ns()
        path = tmp_path / str(number)
        path.touch()
        found = open_file.look_at(path, follow_link=False)
        assert now_ns < min(found.born_ns, found.mtime_ns)


@pytest.mark.parametrize("rotate", [rename, copytruncate, truncate])
@pytest.mark.parametrize("is_born", [True, False])
def test_a_program_that_writes_the_same_once_more_loses_no_line(
    tmp_path: Path,
    rotate: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_born: bool,
) -> None:
    """As a job that runs each night. Collectors have the lines of each run, and the file of the
    first one is gone. Some file systems know no time of birth.
    """
    if not is_born:
        monkeypatch.setattr(open_file, "_LIBC", None)
    folder = Folder(tmp_path)
    runs = []
    for lines in (b"ok\n", b"failed\n"):
        append(folder.live, lines)
        runs += folder.drain()
        folder.live.unlink()
        folder.drain()
    folder.restart()
    folder.saved = None
    append(folder.live, b"failed\n")
    chain = folder.begin()
    written_ns = folder.live.stat().st_mtime_ns
    while (before_ns := files_now_ns()) <= written_ns:
        pass
    assert all(chain.recall(known(folder, run), before_ns) for run in runs)
    assert folder.drain() == []
    rotate(folder.live)
    append(folder.live, b"ok\n")
    os.utime(folder.live, ns=(before_ns + 1, before_ns + 1))

    assert joined(folder.drain()) == b"ok\n"


@pytest.mark.parametrize("is_long", [True, False])
def test_what_is_packed_while_collectors_are_asked_comes_once(
    tmp_path: Path, *, is_long: bool
) -> None:
    """kubelet's packer keeps no time of the log. Where the lines are so few that another log may
    begin with them as well, they come once more.
    """
    folder = Folder(tmp_path)
    lines = b"".join(b"line %d\n" % number for number in range(1000 if is_long else 3))
    append(folder.live, lines)
    last = folder.drain()[-1]
    folder.restart()
    folder.saved = None
    chain = folder.begin()
    assert chain.recall(known(folder, last), files_now_ns())
    with gzip.open(folder.live.with_name("app.log.1.gz"), "wb") as packed:
        packed.write(lines)
    folder.live.unlink()
    append(folder.live, b"more\n")
    arrived = joined(folder.drain())

    assert arrived == (b"" if is_long else lines) + b"more\n"
