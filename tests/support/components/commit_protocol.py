"""Searches every order of steps of the commit protocol within bounds, driven by the product's own
decisions, for one that puts a line into two folders or loses one that was committed.

Collectors read, commit in their folder, then in the bucket, are succeeded, sleep, wake and die; the
server stores lines, loses its tail, and is given the lost lines again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from logpipeline.records import EpochRecord, Reached, StreamPosition
from logpipeline.streamstate import StreamState, Verdict, judge
from logpipeline_collector.epochs import Successor, succeed
from logpipeline_collector.recovery import FolderCommit, Source, recover

CREATED = "then"
Lines = frozenset[int]


@dataclass(frozen=True, slots=True)
class Message:
    """One line as the server stored it; a line that is sent again has another time."""

    line: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Folder:
    """What a collector's disk holds: its last commit with all lines up to it, what it knows of
    sources then, and the same before that commit.
    """

    epoch: int
    reached: Reached
    lines: Lines
    known: Lines
    before: tuple[int, Reached, Lines, Lines] | None

    def commit(self) -> FolderCommit:
        """Return the commit as recovery sees it."""
        return FolderCommit(self.epoch, self.reached, self.before and self.before[:2])

    def undone(self) -> Folder:
        """Return the folder without its last commit."""
        assert self.before is not None
        return Folder(*self.before, before=None)


@dataclass(frozen=True, slots=True)
class Process:
    """A collector's memory while it believes to own the partition: the revision that its next swap
    expects, what it has read and written, and what is in its folder alone.
    """

    epoch: int
    revision: int
    reached: Reached
    written: Lines
    known: Lines
    start: Reached
    is_unswapped: bool = False


@dataclass(frozen=True, slots=True)
class World:
    """All of it at one moment; *known* is what the group knows of sources at the record."""

    stream: tuple[Message, ...] = ()
    lost: Lines = frozenset()
    clock: int = 0
    tails: int = 0
    record: EpochRecord | None = None
    revision: int = 0
    known: Lines = frozenset()
    folders: tuple[Folder | None, ...] = ()
    processes: tuple[Process | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far to look."""

    collectors: int = 2
    lines: int = 2
    tails: int = 1
    epochs: int = 3
    is_succession_kept: bool = True


class Twice(Exception):
    """A line stands in two folders, or in none."""


def search(bounds: Bounds) -> int:
    """Return how many states there are, all of which hold what is promised.

    Raises:
        Twice: one does not; the message tells the way to it.
    """
    nobody = (None,) * bounds.collectors
    first = World(folders=nobody, processes=nobody)
    ways: dict[World, tuple[World, str] | None] = {first: None}
    waiting = deque([first])
    while waiting:
        world = waiting.popleft()
        if why := _wrong(world):
            raise Twice(f"{why}: {' / '.join(_way(world, ways))}")
        for name, following in _steps(world, bounds):
            if following not in ways:
                ways[following] = (world, name)
                waiting.append(following)
    return len(ways)


def _way(world: World, ways: dict[World, tuple[World, str] | None]) -> list[str]:
    names = []
    while (step := ways[world]) is not None:
        world, name = step
        names.append(name)
    return names[::-1]


def _wrong(world: World) -> str:
    """Return what is wrong once each folder is in order."""
    settled = [_settled(number, world) for number in range(len(world.folders))]
    lines = [line for folder in settled if folder is not None for line in folder.lines]
    if len(lines) != len(set(lines)):
        return "a line stands twice"
    return "" if world.known <= set(lines) else "a committed line is gone"


def _settled(number: int, world: World) -> Folder | None:
    folder = world.folders[number]
    if folder is None or world.record is None:
        return folder
    found = recover(folder.commit(), world.record, identity=f"folder{number}")
    return folder.undone() if found.source is Source.UNDO else folder


def _steps(world: World, bounds: Bounds) -> Iterator[tuple[str, World]]:
    new = max((m.line for m in world.stream), default=-1) + 1
    if max((new, *(line + 1 for line in world.lost)), default=0) < bounds.lines:
        yield f"store {new}", _stored(world, new)
    for line in sorted(world.lost):
        yield f"store {line} again", replace(_stored(world, line), lost=world.lost - {line})
    if world.stream and world.tails < bounds.tails:
        *stream, gone = world.stream
        lost = world.lost | {gone.line}
        yield "lose tail", replace(world, stream=tuple(stream), lost=lost, tails=world.tails + 1)
    for number, process in enumerate(world.processes):
        if process is not None:
            yield from _process_steps(world, number, process)
        if world.record is None or world.record.epoch < bounds.epochs:
            taken = _taken_over(world, number, bounds)
            if taken is not None:
                yield f"{number} takes over", taken


def _stored(world: World, line: int) -> World:
    clock = world.clock + 1
    return replace(world, stream=(*world.stream, Message(line, clock)), clock=clock)


def _process_steps(world: World, number: int, process: Process) -> Iterator[tuple[str, World]]:
    yield f"{number} dies", _with(world, number, None)
    if process.is_unswapped:
        yield f"{number} swaps", _swapped(world, number, process)
    elif process.reached != process.start:
        yield f"{number} commits", _committed(world, number, process)
    position = process.reached.position
    if not _is_good(world, position):
        yield f"{number} goes back", _with(world, number, _back(world, process))
    elif position.sequence < len(world.stream):
        message = world.stream[position.sequence]
        at = StreamPosition(CREATED, position.sequence + 1, message.time_ns)
        is_new = message.line not in process.known
        read = replace(
            process,
            reached=Reached(at, process.reached.rollbacks),
            written=process.written | ({message.line} if is_new else frozenset()),
            known=process.known | {message.line},
        )
        yield f"{number} reads {message.line}", _with(world, number, read)


def _is_good(world: World, position: StreamPosition) -> bool:
    stream = StreamState(CREATED, 1, len(world.stream))
    is_there = 0 < position.sequence <= len(world.stream)
    time_ns = world.stream[position.sequence - 1].time_ns if is_there else None
    return judge(position, stream, time_ns) is Verdict.GOOD


def _back(world: World, process: Process) -> Process:
    """Go on from the last commit that the stream still has, else from its start."""
    mark = process.start.position
    position = mark if _is_good(world, mark) else StreamPosition(CREATED, 0, 0)
    rollbacks = (process.reached.rollbacks or 0) + 1
    return replace(process, reached=Reached(position, rollbacks))


def _committed(world: World, number: int, process: Process) -> World:
    folder = world.folders[number]
    before = (process.epoch, process.start, frozenset[int](), frozenset[int]())
    if folder is not None:
        before = (folder.epoch, folder.reached, folder.lines, folder.known)
    lines = before[2] | process.written
    made = Folder(process.epoch, process.reached, lines, process.known, before)
    process = replace(process, written=frozenset(), is_unswapped=True, start=process.reached)
    return _with(_with_folder(world, number, made), number, process)


def _swapped(world: World, number: int, process: Process) -> World:
    if process.revision != world.revision or world.record is None:
        # Fenced: what is not committed is dropped, and the folder put in order.
        return _with(_with_folder(world, number, _settled(number, world)), number, None)
    folder = world.folders[number]
    assert folder is not None
    record = replace(
        world.record, position=folder.reached.position, rollbacks=folder.reached.rollbacks or 0
    )
    swapped = replace(world, record=record, revision=world.revision + 1, known=folder.known)
    process = replace(process, revision=swapped.revision, is_unswapped=False)
    return _with(swapped, number, process)


def _taken_over(world: World, number: int, bounds: Bounds) -> World | None:
    if world.processes[number] is not None:
        return None
    identity = f"folder{number}"
    folder = _settled(number, world)
    found = recover(None if folder is None else folder.commit(), world.record, identity=identity)
    reached = Reached(found.position, found.rollbacks)
    successor = Successor(
        member=identity,
        incarnation=f"{identity}-1",
        epoch=found.epoch,
        assignment=1,
        reached=reached,
    )
    record = succeed(world.record, successor)
    if not bounds.is_succession_kept:
        record = replace(record, succession=None)
    known = world.known
    if found.source is Source.FOLDER:
        assert folder is not None
        known = folder.known
    taken = replace(world, record=record, revision=world.revision + 1, known=known)
    process = Process(found.epoch, taken.revision, reached, frozenset(), known=known, start=reached)
    if found.source is Source.SNAPSHOT:
        # The positions of the sources are committed in the folder before anything is read.
        old = folder or Folder(found.epoch, reached, frozenset(), frozenset(), None)
        before = (old.epoch, old.reached, old.lines, old.known)
        folder = Folder(found.epoch, reached, old.lines, known, before)
    return _with(_with_folder(taken, number, folder), number, process)


def _with(world: World, number: int, process: Process | None) -> World:
    processes = list(world.processes)
    processes[number] = process
    return replace(world, processes=tuple(processes))


def _with_folder(world: World, number: int, folder: Folder | None) -> World:
    folders = list(world.folders)
    folders[number] = folder
    return replace(world, folders=tuple(folders))
