"""The commit protocol of a partition, as a model to be searched: collectors read, commit in their
folder, then in the record, are succeeded, sleep, wake and die; the server stores lines, loses its
tail, is given lines again, removes what readers have done with; bucket, snapshots and volumes are
lost. What each of them decides is the product's own code.

A step is one write that others see, or one that survives a crash. A collector that does not take
its next step sleeps: each step of the others may come before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from logpipeline import streamstate
from logpipeline.plan import trim
from logpipeline.records import EpochRecord, GoneFolder, Reached, StreamPosition
from logpipeline.streamstate import StreamState, Verdict
from logpipeline_collector import epochs, recovery, stream_position, takeover
from logpipeline_collector.epochs import Successor
from logpipeline_collector.recovery import FolderCommit, Recovery, Source
from logpipeline_collector.stream_position import Marks, Verified
from protocol.partition_world import (
    EMPTIED,
    LOST_BUCKET,
    LOST_SNAPSHOT,
    NO_LINES,
    RECREATION,
    REPEAT,
    SNAPSHOT,
    TAIL,
    TRIM,
    Bounds,
    Folder,
    Lines,
    Message,
    Process,
    Snapshot,
    World,
)


@dataclass(frozen=True, slots=True)
class Partitions:
    """The model, within *bounds*."""

    bounds: Bounds

    def first(self) -> World:
        """Return the world in which nothing was stored, and nobody owns the partition."""
        count = self.bounds.collectors
        return World(
            folders=(None,) * count,
            volumes=(0,) * count,
            processes=(None,) * count,
            faults=(0,) * 8,
        )

    # -- promises

    def wrong(self, world: World) -> str:
        """Return which promise does not hold once each folder is in order."""
        # While the record is lost, readers go by what its last owner kept of it.
        record = world.record if world.record is not None else world.former
        numbers = range(len(world.folders))
        settled = [_settled(number, world, record=record)[0] for number in numbers]
        lines = [line for folder in settled if folder is not None for line in folder.lines]
        there = set(lines)
        twice = {line for line in there if lines.count(line) > 1} - world.may_be_twice
        if twice:
            return f"line {min(twice)} stands in two folders"
        if gone := world.promised - there - world.may_be_gone:
            return f"line {min(gone)} was committed, and stands in no folder"
        if any(_is_level(world, process) for process in world.processes):
            stored = {message.line for message in world.stream[world.trimmed :]}
            if missed := stored - there - world.may_be_gone:
                return f"line {min(missed)} was passed over"
        return ""

    # -- steps

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Yield each step that may come next."""
        yield from self._of_server(world)
        for number, process in enumerate(world.processes):
            if process is not None:
                yield from self._of_owner(world, number, process)
            elif world.record is None or world.record.epoch < self.bounds.epochs:
                yield (
                    f"collector {number} takes the partition over",
                    self._taken_over(world, number),
                )
            if process is None and world.folders[number] is not None:
                yield from self._emptied(world, number)

    def _has_more(self, world: World, fault: int) -> bool:
        bounds = self.bounds
        most = (
            *(bounds.tails, bounds.recreations, bounds.repeats, bounds.trims, bounds.snapshots),
            *(bounds.lost_snapshots, bounds.lost_buckets, bounds.emptied),
        )
        return world.faults[fault] < most[fault]

    def _of_server(self, world: World) -> Iterator[tuple[str, World]]:
        stored = [message.line for message in world.stream]
        new = max((*stored, *world.lost), default=-1) + 1
        if new < self.bounds.lines:
            yield f"the server stores line {new}", _stored(world, new)
        for line in sorted(world.lost) if not self.bounds.are_foreign else ():
            again = replace(_stored(world, line), lost=world.lost - {line})
            yield f"the server stores line {line} again, which it had lost", again
        if self._has_more(world, REPEAT):
            for line in sorted(set(stored)):
                again = _count(_stored(world, line), REPEAT)
                yield f"line {line} is sent a second time", again
        if len(world.stream) > world.trimmed and self._has_more(world, TAIL):
            *stream, gone = world.stream
            lost = world.lost | {gone.line}
            rest = replace(world, stream=tuple(stream), lost=lost)
            yield f"the server loses its tail, line {gone.line}", _count(rest, TAIL)
        if world.stream and self._has_more(world, RECREATION):
            lost = world.lost | {message.line for message in world.stream[world.trimmed :]}
            made = replace(world, stream=(), trimmed=0, lost=lost, created=world.created + 1)
            yield "the stream is made anew", _count(made, RECREATION)
        if self._has_more(world, TRIM):
            floor = _floor(world)
            if floor > world.trimmed:
                trimmed = _count(replace(world, trimmed=floor), TRIM)
                yield f"the stream is trimmed up to {floor}", trimmed
        if world.record is not None and self._has_more(world, LOST_BUCKET):
            yield "the state bucket is lost", _count(_without_bucket(world), LOST_BUCKET)
        if world.snapshots and self._has_more(world, LOST_SNAPSHOT):
            without = replace(world, snapshots=())
            yield "the snapshots are lost", _count(without, LOST_SNAPSHOT)

    def _of_owner(self, world: World, number: int, process: Process) -> Iterator[tuple[str, World]]:
        who = f"collector {number}"
        yield f"{who} is killed", _with(world, number, None)
        if process.is_bringing:
            yield f"{who} brings the sources' positions", self._brought(world, number, process)
            return
        if process.is_unswapped:
            is_fenced = process.revision != world.revision
            word = "is fenced" if is_fenced else "swaps the record"
            yield f"{who} {word}", _swapped(world, number, process)
        elif process.reached != process.committed and _is_settled(world, process):
            yield f"{who} commits in its folder", _committed(world, number, process)
        else:
            yield from self._snapshot(world, number, process)
        checked = _verified(world, process.reached.position, process.marks)
        if checked.verdict is not Verdict.GOOD:
            back = _adopted(process, checked)
            yield f"{who} goes back to {checked.position.sequence}", _with(world, number, back)
        elif process.reached.position.sequence < len(world.stream):
            read = self._read(world, process)
            yield (
                f"{who} reads what stands at {read.reached.position.sequence}",
                _with(world, number, read),
            )

    def _read(self, world: World, process: Process) -> Process:
        # What was trimmed is not there to be read.
        at = max(process.reached.position.sequence, world.trimmed)
        if at >= len(world.stream):
            position = StreamPosition(_created(world), at, 0)
            return replace(process, reached=Reached(position, process.reached.rollbacks))
        message = world.stream[at]
        is_again = process.verified is not None and process.verified.is_known(message.time_ns)
        is_new = not is_again if self.bounds.are_foreign else message.line not in process.known
        position = StreamPosition(_created(world), at + 1, message.time_ns)
        return replace(
            process,
            reached=Reached(position, process.reached.rollbacks),
            written=process.written | ({message.line} if is_new else NO_LINES),
            known=process.known | {message.line},
        )

    def _snapshot(self, world: World, number: int, process: Process) -> Iterator[tuple[str, World]]:
        record = world.record
        is_due = process.committed.position.sequence and self._has_more(world, SNAPSHOT)
        if not is_due or process.reached != process.committed:
            return
        folder = world.folders[number]
        assert folder is not None
        position = process.committed.position
        count = world.faults[SNAPSHOT] + 1
        # Its copy of the record is the one that it held, whoever owns the partition by now.
        made = Snapshot(count, process.held, position, folder.known, process.marks)
        saved = _with_folder(world, number, replace(folder, marks=process.marks))
        stored = _count(replace(saved, snapshots=(*world.snapshots, made)), SNAPSHOT)
        who = f"collector {number}"
        yield f"{who} stores a snapshot, and is killed", _with(stored, number, None)
        if process.revision == world.revision and record is not None:
            pointing = replace(record, snapshot=count, snapshot_at=position.sequence)
            kept = tuple(s for s in stored.snapshots if s.number >= record.snapshot)
            swapped = _swap(replace(stored, snapshots=kept), pointing)
            following = replace(process, revision=swapped.revision, held=pointing)
            yield f"{who} stores a snapshot, and points to it", _with(swapped, number, following)

    def _emptied(self, world: World, number: int) -> Iterator[tuple[str, World]]:
        if not self._has_more(world, EMPTIED):
            return
        settled, _ = _settled(number, world)
        gone = settled.lines if settled is not None else NO_LINES
        volumes = (*world.volumes[:number], world.volumes[number] + 1, *world.volumes[number + 1 :])
        emptied = replace(world, volumes=volumes, may_be_gone=world.may_be_gone | gone)
        yield (
            f"the volume of collector {number} is emptied",
            _count(_with_folder(emptied, number, None), EMPTIED),
        )

    def _taken_over(self, world: World, number: int) -> World:
        record, revision = world.record, world.revision
        if record is None and world.snapshots:
            # As `TakeOver` does: the copy in the newest snapshot takes the record's place.
            newest = world.snapshots[-1]
            record = replace(
                newest.record,
                position=newest.position,
                snapshot=newest.number,
                snapshot_at=newest.position.sequence,
                assignment=0,
            )
        folder, found = _settled(number, world, record=record)
        reached = Reached(found.position, found.rollbacks)
        gone = None
        if found.is_folder_gone:
            assert record is not None
            gone = _gone(world, record, found)
        again = _read_again(world, number, record)
        identity = _identity(world, number)
        successor = Successor(
            member=f"member{number}",
            incarnation=f"{identity}-1",
            epoch=found.epoch,
            assignment=1,
            reached=reached,
        )
        made = epochs.succeed(record, successor, gone=gone)
        assert revision == world.revision
        # What is read again has to come, and stands in no folder until then. A commit that was in
        # the folder alone is in the record by the take-over.
        is_kept = found.source is Source.FOLDER and folder is not None
        kept = folder.lines if is_kept and folder is not None else NO_LINES
        if world.faults[LOST_BUCKET] and found.warning:
            # Two had one epoch, and what one of them committed is taken back, and read again.
            again |= world.promised - kept
        before = replace(
            world,
            promised=(world.promised - again) | kept,
            may_be_gone=world.may_be_gone - again,
            may_be_twice=world.may_be_twice
            | self._unknowable(world, record, found.source, folder if found.warning else None)
            | _not_taken_back(world, record, found),
        )
        taken = _swap(before, made)
        is_bringing = found.source in (Source.SNAPSHOT, Source.STREAM)
        known = NO_LINES
        marks: tuple[StreamPosition, ...] = ()
        if found.source is Source.FOLDER:
            assert folder is not None
            known, marks = folder.known, folder.marks
        process = Process(
            made,
            taken.revision,
            reached,
            reached,
            NO_LINES,
            known,
            marks,
            is_bringing=is_bringing,
        )
        return _with(_with_folder(taken, number, folder), number, process)

    def _brought(self, world: World, number: int, process: Process) -> World:
        """Take over what the predecessor knew of sources, and commit it in the folder."""
        own = process.held
        found = next((s for s in world.snapshots if s.number == own.snapshot), None)
        marks = found.marks if found is not None else ()
        checked = _verified(world, process.reached.position, marks)
        process = _behind_covered(world, _adopted(replace(process, marks=marks), checked))
        position, stream = process.reached.position, _state(world)
        # The stream may have gone back since the take-over.
        known = NO_LINES
        may_be_twice = world.may_be_twice | self._unknowable(world, own, Source.SNAPSHOT)
        if found is not None:
            known = found.known
            start = _verified(world, found.position, marks).position
        else:
            start = StreamPosition(position.created, own.begun, 0)
            is_gone = takeover.is_past_gone(position, begun=own.begun, first=stream.first)
            if is_gone and world.faults[LOST_SNAPSHOT]:
                # Said as SOURCES_UNKNOWN: what is sent again is not recognised.
                may_be_twice |= world.promised
        if takeover.is_behind(start, position):
            first = max(start.sequence, world.trimmed)
            known |= {m.line for m in world.stream[first : position.sequence]}
        process = replace(process, known=known, is_bringing=False)
        brought = replace(world, may_be_twice=may_be_twice)
        return _committed(brought, number, process)

    def _unknowable(
        self,
        world: World,
        record: EpochRecord | None,
        source: Source,
        folder: Folder | None = None,
    ) -> Lines:
        """Return the lines that a successor with another folder cannot know, and which may
        therefore be written twice: committed since the last snapshot, and gone from the stream,
        which went back. So it is for a successor in *folder* that did not succeed to the record.
        """
        went_back = world.faults[TAIL] or world.faults[RECREATION]
        if record is None or not went_back or (source is Source.FOLDER and folder is None):
            return NO_LINES
        snapshot = next((s for s in world.snapshots if s.number == record.snapshot), None)
        known = snapshot.known if snapshot is not None else NO_LINES
        if source is Source.FOLDER and folder is not None:
            known = folder.known
        position = record.position
        there = world.stream[: position.sequence] if position.created == _created(world) else ()
        is_there = {message.line for message in there if message.time_ns <= position.time_ns}
        if self.bounds.are_foreign:
            # None of them is ever stored again.
            is_there = {message.line for message in world.stream}
        return _standing(world) - known - is_there


def _identity(world: World, number: int) -> str:
    return f"folder{number}.{world.volumes[number]}"


def _created(world: World) -> str:
    return f"stream{world.created}"


def _count(world: World, fault: int) -> World:
    faults = list(world.faults)
    faults[fault] += 1
    return replace(world, faults=tuple(faults))


def _stored(world: World, line: int) -> World:
    clock = world.clock + 1
    return replace(world, stream=(*world.stream, Message(line, clock)), clock=clock)


def _state(world: World) -> StreamState:
    return StreamState(_created(world), world.trimmed + 1, len(world.stream))


def _time_at(world: World, position: StreamPosition) -> int | None:
    is_there = world.trimmed < position.sequence <= len(world.stream)
    return world.stream[position.sequence - 1].time_ns if is_there else None


def _verified(
    world: World, position: StreamPosition, marks: tuple[StreamPosition, ...]
) -> Verified:
    """Compare *position* with the stream, as `verify` does."""
    stream = _state(world)
    verdict = streamstate.judge(position, stream, _time_at(world, position))
    if verdict is Verdict.GOOD:
        return stream_position.going_on(position, stream)
    for mark in reversed(marks):
        if stream_position.is_common(mark, stream, _time_at(world, mark)):
            return stream_position.gone_back(verdict, position, stream, mark)
    return stream_position.gone_back(verdict, position, stream, None)


def _adopted(process: Process, checked: Verified) -> Process:
    """Go on from where *checked* says, as `OwnedPartition.adopt` does."""
    rollbacks = process.reached.rollbacks or 0
    if checked.verdict is Verdict.GOOD:
        return process
    reached = Reached(checked.position, rollbacks + 1)
    last = checked.position.sequence
    most = epochs.at_most(last, process.went_back_to)
    return replace(process, reached=reached, verified=checked, went_back_to=most)


def _behind_covered(world: World, process: Process) -> Process:
    """Move behind what the stream still has of what the record covers, as `catch_up` does."""
    reached, verified = process.reached, process.verified
    if verified is None:
        return process
    for sequence in range(reached.position.sequence + 1, len(world.stream) + 1):
        time_ns = world.stream[sequence - 1].time_ns
        if not verified.is_known(time_ns):
            break
        reached = Reached(StreamPosition(_created(world), sequence, time_ns), reached.rollbacks)
    return replace(process, reached=reached)


def _is_settled(world: World, process: Process) -> bool:
    position = process.reached.position
    pending = len(world.stream) - position.sequence
    return process.verified is None or process.verified.is_settled(position, pending=pending)


def _is_level(world: World, process: Process | None) -> bool:
    """Return whether *process* owns the partition, and has read and committed all there is."""
    if process is None or process.is_bringing or process.is_unswapped:
        return False
    position = process.reached.position
    return (
        process.revision == world.revision
        and process.reached == process.committed
        and position.sequence >= len(world.stream)
        and _verified(world, position, ()).verdict is Verdict.GOOD
    )


def _floor(world: World) -> int:
    if world.record is None:
        return 0
    position = world.record.position
    return trim.group_floor(
        world.record,
        created=_created(world),
        last_sequence=len(world.stream),
        time_ns=_time_at(world, position) if position.sequence else None,
    )


def _standing(world: World) -> Lines:
    """Return the lines that stand in folders, once each is in order."""
    # While the record is lost, readers go by what its last owner kept of it.
    record = world.record if world.record is not None else world.former
    settled = [_settled(number, world, record=record)[0] for number in range(len(world.folders))]
    return frozenset(line for folder in settled if folder is not None for line in folder.lines)


def _without_bucket(world: World) -> World:
    """Lose the record. What its owner committed behind the last snapshot may come twice; or it is
    taken back there, and read again.
    """
    written = {line for folder in world.folders if folder is not None for line in folder.lines}
    known = world.snapshots[-1].known if world.snapshots else NO_LINES
    may_be_twice = world.may_be_twice | (written - known)
    promised = world.promised & known
    without = replace(world, record=None, former=world.record, revision=0)
    return replace(without, may_be_twice=may_be_twice, promised=promised)


def _settled(
    number: int, world: World, *, record: EpochRecord | None = None
) -> tuple[Folder | None, Recovery]:
    """Put the folder in order, as `settle` does; return it, and how to go on."""
    record = record if record is not None else world.record
    folder = world.folders[number]
    identity, member = _identity(world, number), f"member{number}"
    commit = folder.commit() if folder is not None else None
    found = recovery.recover(commit, record, identity=identity, member=member)
    if found.source is Source.UNDO:
        assert folder is not None
        assert folder.before is not None
        folder = folder.before
        commit = FolderCommit(folder.epoch, folder.reached, None)
        found = recovery.recover(commit, record, identity=identity, member=member)
    return folder, found


def _committed(world: World, number: int, process: Process) -> World:
    folder = world.folders[number]
    if folder is None:
        # A sink that never committed takes how far the group was read before.
        folder = Folder(process.held.epoch, process.committed, NO_LINES, NO_LINES, (), None)
    made = Folder(
        process.held.epoch,
        process.reached,
        folder.lines | process.written,
        process.known,
        folder.marks,
        replace(folder, before=None),
    )
    if world.faults[LOST_BUCKET] and process.revision != world.revision:
        # It does not know yet that the bucket was lost, and who succeeds it cannot know of this.
        world = replace(world, may_be_twice=world.may_be_twice | process.written)
    process = replace(process, written=NO_LINES, is_unswapped=True, committed=process.reached)
    return _with(_with_folder(world, number, made), number, process)


def _swapped(world: World, number: int, process: Process) -> World:
    if process.revision != world.revision or world.record is None:
        # Fenced: what is not committed is dropped, and the folder put in order.
        folder, _ = _settled(number, world)
        return _with(_with_folder(world, number, folder), number, None)
    folder = world.folders[number]
    assert folder is not None
    position, rollbacks = folder.reached.position, folder.reached.rollbacks or 0
    snapshot_at = epochs.at_most(world.record.snapshot_at, process.went_back_to)
    record = replace(
        world.record,
        position=position,
        rollbacks=rollbacks,
        snapshot_at=snapshot_at,
        begun=epochs.at_most(world.record.begun, process.went_back_to),
    )
    swapped = _swap(world, record)
    swapped = replace(swapped, promised=world.promised | folder.known)
    added = Marks(iter(process.marks))
    added.add(position)
    marks = tuple(reversed(added.newest_first()))
    process = replace(
        process,
        held=record,
        revision=swapped.revision,
        is_unswapped=False,
        marks=marks,
        went_back_to=None,
    )
    return _with(swapped, number, process)


def _swap(world: World, record: EpochRecord) -> World:
    writes = world.writes + 1
    return replace(world, record=record, former=None, revision=writes, writes=writes)


def _gone(world: World, record: EpochRecord, found: Recovery) -> GoneFolder:
    """Return which folder is gone, as `TakeOver` does."""
    after = record.succession.since.position.sequence if record.succession else 0
    is_again = found.source is Source.STREAM
    return GoneFolder(
        member=record.owner,
        folder=record.folder,
        time_ns=1,
        after=after,
        end=record.position.sequence,
        again_from=max(after + 1, world.trimmed + 1) if is_again else 0,
    )


def _read_again(world: World, number: int, record: EpochRecord | None) -> Lines:
    """Return the lines that the last owner has to read again where it comes back empty."""
    is_back = record is not None and record.owner == f"member{number}"
    if record is None or not is_back or record.folder == _identity(world, number):
        return NO_LINES
    after = record.succession.since.position.sequence if record.succession else 0
    messages = world.stream[max(after, world.trimmed) : record.position.sequence]
    return frozenset(message.line for message in messages)


def _not_taken_back(world: World, record: EpochRecord | None, found: Recovery) -> Lines:
    """Return what the owner of a record that seems older than the successor's folder has in its own
    folder alone. It stays: the record may be a copy, and the lines may have been in a later one.
    """
    if record is None or found.warning != recovery.BUCKET_OLDER:
        return NO_LINES
    identities = (_identity(world, number) for number in range(len(world.folders)))
    pairs = zip(identities, world.folders, strict=True)
    folder = next((folder for identity, folder in pairs if identity == record.folder), None)
    if folder is None or folder.before is None or folder.reached.is_same(record.reached):
        return NO_LINES
    return folder.lines - folder.before.lines


def _with(world: World, number: int, process: Process | None) -> World:
    processes = list(world.processes)
    processes[number] = process
    return replace(world, processes=tuple(processes))


def _with_folder(world: World, number: int, folder: Folder | None) -> World:
    folders = list(world.folders)
    folders[number] = folder
    return replace(world, folders=tuple(folders))
