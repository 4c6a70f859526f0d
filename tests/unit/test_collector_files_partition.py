"""Files hold what was committed, once, and nothing else, however they are closed and opened."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from components.partition_files import PLACE, FailingDescriptors, Writer, contents, opened, position
from logpipeline.records import Question, Reached
from logpipeline.wire import BadMessage, Batch
from logpipeline_collector.files.committed import committed_files
from logpipeline_collector.files.maintenance import ROTATIONS_AT_ONCE_MAX
from logpipeline_collector.files.output import RESERVE_BYTES
from logpipeline_collector.sink import (
    SinkBroken,
    SinkBusy,
    SinkFailed,
    SinkFull,
)


def test_what_is_committed_is_there_after_a_restart(tmp_path: Path) -> None:
    """With the position to go on from."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.commit()
    writer.partition.close()
    again = opened(tmp_path)
    last = again.committed()

    assert contents(tmp_path) == b"one\n"
    assert last is not None
    assert last.position == position(1)


def test_what_is_not_committed_is_taken_back(tmp_path: Path) -> None:
    """It comes again from the stream."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.commit()
    writer.take(b"two\n")
    assert contents(tmp_path) == b"one\ntwo\n"
    writer.take(b"other\n", source="/var/log/other.log")
    writer.partition.close()
    opened(tmp_path).close()

    assert contents(tmp_path) == b"one\n"
    assert not (tmp_path / "logs/h/_files/var/log/other.log").exists()


def test_a_message_that_comes_again_is_not_written_again(tmp_path: Path) -> None:
    """Also not by the next process."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.commit()
    writer.partition.close()
    again = Writer(opened(tmp_path))
    again.take(b"one\n")
    again.take(b"two\n")
    again.commit()

    assert contents(tmp_path) == b"one\ntwo\n"
    assert again.partition.duplicates == 1


def test_messages_may_be_taken_while_a_commit_is_on_its_way(tmp_path: Path) -> None:
    """They belong to the next one."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    pending = writer.partition.prepare(
        Reached(position(1), 0), epoch=1, since=Reached(position(0), 0)
    )
    writer.take(b"two\n")
    writer.partition.write(pending)
    writer.partition.close()
    again = opened(tmp_path)

    assert contents(tmp_path) == b"one\n"
    assert [known.offset for known in again.asked("h", Question())] == [4]


def test_only_what_is_committed_is_told_to_shippers(tmp_path: Path) -> None:
    """A shipper that trusts more would not send it again when the stream loses it."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.commit()
    number, told = writer.partition.changed_since(0)
    writer.take(b"two\n")
    pending = writer.prepare()
    writer.partition.write(pending)

    assert [(host, known.offset) for host, known in told] == [("h", 4)]
    assert writer.partition.changed_since(number) == (number, [])
    assert [known.offset for known in writer.partition.asked("h", Question())] == [4]
    writer.partition.confirm(pending)
    after, told = writer.partition.changed_since(number)
    assert (after, [known.offset for _, known in told]) == (number + 1, [8])
    assert [known.offset for known in writer.partition.asked("h", Question())] == [8]


def test_only_changed_sources_are_told_again(tmp_path: Path) -> None:
    """And all of them to who was told too long ago, or never."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.take(b"x\n", host="other")
    writer.commit()
    number, _ = writer.partition.changed_since(0)
    writer.start = 4
    writer.take(b"two\n")
    writer.commit()

    assert [host for host, _ in writer.partition.changed_since(number)[1]] == ["h"]
    assert sorted(host for host, _ in writer.partition.changed_since(0)[1]) == ["h", "other"]


def test_the_last_commit_can_be_taken_back(tmp_path: Path) -> None:
    """A successor began before it: its lines stand in the successor's folder."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.commit()
    writer.take(b"two\n")
    writer.take(b"other\n", source="/var/log/other.log")
    writer.commit(is_confirmed=False)
    writer.partition.undo()
    last = writer.partition.committed()

    assert contents(tmp_path) == b"one\n"
    assert not (tmp_path / "logs/h/_files/var/log/other.log").exists()
    assert last is not None
    assert last.position == position(1)
    assert [known.offset for known in writer.partition.asked("h", Question())] == [4]


def test_the_first_commit_can_be_taken_back(tmp_path: Path) -> None:
    """Nothing is left of it."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.commit(is_confirmed=False)
    writer.partition.undo()

    assert contents(tmp_path) == b""
    assert writer.partition.committed() is None


def test_a_fenced_owner_gives_up_what_is_not_committed(tmp_path: Path) -> None:
    """And can go on from there."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.commit()
    writer.take(b"two\n")
    writer.partition.discard()
    writer.start = 4
    writer.take(b"TWO\n")
    writer.commit()

    assert contents(tmp_path) == b"one\nTWO\n"


def test_two_processes_cannot_write_one_partition(tmp_path: Path) -> None:
    """The second is told what to do."""
    partition = opened(tmp_path)
    with pytest.raises(SinkBusy, match="a folder of its own"):
        opened(tmp_path)
    partition.close()
    opened(tmp_path).close()


def test_a_broken_state_says_what_to_do(tmp_path: Path) -> None:
    """It is never guessed."""
    opened(tmp_path).close()
    (tmp_path / "state/main/p3.sqlite").write_bytes(b"garbage" * 1000)

    with pytest.raises(SinkBroken, match="aside"):
        opened(tmp_path)


def test_a_file_that_is_not_ours_is_not_touched(tmp_path: Path) -> None:
    """Somebody put it where ours belongs: ours gets another name."""
    theirs = tmp_path / "logs" / PLACE
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"theirs")
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.commit()
    writer.partition.close()
    opened(tmp_path).close()

    assert theirs.read_bytes() == b"theirs"
    assert contents(tmp_path, PLACE + "~1") == b"one\n"


def test_a_link_in_the_folder_is_not_followed(tmp_path: Path) -> None:
    """Lines must not leave the folder by it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "h").symlink_to(outside)
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.commit()

    assert list(outside.iterdir()) == []
    assert contents(tmp_path, PLACE.replace("h/", "h~/")) == b"one\n"


def test_a_payload_that_is_not_its_range_is_refused(tmp_path: Path) -> None:
    """And nothing is known of it afterwards."""
    partition = opened(tmp_path)
    batch = Batch(source="/x", generation="0" * 16, start=0, end=9, lines=1, format="plain")
    with pytest.raises(BadMessage, match="bad-length"):
        partition.take("h", batch, b"short", sequence=1, time_ns=1)

    assert partition.asked("h", Question()) == []


def test_a_foreign_message_is_lines_without_their_last_newline(tmp_path: Path) -> None:
    """As fshipper publishes them."""
    partition = opened(tmp_path)
    partition.take("h", None, b"one", sequence=1, time_ns=1)
    partition.take("h", None, b"two\nthree", sequence=2, time_ns=1)
    Writer(partition).commit()

    assert contents(tmp_path, "h/_files/_lines.log") == b"one\ntwo\nthree\n"


def test_a_long_line_stays_one_line(tmp_path: Path) -> None:
    """Its pieces are messages of their own."""
    writer = Writer(opened(tmp_path))
    writer.take(b"a" * 1000)
    for piece in (b"b" * 1000, b"c\nnext\n"):
        writer.take(piece, starts_inside_line=True)
    writer.commit()

    assert contents(tmp_path) == b"a" * 1000 + b"b" * 1000 + b"c\nnext\n"


def test_a_file_that_ended_without_a_newline_does_not_swallow_the_next_line(
    tmp_path: Path,
) -> None:
    """The next generation's first line stands on a line of its own."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\nlast")
    writer.commit()
    writer.partition.close()
    again = Writer(opened(tmp_path), sequence=1)
    batch = Batch(
        source="/var/log/app.log", generation="1" * 16, start=0, end=4, lines=1, format="plain"
    )
    again.partition.take("h", batch, b"new\n", sequence=2, time_ns=1)

    assert contents(tmp_path) == b"one\nlast\nnew\n"


def test_a_hole_is_counted_until_it_is_filled(tmp_path: Path) -> None:
    """Late bytes are written behind what is there."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.start = 8
    writer.take(b"three\n")
    assert writer.partition.missing_bytes == 4
    writer.start = 4
    writer.take(b"two\n")
    writer.commit()

    assert writer.partition.missing_bytes == 0
    assert writer.partition.late_ranges == 1
    assert contents(tmp_path) == b"one\nthree\ntwo\n"


def test_another_folder_goes_on_from_a_snapshot(tmp_path: Path) -> None:
    """What another collector wrote is not written again."""
    writer = Writer(opened(tmp_path / "a"))
    writer.take(b"one\n")
    writer.commit()
    other = Writer(opened(tmp_path / "b"), sequence=1)
    other.partition.import_sources(writer.partition.export_sources())
    other.take(b"one\n")
    other.take(b"two\n")
    other.commit()

    assert contents(tmp_path / "b") == b"two\n"
    with pytest.raises(ValueError, match="snapshot"):
        other.partition.import_sources(b"garbage garbage")


def test_files_are_set_aside_where_others_have_gone_on(tmp_path: Path) -> None:
    """All of them, also one whose line went on elsewhere; what follows begins a new one."""
    writer = Writer(opened(tmp_path))
    places = [f"/var/log/{number}.log" for number in range(ROTATIONS_AT_ONCE_MAX + 5)]
    for place in places:
        writer.start = 0
        writer.take(b"one\n", source=place)
    writer.start = 0
    writer.take(b"begun and", ends_inside_line=True)
    writer.commit()
    writer.partition.sink.set_aside(1e9)
    writer.start = 0
    writer.take(b"two\n", generation="1" * 16)
    writer.commit()
    files = {file.name: file for file in committed_files(tmp_path)}
    active = [name for name, file in files.items() if not file.is_rotated]

    assert len(files) == len(places) + 2
    assert active == [PLACE]
    assert (tmp_path / "logs" / PLACE).read_bytes() == b"two\n"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("is_new", [False, True])
def test_a_full_disk_keeps_nothing_of_a_message(tmp_path: Path, number: int, is_new: bool) -> None:
    """The same message is taken when there is room."""
    disk = FailingDescriptors()
    writer = Writer(opened(tmp_path, descriptors=disk))
    if not is_new:
        writer.take(b"one\n")
        writer.commit()
    before, start = contents(tmp_path), writer.start
    disk.write_errno = number
    with pytest.raises(SinkFull, match="make room"):
        writer.take(b"two and more\n")
    assert contents(tmp_path) == before
    disk.write_errno, writer.start = 0, start
    writer.take(b"two and more\n")
    writer.commit()

    assert contents(tmp_path) == before + b"two and more\n"
    assert writer.partition.duplicates == 0


def test_room_is_left_for_the_commit_of_what_was_written(tmp_path: Path) -> None:
    """A disk that is nearly full takes no message: else its commit would find no room."""
    disk = FailingDescriptors()
    writer = Writer(opened(tmp_path, descriptors=disk))
    disk.free = (RESERVE_BYTES - 1, 1 << 40)
    with pytest.raises(SinkFull):
        writer.take(b"one\n")
    disk.free, writer.start = (RESERVE_BYTES + 1024, 1 << 40), 0
    writer.take(b"one\n")
    writer.commit()

    assert contents(tmp_path) == b"one\n"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_a_failed_sync_is_final(tmp_path: Path, number: int) -> None:
    """The kernel tells it once, whatever it was; a second try would lie."""
    disk = FailingDescriptors()
    writer = Writer(opened(tmp_path, descriptors=disk))
    writer.take(b"one\n")
    disk.sync_errno = number
    with pytest.raises(SinkFailed, match="not durable"):
        writer.commit()
    writer.partition.close()
    again = opened(tmp_path)

    assert again.committed() is None
    assert contents(tmp_path) == b""


def test_far_more_files_than_descriptors_are_written(tmp_path: Path) -> None:
    """The least recently used one is closed."""
    partition = opened(tmp_path, open_files_max=4)
    writer = Writer(partition)
    for _ in range(2):
        for number in range(60):
            writer.start = 0 if writer.sequence < 60 else 2
            writer.take(b"x\n", host=f"h{number}")
    writer.commit()

    assert all(contents(tmp_path, f"h{n}/_files/var/log/app.log") == b"x\nx\n" for n in range(60))


def test_others_read_only_what_is_committed(tmp_path: Path) -> None:
    """While the collector runs."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.commit()
    writer.take(b"two\n")
    found = list(committed_files(tmp_path))

    assert [(file.name, file.length, file.host) for file in found] == [(PLACE, 4, "h")]
