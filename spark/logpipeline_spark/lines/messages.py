"""Messages, opened: their headers, their source, and their exact bytes. A message that cannot be
decoded is kept as it came, and raises no error: one bad message must not stop a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from logpipeline.parts import in_parts
from logpipeline.subjects import BadHost, BadSubject, Subjects
from logpipeline.wire import (
    BadMessage,
    Batch,
    Previous,
    decode_headers,
    decode_payload,
    parse_headers,
)
from logpipeline_spark.lines.schema import Origin

# So many uncompressed bytes are processed at a time; one message may be larger (its own limit is
# wire.BATCH_BYTES_MAX, or the server's max_payload). Larger groups were not faster.
GROUP_BYTES_MAX = 8 * 1024 * 1024


class Message(NamedTuple):
    """A stored message; *time_ns* is the server's, *headers* the publisher's block, or empty.

    A tuple: a task creates one for each message, and a frozen dataclass takes three times as long.
    """

    sequence: int
    time_ns: int
    subject: str
    headers: bytes
    data: bytes


@dataclass(slots=True)
class Opened:
    """A message with its headers read. *data* is the source's bytes; in a message without our
    headers, with the newline that its sender left out. *reason* says why the message cannot be
    decoded.
    """

    message: Message
    host: str | None
    partition: int | None
    batch: Batch | None
    data: bytes
    reason: str = ""

    @property
    def is_marked(self) -> bool:
        """Whether it must be checked if these bytes came before."""
        return self.batch is not None and self.batch.resend and not self.reason

    @property
    def is_resent(self) -> bool:
        """Whether it was certainly sent before. A shipper without positions marks everything that
        it finds, and knows of no earlier sending.
        """
        return self.is_marked and self.batch is not None and not self.batch.unsure


def groups(
    messages: Iterable[Message], origin: Origin, *, bytes_max: int = GROUP_BYTES_MAX
) -> Iterator[list[Opened]]:
    """Yield *messages* opened, in their order, in groups of *bytes_max* uncompressed bytes.
    Messages that name bytes as lost are left out: they have no lines, and their bytes may still
    come.
    """
    subjects = Subjects(origin.root, origin.partitions)
    opened = (_open(message, subjects) for message in messages)
    with_bytes = (each for each in opened if each.batch is None or not each.batch.lost)
    return in_parts(with_bytes, lambda each: len(each.data), size_max=bytes_max)


def _open(message: Message, subjects: Subjects) -> Opened:
    partition, host = None, None
    try:
        partition, host = subjects.read(message.subject)
        batch = decode_headers(parse_headers(message.headers)) if message.headers else None
        if batch is None:
            return Opened(message, host, partition, None, message.data + b"\n")
        data = decode_payload(batch, message.data)
        return Opened(message, host, partition, batch, data)
    except (BadMessage, BadSubject, BadHost) as error:
        reason = error.reason if isinstance(error, BadMessage) else "bad-subject"
        return Opened(message, host, partition, None, message.data, reason)


class Run(NamedTuple):
    """Bytes ``[start, end)`` of one generation that came without a gap, in the messages *first* to
    *last*; *previous* and *previous_length* are the generation before, if it was named.
    """

    host: str
    source: str
    generation: str
    start: int
    end: int
    first: int
    last: int
    previous: str | None = None
    previous_length: int | None = None
    begins: bool = False

    @property
    def batch(self) -> Batch:
        """The run as the headers of one message, for `logpipeline.deduplication.decide`."""
        named = Previous(self.previous, self.previous_length) if self.previous else None
        return Batch(
            source=self.source,
            generation=self.generation,
            start=self.start,
            end=self.end,
            lines=0,
            format="plain",
            previous=named,
            begins=self.begins,
        )


class Seen(NamedTuple):
    """The bytes in messages: *runs* of certainly new bytes, and one run for each *marked* message,
    whose bytes may have come before. Both rise by their first sequence.
    """

    runs: tuple[Run, ...] = ()
    marked: tuple[Run, ...] = ()

    def encode(self) -> dict[str, Any]:
        """Return this as JSON values."""
        return {"runs": [list(run) for run in self.runs], "marked": [list(m) for m in self.marked]}

    @staticmethod
    def decode(value: dict[str, Any]) -> Seen:
        """Return what `encode` made."""
        return Seen(
            tuple(Run(*run) for run in value["runs"]), tuple(Run(*run) for run in value["marked"])
        )


def seen_of(group: Sequence[Opened]) -> Seen:
    """Return the bytes in the messages of *group*. Messages of other clients, and those that cannot
    be decoded, hold no bytes of a source.
    """
    runs = [
        (_run(opened, opened.batch), opened.is_marked)
        for opened in group
        if opened.batch is not None and not opened.reason
    ]
    return _merged(runs)


def joined(parts: Sequence[Seen]) -> Seen:
    """Return *parts* of one stream, which follow each other, as one."""
    runs = [(run, False) for part in parts for run in part.runs]
    runs += [(run, True) for part in parts for run in part.marked]
    return _merged(sorted(runs, key=lambda pair: pair[0].first))


def _run(opened: Opened, batch: Batch) -> Run:
    sequence = opened.message.sequence
    previous = batch.previous
    return Run(
        opened.host or "",
        batch.source,
        batch.generation,
        batch.start,
        batch.end,
        sequence,
        sequence,
        previous.generation if previous else None,
        previous.length if previous else None,
        batch.begins,
    )


def _merged(runs: Iterable[tuple[Run, bool]]) -> Seen:
    """Join adjoining runs of a source, unless a marked run of that source is between them: the
    decision about it depends on what came before it.
    """
    done: list[Run] = []
    marked: list[Run] = []
    open_runs: dict[tuple[str, str], Run] = {}
    for run, is_marked in runs:
        key = run[:2]
        before = open_runs.get(key)
        if is_marked:
            marked.append(run)
        elif before is not None and _adjoins(before, run):
            open_runs[key] = before._replace(end=run.end, last=run.last)
            continue
        if before is not None:
            done.append(open_runs.pop(key))
        if not is_marked:
            open_runs[key] = run
    done += open_runs.values()
    return Seen(tuple(sorted(done, key=lambda run: run.first)), tuple(marked))


def _adjoins(before: Run, run: Run) -> bool:
    is_same_chain = run.previous is None or run[7:9] == before[7:9]
    return before.generation == run.generation and before.end == run.start and is_same_chain
