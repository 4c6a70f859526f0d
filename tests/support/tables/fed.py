"""A job that keeps a table of one stream and is fed messages by hand: it decides, writes and
commits as a batch does, without a server and without Spark.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from logpipeline.spans import Span, joined
from logpipeline_spark.job.knowledge import Knowledge
from logpipeline_spark.job.stream_state import Known, StreamState, learn
from logpipeline_spark.job.task import RESENT, cut, within
from logpipeline_spark.lines.arrow import tables_of
from logpipeline_spark.lines.messages import Message, groups, seen_of
from logpipeline_spark.lines.messages import joined as joined_seen
from logpipeline_spark.lines.schema import LINES, Origin
from logpipeline_spark.source.offsets import Position
from logpipeline_spark.table.counts import by_minute, by_source, counted
from logpipeline_spark.table.files import ROLLUP_MINUTE, ROLLUP_SOURCE, FileEntry, FileName, Range
from logpipeline_spark.table.parquet import write_range
from tables.erased import Lake
from tables.made import BEGIN, STREAM
from tables.messages import message

# The server leaves out zeros at the end of a time.
CREATED = "2026-11-21T09:00:00.12Z"
SECOND_NS = 10**9
SOURCE = "/var/log/app.log"
GENERATION = "0123456789abcdef"


@dataclass
class Sent:
    """A stream of one life, and the files that its messages are of."""

    rollbacks: int = 0
    created: str = CREATED
    sequence: int = 0
    content: dict[tuple[str, str], bytes] = field(default_factory=dict)
    # Messages a minute, so that many fill some hours.
    step_s: int = 60

    def append(self, data: bytes, *, source: str = SOURCE, generation: str = GENERATION) -> Span:
        """Write *data* to a file, and return which bytes of it that are."""
        before = self.content.get((source, generation), b"")
        self.content[source, generation] = before + data
        return len(before), len(before) + len(data)

    def message(
        self,
        span: Span,
        *,
        source: str = SOURCE,
        generation: str = GENERATION,
        resend: bool = False,
        log_format: str = "plain",
    ) -> Message:
        """Return the stream's next message, with bytes of a file."""
        self.sequence += 1
        data = self.content[source, generation][slice(*span)]
        names = {"source": source, "generation": generation, "format": log_format}
        made = message(data, self.sequence, span[0], resend=resend, **names)
        return made._replace(time_ns=self.time_ns)

    def lines(self, *texts: str, source: str = SOURCE) -> Message:
        """Write lines, and return the message that brings them."""
        return self.message(
            self.append("".join(f"{text}\n" for text in texts).encode(), source=source),
            source=source,
        )

    def again(self, source: str = SOURCE) -> Message:
        """Return a message that brings a whole file once more."""
        span = (0, len(self.content[source, GENERATION]))
        return self.message(span, source=source, resend=True)

    @property
    def time_ns(self) -> int:
        """When the last message was stored."""
        return int(BEGIN.timestamp() + self.sequence * self.step_s) * SECOND_NS + 123_456_789

    @property
    def position(self) -> Position:
        """Behind the last message."""
        return Position(
            created=self.created,
            rollbacks=self.rollbacks,
            sequence=self.sequence,
            time_ns=self.time_ns,
            after=self.sequence,
            message_bytes=100,
        )


class Job:
    """A job that has taken the table over, and goes on from what that keeps."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.table = lake.open()
        heads, rows = self.table.state.heads, self.table.rows
        self.state = StreamState.of(heads.get(STREAM), rows.get(STREAM, {}), where="the test")
        self.knowledge = Knowledge({STREAM: self.state})

    @property
    def known(self) -> Known:
        """What it knows of sources."""
        return self.state.known

    def take(self, sent: Sent, *messages: Message) -> int:
        """Commit *messages*, the last of what was *sent*, as one batch; return how many lines were
        new.
        """
        first, last = messages[0].sequence, messages[-1].sequence
        end = replace(sent.position, sequence=last, after=first - 1)
        origin = Origin(STREAM, end.incarnation, "logs", 10)
        opened = list(groups(messages, origin))
        learned = learn(self.known, joined_seen([seen_of(group) for group in opened]))
        plain = [each for group in opened for each in group if not each.is_marked]
        marked = [part for group in opened for part in cut(group, learned.wanted)]
        fresh = list(tables_of(plain, origin)) if plain else []
        again = [
            within(table, learned.wanted) for table in (tables_of(marked, origin) if marked else ())
        ]
        name = FileName(STREAM, end.incarnation, first, last, self.table.writer)
        added = self._written(name, fresh) + self._written(replace(name, kind=RESENT), again)
        self.state.position = end
        self.knowledge.take({STREAM: learned})
        self.table.commit_batch(
            str(first),
            {STREAM: Range(end.incarnation, first, last)},
            added,
            self.knowledge.kept(),
        )
        return sum(table.num_rows for table in (*fresh, *again))

    def _written(self, name: FileName, tables: Sequence[pa.Table]) -> list[FileEntry]:
        tables = [table.cast(LINES) for table in tables if table.num_rows]
        if not tables:
            return []
        storage, rows = self.lake.storage, pa.concat_tables(tables)
        return (
            write_range(storage, tables, name)
            + write_range(storage, [by_minute(counted(rows))], name, area=ROLLUP_MINUTE)
            + write_range(storage, [by_source(counted(rows))], name, area=ROLLUP_SOURCE)
        )


class Play:
    """Interprets steps: lines are written, sent, lost on their way, and sent again."""

    def __init__(self, lake: Lake) -> None:
        self.sent = Sent()
        self.job = Job(lake)
        self.waiting: list[Message] = []
        self.ends: dict[tuple[str, str], list[int]] = {}
        self.number = 0

    def step(self, kind: str, which: int, count: int) -> None:
        """Do one step, about a file of a source."""
        source, generation = f"/log/{which % 2}", f"{which:016x}"
        names = {"source": source, "generation": generation}
        if kind == "commit":
            self.commit()
        elif kind == "again":
            ends = self.ends.get((source, generation), [])
            if len(ends) > 1:
                first = self.number % (len(ends) - 1)
                last = min(first + count, len(ends) - 1)
                self.send((ends[first], ends[last]), names, resend=True)
        else:
            span = self.sent.append(b"".join(self.written(kind, which, count)), **names)
            self.ends.setdefault((source, generation), [0]).append(span[1])
            if kind != "lost":
                self.send(span, names)

    def written(self, kind: str, which: int, count: int) -> list[bytes]:
        """Return so many new lines."""
        made = []
        for _ in range(count):
            self.number += 1
            text = f"{self.number}" + "x" * (self.number % 3)
            # A file is of one format.
            if which < 2 and kind == "empty":
                data = b"\n"
            elif which < 2:
                data = text.encode() + b"\xff" * (kind == "bytes") + b"\n"
            elif kind == "fragments":
                data = cri(self.number, text, "P") + cri(self.number, "y", "F")
            else:
                data = cri(self.number, text)
            made.append(data)
        return made

    def send(self, span: tuple[int, int], names: dict[str, str], *, resend: bool = False) -> None:
        """Let bytes wait in the stream."""
        log_format = "plain" if names["generation"] < f"{2:016x}" else "cri"
        made = self.sent.message(span, resend=resend, log_format=log_format, **names)
        self.waiting.append(made)

    def commit(self) -> None:
        """Have a batch take what waits."""
        if self.waiting:
            self.job.take(self.sent, *self.waiting)
            self.waiting = []

    def send_all_again(self) -> None:
        """Have each file sent again as a whole, as a shipper does that lost its positions."""
        for (source, generation), data in self.sent.content.items():
            names = {"source": source, "generation": generation}
            self.send((0, len(data)), names, resend=True)
        self.commit()


def cri(number: int, text: str, tag: str = "F") -> bytes:
    """Return a line as a runtime writes it; some leave zeros of the time out."""
    fraction = f"{number:09d}".rstrip("0") if number % 2 else f"{number:09d}"
    fd = "stderr" if number % 3 else "stdout"
    return f"2026-11-21T10:00:00.{fraction or '0'}Z {fd} {tag} {text}\n".encode()


def lose_state(lake: Lake) -> None:
    """Remove all that the table keeps beside its files."""
    shutil.rmtree(Path(lake.storage.url) / "_table")


def states(lake: Lake) -> list[Path]:
    """Return the objects of all states, the newest last."""
    return sorted((Path(lake.storage.url) / "_table" / "state").iterdir())


def spans_of(known: Known) -> dict[tuple[str, str, str], list[Span]]:
    """Return which bytes are known to have been read, by host, source and generation."""
    return {
        (*name, each.name): joined(extent.span for extent in each.extents)
        for name, knowledge in known.items()
        for each in knowledge.generations
    }


def head_of(position: Position | None) -> object:
    """Return a position as a state has it."""
    return None if position is None else asdict(position)
