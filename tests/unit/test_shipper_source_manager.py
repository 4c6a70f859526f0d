"""What a shipper knows of all its sources together."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from components.log_chain import HEADER, Folder, append, listings, pack
from components.shared_parts import Server, shared_by
from logpipeline.subjects import Subjects
from logpipeline_shipper.checkpoint import Key, SourceRecord, State
from logpipeline_shipper.files.chain import ReadFrom
from logpipeline_shipper.files.listing import HostSources
from logpipeline_shipper.files.open_file import files_now_ns, look_at
from logpipeline_shipper.files.source_filter import Ship
from logpipeline_shipper.source_manager import SourceManager, SourceOptions
from waiting import eventually


def manager_of(
    folder: Folder,
    path: Path,
    state: State,
    *,
    server: Server | None = None,
    read_from: ReadFrom = "beginning",
) -> SourceManager:
    """A manager that continues from *state*, and sends to *server*."""
    options = SourceOptions(
        subjects=Subjects("logs", 1),
        installation="i",
        cluster="",
        read_from=read_from,
        limits=folder.limits,
        watermark=folder.scan_watermark,
        is_compressing=False,
        hosts=(
            HostSources(host="h", pods_dir=folder.path.parents[1]),
            HostSources(host="h", include=(f"{folder.path}/*.log",)),
        ),
    )
    shared = shared_by(server or Server(), path, lambda: folder.now_s)
    return SourceManager(options, shared, state, lambda host: None)


async def shipped(manager: SourceManager, path: Path) -> None:
    """Take the logs in *path* as they are now, and wait until they are shipped."""
    for listing in listings(path):
        manager.update(listing, Ship())
    for source in list(manager.sources.values()):
        await source.finish()


async def append_before_the_start(path: Path, data: bytes) -> None:
    """Append *data* to the file *path*, and return when it is certainly older than a process that
    starts now.
    """
    append(path, data)
    born_ns = look_at(path, follow_link=False).born_ns
    await eventually(lambda: files_now_ns() > born_ns)


async def test_only_what_was_there_at_the_first_start_is_left_out(tmp_path: Path) -> None:
    """A container starts, prints and ends between two looks: its first lines are new ones."""
    folder, server = Folder(tmp_path / "logs"), Server()
    await append_before_the_start(folder.path / "old.log", b"old\n")
    first = State(is_first=True)
    manager = manager_of(folder, tmp_path, first, server=server, read_from="end")
    await shipped(manager, folder.path)
    assert server.payloads == []

    manager.note_scanned()
    append(folder.path / "new.log", b"first\n")
    await shipped(manager, folder.path)
    append(folder.path / "old.log", b"later\n")
    await shipped(manager, folder.path)

    assert server.payloads == [b"first\n", b"later\n"]


async def test_what_came_while_the_first_scan_went_on_is_not_left_out(tmp_path: Path) -> None:
    """The scan may wait for the API server, while containers start and end."""
    folder, server = Folder(tmp_path / "logs"), Server()
    await append_before_the_start(folder.path / "old.log", b"old\n")
    first = State(is_first=True)
    manager = manager_of(folder, tmp_path, first, server=server, read_from="end")
    append(folder.path / "new.log", b"first\n")
    await shipped(manager, folder.path)

    assert server.payloads == [b"first\n"]


async def test_what_came_while_the_shipper_was_down_is_not_left_out(tmp_path: Path) -> None:
    """An earlier process had its first start, and saved nothing of a file that was not there."""
    folder, server = Folder(tmp_path / "logs"), Server()
    append(folder.path / "new.log", b"first\n")
    manager = manager_of(folder, tmp_path, State(), server=server, read_from="end")
    await shipped(manager, folder.path)

    assert server.payloads == [b"first\n"]


def state_of(folder: Folder, data: bytes) -> tuple[Key, State]:
    """Return what a process saved that read *data* from the log, and then ended."""
    append(folder.live, data)
    folder.read()
    saved = folder.chain.saved()
    folder.chain.release()
    key = Key("h", str(folder.live))
    return key, State(sources={key: SourceRecord(saved=saved)})


async def pass_time(manager: SourceManager, folder: Folder) -> None:
    """Let half a minute pass."""
    for _ in range(30):
        folder.now_s += 1.0
        folder.scan_watermark.until_s = folder.now_s
        manager.tick()
        for source in list(manager.sources.values()):
            await source.finish()


async def test_a_file_that_was_never_seen_is_counted_after_a_restart(tmp_path: Path) -> None:
    """No collector is told of it: a check that looks later would know nothing of it."""
    folder = Folder(tmp_path / "logs")
    _, state = state_of(folder, b"one\n")
    folder.live.unlink()
    folder.scan_watermark.until_s = folder.now_s
    manager = manager_of(folder, tmp_path, state)
    manager.note_scanned()
    await pass_time(manager, folder)
    rows, unseen = manager.rows(), manager.unseen
    again = manager_of(folder, tmp_path, State(unseen=unseen))

    assert rows
    assert again.unseen.at(time.time()) == unseen.files == 1


async def test_a_log_that_is_left_out_from_now_on_is_not_taken_for_lost(tmp_path: Path) -> None:
    """An exclusion that comes and goes costs neither a false loss nor a line twice."""
    folder, server = Folder(tmp_path / "logs"), Server()
    _, state = state_of(folder, b"one\n")
    append(folder.live, b"two\n")
    manager = manager_of(folder, tmp_path, state, server=server)
    manager.note_scanned()
    await pass_time(manager, folder)
    assert (manager.unseen.files, server.payloads) == (0, [])

    await shipped(manager, folder.path)

    assert server.payloads == [b"two\n"]


async def test_a_container_that_is_skipped_from_now_on_is_not_taken_for_lost(
    tmp_path: Path,
) -> None:
    """Also where its log was rotated since, so that another file is at the path."""
    folder = Folder(tmp_path / "logs", cri=True)
    append(folder.live, b"2026-11-23T10:00:00.000000000Z stdout F one\n")
    folder.read()
    key = Key("h", "ns/pod/uid/box/0")
    state = State(sources={key: SourceRecord(saved=folder.chain.saved())})
    manager = manager_of(folder, tmp_path, state)
    manager.is_skipped = lambda id: (id.namespace, id.container) == ("ns", "box")
    folder.live.rename(folder.live.with_name("0.log.20261123-100000"))
    manager.note_scanned()
    await pass_time(manager, folder)

    assert manager.unseen.files == 0


@pytest.mark.parametrize("is_kept", [True, False], ids=["kept", "removed"])
async def test_of_a_folder_that_cannot_be_read_nothing_is_taken_for_lost(
    tmp_path: Path, is_kept: bool
) -> None:
    """What is there shows once it can be read again."""
    folder, server = Folder(tmp_path / "logs"), Server()
    _, state = state_of(folder, b"one\n")
    manager = manager_of(folder, tmp_path, state, server=server)
    manager.note_folder(folder.path, "EIO")
    manager.note_scanned()
    if not is_kept:
        folder.live.unlink()
    await pass_time(manager, folder)
    assert manager.unseen.files == 0

    manager.note_folder(folder.path, "")
    if is_kept:
        append(folder.live, b"two\n")
        await shipped(manager, folder.path)
    await pass_time(manager, folder)

    assert server.payloads == ([b"two\n"] if is_kept else [])
    assert manager.unseen.files == int(not is_kept)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_of_files_that_begin_alike_each_is_found_whichever_is_looked_at_first(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    """A rotator gave new names to two of them while no shipper ran, which had read of the older one
    what all of them begin with.
    """
    folder, server = Folder(tmp_path / "logs"), Server()
    _, state = state_of(folder, HEADER)
    append(folder.live, b"one\n" * 10)
    folder.live.rename(folder.live.with_name("app-2.log"))
    append(folder.live, HEADER + b"two\n" * 20)
    folder.live.rename(folder.live.with_name("app-1.log"))
    append(folder.live, HEADER + b"three\n")
    manager = manager_of(folder, tmp_path, state, server=server)
    found = listings(folder.path)
    for number in order:
        manager.update(found[number], Ship())
    manager.note_scanned()
    await pass_time(manager, folder)

    rest = [b"one\n" * 10, HEADER + b"two\n" * 20, HEADER + b"three\n"]
    assert sorted(server.payloads) == sorted(rest)
    assert manager.unseen.files == 0


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_the_rest_of_a_file_that_was_packed_meanwhile_comes_first(
    tmp_path: Path, order: tuple[int, int]
) -> None:
    """It lies in another folder: no look at the log's own one shows that there is more of it."""
    folder, server = Folder(tmp_path / "logs"), Server()
    _, state = state_of(folder, HEADER)
    append(folder.live, b"one\n" * 10)
    (folder.path / "old").mkdir()
    pack(folder.path / "old" / "app.log-20261122-1795365284.gz", folder.live.read_bytes())
    folder.live.unlink()
    append(folder.live, HEADER + b"two\n")
    manager = manager_of(folder, tmp_path, state, server=server)
    found = [listing for path in (folder.path, folder.path / "old") for listing in listings(path)]
    for number in order:
        manager.update(found[number], Ship())
    manager.note_scanned()
    await pass_time(manager, folder)

    assert server.payloads == [b"one\n" * 10, HEADER + b"two\n"]
    assert manager.unseen.files == 0
