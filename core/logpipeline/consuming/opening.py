"""Opens a reader for a program: finds the pipeline and its server, connects, and reads.

The arguments are those of ``logpipeline consume``, under the same names.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from logpipeline.consuming.discovery import pipeline_of_streams, server_without_resource
from logpipeline.consuming.message import Batch
from logpipeline.consuming.options import (
    BadOption,
    ConsumeOptions,
    Deliver,
    OnError,
    checked,
    parse_acks,
    span_s,
    start_of,
    time_rules,
)
from logpipeline.consuming.reader import Reader
from logpipeline.layout import PYTHON
from logpipeline.nats.jetstream import JetStream
from logpipeline.nats.options import NatsOptions
from logpipeline.spec import LogPipeline
from logpipeline.target import connect, connect_to, find_target

PATIENCE_S = 10.0

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class ReaderArguments:
    """The arguments of `open_reader`, `consume` and `open_blocking_reader`.

    The consumer: *name*, which all its readers share.

    Which pipeline:

    - *pipeline*: a resource, or the path of one. Without it, the one that `logpipeline up` runs on
      this machine.
    - *data*: the folder of the running pipeline, where several run.
    - *stream*: the streams' common name, ``LOGS`` for ``LOGS_0``, ``LOGS_1`` and so on: needs no
      resource, and asks the server for the rest.
    - *nats*: the address of the server, or how to log in. Without it, the server of the running
      pipeline, else ``NATS_URL``, else the resource's ``spec.nats.servers``.

    When a message is done:

    - *ack*: when to acknowledge: ``each`` message; ``every=100`` messages, ``interval=30s``, or
      both with a comma, whichever comes first; ``all``: a batch by its last message; ``none``.
    - *batch*: so many messages at once, at most. By default 1 with ``ack="each"``, else 100.
    - *state*: keeps the position in a file, or with ``kv`` in the pipeline's key-value bucket.
    - *positions*: positions that you keep with your results: the last `Batch.position` by stream.
    - *group*: share the work with other readers of this name; *member* is our name among them.
    - *in_order*: one message in flight for each partition.
    - *on_error*: what to do with a message that cannot be processed: ``stop`` there, ``retry``, or
      store it as a ``dead-letter``.
    - *tries*: how often a message is tried. By default as often as the consumer's ``maxDeliver``
      says, else without a limit.
    - *max_age*: skip messages that are older: a span such as ``10m``.

    Where a consumer that does not exist yet begins, and what is read:

    - *deliver*: with ``all`` stored messages, with ``new`` ones, or with the ``last`` one.
    - *since*: at a time, or a span ago: ``2h``. A time without a zone is the machine's.
    - *from_seq*: at a sequence.
    - *ephemeral*: the consumer is deleted with its reader.
    - *partitions*: read only these: ``0-3,7``.
    - *event_time*: where `Line.event_time` comes from: a format of `spec.table.time` (``auto``,
      ``iso8601``, ``epochMs`` and so on) or a pattern of strptime; of several the first that finds
      a plausible time. By default what the resource's ``spec.table.time`` says.
    - *zone*: the zone of times that name none. By default the resource's ``spec.table.zone``.
    - *count*: end behind the batch with which so many messages are processed or dead letters.
    - *until_caught_up*: end when no message is left to process.
    """

    name: str
    _: KW_ONLY
    pipeline: LogPipeline | Path | str | None = None
    data: Path | str | None = None
    stream: str | None = None
    nats: NatsOptions | str | None = None
    ack: str = "each"
    batch: int = 0
    state: Path | str | None = None
    positions: Mapping[str, str] | None = None
    group: bool = False
    member: str = ""
    in_order: bool = False
    on_error: OnError = "stop"
    tries: int = 0
    max_age: timedelta | str | None = None
    deliver: Deliver = "all"
    since: datetime | timedelta | str | None = None
    from_seq: int | None = None
    ephemeral: bool = False
    partitions: str | None = None
    event_time: Sequence[str] | str | None = None
    zone: str | None = None
    count: int = 0
    until_caught_up: bool = False

    def _options(self) -> ConsumeOptions:
        """Return how the streams are read.

        Raises:
            BadOption: an argument has no meaning, or two contradict each other.
        """
        options = ConsumeOptions(
            name=self.name,
            acks=parse_acks(self.ack),
            batch=self.batch,
            state=None if self.state is None else str(self.state),
            positions=self.positions,
            group=self.group,
            member=self.member,
            in_order=self.in_order,
            on_error=self.on_error,
            tries_max=self.tries,
            max_age_s=0.0 if self.max_age is None else span_s("max_age", self.max_age),
            **start_of(self.deliver, self.since, self.from_seq),
            ephemeral=self.ephemeral,
            partitions=self.partitions,
            event_time=None if self.event_time is None else time_rules(self.event_time),
            zone=self.zone,
            count=self.count,
            until_caught_up=self.until_caught_up,
        )
        return checked(options)


def taking(model: Callable[P, object]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Give a function the arguments of *model*, for type checkers, editors and `help`."""

    def declared(function: Callable[..., R]) -> Callable[P, R]:
        own = inspect.signature(function)
        signature = inspect.signature(model).replace(return_annotation=own.return_annotation)
        function.__signature__ = signature  # type: ignore[attr-defined]  # what `inspect` reads
        return function

    return declared


@taking(ReaderArguments)
def open_reader(*args: Any, **named: Any) -> AbstractAsyncContextManager[Reader]:
    """Return a context in which a `Reader` hands out, batch by batch, what the streams of a
    pipeline hold for a consumer. Its arguments are those of `ReaderArguments`.

    A batch counts as processed when the next one is asked for, or when `Batch.processed` says so;
    `Batch.retry` and `Batch.reject` say otherwise. When the context ends, all that was processed is
    acknowledged, and other readers may have the partitions at once, whatever still refers to the
    reader. A batch that was not processed comes again.

    Raises:
        BadOption: an argument has no meaning, or two contradict each other.
        NoPipeline: *pipeline* was not given, and none runs here, or several do; or no server is
            known.
        SpecError: the resource has mistakes.
        ConnectFailed: the server cannot be reached, or refuses us.
        ConsumeError: the reader cannot begin, or cannot go on; the message says what to do.
            `ReaderBusy`, `StateForeign`, `ConsumerGone` and `Stopped` are of this kind.
    """
    return _Opening(ReaderArguments(*args, **named))


# No generator with a decorator: when a loop ends it closes all generators at the same time, and the
# one of `consume` would be closed together with the one that it waits for.
class _Opening(AbstractAsyncContextManager[Reader]):
    """The context in which a reader is open, and connected."""

    def __init__(self, arguments: ReaderArguments) -> None:
        self._arguments = arguments
        self._options = arguments._options()
        if arguments.stream is not None and (arguments.pipeline or arguments.data):
            raise BadOption("stream needs no resource: leave pipeline and data out")
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Reader:
        async with AsyncExitStack() as stack:
            js, pipeline = await self._found(stack)
            reader = Reader(js, pipeline, self._options)
            await stack.enter_async_context(reader)
            self._open = stack.pop_all()
        return reader

    async def _found(self, stack: AsyncExitStack) -> tuple[JetStream, LogPipeline]:
        """Return the pipeline, and its server, connected as long as *stack* is open."""
        given, name = self._arguments, f"consume {self._options.name}"
        if given.stream is not None:
            server = server_without_resource(given.nats)
            connection = await connect_to(server, name, patience_s=PATIENCE_S)
            stack.push_async_callback(connection.close)
            js = JetStream(connection)
            return js, await pipeline_of_streams(js, given.stream)
        target = find_target(given.pipeline, given.data, given.nats, words=PYTHON)
        connection = await connect(target, name, patience_s=PATIENCE_S)
        stack.push_async_callback(connection.close)
        return JetStream(connection), target.pipeline

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._open.__aexit__(kind, error, trace)


@taking(ReaderArguments)
def consume(*args: Any, **named: Any) -> AsyncGenerator[Batch, None]:
    """Yield batches, as the `Reader` of `open_reader` does, whose arguments these are.

    This is the short way for a program that reads until it ends. Leaving the loop early ends the
    reader only once nothing refers to the generator any more, or with its ``aclose()``: until then
    no other reader can have the partitions. Where that matters, use `open_reader`.
    """
    return _batches(open_reader(*args, **named))


async def _batches(opened: AbstractAsyncContextManager[Reader]) -> AsyncGenerator[Batch, None]:
    async with opened as reader:
        async for batch in reader:
            yield batch
