"""Whatever happens to a log's files, what is read of them is what was written.

Random actions are done to real files, and at the same time noted in a model: which incarnations of
the file there were, and what was written to each. A chain reads along, is restarted and killed.
"""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from logpipeline.checksum import Checksum
from logpipeline_shipper.files.chain import Chain, Chunk
from logpipeline_shipper.files.discovery import Discovery
from logpipeline_shipper.files.limits import ReadLimits
from logpipeline_shipper.files.listing import HostSources, Listing, SourceId
from logpipeline_shipper.files.open_file import DescriptorBudget

GRACE_S = 2.0


class World:
    """The files of one log, and what the model knows of them."""

    def __init__(self, folder: Path, header: bytes, *, is_monotonous: bool) -> None:
        self.live = folder / "app.log"
        self.header = header
        self.is_monotonous = is_monotonous
        self.counter = 0
        self.written: list[bytes] = []  # incarnations, oldest first
        self.at: dict[str, int] = {}  # which incarnation lies in which file
        self.deleted: set[int] = set()
        self.seen: dict[int, int] = {}  # how much of each incarnation a listing has shown

    def write(self, name: str, data: bytes) -> None:
        """Append to a file; make it, and a new incarnation, where there is none."""
        if name not in self.at:
            self.at[name] = len(self.written)
            self.written.append(b"")
            data = self.header + data
        with (self.live.parent / name).open("ab") as file:
            file.write(data)
        self.written[self.at[name]] += data

    def line(self) -> bytes:
        """Return a line that no other is equal to, or the one that all are equal to."""
        if self.is_monotonous:
            return b"the same in each line\n"
        self.counter += 1
        return b"%06d " % self.counter + b"x" * (self.counter * 37 % 400) + b"\n"

    def rotated(self) -> list[str]:
        """Return the rotated files, newest first."""
        names = [name for name in self.at if name != "app.log"]
        return sorted(names, key=lambda name: int(name.split(".")[2]))

    def make_room(self) -> None:
        """Rename app.log.1 to app.log.2, and so on."""
        for name in reversed(self.rotated()):
            parts = name.split(".")
            parts[2] = str(int(parts[2]) + 1)
            self.rename(name, ".".join(parts))

    def rename(self, name: str, new: str) -> None:
        """Rename a file, and its incarnation with it."""
        (self.live.parent / name).rename(self.live.parent / new)
        self.at[new] = self.at.pop(name)

    def delete(self, name: str) -> None:
        """Delete a file."""
        (self.live.parent / name).unlink()
        self.deleted.add(self.at.pop(name))


class Ship:
    """A chain that reads along, with its restarts, and what arrived."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.now_s = 1000.0
        self.arrived: dict[str, dict[int, int]] = {}
        self.states: list[dict[str, Any] | None] = [None]
        # What is noted before it is sent, since the last state: births, and ends with checksums.
        self.births: dict[str, list[Any]] = {}
        self.sent: dict[str, tuple[int, Checksum]] = {}
        self.missing_bytes = self.unseen_generations = 0
        self.ends: dict[str, int] = {}
        host = HostSources(host="h", include=(f"{world.live.parent}/*.log",))
        self._discovery = Discovery([host], skipped=lambda path, reason: None)
        self._id = SourceId(host="h", source=str(world.live), format="plain")
        self.chain = self._made(None)

    def _made(self, saved: dict[str, Any] | None) -> Chain:
        limits = ReadLimits(
            batch_bytes=700,
            line_bytes=1000,
            grace_s=GRACE_S,
            descriptors=DescriptorBudget(3),
        )
        return Chain(self._id, saved=saved, read_from="beginning", limits=limits)

    def look(self) -> None:
        """List the files, as a rescan does."""
        listings = self._discovery.scan()
        for number in self.world.at.values():
            # A saved state knows nothing of a file without a line.
            content = self.world.written[number]
            self.world.seen[number] = len(content) if b"\n" in content else 0
        self.chain.update(listings[0] if listings else Listing(self._id, ()), self.now_s)

    def read(self, chunks_max: int, *, acknowledged: bool) -> int:
        """Read up to *chunks_max* chunks; a process that dies has not acknowledged the last."""
        chunks: list[Chunk] = []
        while len(chunks) < chunks_max and (chunk := self.chain.read(self.now_s)):
            self._note(chunk)
            self._take(chunk)
            chunks.append(chunk)
            if acknowledged:
                self.chain.acknowledge(chunk)
        if not acknowledged:
            self.chain.rewind()
            for chunk in reversed(chunks):
                self.ends[chunk.generation] = chunk.start
        return len(chunks)

    def _note(self, chunk: Chunk) -> None:
        if chunk.generation not in self.births:
            self.births[chunk.generation] = self.chain.birth(chunk.generation)
        self.sent[chunk.generation] = (chunk.end, chunk.checksums.after)

    def _take(self, chunk: Chunk) -> None:
        assert chunk.end - chunk.start == len(chunk.data) > 0
        assert chunk.start == self.ends.get(chunk.generation, chunk.start), "a gap, or a repetition"
        self.ends[chunk.generation] = chunk.end
        pieces = self.arrived.setdefault(chunk.generation, {})
        for offset, byte in enumerate(chunk.data, chunk.start):
            assert pieces.setdefault(offset, byte) == byte, "one range, two contents"

    def save(self) -> None:
        """Save, as is done once a second."""
        self.states.append(json.loads(json.dumps(self.chain.saved())))
        self.births, self.sent = {}, {}

    def restart(self) -> None:
        """Begin again from what was saved last, and what was noted since."""
        self.missing_bytes += self.chain.missing_bytes
        self.unseen_generations += self.chain.unseen_generations
        self.chain.release()
        self.ends.clear()
        self.chain = self._made(self.states[-1])
        for birth in self.births.values():
            self.chain.remember(json.loads(json.dumps(birth)))
        for id, (end, after) in self.sent.items():
            self.chain.was_sent(id, end, after)
        self.look()

    def drain(self) -> None:
        """Read all there is, as time goes by."""
        for _ in range(60):
            self.look()
            quiet = self.read(100, acknowledged=True) == 0
            self.now_s += GRACE_S
            if quiet and not self.chain.may_go_on_alone():
                return
        raise AssertionError("it never comes to an end")


def write(world: World, ship: Ship) -> None:
    world.write("app.log", world.line() + world.line())


def write_long(world: World, ship: Ship) -> None:
    world.write("app.log", world.line()[:-1] + b"%06d" % world.counter * 400 + b"\n")


def write_partial(world: World, ship: Ship) -> None:
    world.write("app.log", world.line()[:-1])


def rotate(world: World, ship: Ship) -> None:
    if "app.log" in world.at:
        world.make_room()
        world.rename("app.log", "app.log.1")


def write_late(world: World, ship: Ship) -> None:
    """The writer goes on with the renamed file until it opens the new one."""
    if not world.live.exists() and "app.log.1" in world.at:
        world.write("app.log.1", world.line())


def rotate_twice(world: World, ship: Ship) -> None:
    for _ in range(2):
        rotate(world, ship)
        world.write("app.log", world.line())


def compress(world: World, ship: Ship) -> None:
    """As kubelet does: all but the newest rotated one."""
    for name in world.rotated()[1:]:
        if not name.endswith(".gz"):
            path = world.live.parent / name
            with gzip.open(f"{path}.tmp", "wb", compresslevel=1) as file:
                file.write(path.read_bytes())
            Path(f"{path}.tmp").rename(f"{path}.gz")
            path.unlink()
            world.at[f"{name}.gz"] = world.at.pop(name)


def copy_and_truncate(world: World, ship: Ship) -> None:
    if "app.log" in world.at and world.live.stat().st_size:
        world.make_room()
        shutil.copyfile(world.live, f"{world.live}.1")
        world.at["app.log.1"] = world.at.pop("app.log")
        with world.live.open("r+b") as file:
            file.truncate(0)


def copy_then_truncate(world: World, ship: Ship) -> None:
    """The shipper looks between the two."""
    if "app.log" in world.at and world.live.stat().st_size:
        world.make_room()
        shutil.copyfile(world.live, f"{world.live}.1")
        look_and_read(world, ship)
        world.at["app.log.1"] = world.at.pop("app.log")
        with world.live.open("r+b") as file:
            file.truncate(0)


def delete_oldest(world: World, ship: Ship) -> None:
    if world.rotated():
        world.delete(world.rotated()[-1])


def recreate(world: World, ship: Ship) -> None:
    if "app.log" in world.at:
        world.delete("app.log")
        world.write("app.log", world.line())


def look_and_read(world: World, ship: Ship) -> None:
    ship.look()
    ship.read(3, acknowledged=True)


def read_blindly(world: World, ship: Ship) -> None:
    ship.read(2, acknowledged=True)


def send_in_vain(world: World, ship: Ship) -> None:
    ship.read(2, acknowledged=False)


def let_time_pass(world: World, ship: Ship) -> None:
    ship.look()
    ship.now_s += GRACE_S
    ship.read(3, acknowledged=True)
    ship.chain.close_idle(ship.now_s)


def save(world: World, ship: Ship) -> None:
    ship.save()


def restart(world: World, ship: Ship) -> None:
    ship.save()
    ship.restart()


def kill(world: World, ship: Ship) -> None:
    ship.restart()


Action = Callable[[World, Ship], None]
GROWING: list[Action] = [write, write, write_long, write_partial]
ROTATING: list[Action] = [rotate, rotate_twice, write_late, compress]
READING: list[Action] = [look_and_read, look_and_read, read_blindly, let_time_pass]
FAILING: list[Action] = [send_in_vain]
RESTARTING: list[Action] = [save, restart, kill]
TRUNCATING: list[Action] = [copy_and_truncate, copy_then_truncate]
DELETING: list[Action] = [delete_oldest, recreate]


def run(
    actions: list[Action], header: bytes = b"", *, is_monotonous: bool = False
) -> tuple[World, Ship]:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), header, is_monotonous=is_monotonous)
        ship = Ship(world)
        for action in actions:
            action(world, ship)
        # The last line is complete in the end, and so is everything.
        world.write("app.log", world.line())
        ship.drain()
        ship.save()
        ship.restart()
        ship.drain()
        ship.chain.release()
        return world, ship


def arrived(ship: Ship) -> dict[str, bytes]:
    """Return what arrived of each generation; what is missing in the middle is a gap."""
    return {
        name: bytes(pieces[offset] for offset in sorted(pieces))
        for name, pieces in ship.arrived.items()
    }


def actions_of(*kinds: list[Action]) -> st.SearchStrategy[list[Action]]:
    return st.lists(st.sampled_from([action for kind in kinds for action in kind]), max_size=30)


@given(actions_of(GROWING, ROTATING, READING, FAILING, RESTARTING))
@example([write_partial, rotate_twice, restart, compress])
@example([write, rotate_twice, rotate, write_partial, rotate_twice, let_time_pass, compress])
@example([write, write_partial, look_and_read, write_long])
def test_renamed_and_compressed_files_are_read_whole(actions: list[Action]) -> None:
    """Each incarnation arrives whole, once, under an id of its own."""
    world, ship = run(actions)

    assert sorted(arrived(ship).values()) == sorted(filter(None, world.written))
    assert (ship.missing_bytes, ship.unseen_generations) == (0, 0)


@given(actions_of(GROWING, ROTATING, READING, FAILING, RESTARTING, TRUNCATING))
@example([write, let_time_pass, copy_and_truncate, write, rotate_twice, compress, let_time_pass])
@example([write, write, write, restart, copy_and_truncate, write, read_blindly])
@example([write_partial, look_and_read, copy_and_truncate, rotate_twice, read_blindly])
def test_truncated_files_are_read_whole_from_their_copies(actions: list[Action]) -> None:
    """What copytruncate copied is read on in the copy, under its id, and not once more."""
    world, ship = run(actions)

    assert sorted(arrived(ship).values()) == sorted(filter(None, world.written))


@given(actions_of(GROWING, ROTATING, READING, FAILING, RESTARTING, TRUNCATING))
@example([write, copy_then_truncate, write, copy_then_truncate])
@example([write, rotate_twice, rotate, write, rotate_twice, look_and_read, compress])
@example([write_long, copy_then_truncate, write, let_time_pass, copy_and_truncate])
@example([write, copy_and_truncate, let_time_pass, write, send_in_vain, copy_and_truncate])
def test_files_that_begin_alike_are_told_apart(actions: list[Action]) -> None:
    """The header of a table, or a banner, names nothing."""
    world, ship = run(actions, header=b"the same in each file\n")

    assert sorted(arrived(ship).values()) == sorted(filter(None, world.written))


@given(actions_of(GROWING, ROTATING, READING, FAILING, RESTARTING))
def test_files_with_the_very_same_lines_are_told_apart(actions: list[Action]) -> None:
    """A program that says the same in each run is heard each time."""
    world, ship = run(actions, is_monotonous=True)

    assert sorted(arrived(ship).values()) == sorted(filter(None, world.written))


@given(actions_of(GROWING, ROTATING, READING, [save, restart], DELETING))
@example([write, look_and_read, restart, recreate, look_and_read, recreate])
@example([rotate_twice, rotate_twice, let_time_pass, recreate])
@example([rotate_twice, rotate_twice, write, look_and_read, recreate, look_and_read, recreate])
def test_what_was_deleted_unread_is_counted(actions: list[Action]) -> None:
    """Nothing but deleted files is missing, and each byte that was seen of them is counted."""
    world, ship = run(actions)

    received = list(arrived(ship).values())
    least = most = 0
    for number, content in enumerate(world.written):
        got = next((data for data in received if data and content.startswith(data)), b"")
        if got:
            received.remove(got)
        assert len(got) == len(content) or number in world.deleted
        most += len(content) - len(got)
        least += max(0, world.seen.get(number, 0) - len(got))
    assert received == []
    assert least <= ship.missing_bytes <= most
