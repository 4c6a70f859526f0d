"""Records that collectors, shippers, the planner and the CLI exchange: keys and JSON of the state
bucket, and progress messages.

Everything here is data. Collectors and the assigner decide who may write which record, and when.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, astuple, dataclass
from typing import Any, NamedTuple, TypeVar

from logpipeline import checksum, json_text
from logpipeline.checksum import Checksum
from logpipeline.declared_types import checked
from logpipeline.partition import PartitionRange, split
from logpipeline.parts import in_parts

# A position's history is as long as an owner may have been away for; the oldest entries go first.
EPOCH_HISTORY_MAX = 32
# Refused messages that an epoch's record lists, 20 bytes each; beyond them a successor reads what
# the headers alone do not show.
REFUSED_MAX = 256
# Limits of one progress message, and of one question: below the usual max_payload, and read in some
# milliseconds. The rest goes into another one.
PROGRESS_ROWS_MAX = 1000
PROGRESS_BYTES_MAX = 512 * 1024
# A header of epoch records: older collectors cannot read it, and must not fail because of it.
SUCCESSION_HEADER = "Log-Succession"
# Folders of former owners that a record lists; the one that was succeeded first is dropped first.
# Each takes some 200 bytes of every commit.
FORMER_FOLDERS_MAX = 64
# Lost folders that a record lists, the newest.
GONE_FOLDERS_MAX = 8
# Groups that an answer names. More are not named at all: a name that is left out is forgotten.
PROGRESS_GROUPS_MAX = 64
# Holes that are reported per source; further ones follow when these are filled.
PROGRESS_HOLES_MAX = 16

T = TypeVar("T")


class BadRecord(ValueError):
    """A value in the state bucket, or a progress message, that no part of a pipeline wrote."""


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """A position in a stream: everything up to *sequence* was read.

    A server that lost its tail uses sequence numbers again, so a sequence alone names nothing:
    *created* is the stream's own, *time_ns* the server's time of the message at *sequence*;
    sequence 0 (nothing read) has time 0.
    """

    created: str
    sequence: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Reached:
    """The progress of a read, with the stream's incarnation: up to *position*, after the stream had
    gone back *rollbacks* times; None where an older collector did not say.

    A sequence alone does not order two commits: behind a roll-back the same sequence is reached
    again, with other lines.
    """

    position: StreamPosition
    rollbacks: int | None

    def is_same(self, other: Reached) -> bool:
        """Return whether both have read the same; a field that one of them does not know is not
        compared.
        """
        if self.position.sequence != other.position.sequence:
            return False
        if None not in (self.rollbacks, other.rollbacks) and self.rollbacks != other.rollbacks:
            return False
        # At sequence 0 nothing was read, and the stream need not be known yet.
        times = {self.position.time_ns, other.position.time_ns}
        return self.position.sequence == 0 or 0 in times or len(times) == 1

    def is_before(self, other: Reached) -> bool:
        """Return whether *other* has read more: after a roll-back, or further."""
        if self.rollbacks is None or other.rollbacks is None:
            return self.position.sequence < other.position.sequence
        mine = self.rollbacks, self.position.sequence
        return mine < (other.rollbacks, other.position.sequence)

    def is_older(self, other: Reached) -> bool:
        """Return whether *other* has read more by what the server alone says: of a stream that was
        made later, or a message that was stored later.

        Unlike `is_before` it also orders what was reached by owners that did not succeed each
        other: where the bucket was lost, roll-backs are counted anew.
        """
        mine, others = self.position, other.position
        if mine.created and others.created and mine.created != others.created:
            return _age(mine.created) < _age(others.created)
        is_known = all(each.time_ns or not each.sequence for each in (mine, others))
        return mine.time_ns < others.time_ns if is_known else self.is_before(other)


def _age(created: str) -> tuple[str, str]:
    """Return what orders times of JetStream: they are in UTC, and their fraction ends with the last
    digit that is not 0.
    """
    second, _, fraction = created.removesuffix("Z").partition(".")
    return second, fraction.ljust(9, "0")


@dataclass(frozen=True, slots=True)
class EpochStart:
    """Where an epoch began to read, as older collectors wrote and read it: the sequence of the
    position it took over. `Succession` says it in full.
    """

    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Former:
    """A folder that had the partition: of *member*, last in *epoch*. It read from *since* (None:
    unknown), and its next owner began at *end*: what it committed locally beyond that does not
    count.
    """

    member: str
    folder: str
    epoch: int
    since: Reached | None
    end: Reached


@dataclass(frozen=True, slots=True)
class GoneFolder:
    """A folder of *member* that was not there any more when *member* came back, at *time_ns*. It
    had collected the messages behind *after* up to *end*; they are read again from *again_from* on,
    the first that the stream still had, 0 where none is read again.
    """

    member: str
    folder: str
    time_ns: int
    after: int
    end: int
    again_from: int


@dataclass(frozen=True, slots=True)
class Succession:
    """Where an epoch *start*ed, since when its folder has the partition without a break, the
    *former* folders, the one that had it last at the end, and those that are *gone*.

    It travels in a header of the epoch record: older collectors do not see it, and read the rest.
    """

    start: Reached
    since: Reached
    former: tuple[Former, ...] = ()
    gone: tuple[GoneFolder, ...] = ()

    def of(self, folder: str) -> Former | None:
        """Return the record of *folder*."""
        return next((each for each in self.former if each.folder == folder), None)

    def encode(self) -> str:
        """Return it as the header's text."""
        former = [
            [each.member, each.folder, each.epoch, _row_of(each.since), _row_of(each.end)]
            for each in self.former
        ]
        gone = [list(astuple(each)) for each in self.gone]
        return _dump([_row_of(self.start), _row_of(self.since), former, gone]).decode()

    @staticmethod
    def decode(text: str) -> Succession | None:
        """Return the succession that `encode` made; None for anything else, as the empty text of an
        older collector.
        """
        try:
            start, since, rows, gone, *_ = json_text.parse(text)
            former = tuple(
                Former(str(member), str(folder), int(epoch), _reached(began), _reached_of(end))
                for member, folder, epoch, began, end in rows[-FORMER_FOLDERS_MAX:]
            )
            missing = tuple(checked(GoneFolder(*row)) for row in gone[-GONE_FOLDERS_MAX:])
            return Succession(_reached_of(start), _reached_of(since), former, missing)
        except (ValueError, TypeError):
            return None


def _row_of(reached: Reached | None) -> list[Any] | None:
    if reached is None:
        return None
    position = reached.position
    return [position.created, position.sequence, position.time_ns, reached.rollbacks]


def _reached(row: Any) -> Reached | None:
    return None if row is None else _reached_of(row)


def _reached_of(row: Any) -> Reached:
    created, sequence, time_ns, rollbacks = row
    return Reached(
        StreamPosition(str(created), int(sequence), int(time_ns)),
        None if rollbacks is None else int(rollbacks),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRecord:
    """The owner of a partition for a group of collectors, and how far it is committed.

    *owner* is a member's name, *incarnation* the process of it; *released* says that the owner
    gave it up by itself. *snapshot* is the sequence of the last snapshot of the sources' positions
    in the snapshot stream, 0 for none; *snapshot_at* is the position in the log stream that the
    snapshot describes. *begun* is the sequence behind which the group began, 0 for the
    beginning, and *begun_ns* the server's time of the message there, 0 where it was gone.
    *lost_bytes* are those that shippers named as lost, up to the position, *missing_bytes* those in
    holes that may still be filled. *missed_messages* left the stream before the group read them.
    *refused* are the sequences behind the snapshot of messages
    whose payload is not what their headers say; there may be more of them where there are
    `REFUSED_MAX`. *succession* is None in records of older collectors. Where one stream holds
    several partitions, *passed* is a place behind the position with only messages of others
    between the two, None where there is none.
    """

    epoch: int
    owner: str
    incarnation: str
    assignment: int
    position: StreamPosition
    rollbacks: int = 0
    released: bool = False
    snapshot: int = 0
    snapshot_at: int = 0
    history: tuple[EpochStart, ...] = ()
    begun: int = 0
    begun_ns: int = 0
    lost_bytes: int = 0
    missing_bytes: int = 0
    missed_messages: int = 0
    refused: tuple[int, ...] = ()
    succession: Succession | None = None
    passed: StreamPosition | None = None

    @property
    def reached(self) -> Reached:
        """The progress that is committed."""
        return Reached(self.position, self.rollbacks)

    @property
    def read_to(self) -> int:
        """The sequence up to which all of the partition is committed."""
        return max(self.position.sequence, self.passed.sequence if self.passed else 0)

    @property
    def folder(self) -> str:
        """The name of the folder whose process wrote the record."""
        return folder_of(self.incarnation)

    def encode(self) -> bytes:
        """Return the record as JSON, without its succession."""
        data = asdict(self)
        del data["succession"]
        # As older collectors wrote it, and can read it during an update.
        if not self.begun:
            del data["begun"], data["begun_ns"]
        if not self.lost_bytes:
            del data["lost_bytes"]
        if not self.missing_bytes:
            del data["missing_bytes"]
        if not self.missed_messages:
            del data["missed_messages"]
        if not self.refused:
            del data["refused"]
        if self.passed is None:
            del data["passed"]
        return _dump(data)

    @staticmethod
    def decode(value: bytes, succession: str = "") -> EpochRecord:
        """Return the record that `encode` wrote, with the *succession* of its header.

        Raises:
            BadRecord: it is none.
        """
        try:
            data = json_text.parse(value)
            data["position"] = StreamPosition(**data["position"])
            data["history"] = tuple(
                EpochStart(**entry) for entry in data["history"][-EPOCH_HISTORY_MAX:]
            )
            data["refused"] = tuple(int(each) for each in data.get("refused", ()))
            data["passed"] = StreamPosition(**data["passed"]) if data.get("passed") else None
            return checked(EpochRecord(**data, succession=Succession.decode(succession)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadRecord(f"no epoch record: {value[:80]!r}") from error


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions that each member of a group owns; *generation* rises with every change.
    *pipeline* is the one that assigns them, empty in assignments of older versions.
    """

    generation: int
    partitions: int
    members: tuple[tuple[str, PartitionRange], ...]
    pipeline: str = ""

    def of(self, member: str) -> PartitionRange:
        """Return the range of *member*, an empty one if it has none."""
        return dict(self.members).get(member, PartitionRange(0, 0))

    def owner(self, partition: int) -> str | None:
        """Return the member that *partition* is assigned to."""
        return next((name for name, owned in self.members if partition in owned), None)

    def encode(self) -> bytes:
        """Return the assignment as JSON."""
        members = [
            {"name": name, "first": owned.first, "end": owned.end} for name, owned in self.members
        ]
        return _dump(
            {
                "generation": self.generation,
                "partitions": self.partitions,
                "members": members,
                "pipeline": self.pipeline,
            }
        )

    @staticmethod
    def decode(value: bytes) -> Assignment:
        """Return the assignment that `encode` wrote.

        Raises:
            BadRecord: it is none.
        """
        try:
            data = json_text.parse(value)
            members = tuple(
                (str(m["name"]), checked(PartitionRange(m["first"], m["end"])))
                for m in data["members"]
            )
            return Assignment(
                int(data["generation"]),
                int(data["partitions"]),
                members,
                str(data.get("pipeline", "")),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise BadRecord(f"no assignment: {value[:80]!r}") from error


def assign(
    members: list[str], *, partitions: int, generation: int, pipeline: str = ""
) -> Assignment:
    """Return an assignment that gives each of *members*, in their order, a contiguous range."""
    ranges = split(partitions=partitions, collectors=len(members))
    return Assignment(generation, partitions, tuple(zip(members, ranges, strict=True)), pipeline)


@dataclass(frozen=True, slots=True)
class Committed:
    """The collected part of one generation of a source: up to *offset*, but for *holes*, ranges
    below it that never came. Shipping of it began at *begun*; *checksum* is its running checksum at
    *offset*, None where its shipper sent none.
    """

    source: str
    generation: str
    offset: int
    holes: tuple[tuple[str, int, int], ...] = ()
    begun: int = 0
    checksum: Checksum | None = None


class Named(NamedTuple):
    """One generation of one source of a host."""

    source: str
    generation: str


@dataclass(frozen=True, slots=True)
class Question:
    """A shipper's question about a host: how far *generations* are collected; None asks for all
    that is known of the host.
    """

    generations: tuple[Named, ...] | None = None

    def encode(self) -> bytes:
        """Return the message's payload: nothing where all is asked for, as older shippers do."""
        if self.generations is None:
            return b""
        by_source: defaultdict[str, list[str]] = defaultdict(list)
        for source, generation in self.generations:
            by_source[source].append(generation)
        return _dump({"generations": by_source})

    @staticmethod
    def decode(payload: bytes) -> Question:
        """Return the question that `encode` wrote; what is asked for beyond `PROGRESS_ROWS_MAX` is
        left out.

        Raises:
            BadRecord: it is none.
        """
        if not payload:
            return Question()
        try:
            by_source = json_text.parse(payload)["generations"].items()
            named = [Named(str(source), str(each)) for source, ids in by_source for each in ids]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadRecord(f"no question: {payload[:80]!r}") from error
        return Question(tuple(named[:PROGRESS_ROWS_MAX]))


def questions(generations: Iterable[Named]) -> Iterator[Question]:
    """Yield questions for *generations*, each small enough for a message."""
    for asked in _in_messages(generations, lambda named: len(_dump(named))):
        yield Question(tuple(asked))


def answers(
    question: Question, known: Iterable[Committed]
) -> Iterator[tuple[tuple[Committed, ...], tuple[Named, ...]]]:
    """Yield the rows of *known*, and the names that are unknown, for each message that answers
    *question*; one message without rows where nothing is known.
    """
    rows = list(known)
    unknown: tuple[Named, ...] = ()
    if question.generations is not None:
        names = {(each.source, each.generation) for each in rows}
        unknown = tuple(named for named in question.generations if named not in names)
    parts = list(_in_messages(rows, lambda each: len(_dump(_row(each))))) or [[]]
    for number, part in enumerate(parts, 1):
        yield tuple(part), unknown if number == len(parts) else ()


def _in_messages(rows: Iterable[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield *rows* in parts that are small enough for a message each."""
    return in_parts(rows, size_of, size_max=PROGRESS_BYTES_MAX, count_max=PROGRESS_ROWS_MAX)


@dataclass(frozen=True, slots=True)
class Progress:
    """A collector's report to the shipper of one host. Unasked, and at most once a second, it says
    how far the newest generation of each source that changed is collected; as an answer, what the
    `Question` names, or all that is known. *unknown* are generations that were asked for, and of
    which the collector has nothing.

    *sequence* is how far the stream that was *created* then is collected, and *pending* how many
    messages of it are still to be read. *begun* is the sequence behind which the group began, and
    *first* that of the first message that the stream still holds; *max_age_s* is how long it keeps
    one, 0 for ever. *is_last* says that an answer has no further part. *groups* are all groups of
    collectors that the pipeline has, as an answer names them; none where the collector does not
    know them, or is older.
    """

    group: str
    partition: int
    epoch: int
    rollbacks: int
    sources: tuple[Committed, ...]
    created: str = ""
    sequence: int = 0
    pending: int = 0
    is_last: bool = True
    begun: int = 0
    first: int = 0
    max_age_s: float = 0.0
    unknown: tuple[Named, ...] = ()
    groups: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Return the message's payload."""
        return _dump(asdict(self) | {"sources": [_row(each) for each in self.sources]})

    @staticmethod
    def decode(payload: bytes) -> Progress:
        """Return the message that `encode` wrote.

        Raises:
            BadRecord: it is none.
        """
        try:
            data = json_text.parse(payload)
            return Progress(
                str(data["group"]),
                int(data["partition"]),
                int(data["epoch"]),
                int(data["rollbacks"]),
                tuple(_committed(*row) for row in data["sources"]),
                str(data.get("created", "")),
                int(data.get("sequence", 0)),
                int(data.get("pending", 0)),
                bool(data.get("is_last", True)),
                int(data.get("begun", 0)),
                int(data.get("first", 0)),
                float(data.get("max_age_s", 0.0)),
                tuple(Named(str(source), str(each)) for source, each in data.get("unknown", ())),
                tuple(str(each) for each in data.get("groups", ())),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise BadRecord(f"no progress message: {payload[:80]!r}") from error


def _row(known: Committed) -> list[Any]:
    holes = [list(hole) for hole in known.holes[:PROGRESS_HOLES_MAX]]
    at_offset = None if known.checksum is None else checksum.encode(known.checksum)
    return [known.source, known.generation, known.offset, holes, known.begun, at_offset]


def _committed(
    source: str,
    generation: str,
    offset: int,
    holes: list[list[Any]],
    begun: int = 0,
    at_offset: str | None = None,
) -> Committed:
    return Committed(
        str(source),
        str(generation),
        int(offset),
        tuple((str(name), int(start), int(end)) for name, start, end in holes),
        int(begun),
        None if at_offset is None else checksum.decode(at_offset),
    )


def assignment_key(group: str) -> str:
    """Return the key of the group's assignment."""
    return f"assignment.{group}"


def epoch_key(group: str, partition: int) -> str:
    """Return the key of the epoch record of *partition*."""
    return f"{epoch_root(group)}.{partition}"


def epoch_root(group: str) -> str:
    """Return the token below which a group's epoch records stand."""
    return f"epoch.{group}"


def folder_of(incarnation: str) -> str:
    """Return the name of the folder that the process *incarnation* works in."""
    return incarnation.rpartition("-")[0]


def member_key(group: str, member: str) -> str:
    """Return the key at which *member* shows that it is alive; its value is its incarnation."""
    return f"member.{group}.{member}"


def _dump(data: Any) -> bytes:
    # A source may hold bytes that are no UTF-8; json writes their surrogates as escapes, and reads
    # them back.
    return json_text.dump(data).encode("ascii")
