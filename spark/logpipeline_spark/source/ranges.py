"""The range of a task: sequences of one stream that are read once. The stream's state is checked
before and after, so that missing messages are noticed, and messages of another incarnation are not
taken for those of the range.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from logpipeline.nats.connection import OutcomeUnknown
from logpipeline.nats.scan import DirectGets
from logpipeline.streamstate import Verdict, judge
from logpipeline_spark.errors import Refused
from logpipeline_spark.lines.messages import Message
from logpipeline_spark.lines.schema import Origin
from logpipeline_spark.source.client import Client, StreamGone, message_of
from logpipeline_spark.source.offsets import Position, loss_sentence
from logpipeline_spark.source.options import SourceOptions

# A server sends so much for one request, and a task holds so much at once; a larger message comes
# alone.
CHUNK_BYTES_MAX = 4 * 1024 * 1024
CHUNK_MESSAGES_MAX = 10_000

OTHER_LIFE = (Verdict.RECREATED, Verdict.ROLLED_BACK)


def fetch(
    options: SourceOptions,
    stream: str,
    first: int,
    last: int,
    *,
    chunk_bytes_max: int = CHUNK_BYTES_MAX,
) -> Iterator[list[Message]]:
    """Yield the messages of *stream* from sequence *first* to *last*, in order, in lists of about
    *chunk_bytes_max*. Only deleted messages are missing.

    Raises:
        Refused: the server was away for longer than the options' patience, or refused.
    """
    with Client(options) as client:
        yield from read(client, stream, first, last, chunk_bytes_max=chunk_bytes_max)


def read(
    client: Client, stream: str, first: int, last: int, *, chunk_bytes_max: int = CHUNK_BYTES_MAX
) -> Iterator[list[Message]]:
    """Do the same as `fetch`, with a connected *client*."""
    if first > last:
        return
    getter = Getter(client, stream, chunk_bytes_max)
    getter.open()
    try:
        while first <= last and (messages := getter.get(first, last)):
            first = messages[-1].sequence + 1
            yield messages
    finally:
        getter.close()


class Getter:
    """Requests one chunk after the other."""

    def __init__(self, client: Client, stream: str, chunk_bytes_max: int) -> None:
        self._client = client
        self._stream = stream
        self._bytes_max = chunk_bytes_max
        self._gets = DirectGets(client.js, stream)

    def open(self) -> None:
        """Subscribe to answers."""
        self._client.run(self._gets.open())

    def close(self) -> None:
        """End the subscription."""
        if not self._client.is_closed:
            self._client.run(self._gets.close())

    def get(self, first: int, last: int) -> list[Message]:
        """Return the next messages from *first* up to *last*; an empty list if the range has no
        more.
        """
        return self._client.ask(lambda: self._get(first, last))

    async def _get(self, first: int, last: int) -> list[Message]:
        query = {
            "seq": first,
            "batch": min(last - first + 1, CHUNK_MESSAGES_MAX),
            "max_bytes": self._bytes_max,
        }
        found = await self._client.direct(self._stream, self._gets.ask(query))
        messages = [message_of(message) for message in found]
        _check_order(self._stream, messages, first)
        # Any replica may answer, also one that lags behind: ask the leader.
        if not messages and await self._client.is_there(self._stream, first, last):
            raise OutcomeUnknown(f"the server that answered does not have {self._stream} yet")
        # If messages were deleted, the requested number extends past the end.
        return [message for message in messages if message.sequence <= last]


def _check_order(stream: str, messages: list[Message], first: int) -> None:
    ranks = [first - 1, *(message.sequence for message in messages)]
    if any(a >= b for a, b in pairwise(ranks)):
        raise Refused(f"the server's answer for {stream} from {first} on is out of order")


@dataclass(frozen=True)
class RangeTask(InputPartition):
    """Sequences *first* to *last* of *stream*, in the batch that ends at *end*. The root of its
    subjects is *root*, or the options' root if that is empty.
    """

    stream: str
    end: Position
    first: int
    last: int
    root: str = ""

    def origin(self, options: SourceOptions) -> Origin:
        """Return the origin of the task's messages."""
        root = self.root or options.subject
        return Origin(self.stream, self.end.incarnation, root, options.partitions)


def read_task(
    options: SourceOptions,
    task: RangeTask,
    *,
    lost: list[tuple[int, int]] | None = None,
    chunk_bytes_max: int = CHUNK_BYTES_MAX,
) -> Iterator[list[Message]]:
    """Do the same as `read_range`, with its own connection."""
    with Client(options) as client:
        yield from read_range(client, options, task, lost=lost, chunk_bytes_max=chunk_bytes_max)


def read_range(
    client: Client,
    options: SourceOptions,
    task: RangeTask,
    *,
    lost: list[tuple[int, int]] | None = None,
    chunk_bytes_max: int = CHUNK_BYTES_MAX,
) -> Iterator[list[Message]]:
    """Yield the messages of *task*, in order, in lists of bounded size.

    If loss is allowed, *lost* receives the missing ranges at the end, as pairs of first and last.
    All that is left of the range is missing if the stream is gone, and the options select streams
    without naming each, so that a query goes on without it.

    Raises:
        StreamGone: the stream is gone, and the options name it or do not allow loss.
        Refused: messages are missing, and that is not allowed; or the server is away.
    """
    gaps = _Gaps(task.first)
    try:
        begin = yield from _read_verified(client, options, task, gaps, chunk_bytes_max)
    except StreamGone:
        if options.fail_on_data_loss or options.is_fixed:
            raise
        gaps.end(task.last)
        begin = task.last + 1
    if lost is not None:
        lost += gaps.before(begin)


def _read_verified(
    client: Client, options: SourceOptions, task: RangeTask, gaps: _Gaps, chunk_bytes_max: int
) -> Generator[list[Message], None, int]:
    """Yield the messages of *task* and tell *gaps* of them; return the sequence before which what
    is missing is lost.
    """
    verdict, _ = _verify(client, options, task, missing=task.first)
    lists = read(client, task.stream, task.first, task.last, chunk_bytes_max=chunk_bytes_max)
    for messages in lists:
        if verdict in OTHER_LIFE:
            # A repeated batch whose stream was rolled back reads the messages that survived.
            messages = [m for m in messages if m.time_ns <= task.end.time_ns]
        gaps.add(messages)
        if messages:
            yield messages
    gaps.end(task.last)
    after, begin = _verify(client, options, task, missing=gaps.missing)
    if after in OTHER_LIFE and after is not verdict:
        raise Refused(_changed(task))
    # What the other stream does not have of the range is gone with the former one.
    return task.last + 1 if after in OTHER_LIFE else begin


class _Gaps:
    """Finds missing sequences."""

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
        """Return the missing sequences before *begin*, the first that a purge left: they cannot be
        told from messages that were deleted one by one.
        """
        return [(first, min(last, begin - 1)) for first, last in self._found if first < begin]


def _verify(
    client: Client, options: SourceOptions, task: RangeTask, *, missing: int | None
) -> tuple[Verdict, int]:
    """Return whether the stream is still that of the batch, and where it begins. It should begin
    before *missing*, the first sequence that has not come: a deleted message leaves a gap, a purge
    moves the beginning.

    Raises:
        Refused: it is another one, or begins later, and that is not allowed.
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
        f"stream {task.stream} begins at {first}, and the messages from {wanted} on were to be "
        "read: they are gone (retention, or a purge); set failOnDataLoss to false to continue "
        "without them"
    )


def _changed(task: RangeTask) -> str:
    return (
        f"stream {task.stream} changed while it was read: its messages up to {task.last} are other "
        "ones now; run the query again to read those that are left"
    )
