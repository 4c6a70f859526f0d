"""What a world that is played by hand has to show beside its lines and books: it has few events, so
that whatever none of them explains is wrong.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from logpipeline import wire
from logpipeline.nats.session import RawMessage
from logpipeline.records import BadRecord, EpochRecord, Progress, epoch_key
from logpipeline.spans import Span, joined, size_of
from logpipeline.subjects import ControlSubjects, key_value_subject
from simulated.streams import Message, Stream, matches

if TYPE_CHECKING:
    from simulated.world import World

# Longer than two snapshots and than the time after which a shipper asks: what is not in its place
# by then never will be, and what is stored meanwhile is stored in vain.
QUIET_S = 45.0
# A small pipeline has its logs open, its state and its outputs.
DESCRIPTORS_MAX = 24


@dataclass(slots=True)
class Explained:
    """What a script explains: so many dead letters; bytes that are named as lost; a warning of an
    owner; bytes that are sent once more; an owner that is replaced and did not release.
    """

    letters: int = 0
    losses: bool = False
    warnings: bool = False
    resends: bool = False
    successions: bool = False


class Demands:
    """Watches *world* from its begin. *explained* is what its script says of itself."""

    def __init__(self, world: World) -> None:
        self.explained = Explained()
        self.records: dict[int, EpochRecord] = {}
        self._world = world
        self._wrong: list[str] = []
        names = world.names
        group = world.group
        self._keys = {
            key_value_subject(names.state_bucket, epoch_key(group, number)): number
            for number in range(world.shape.partitions)
        }
        # By generation: each batch, and the sequence at which it was stored.
        self._stored: defaultdict[str, list[tuple[Span, int]]] = defaultdict(list)
        self._noted_before = world.server.on_stored
        world.server.on_stored = self._note
        pattern = ControlSubjects(names.control_subject).committed_anywhere()
        world.server.peers.append(_Reports(pattern, self._heard))

    # -- while it lives

    def _note(self, subject: str, data: bytes) -> None:
        self._noted_before(subject, data)
        partition = self._keys.get(subject)
        if partition is not None:
            self._note_record(partition, data)
            return
        for name in self._world.stream_names():
            stream = self._world.server.streams[name]
            message = stream.messages.get(stream.last)
            if message is not None and message.subject == subject:
                self._note_batch(stream, message)

    def _note_batch(self, stream: Stream, message: Message) -> None:
        batch = wire.decode_headers(wire.parse_headers(message.headers))
        if batch is not None and not batch.lost:
            self._stored[batch.generation].append(((batch.start, batch.end), stream.last))

    @property
    def stored_bytes(self) -> int:
        """How many bytes of logs were ever stored."""
        return sum(
            size_of(joined([span for span, _ in batches])) for batches in self._stored.values()
        )

    def _note_record(self, partition: int, data: bytes) -> None:
        try:
            record = EpochRecord.decode(data)
        except BadRecord:
            return
        last = self.records.get(partition)
        self.records[partition] = record
        if last is None:
            return
        if record.epoch > last.epoch:
            if not (last.released or self.explained.successions):
                self._wrong.append(f"{record.owner} did not wait until {last.owner} released")
            if record.assignment < last.assignment:
                self._wrong.append(
                    f"{record.owner} took under assignment {record.assignment} what was taken "
                    f"under {last.assignment}"
                )
        elif record.released and not last.released:
            self._note_release(partition, record)

    def _note_release(self, partition: int, record: EpochRecord) -> None:
        service = self._world.services.get(record.owner)
        worker = service._workers.get(partition) if service is not None else None
        owned = worker.owned if worker is not None else None
        if owned is not None and owned.position.sequence > record.position.sequence:
            self._wrong.append(
                f"{record.owner} released at {record.position.sequence}, and had read "
                f"{owned.position.sequence}"
            )

    def _heard(self, message: RawMessage) -> None:
        """Compare a report to shippers with what the group knows by then."""
        progress = Progress.decode(message.data)
        record = self.records.get(progress.partition)
        # After a roll-back the same sequences hold other batches.
        if record is None or record.rollbacks or progress.rollbacks:
            return
        for each in progress.sources:
            ends = [at for span, at in self._stored[each.generation] if span[1] == each.offset]
            if ends and min(ends) > record.position.sequence:
                self._wrong.append(
                    f"{each.source} is reported up to {each.offset}, message {min(ends)}, while "
                    f"the group is at {record.position.sequence}"
                )

    # -- when all is calm

    async def wrong(self) -> list[str]:
        """Return what is wrong, after a time in which nothing has to happen."""
        stored = self._stored_now()
        await asyncio.sleep(QUIET_S)
        statuses = await self._world.ask()
        found = list(self._wrong)
        if self._stored_now() != stored:
            found.append(f"{stored} became {self._stored_now()} while nothing was written")
        for each in statuses:
            own = self._shipper if each["component"] == "shipper" else self._collector
            found += own(each)
        return [*found, *self._letters(), *self._leftovers(), *self._snapshots()]

    def _stored_now(self) -> dict[str, int]:
        server = self._world.server
        return {name: server.streams[name].last for name in self._world.stream_names()}

    def _shipper(self, status: dict[str, Any]) -> list[str]:
        names = ["quarantined", "dropped_bytes"]
        if not self.explained.losses:
            names += ["missing_bytes", "unhealed_bytes", "unseen_generations"]
        found = [f"{status['name']}: {name} is {status[name]}" for name in names if status[name]]
        totals = self._world.shippers[status["name"]]._shared.totals
        if totals.filled_bytes and not self.explained.resends:
            found.append(f"{status['name']} sent {totals.filled_bytes} bytes once more in vain")
        if totals.failures:
            found.append(f"{status['name']}: a source failed {totals.failures} times")
        return found

    def _collector(self, status: dict[str, Any]) -> list[str]:
        found = []
        for part in status["partitions"]:
            if "epoch" not in part:
                continue
            names = ["damaged_bytes", "contradicted_bytes"]
            if not self.explained.losses:
                names += ["lost_bytes", "missed_messages"]
            if not self.explained.warnings:
                names += ["recovery_warning", "gone_folders"]
            found += [f"{status['member']}: {name} is {part[name]}" for name in names if part[name]]
            listed = sum(loss["end"] - loss["start"] for loss in part["losses"])
            if listed != part["lost_bytes"]:
                found.append(f"{part['lost_bytes']} bytes are lost, and {listed} are listed")
        return found

    def _letters(self) -> list[str]:
        stream = self._world.server.streams[self._world.names.dead_letter_stream]
        found = [message.subject for message in stream.messages.values()]
        wanted = self.explained.letters
        return [f"{len(found)} dead letters, not {wanted}: {found[:3]}"] * (len(found) != wanted)

    def _leftovers(self) -> list[str]:
        world, found = self._world, []
        for name in world.collectors:
            scratch = sorted((world.root / name).rglob("*.new/*"))
            if scratch:
                found.append(f"{name} keeps {len(scratch)} files without a name")
        for name in world.stream_names():
            consumers = list(world.server.streams[name].consumers)
            if len(consumers) != world.shape.stream_partitions:
                found.append(f"{name} has the consumers {consumers}")
        for name in world.processes:
            count = world.disk.open_count(world.loop.pid_of(name))
            if count > DESCRIPTORS_MAX:
                found.append(f"{name} has {count} descriptors")
        return found

    def _snapshots(self) -> list[str]:
        return [
            f"partition {number}: the snapshot is of {record.snapshot_at}, the position "
            f"{record.position.sequence}"
            for number, record in self.records.items()
            if record.snapshot_at != record.position.sequence
        ]


class _Reports:
    """A connection of the world itself that hears what shippers are told."""

    def __init__(self, pattern: str, heard: Any) -> None:
        self._pattern = pattern
        self._heard = heard

    def wants(self, subject: str) -> list[int]:
        """Return its subscriptions to *subject*."""
        return [0] if matches(self._pattern, subject) else []

    def deliver(self, subscription: int, message: RawMessage) -> None:
        """Take a report."""
        self._heard(message)

    def cut(self, error: Exception) -> None:
        """Nothing cuts it."""
