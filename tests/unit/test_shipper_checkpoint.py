"""A shipper that was killed knows what it sent, or knows that it does not know."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from pathlib import Path

import pytest

from logpipeline import statefile
from logpipeline_shipper import checkpoint
from logpipeline_shipper.account import Account, Gap
from logpipeline_shipper.checkpoint import (
    ABSENT_KEPT_S,
    UNSEEN_KEPT_S,
    CheckpointWriter,
    Intent,
    IntentLog,
    Key,
    LastAck,
    Snapshot,
    SourceRecord,
    State,
    Unseen,
    bounded,
    encode_row,
)
from logpipeline_shipper.data_folder import DataFolder, DataFolderBusy
from waiting import eventually

KEY = Key("node-a", "/var/log/\udcffapp.log")
BOOT = "this-boot"
ACCOUNT = Account()
ACCOUNT.acknowledged("g1", (0, 4), sequence=7, now_s=0.0)
ACCOUNT.owe(Gap("g1", 1, 2, "removed"))
ACCOUNT.lose(Gap("g0", 3, 9, "rotated"))
STATE = State(
    sources={
        KEY: SourceRecord(
            saved={"version": 1},
            intents=(Intent("g1", 0, 4),),
            account=ACCOUNT,
        )
    },
    groups={KEY.host: {"main": 0}},
    acks={"logs.p0.node-a": LastAck("LOGS_0", 7, "id", 1.5)},
    rollbacks={"0/main": 2},
    unseen=Unseen(3, 50.0),
)


def snapshot() -> Snapshot:
    rows = [encode_row(key, record) for key, record in STATE.sources.items()]
    return Snapshot(
        rows=rows,
        groups=STATE.groups,
        acks=STATE.acks,
        rollbacks=STATE.rollbacks,
        unseen=STATE.unseen,
    )


async def saved(folder: Path, *, is_last: bool = False) -> IntentLog:
    intents = IntentLog(folder, BOOT)
    opened = DataFolder.open(folder)
    assert await CheckpointWriter(opened, intents, snapshot).save(is_last=is_last)
    opened.close()
    return intents


async def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    """Every field survives, names with bytes that are no text included."""
    (await saved(tmp_path)).close()

    found = checkpoint.load(tmp_path, BOOT)

    assert (found.sources, found.acks, found.rollbacks, found.unseen) == (
        STATE.sources,
        STATE.acks,
        STATE.rollbacks,
        STATE.unseen,
    )


async def test_positions_of_a_former_version_come_back(tmp_path: Path) -> None:
    """It did not keep how many files it never saw."""
    (await saved(tmp_path)).close()
    path = tmp_path / "positions"
    data = statefile.read_state(path, "positions", 3)
    assert data is not None
    del data["unseen"]
    statefile.write_state(path, "positions", 3, data)

    found = checkpoint.load(tmp_path, BOOT)

    assert (found.sources, found.unseen) == (STATE.sources, Unseen())


async def test_only_a_folder_in_which_nothing_was_saved_is_at_its_first_start(
    tmp_path: Path,
) -> None:
    """What is there at the first start may be left out: positions that are lost do not count."""
    assert checkpoint.load(tmp_path, BOOT).is_first

    (await saved(tmp_path)).close()
    assert not checkpoint.load(tmp_path, BOOT).is_first

    (tmp_path / "positions").unlink()
    assert not checkpoint.load(tmp_path, BOOT).is_first


def test_files_that_were_never_seen_are_counted_for_a_week() -> None:
    """So that whoever looks seldom is told of them, and a check is green again some day."""
    unseen = Unseen().more(2, 100.0).more(1, 200.0)

    assert unseen.at(200.0 + 7 * 24 * 3600.0) == 3
    assert unseen.at(200.0 + UNSEEN_KEPT_S) == 0
    assert unseen.more(1, 300.0 + UNSEEN_KEPT_S).files == 1


async def test_after_a_kill_the_batches_since_the_last_save_are_known(tmp_path: Path) -> None:
    """What was noted without fsync survives the process."""
    intents = await saved(tmp_path)
    intents.note(KEY, Intent("g1", 4, 9))
    intents.note(Key("node-b", "new"), Intent("g7", 0, 2, "feed"))

    found = checkpoint.load(tmp_path, BOOT)

    assert found.is_complete
    assert found.sources[KEY].intents == (Intent("g1", 0, 4), Intent("g1", 4, 9))
    assert found.sources[Key("node-b", "new")].intents == (Intent("g7", 0, 2, "feed"),)
    intents.close()


async def test_after_another_boot_nobody_knows_what_was_sent(tmp_path: Path) -> None:
    """A power cut takes what was noted without fsync, so all is in doubt."""
    (await saved(tmp_path)).close()

    assert not checkpoint.load(tmp_path, "another-boot").is_complete


async def test_after_a_clean_stop_all_is_known_even_after_a_boot(tmp_path: Path) -> None:
    """The last save is durable, and nothing was sent after it."""
    (await saved(tmp_path, is_last=True)).close()

    assert checkpoint.load(tmp_path, "another-boot").is_complete
    assert not checkpoint.load(tmp_path, "another-boot").is_complete, "the word holds for one start"


@pytest.mark.parametrize("is_last", [False, True], ids=["killed", "stopped"])
async def test_in_a_folder_restored_from_a_backup_nobody_knows_what_was_sent_since(
    tmp_path: Path, *, is_last: bool
) -> None:
    """The copy is as good as its original, but the original's shipper went on."""
    folder, backup = tmp_path / "shipper", tmp_path / "backup"
    (await saved(folder, is_last=is_last)).close()
    shutil.copytree(folder, backup)
    assert checkpoint.load(folder, BOOT).is_complete

    found = checkpoint.load(backup, BOOT)

    assert found.sources[KEY].saved == {"version": 1}
    assert not found.is_complete


async def test_a_batch_half_noted_was_not_sent(tmp_path: Path) -> None:
    """A kill in the middle of noting leaves a line without its end, which is ignored."""
    (await saved(tmp_path)).close()
    with (tmp_path / "intents.1").open("ab") as file:
        file.write(b'["node-a","x","g1",4,')

    assert checkpoint.load(tmp_path, BOOT).sources[KEY].intents == (Intent("g1", 0, 4),)


@pytest.mark.parametrize("damage", [b"", b"garbage", b"positions 1 00000000 2\n{}"])
def test_broken_positions_are_set_aside(tmp_path: Path, damage: bytes) -> None:
    """A damaged file stops nothing; it is kept to be looked at."""
    (tmp_path / "positions").write_bytes(damage)

    found = checkpoint.load(tmp_path, BOOT)

    assert found.was_broken
    assert not found.is_complete
    assert (tmp_path / "positions.broken-0").read_bytes() == damage


async def test_positions_of_another_shape_are_set_aside(tmp_path: Path) -> None:
    """A file with a good checksum and a wrong content is as broken as any."""
    statefile.write_state(tmp_path / "positions", "positions", 1, {"sources": [{}]})

    assert checkpoint.load(tmp_path, BOOT).was_broken


async def test_old_notes_are_removed_once_the_positions_tell_the_same(tmp_path: Path) -> None:
    """The folder does not grow with time."""
    intents = IntentLog(tmp_path, BOOT)
    folder = DataFolder.open(tmp_path)
    writer = CheckpointWriter(folder, intents, snapshot)
    for _ in range(3):
        assert await writer.save()
    intents.close()
    folder.close()

    assert [path.name for path in tmp_path.glob("intents*")] == ["intents.3"]


async def test_a_folder_that_takes_no_notes_leaves_no_half_truth(tmp_path: Path) -> None:
    """Where intents cannot be written, the next start must not believe that it knows all."""
    (await saved(tmp_path)).close()
    blocked = IntentLog(tmp_path, BOOT)
    (tmp_path / "intents.2").mkdir()

    folder = DataFolder.open(tmp_path)
    assert not await CheckpointWriterAt(folder, blocked).save()
    folder.close()
    (tmp_path / "intents.2").rmdir()

    assert not checkpoint.load(tmp_path, BOOT).is_complete


class CheckpointWriterAt(CheckpointWriter):
    """A keeper whose next file of intents is the one that is blocked."""

    def __init__(self, folder: DataFolder, intents: IntentLog) -> None:
        super().__init__(folder, intents, snapshot)
        self._number = 1


async def test_the_last_save_waits_for_the_one_that_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow disk both would write one file, and the stop be taken for a kill."""
    begun, released = threading.Event(), threading.Event()
    sync = os.fsync

    def slow(descriptor: int) -> None:
        if not begun.is_set():
            begun.set()
            released.wait()
        sync(descriptor)

    folder, intents = DataFolder.open(tmp_path), IntentLog(tmp_path, BOOT)
    writer = CheckpointWriter(folder, intents, snapshot)
    monkeypatch.setattr(os, "fsync", slow)
    writer.changed()
    running = asyncio.create_task(writer.run())
    await eventually(begun.is_set, what="a save is being written")
    running.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    is_waiting = not running.done()
    released.set()
    await asyncio.wait([running])
    is_saved = await writer.save(is_last=True)
    intents.close()
    folder.close()

    assert is_waiting
    assert is_saved
    assert checkpoint.load(tmp_path, "another-boot").is_complete


def test_the_absent_are_forgotten_after_a_while() -> None:
    """State does not grow for ever, and a folder mounted late does not begin anew."""
    records = {
        Key("h", "here"): SourceRecord(),
        Key("h", "young"): SourceRecord(absent_since_s=100.0),
        Key("h", "old"): SourceRecord(absent_since_s=0.0),
    }

    kept = bounded(records, ABSENT_KEPT_S + 50.0)

    assert kept.keys() == {Key("h", "here"), Key("h", "young")}


def test_a_data_folder_has_one_shipper(tmp_path: Path) -> None:
    """A second one is told who is there, and what to do."""
    first = DataFolder.open(tmp_path)

    with pytest.raises(DataFolderBusy, match=r"another shipper \(process \d+\) works in"):
        DataFolder.open(tmp_path)
    first.close()
    DataFolder.open(tmp_path).close()


def test_an_installation_keeps_its_name(tmp_path: Path) -> None:
    """The server knows repeated messages by it."""
    first = DataFolder.open(tmp_path)
    first.close()
    second = DataFolder.open(tmp_path)
    second.close()

    assert first.installation == second.installation
    assert len(first.installation) == 32


@pytest.mark.parametrize("damage", ["removed", "emptied", "replaced"])
async def test_a_folder_that_was_removed_is_made_anew(tmp_path: Path, damage: str) -> None:
    """What the shipper knows is in its memory: the next save puts all of it back, under the same
    name, and no second shipper may begin there.
    """
    path = tmp_path / "data"
    folder = DataFolder.open(path, "uid-1")
    intents = IntentLog(path, BOOT)
    writer = CheckpointWriter(folder, intents, snapshot)
    assert await writer.save()

    shutil.rmtree(path)
    if damage != "removed":
        path.mkdir()
    if damage == "replaced":
        (path / "lock").touch()
    assert await writer.save()
    intents.note(KEY, Intent("g1", 4, 9))
    with pytest.raises(DataFolderBusy):
        DataFolder.open(path)
    intents.close()
    folder.close()

    again = DataFolder.open(path, "uid-1")
    again.close()
    found = checkpoint.load(path, BOOT)
    assert (again.installation, again.was_others) == (folder.installation, False)
    assert found.is_complete
    assert [i.end for i in found.sources[KEY].intents] == [4, 9]


async def test_a_save_that_failed_before_its_folder_was_removed_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is noted after the next save must not go into a file that nobody can read again."""
    path = tmp_path / "data"
    folder = DataFolder.open(path)
    intents = IntentLog(path, BOOT)
    writer = CheckpointWriter(folder, intents, snapshot)
    with monkeypatch.context() as patch:
        patch.setattr(statefile, "write_state", _no_space)
        assert not await writer.save()

    shutil.rmtree(path)
    assert await writer.save()
    intents.note(KEY, Intent("g1", 4, 9))
    intents.close()
    folder.close()

    assert checkpoint.load(path, BOOT).is_complete


def _no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_a_folder_that_another_shipper_took_is_left_alone(tmp_path: Path) -> None:
    """Two that save in one folder would overwrite each other; the former says so, and sends on."""
    path = tmp_path / "data"
    folder = DataFolder.open(path)
    writer = CheckpointWriter(folder, IntentLog(path, BOOT), snapshot)

    shutil.rmtree(path)
    other = DataFolder.open(path)
    assert not await writer.save()

    assert "another shipper" in str(writer.problem)
    assert not (path / "positions").exists()
    other.close()
    assert await writer.save()
    folder.close()
