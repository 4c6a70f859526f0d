"""A task: one range of one stream, read once, and looked at before and after, so that what is gone
is noticed and what another life of the stream holds is not taken for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from logpipeline_spark.errors import Refused
from logpipeline_spark.lines.message import Message
from logpipeline_spark.lines.schema import Origin
from logpipeline_spark.source import fetch
from logpipeline_spark.source.client import Client
from logpipeline_spark.source.options import SourceOptions
from logpipeline_spark.source.positions import Position, Verdict, judge, loss_sentence

OTHER_LIFE = (Verdict.RECREATED, Verdict.ROLLED_BACK)


@dataclass(frozen=True)
class RangeTask(InputPartition):
    """Sequences *first* to *last* of *stream*, in the batch that ends at *end*; the root of its
    subjects is *root*, or the options' where that is empty.
    """

    stream: str
    end: Position
    first: int
    last: int
    root: str = ""

    def origin(self, options: SourceOptions) -> Origin:
        """Return where the task's messages come from."""
        root = self.root or options.subject
        return Origin(self.stream, self.end.incarnation, root, options.partitions)


def read_task(
    options: SourceOptions,
    task: RangeTask,
    *,
    lost: list[tuple[int, int]] | None = None,
    chunk_bytes_max: int = fetch.CHUNK_BYTES_MAX,
) -> Iterator[list[Message]]:
    """Yield what `read_range` does, by a connection of its own."""
    with Client(options) as client:
        yield from read_range(client, options, task, lost=lost, chunk_bytes_max=chunk_bytes_max)


def read_range(
    client: Client,
    options: SourceOptions,
    task: RangeTask,
    *,
    lost: list[tuple[int, int]] | None = None,
    chunk_bytes_max: int = fetch.CHUNK_BYTES_MAX,
) -> Iterator[list[Message]]:
    """Yield the messages of *task*, in order, in lists of bounded size.

    Where loss is allowed, *lost* is told in the end which of them were gone, from first to last.

    Raises:
        Refused: some of them are gone, and that is not allowed; or the server is.
    """
    verdict, _ = _verify(client, options, task, missing=task.first)
    gaps = _Gaps(task.first)
    lists = fetch.read(client, task.stream, task.first, task.last, chunk_bytes_max=chunk_bytes_max)
    for messages in lists:
        if verdict in OTHER_LIFE:
            # Of a batch that is repeated after its stream went back, this is what survived.
            messages = [m for m in messages if m.time_ns <= task.end.time_ns]
        gaps.add(messages)
        if messages:
            yield messages
    gaps.end(task.last)
    after, begin = _verify(client, options, task, missing=gaps.missing)
    if after in OTHER_LIFE and after is not verdict:
        raise Refused(_changed(task))
    if lost is not None and after not in OTHER_LIFE:
        lost += gaps.before(begin)


class _Gaps:
    """Finds the sequences that did not come."""

    def __init__(self, first: int) -> None:
        self._expected = first
        self._found: list[tuple[int, int]] = []

    def add(self, messages: list[Message]) -> None:
        for message in messages:
            if message.sequence != self._expected:
                self._found.append((self._expected, message.sequence - 1))
            self._expected = message.sequence + 1

    def end(self, last: int) -> None:
        if self._expected <= last:
            self._found.append((self._expected, last))
            self._expected = last + 1

    @property
    def missing(self) -> int | None:
        return self._found[0][0] if self._found else None

    def before(self, begin: int) -> list[tuple[int, int]]:
        """Return what a purge took that left what is from *begin* on: before that, nobody can tell
        it from messages that were deleted one by one.
        """
        return [(first, min(last, begin - 1)) for first, last in self._found if first < begin]


def _verify(
    client: Client, options: SourceOptions, task: RangeTask, *, missing: int | None
) -> tuple[Verdict, int]:
    """Return whether the stream still is the one of the batch, and where it begins: that should be
    before *missing*, the first sequence that has not come. A message that was deleted leaves a gap,
    a purge moves the beginning.

    Raises:
        Refused: it is not, or does not, and that is not allowed.
    """
    state, end = client.state(task.stream), task.end
    verdict = judge(end, state, client.time_at(task.stream, state, end.sequence))
    if options.fail_on_data_loss and verdict in OTHER_LIFE:
        raise Refused(loss_sentence(task.stream, verdict, end, state))
    if options.fail_on_data_loss and missing is not None and state.first > missing:
        raise Refused(_purged(task, state.first, missing))
    return verdict, state.first


def _purged(task: RangeTask, first: int, wanted: int) -> str:
    return (
        f"stream {task.stream} begins at {first}, and messages from {wanted} on were to be read: "
        "they are gone (retention, or a purge); set failOnDataLoss to false to go on without them"
    )


def _changed(task: RangeTask) -> str:
    return (
        f"stream {task.stream} changed while it was read: messages up to {task.last} are other "
        "ones now; run it again, and what is left of them is read"
    )
