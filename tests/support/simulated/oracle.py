"""What a simulated world came to: each line that was written, where it went, and what the product
says of itself.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logpipeline.records import BadRecord, EpochRecord, epoch_key
from logpipeline.subjects import key_value_subject
from logpipeline_demo.outputs import ChainStream, find_chains

if TYPE_CHECKING:
    from simulated.world import World

_LINE = re.compile(rb"(\S+) (\S+) (\d+) x*$")
EXPLAINED_MAX = 20

# What a process may keep while nothing happens.
DESCRIPTORS_MAX = 90
TASKS_MAX = 90
# Consumers of a partition: its reader's, and those of readers that broke off a moment ago.
CONSUMERS_MAX = 4

Name = tuple[str, str]


@dataclass(slots=True)
class Outcome:
    """How many lines were written, *lost* (absent, whether named or not), archived *twice*, and
    *late*, behind a younger one of their log. *unnamed* is the bytes of absent lines that were not
    named as lost, or the other way round. *wrong* says in words all that is not as it should be.
    """

    written: int = 0
    lost: int = 0
    twice: int = 0
    late: int = 0
    unnamed: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Return whether all is as it should be."""
        return bool(self.written) and not self.wrong

    def counts(self) -> dict[str, int]:
        """Return the numbers by their names."""
        names = ("written", "lost", "twice", "late", "unnamed")
        return {name: getattr(self, name) for name in names}


def outcome(world: World, statuses: Iterable[dict[str, Any]] | None = None) -> Outcome:
    """Compare what the collectors' files hold with what was written, and both with what the
    product says in its *statuses*; without any, with nothing.
    """
    made = Outcome()
    found = _archived(world, made)
    named = _named(statuses or ())
    for writer in world.writers:
        name = (writer.host, writer.path.stem)
        place = f"{writer.host}/{writer.path.name}"
        numbers = found.pop(name, [])
        times = Counter(numbers)
        missing = [number for number in range(writer.lines) if number not in times]
        doubled = [number for number, count in times.items() if count > 1]
        made.written += writer.lines
        made.lost += len(missing)
        made.twice += sum(count - 1 for count in times.values())
        is_lost_track = world.partition_of(writer.host) in world.ownership.lost_track
        if not is_lost_track:
            made.wrong += [f"{place}: lines {span} are there twice" for span in _spans(doubled)]
        made.wrong += [f"{place}: line {n} was never written" for n in times if n >= writer.lines]
        missing_bytes = sum(writer.sizes[number] for number in missing)
        named_bytes = named.get(name, 0)
        if is_lost_track:
            named_bytes = min(named_bytes, missing_bytes)
        if statuses is not None and missing_bytes != named_bytes:
            made.unnamed += abs(missing_bytes - named_bytes)
            made.wrong.append(
                f"{place}: {missing_bytes} bytes are absent, and {named_bytes} named as lost"
            )
        if missing and (statuses is None or missing_bytes != named_bytes):
            made.wrong += [f"{place}: lines {span} are absent" for span in _spans(missing)]
        late = [(one, other) for one, other in pairwise(numbers) if one > other]
        made.late += len(late)
        if not world.may_be_late:
            made.wrong += [f"{place}: line {b} stands behind {a}" for a, b in late]
    made.wrong += [f"{'/'.join(name)} was never written" for name in found]
    del made.wrong[EXPLAINED_MAX:]
    return made


def is_settled(world: World, statuses: list[dict[str, Any]]) -> str:
    """Return what is still under way, as far as the product knows; nothing where nothing is."""
    shippers = [each for each in statuses if each["component"] == "shipper"]
    collectors = [each for each in statuses if each["component"] == "collector"]
    if len(shippers) < len(world.hosts) or len(collectors) < len(world.collectors):
        return f"{len(shippers)} shippers and {len(collectors)} collectors answer"
    for each in shippers:
        for name in ("backlog_bytes", "on_the_way_bytes", "to_be_named_bytes"):
            if each[name]:
                return f"{each['name']}: {name} is {each[name]}"
        if each["ready"] or each["live"]:
            return f"{each['name']}: {each['ready'] or each['live']}"
    owned = [part for each in collectors for part in each["partitions"] if "epoch" in part]
    if len(owned) != world.shape.partitions:
        return f"{len(owned)} partitions have owners"
    for part in owned:
        for name in ("pending_messages", "uncommitted_bytes", "missing_bytes"):
            is_known = part["partition"] not in world.ownership.lost_track
            if part[name] and (is_known or name != "missing_bytes"):
                return f"partition {part['partition']}: {name} is {part[name]}"
        if part["problem"] or part["position"] != part["read"]:
            return f"partition {part['partition']}: {part['problem'] or 'not committed'}"
    return ""


def bounds(world: World) -> list[str]:
    """Return what is larger than it may be while nothing happens."""
    wrong: list[str] = []
    for name in world.processes:
        pid = world.loop.pid_of(name)
        if (count := world.disk.open_count(pid)) > DESCRIPTORS_MAX:
            wrong.append(f"{name} has {count} descriptors")
    tasks = world.loop.tasks_by_process()
    wrong += [f"{pid} has {count} tasks" for pid, count in tasks.items() if count > TASKS_MAX]
    for stream in world.stream_names():
        count = len(world.server.streams[stream].consumers)
        if count > CONSUMERS_MAX * world.shape.stream_partitions:
            wrong.append(f"{stream} has {count} consumers")
    for host, part in world.shippers.items():
        shared = part._shared
        if shared.budget.used:
            wrong.append(f"{host} holds {shared.budget.used} bytes of its budget")
        manager = part._manager
        known = len(manager.sources) + len(manager._records)
        # Rotated files are sources of their own until they are known to be another's.
        if known > (most := world.shape.logs * 6):
            wrong.append(f"{host} knows {known} sources of at most {most}")
    return wrong


class Ownership:
    """Watches the records of owners as they are stored: none is written in an epoch that is over,
    nor by two processes in one, and none goes back.
    """

    def __init__(self, bucket: str, group: str, partitions: int) -> None:
        self.wrong: list[str] = []
        # Partitions whose owner could not learn all that was written before it came: the one before
        # it could not say so any more, and the server had lost the messages that do.
        self.lost_track: set[int] = set()
        # The newest snapshot of a partition when its stream lost messages that came after it.
        self._untold: dict[int, int] = {}
        self._subjects = {
            key_value_subject(bucket, epoch_key(group, number)): number
            for number in range(partitions)
        }
        self._last: dict[int, EpochRecord] = {}

    def note(self, subject: str, data: bytes) -> None:
        """Take what is stored as *subject* now."""
        partition = self._subjects.get(subject)
        if partition is None:
            return
        try:
            record = EpochRecord.decode(data)
        except BadRecord as error:
            self.wrong.append(f"partition {partition}: {error}")
            return
        last = self._last.get(partition)
        self._last[partition] = record
        if last is None:
            return
        if self._untold.get(partition, last.snapshot) != last.snapshot:
            del self._untold[partition]
        if record.folder != last.folder and partition in self._untold:
            self.lost_track.add(partition)
        if record.epoch < last.epoch:
            self._say(partition, record, f"epoch {last.epoch} had begun")
        elif record.epoch == last.epoch:
            if record.incarnation != last.incarnation:
                self._say(partition, record, f"{last.incarnation} has this epoch")
            if record.rollbacks < last.rollbacks:
                self._say(partition, record, "its roll-backs were more")
            is_back = record.position.sequence < last.position.sequence
            if is_back and record.rollbacks == last.rollbacks:
                self._say(partition, record, f"it was at {last.position.sequence}")

    def take_lines(self, partition: int) -> None:
        """Note that the stream of *partition* loses messages."""
        # What the owner has read and not committed counts as well: it commits it after this.
        last = self._last.get(partition)
        if last is not None:
            self._untold[partition] = last.snapshot

    def _say(self, partition: int, record: EpochRecord, why: str) -> None:
        self.wrong.append(
            f"partition {partition}: {record.owner} ({record.incarnation}) wrote epoch "
            f"{record.epoch} at {record.position.sequence}, though {why}"
        )


def _named(statuses: Iterable[dict[str, Any]]) -> dict[Name, int]:
    """Return the bytes that are named as lost of each source."""
    named: defaultdict[Name, int] = defaultdict(int)
    for each in statuses:
        for part in each["partitions"] if each["component"] == "collector" else ():
            for loss in part.get("losses", ()):
                stem = Path(loss["source"]).name.partition(".")[0]
                named[loss["host"], stem] += loss["end"] - loss["start"]
    return dict(named)


def _archived(world: World, made: Outcome) -> dict[Name, list[int]]:
    """Return the numbers of all lines that are in files, in their order. Of a log that several
    collectors had one after the other, the files are put into one order by their first lines.
    """
    found: dict[Name, list[list[int]]] = {}
    for chain in find_chains(world.outputs()):
        for path in chain.files:
            stream = ChainStream(type(chain)(chain.place, (path,)))
            while stream.fill(0):
                pass
            if stream.damaged:
                made.wrong.append(f"{chain.place}: {stream.damaged}")
            numbers: dict[Name, list[int]] = {}
            for line in stream.buffer.splitlines():
                match = _LINE.search(line)
                if match is None:
                    made.wrong.append(f"{chain.place} holds {line!r}")
                    continue
                host, log, number = match.groups()
                numbers.setdefault((host.decode(), log.decode()), []).append(int(number))
            for name, of_file in numbers.items():
                found.setdefault(name, []).append(of_file)
    return {name: [n for part in sorted(parts) for n in part] for name, parts in found.items()}


def _spans(numbers: Iterable[int]) -> Iterator[str]:
    """Yield the runs of neighbours in *numbers*."""
    first = last = None
    for number in sorted(numbers):
        if last is not None and number == last + 1:
            last = number
            continue
        if first is not None:
            yield f"{first} to {last}"
        first = last = number
    if first is not None:
        yield f"{first} to {last}"
