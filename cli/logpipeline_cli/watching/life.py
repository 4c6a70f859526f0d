"""The life of one source: each generation that collectors know, how far it is collected, and what
is missing of it. Collectors answer, as they answer shippers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from logpipeline.nats.connection import Connection, gather
from logpipeline.nats.session import RawMessage
from logpipeline.partition import partition_of
from logpipeline.records import BadRecord, Progress, Question
from logpipeline.spec import LogPipeline
from logpipeline.subjects import ControlSubjects
from logpipeline_cli.watching.rows import SourceRow, View

# Messages of one answer; each holds up to 1000 generations of the host.
ANSWERS_MAX = 100
GENERATIONS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One generation of a source, as the collectors of *group* have it: all up to *collected*, but
    for *holes*. Shipping of it began at *begun*; *shipped* is how far it is shipped, where its
    shipper reads it now.
    """

    name: str
    group: str
    begun: int = 0
    collected: int = 0
    holes: tuple[tuple[int, int], ...] = ()
    shipped: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """All that is known of one source, the newest generation first. *row* is None where no shipper
    and no hole shows it. No collector *answered* where none owns its partition, or where the login
    may not ask.
    """

    host: str
    source: str
    partition: int
    row: SourceRow | None
    answered: bool
    generations: tuple[Generation, ...] = ()
    losses: tuple[Mapping[str, Any], ...] = ()


@dataclass(slots=True)
class _Answers:
    """The answers of collectors to one question."""

    came: list[Progress] = field(default_factory=list)

    def keep(self, message: RawMessage) -> None:
        if len(self.came) >= ANSWERS_MAX:
            return
        try:
            self.came.append(Progress.decode(message.data))
        except BadRecord:
            return  # of another program, or a collector of another version


async def ask_collectors(
    connection: Connection, pipeline: LogPipeline, host: str
) -> list[Progress]:
    """Return what collectors know of *host*.

    Raises:
        NotSent: there is no connection.
        BadHost: *host* cannot be one.
    """
    control = ControlSubjects(pipeline.names.control_subject)
    subject = control.ask_committed(partition_of(host, pipeline.spec.partitions), host)
    answers = _Answers()
    await gather(connection, [subject], Question().encode(), answers.keep)
    return answers.came


def life_of(
    view: View, answers: Iterable[Progress], *, host: str, source: str, partitions: int
) -> Life:
    """Return the life of one source, from its watched row and the *answers* of collectors."""
    named = host, source
    row = next((each for each in view.sources if (each.host, each.source) == named), None)
    found, answered = _generations(answers, source, row)
    if row is not None and row.generation and all(g.name != row.generation for g in found):
        # It was shipped a moment ago, and is not collected yet.
        found.append(Generation(name=row.generation, group="", shipped=row.offset))
    return Life(
        host=host,
        source=source,
        partition=partition_of(host, partitions),
        row=row,
        answered=answered,
        generations=tuple(reversed(found))[:GENERATIONS_MAX],
        losses=tuple(each for each in view.losses if (each["host"], each["source"]) == named),
    )


def _generations(
    answers: Iterable[Progress], source: str, row: SourceRow | None
) -> tuple[list[Generation], bool]:
    """Return the generations that *answers* name, the oldest first, and whether any came."""
    found: dict[tuple[str, str], Generation] = {}
    holes: dict[tuple[str, str], set[tuple[int, int]]] = {}
    answered = False
    for progress in answers:
        answered = True
        for known in progress.sources:
            if known.source != source:
                continue
            is_read = row is not None and row.generation == known.generation
            key = progress.group, known.generation
            found[key] = Generation(
                name=known.generation,
                group=progress.group,
                begun=known.begun,
                collected=known.offset,
                shipped=row.offset if row is not None and is_read else None,
            )
            # A report on the newest generation names the holes of all.
            for name, start, end in known.holes:
                holes.setdefault((progress.group, name), set()).add((start, end))
    ordered = [
        replace(each, holes=tuple(sorted(holes.get(key, ())))) for key, each in found.items()
    ]
    return ordered, answered
