"""Scripts in which files are rotated, copied, emptied, moved and removed."""

from __future__ import annotations

import shutil
from pathlib import Path

from simulated.stage import HOST, OTHER, Scripts, Stage
from simulated.writers import Writer

SCRIPTS = Scripts()
play = SCRIPTS.add

# So many rotations leave more files open than a small pipeline may have.
ROTATIONS = 30


def _copied(s: Stage, name: str) -> Path:
    """Copy the log to *name*, as a rotator does before it empties it."""
    target = s.path(name)
    shutil.copyfile(s.log.path, target)
    s.world.disk.wrote(target)
    return target


def _emptied(s: Stage) -> None:
    with s.log.path.open("r+b") as file:
        file.truncate()
    s.world.disk.wrote(s.log.path)


@play("rest_of_a_rotated_file_is_left")
async def written_to_after_it_was_renamed(s: Stage) -> None:
    """A program goes on in the file that was renamed, before it begins a new one."""
    await s.begun()
    await s.ship(4)
    rotated = s.log.path.rename(s.path("app0.log.1"))
    s.log.write(3, line_bytes=100, path=rotated)
    await s.sleep(0.5)
    await s.ship(4)
    await s.collected()


@play("rest_of_a_rotated_file_is_left", "rising_numbers_count_as_falling")
async def rotated_twice_while_a_shipper_is_away(s: Stage) -> None:
    """Rotated files get rising numbers: the first one is the oldest."""
    await s.begun()
    await s.ship(4)
    s.kill(HOST)
    for name in ("app0.log.1", "app0.log.2", "app0.log.3"):
        s.write(3)
        await s.sleep(1.0)
        s.log.path.rename(s.path(name))
        await s.sleep(1.0)
    s.write(3)
    s.start(HOST)
    await s.ship(4)
    await s.collected()


@play("copies_are_new_files")
async def copied_and_emptied(s: Stage) -> None:
    """A rotator copies a log and empties it, when all of it was sent."""
    await s.begun()
    await s.ship(4)
    _copied(s, "app0.log.1")
    await s.sleep(0.02)
    _emptied(s)
    await s.sleep(4.0)
    await s.ship(2)
    await s.collected()


@play("copies_are_new_files", "next_lines_do_not_wait_for_a_copy")
async def copied_and_emptied_with_lines_unread(s: Stage) -> None:
    """The same, when lines are in the copy that were not read."""
    await s.begun()
    await s.ship(4)
    for name in ("app0.log.1", "app0.log.2", "app0.log.3"):
        s.write(3)
        _copied(s, name)
        await s.sleep(0.02)
        _emptied(s)
        s.write(1)
        await s.ship(2)
        await s.collected()
        await s.sleep(1.0)


@play("next_lines_do_not_wait_for_a_copy", "copies_are_new_files")
async def emptied_while_it_is_read(s: Stage) -> None:
    """A log is copied and emptied while its shipper reads: it finds other bytes before it has seen
    the copy, which has lines that come first.
    """
    await s.begun()
    await s.ship(4)
    await s.collected()

    def rotate() -> None:
        s.write(3)
        _copied(s, "app0.log.1")
        _emptied(s)
        s.write(1)

    rotated = s.trap(HOST, "shipper.after-ack", rotate)
    s.write(2)
    await s.sprung(rotated)
    await s.ship(2)
    await s.collected()


@play("replaced_files_are_the_same", "copies_are_new_files")
async def emptied_and_longer_than_before(s: Stage) -> None:
    """A log is copied and emptied between two looks, and is longer than before by the next."""
    await s.begun()
    await s.ship(4)
    s.freeze(HOST, 5.0)
    await s.sleep(1.0)
    _copied(s, "app0.log.1")
    await s.sleep(0.02)
    _emptied(s)
    s.write(9)
    await s.sleep(6.0)
    await s.ship(2)
    await s.collected()


@play("a_file_that_is_missing_once_is_gone")
async def out_of_sight_for_a_moment(s: Stage) -> None:
    """A file that was read has another name for as long as one look takes, and comes back. Its
    shipper has just started: nobody has it open.
    """
    await s.begun()
    await s.ship(4)
    await s.collected()
    for _ in range(3):
        s.kill(HOST)
        hidden = s.log.path.rename(s.path("hidden"))
        s.start(HOST)
        await s.sleep(2.1)
        hidden.rename(s.log.path)
        await s.sleep(5.0)
        await s.ship(2)
        await s.collected()


@play("rest_of_a_gone_file_is_not_named", "loss_is_never_named", "losses_are_not_kept")
async def gone_before_it_was_read(s: Stage) -> None:
    """Lines are in a file that is removed while its shipper is away: they are named as lost."""
    s.explained.losses = True
    await s.begun()
    await s.ship(4)
    await s.collected()
    # So much of it was seen, and not acknowledged.
    s.stream.is_full = True
    s.write(3)
    await s.sleep(5.0)
    s.kill(HOST)
    s.log.path.unlink()
    s.stream.is_full = False
    s.start(HOST)
    await s.sleep(30.0)
    await s.ship_more()
    await s.collected()
    found = await s.books()
    s.check(found.lost == 3, f"three lines are lost, not {found.lost}")


@play("descriptors_stay_open", "budget_is_not_given_back")
async def rotated_again_and_again(s: Stage) -> None:
    """What was read is closed, however often a log is rotated."""
    await s.begun()
    for number in range(ROTATIONS):
        await s.ship(1)
        s.log.path.rename(s.path("app0.log.1"))
        if number % 10 == 5:
            s.give(OTHER if number % 20 == 5 else "collector-0")
    await s.ship(1)
    await s.collected()


@play("rising_numbers_count_as_falling", logs=2)
async def two_logs_are_rotated(s: Stage) -> None:
    """Two logs with rising numbers, one of which is written to late."""
    await s.begun()
    await s.ship(2)
    await s.ship(2, log=s.world.writers[1])
    for number in (1, 2):
        for log in s.world.writers:
            _rotated(s, log, number)
        await s.sleep(5.0)
    s.write(1)
    await s.ship(1, log=s.world.writers[1])
    await s.collected()


def _rotated(s: Stage, log: Writer, number: int) -> None:
    s.write(2, log=log)
    target = log.path.rename(log.path.with_name(f"{log.path.name}.{number}"))
    log.write(1, line_bytes=100, path=target)
