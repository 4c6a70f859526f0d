"""Stack traces as one event, for programs that read the streams. The rules are those of
`logpipeline.multiline`, by which `logpipeline_spark.events` joins the lines of a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from logpipeline.consuming.message import Batch, Line, Message
from logpipeline.multiline import LIMITS, Joiner, Limits, chosen

# Files whose last lines are remembered, for traces that go on in the next batch. The one that wrote
# longest ago is forgotten first: a trace that it is in the middle of is two events then.
SOURCES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Event:
    """Lines of one source that belong together, such as a stack trace and the line that logged it;
    most events are one line. With *continues* the event began in an earlier batch.
    """

    lines: tuple[Line, ...]
    continues: bool = False

    @property
    def first(self) -> Line:
        """The first of its lines, which says where and when it was written."""
        return self.lines[0]

    @property
    def event_time(self) -> datetime | None:
        """When it happened: the event time of its first line."""
        return self.first.event_time

    @property
    def text(self) -> bytes:
        """Its lines with newlines between them."""
        return b"\n".join(line.text for line in self.lines)


@dataclass(slots=True)
class _Source:
    """A generation of a file that was read up to *end*; a container's log has a joiner for each of
    its streams.
    """

    end: int
    joiners: dict[str, Joiner] = field(default_factory=dict)


class EventJoiner:
    """Joins the lines of a reader's batches, in the order in which they are handed out.

    A batch is processed as a whole, so its end also ends its events: what follows in the next batch
    comes as an event that `continues`. Most programs write a trace at once, and so it is in
    one batch.
    """

    def __init__(self, *presets: str, begin: str | None = None, limits: Limits = LIMITS) -> None:
        """*presets* are languages (``java``, ``python``, ``go``, ``node``, ``ruby``, ``dotnet``),
        or ``auto``, which is all and the default. An event begins also at each line in which the
        expression *begin* finds something.

        Raises:
            ValueError: there is no such preset, or *begin* is not an expression.
        """
        self._rules = chosen(presets, begin)
        self._limits = limits
        self._sources: dict[tuple[str, str, str], _Source] = {}
        # A wrong expression is told at once.
        self._joiner()

    def events(self, batch: Batch) -> Iterator[Event]:
        """Yield the events of *batch*: each when its last line is known, those that its end ends in
        the order of their first lines.
        """
        open_events: dict[tuple[str, str, str, str], list[Line]] = {}
        continued = set()
        for message in batch.messages:
            name = _name_of(message)
            source = self._source_of(name, message)
            for line in message.lines:
                key = (*name, line.stream)
                if (joiner := source.joiners.get(line.stream)) is None:
                    joiner = source.joiners[line.stream] = self._joiner()
                begins = joiner.begins(line.text.decode(errors="replace"))
                if begins and key in open_events:
                    yield Event(tuple(open_events.pop(key)), continues=key in continued)
                    continued.discard(key)
                if not begins and key not in open_events:
                    continued.add(key)
                open_events.setdefault(key, []).append(line)
        for key, lines in open_events.items():
            yield Event(tuple(lines), continues=key in continued)

    def _joiner(self) -> Joiner:
        return Joiner(self._rules, self._limits)

    def _source_of(self, name: tuple[str, str, str], message: Message) -> _Source:
        batch = message.read.batch
        if batch is None:
            # Without our headers nothing says which file it is from.
            return _Source(end=0)
        source = self._sources.pop(name, None)
        # Behind a gap, and where a batch is handed out again, other lines came before.
        if source is None or source.end != message.start:
            source = _Source(end=0)
        source.end = batch.end
        self._sources[name] = source
        if len(self._sources) > SOURCES_MAX:
            del self._sources[next(iter(self._sources))]
        return source


def _name_of(message: Message) -> tuple[str, str, str]:
    batch = message.read.batch
    if batch is None:
        return message.host, "", str(message.sequence)
    return message.host, batch.source, batch.generation
