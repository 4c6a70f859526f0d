"""The reader of a pipeline's streams: it takes its share of the partitions, and hands out their
batches one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import secrets
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from logpipeline.consuming.claims import Claims, may_take
from logpipeline.consuming.consumer import find
from logpipeline.consuming.membership import ALONE, DIVIDED, SHARED, Members
from logpipeline.consuming.message import PROCESSED, UNREADABLE, Batch, Outcome
from logpipeline.consuming.missed_records import missed_key
from logpipeline.consuming.options import (
    KV,
    BadOption,
    ConsumeError,
    ConsumeOptions,
    ReaderBusy,
    StateForeign,
    checked,
    event_times_of,
    partitions_of,
)
from logpipeline.consuming.ordered import OrderedReader, StateFile
from logpipeline.consuming.partition_reader import Counts, PartitionReader, Reading
from logpipeline.consuming.records import claim_key
from logpipeline.consuming.shared import SharedReader
from logpipeline.failpoints import reach
from logpipeline.group.ownership import Fenced
from logpipeline.lag import StreamLag, age_s_of, lag_of, lag_of_messages
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import Denied, NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import CONSUMER_NOT_FOUND, STREAM_NOT_FOUND, ApiError, JetStream
from logpipeline.spec import LogPipeline

NS = 1_000_000_000

log = logging.getLogger(__name__)

# How often members look for each other, for each take-over time.
LOOKS_PER_TAKEOVER = 10
# After so long without a message it is checked whether any is left.
IDLE_S = 0.5
# A reader that ends gives the noting of what became of its last batch so long, from its beginning.
SETTLE_S = 5.0
# Others see after `takeoverAfter` what a member could not say in this time: that it left.
LEAVE_S = 5.0
# Characters of a name, before what makes it unique.
NAME_CHARS = 50
CLOSED = "the reader is closed: open a new one"


async def reset(js: JetStream, pipeline: LogPipeline, options: ConsumeOptions) -> None:
    """Delete the state of *options*' consumer, and the consumers of this name that the resource
    does not list; one that it lists stays, and is where it was.

    Raises:
        ReaderBusy: another process reads as this consumer; nothing is deleted.
        NotSent, OutcomeUnknown, ApiError: not all is deleted; the next call goes on.
    """
    bucket = Bucket(js, pipeline.names.state_bucket)
    # As if we read alone: so no other process reads, and none begins meanwhile.
    members = Members(
        js,
        bucket,
        consumer=options.name,
        member=f"reset-{secrets.token_hex(4)}",
        incarnation="reset",
        kind=ALONE,
        takeover_after_s=pipeline.spec.collectors.takeover_after_ns / NS,
    )
    await members.enter()
    try:
        await _forget(js, pipeline, options, bucket)
    finally:
        await members.leave()


async def _forget(
    js: JetStream, pipeline: LogPipeline, options: ConsumeOptions, bucket: Bucket
) -> None:
    is_listed = any(template.name == options.name for template in pipeline.spec.consumers)
    for partition in range(pipeline.stream_count):
        if not is_listed:
            await js.consumer_delete(pipeline.names.stream(partition), options.name)
        for key in (claim_key(options.name, partition), missed_key(options.name, partition)):
            try:
                await bucket.erase(key)
            except ApiError as error:
                if error.err_code != STREAM_NOT_FOUND:
                    raise
    if options.state not in (None, KV):
        Path(str(options.state)).unlink(missing_ok=True)


class Reader:
    """Reads a pipeline's streams as its options say; an iterator of batches, and the context that
    `open_reader` enters for you.

    The batch before counts as processed when the next one is asked for. One task at a time may ask.
    """

    def __init__(self, js: JetStream, pipeline: LogPipeline, options: ConsumeOptions) -> None:
        self._takeover_after_s = pipeline.spec.collectors.takeover_after_ns / NS
        self._incarnation = secrets.token_hex(8)
        options = checked(options)
        if options.ephemeral:
            # Two ephemeral readers at the same time must not share one consumer.
            options = replace(options, name=f"{options.name[:NAME_CHARS]}-{self._incarnation[:8]}")
        self.options = replace(options, member=options.member or default_member())
        self._partitions = partitions_of(options, pipeline.stream_count)
        event_times = event_times_of(pipeline, options)
        self._reading = Reading(js, pipeline, self.options, len(self._partitions), event_times)
        self._bucket = Bucket(js, pipeline.names.state_bucket)
        self._claims = Claims(
            self._bucket,
            consumer=self.options.name,
            member=self.options.member,
            incarnation=self._incarnation,
        )
        self._streams = {pipeline.names.stream(number) for number in range(pipeline.stream_count)}
        if strange := sorted(set(options.positions or ()) - self._streams):
            raise BadOption(f"positions: {strange[0]} is not a stream of pipeline {pipeline.name}")
        self._readers: dict[int, PartitionReader] = {}
        # Partitions that are ours to take: as long as we have not looked at the group, all.
        self._share = set(self._partitions)
        # Partitions that were ours once.
        self._claimed: set[int] = set()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._settled: dict[int, asyncio.Event] = {}
        self._ready: asyncio.Queue[tuple[PartitionReader, Batch] | Exception] = asyncio.Queue()
        self._current: tuple[PartitionReader, Batch] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._settling_since_s = 0.0
        # Taken out of the queue, and not begun.
        self._put_back: tuple[PartitionReader, Batch] | None = None
        self._file: StateFile | None = None
        self._members: Members | None = None
        self._balancing: asyncio.Task[None] | None = None
        # Messages that were handed out, and are done with.
        self._done = 0
        # Why nothing more is handed out: the first error, which left a partition unread, or that
        # the reader is closed.
        self._over: Exception | None = None

    @property
    def counts(self) -> Counts:
        """Outcomes of messages so far, of all partitions."""
        return replace(self._reading.counts)

    @property
    def assignment(self) -> tuple[int, ...]:
        """The partitions that this reader has now. In a group that shares the work message by
        message, each member has all.
        """
        return tuple(sorted(self._readers))

    async def __aenter__(self) -> Reader:
        """Enter as a member, and begin.

        Raises:
            ReaderBusy, StateForeign: see `errors`.
        """
        options = self.options
        if options.state not in (None, KV):
            self._file = StateFile(Path(str(options.state)), options.name)
        try:
            self._check_file()
            if options.ephemeral:
                await self._take_all()
                return self
            self._members = Members(
                self._reading.js,
                self._bucket,
                consumer=options.name,
                member=options.member,
                incarnation=self._incarnation,
                kind=SHARED if options.is_shared else DIVIDED if options.group else ALONE,
                takeover_after_s=self._takeover_after_s,
            )
            await self._members.enter()
            if options.is_shared:
                await self._take_all()
                return self
            self._balancing = asyncio.create_task(self._balance(), name="consume-balance")
        except BaseException:
            await self._end()
            raise
        return self

    def _check_file(self) -> None:
        # Used for another pipeline, the file would look as if nothing had been processed.
        strange = sorted(set(self._file.streams) - self._streams) if self._file else []
        if strange:
            raise StateForeign(
                f"{self.options.state} is the state of stream {strange[0]}, which is none of this "
                "pipeline's; give another file"
            )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Acknowledge what was processed, and let others read. The batch that was handed out last
        counts as processed only if it was marked so.
        """
        # Another task that waits for the next batch gets none any more.
        self._over = ConsumeError(CLOSED)
        try:
            failed = await self._settle_last()
        finally:
            await self._end()
        if failed is not None and error is None:
            raise failed
        if failed is not None:
            log.warning("the last batch was not settled", extra={"reason": str(failed)})

    async def _settle_last(self) -> Exception | None:
        """Settle the last batch if it was marked as processed; return why that failed. For a server
        that is away it waits a while only.
        """
        if self._current is None:
            return None
        reader, batch = self._current
        if self._settling is None and batch.outcome != PROCESSED:
            return None
        settling = self._started(reader, batch)
        left_s = self._settling_since_s + SETTLE_S - asyncio.get_running_loop().time()
        try:
            await asyncio.wait([settling], timeout=max(left_s, 0.0))
        finally:
            settling.cancel()
            await asyncio.wait([settling])
        if not settling.cancelled():
            failed = settling.exception()
            return failed if isinstance(failed, Exception) else None
        log.warning(
            f"what became of {reader.named(batch)} could not be noted in time; it may come again"
        )
        return None

    def __aiter__(self) -> AsyncIterator[Batch]:
        """Return the batches, as they come."""
        return self

    async def __anext__(self) -> Batch:
        """Return what `next` does, and end where it returns None."""
        batch = await self.next()
        if batch is None:
            raise StopAsyncIteration
        return batch

    async def next(self) -> Batch | None:
        """Settle the batch before, and return the next one; None once the end is reached that the
        options *count* or *until_caught_up* set.

        Raises:
            ConsumeError: the reader cannot go on; the message says what to do. Each further call
                raises it again.
        """
        await self.settle()
        while True:
            found = await self._upcoming()
            if found is None:
                return None
            if isinstance(found, Exception):
                self._over = self._over or found
                raise found
            reader, batch = found
            if self._readers.get(reader.partition) is not reader:
                continue
            # From here on the partition is not given up: a batch must not begin in a claim that was
            # released meanwhile, which another member takes.
            self._current = found
            try:
                await reader.begin(batch)
                reach("consume.begun")
            except Fenced as error:
                self._current = None
                await self._lost(reader, error)
                continue
            except BaseException as error:
                # The caller's time limit, or an interrupt: the next call begins it.
                self._current, self._put_back = None, found
                if isinstance(error, Exception):
                    self._over = error
                raise
            if reason := reader.why_unreadable(batch):
                # Not handed out: each caller would have to treat it as `on_error` says.
                batch.outcome = Outcome(UNREADABLE, reason)
                await self.settle()
                continue
            return batch

    async def _upcoming(self) -> tuple[PartitionReader, Batch] | Exception | None:
        """Return what is ready as soon as something is, None where no more is wanted."""
        if self._over is not None:
            return self._over
        if self._put_back is not None:
            found, self._put_back = self._put_back, None
            return found
        while True:
            # A batch that failed is done before the end: a reader that begins anew would fail at
            # the same, for ever, and never come to its last try or its bad message.
            is_enough = 0 < self.options.count <= self._done
            if is_enough and not any(reader.owes for reader in self._readers.values()):
                return None
            is_endless = not is_enough and not self.options.until_caught_up
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if is_endless else IDLE_S):
                    ready = await self._ready.get()
                if is_enough and isinstance(ready, tuple) and not ready[0].owes:
                    # It stays unsettled, and so its partition stays where it is.
                    continue
                return ready
            if self.options.until_caught_up and await self.caught_up():
                return None

    async def settle(self) -> None:
        """Do now what the outcome of the batch that was handed out last asks for; asking for the
        next one does the same.

        Raises:
            Stopped: it could not be processed, and the option on_error says stop.
            ConsumeError: as `next`.
        """
        # Not read again: another task may wait for the same one, and be first to see its end.
        settling = self._settling
        if settling is None and self._current is not None:
            settling = self._started(*self._current)
        if settling is None:
            self._raise_if_over()
            return
        try:
            # Where the caller does not wait (a time limit, an interrupt), it goes on, and the next
            # call waits for it: a batch that is settled by halves would hold up its partition.
            await asyncio.shield(settling)
        finally:
            if settling.done() and self._settling is settling:
                self._settling = None

    def _started(self, reader: PartitionReader, batch: Batch) -> asyncio.Task[None]:
        """Return the settling of *batch*, begun now unless it was before."""
        if self._settling is None:
            self._settling_since_s = asyncio.get_running_loop().time()
            self._settling = asyncio.create_task(self._settle(reader, batch), name="consume-settle")
        return self._settling

    async def _settle(self, reader: PartitionReader, batch: Batch) -> None:
        try:
            is_done = await reader.settle(batch)
        except Fenced as error:
            await self._lost(reader, error)
            return
        except Exception as error:
            # Its partition stays where it is, whatever is done with the error.
            self._over = self._over or error
            raise
        finally:
            # Not before: until it is settled, its partition is not given up.
            self._current = None
        if is_done and (batch.outcome or PROCESSED).kind != UNREADABLE:
            self._done += len(batch.messages)
        if self._readers.get(reader.partition) is reader:
            self._settled[reader.partition].set()

    def _raise_if_over(self) -> None:
        if self._over is not None:
            # Each time that it is raised it would get longer.
            raise self._over.with_traceback(None)

    async def caught_up(self) -> bool:
        """Return whether nothing is left to read; pending acknowledgements are sent before.

        Raises:
            ConsumeError: as `next`.
        """
        self._raise_if_over()
        if not self._ready.empty():
            return False
        for reader in list(self._readers.values()):
            await reader.book.flush()
        try:
            return all([await self._is_caught_up(number) for number in self._partitions])
        except (NotSent, OutcomeUnknown, ApiError):
            # Not now, or not made yet.
            return False

    async def _is_caught_up(self, partition: int) -> bool:
        js = self._reading.js
        stream = self._reading.pipeline.names.stream(partition)
        found = await find(js, stream, self.options.name)
        reader = self._readers.get(partition)
        if reader is None and partition in self._share:
            # Not claimed yet: the position may be behind what the consumer says.
            return False
        if isinstance(reader, OrderedReader):
            # What a reader before left unacknowledged is behind the position, if it is done.
            last = reader.last_read()
            is_read = last is not None and last >= found.delivered
            return is_read and not found.pending and not reader.queue
        is_acked = found.ack_policy == "none" or not found.unacknowledged
        return not found.pending and is_acked

    async def lag(self) -> dict[int, StreamLag]:
        """Return what is left to process of each partition that we may read, also of those that
        another member of the group has; a partition without its consumer yet is left out.

        Raises:
            NotSent, OutcomeUnknown, ApiError: the server could not be asked.
        """
        lags = await asyncio.gather(*map(self._lag, self._partitions))
        pairs = zip(self._partitions, lags, strict=True)
        return {number: lag for number, lag in pairs if lag is not None}

    async def _lag(self, partition: int) -> StreamLag | None:
        js = self._reading.js
        stream = self._reading.pipeline.names.stream(partition)
        info = await js.stream_info(stream)
        try:
            consumer = await find(js, stream, self.options.name)
        except ApiError as error:
            if error.err_code in (CONSUMER_NOT_FOUND, STREAM_NOT_FOUND):
                return None
            raise
        if info is None:
            return None
        state, done = info["state"], consumer.done
        reader = self._readers.get(partition)
        if isinstance(reader, OrderedReader):
            done = done if (read := reader.last_read()) is None else read
        lag = lag_of(done, state)
        if consumer.filter != ">" or not isinstance(reader, OrderedReader):
            # Others of these messages are not for us, or are acknowledged out of order.
            lag = lag_of_messages(consumer.pending + consumer.unacknowledged, state)
        if not lag.messages:
            return lag
        return replace(lag, age_s=await age_s_of(js, stream, done, state))

    # --- Which partitions are ours

    async def _balance(self) -> None:
        """Take our share of the partitions, and give up what is another's, for ever."""
        assert self._members is not None
        pause_s = self._takeover_after_s / LOOKS_PER_TAKEOVER
        while True:
            try:
                living = await self._members.living()
                count = len(self._partitions)
                wanted = {
                    self._partitions[index]
                    for index in (
                        self._members.share(living, count).partitions()
                        if self.options.group
                        else range(count)
                    )
                }
                self._share = wanted
                for number in sorted(set(self._readers) - wanted):
                    await self._give_up(number)
                for number in sorted(wanted - set(self._readers)):
                    await self._claim(number, living)
                await self._claims.let_go(kept=wanted | set(self._readers))
            except Denied as error:
                await self._ready.put(ConsumeError(str(error)))
                return
            except (NotSent, OutcomeUnknown, ApiError, ConsumeError) as error:
                is_trouble = isinstance(error, ApiError) and error.is_trouble
                if isinstance(error, ConsumeError | ApiError) and not is_trouble:
                    await self._ready.put(error)
                    return
                log.debug("members not looked at", extra={"reason": str(error)})
            except Exception as error:  # noqa: BLE001  # the caller gets it with the next batch
                await self._ready.put(error)
                return
            await asyncio.sleep(pause_s)

    async def _claim(self, partition: int, living: list[str]) -> None:
        found = (await self._claims.read(partition)).record
        is_free = may_take(
            found,
            incarnation=self._incarnation,
            living=living,
            is_group=self.options.group,
            was_ours=partition in self._claimed,
        )
        if is_free:
            await self._take(partition)
        elif found is not None and not self.options.group:
            raise ReaderBusy(
                f"{found.owner} reads as consumer {self.options.name} now: we were silent for so "
                "long that we were taken for dead; stop one of the two, or share the work: start "
                "all of them with --group"
            )

    async def _take_all(self) -> None:
        for number in self._partitions:
            await self._take(number)

    async def _take(self, partition: int) -> None:
        options = self.options
        reader: PartitionReader
        if options.is_shared:
            reader = SharedReader(self._reading, partition)
        elif options.ephemeral:
            reader = OrderedReader(self._reading, partition, None, None)
        else:
            held = await self._claims.take(partition)
            if held is None:
                return
            self._claimed.add(partition)
            reader = OrderedReader(self._reading, partition, held, self._file)
        self._readers[partition] = reader
        settled = self._settled[partition] = asyncio.Event()
        task = asyncio.create_task(self._read(reader, settled), name=f"consume-{partition}")
        self._tasks[partition] = task

    async def _read(self, reader: PartitionReader, settled: asyncio.Event) -> None:
        """Put one batch after the other into the queue of `__anext__`."""
        try:
            await reader.open()
            while True:
                batch = await reader.next()
                await self._ready.put((reader, batch))
                await settled.wait()
                settled.clear()
        except Fenced as error:
            await self._lost(reader, error)
        except Exception as error:  # noqa: BLE001  # the caller gets it with the next batch
            await self._ready.put(error)

    async def _give_up(self, partition: int) -> None:
        """Let another member have *partition*, unless its batch is being processed right now."""
        reader = self._readers.get(partition)
        is_current = self._current is not None and self._current[0] is reader
        if reader is not None and not is_current:
            await self._drop(reader)
            await reader.close()

    async def _lost(self, reader: PartitionReader, error: Fenced) -> None:
        log.warning("another reader goes on: %s", error, extra={"stream": reader.stream})
        await self._drop(reader)
        await reader.close_reader()

    async def _drop(self, reader: PartitionReader) -> None:
        """Forget *reader*, unless another task did so before."""
        if self._readers.get(reader.partition) is not reader:
            return
        del self._readers[reader.partition], self._settled[reader.partition]
        task = self._tasks.pop(reader.partition)
        if task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])

    async def _end(self) -> None:
        # Whoever waits for the next batch learns it as well.
        self._ready.put_nowait(ConsumeError(CLOSED))
        if self._balancing is not None:
            self._balancing.cancel()
            await asyncio.wait([self._balancing])
        self._current = None
        # Side by side: each claim waits a while for a server that is away.
        ended = await asyncio.gather(
            *(self._give_up(number) for number in sorted(self._readers)), return_exceptions=True
        )
        if self._members is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await self._members.leave()
        if self._file is not None:
            self._file.close()
        for error in ended:
            if error is not None:
                raise error


def default_member() -> str:
    """Return a name that no other process has: of the machine (or the pod), and the process id."""
    host = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())[:40]
    return f"{host}-{os.getpid()}"
