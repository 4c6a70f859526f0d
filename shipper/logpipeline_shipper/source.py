"""Ships one source: moves its bytes from its files to its stream, with one batch in flight and the
next one ready.

A source that has nothing to send has no task, no buffer and no timer: it has to be woken.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from logpipeline.failpoints import reach
from logpipeline.records import Committed, Progress
from logpipeline_shipper import resend
from logpipeline_shipper.account import Gap
from logpipeline_shipper.checkpoint import Key, SourceRecord, encode_row
from logpipeline_shipper.delivery import Delivery, PreparedChunk
from logpipeline_shipper.files.chain import Chain
from logpipeline_shipper.files.listing import Listing, SourceId
from logpipeline_shipper.files.open_file import NotNow
from logpipeline_shipper.files.source_filter import Ship
from logpipeline_shipper.files.tail import Outcome
from logpipeline_shipper.message import ATTEMPT_BYTES, MessageBuilder
from logpipeline_shipper.resend import EarlierSends
from logpipeline_shipper.shared import Shared

log = logging.getLogger(__name__)

T = TypeVar("T")

# Reading and compressing less than this takes less time than asking a thread to do it.
THREAD_BYTES_MIN = 32 * 1024
# A gap whose file cannot be read is tried again after so long, or when the files change.
RESEND_INTERVAL_S = 1.0


class Source:
    """One source that is being shipped. Call `wake` when there may be something to do."""

    # A node may have 10,000 sources, nearly all idle.
    __slots__ = (
        "_again", "_builder", "_counted", "_delivery", "_is_in_thread", "_listing",
        "_matching", "_resend_at_s", "_row", "_saved", "_shared", "_task", "account", "acked_bytes",
        "acked_lines", "active_s", "behind_since_s", "chain", "earlier", "id", "is_wanted",
        "key", "subject",
    )  # fmt: skip

    def __init__(
        self,
        id: SourceId,
        chain: Chain,
        builder: MessageBuilder,
        shared: Shared,
        record: SourceRecord,
        *,
        is_in_doubt: bool,
    ) -> None:
        self.id = id
        self.key = Key(id.host, id.source)
        self.chain = chain
        self.subject = builder.subject
        self.is_wanted = True
        self.behind_since_s: float | None = None
        self.active_s = shared.clock()
        # Since the process began, so that a person sees rates.
        self.acked_lines = 0
        self.acked_bytes = 0
        self.account = record.account
        self.earlier = EarlierSends(record.intents, is_in_doubt=is_in_doubt)
        self._shared = shared
        self._builder = builder
        self._delivery = Delivery(id, builder, self.earlier, self.account, shared, chain.birth)
        self._counted: dict[str, int] = {}
        self._saved: dict[str, Any] | None = None
        self._row: str | None = None
        self._listing: Listing | None = None
        # One thread at a time uses the chain: the event loop, unless a thread reads it.
        self._is_in_thread = False
        self._task: asyncio.Task[None] | None = None
        # Recognises the files of a listing while the task may be waiting for the server.
        self._matching: asyncio.Task[None] | None = None
        self._again = False
        self._resend_at_s = 0.0

    @property
    def is_running(self) -> bool:
        """Whether a task is reading, sending, or recognising files."""
        return self._task is not None or self._matching is not None

    def wake(self) -> None:
        """Look for bytes to send, now or after the batch in flight."""
        self._again = True
        if self._task is None and self._may_go_on():
            self._task = self._shared.spawn(self._run())

    def change(self, how: Ship) -> None:
        """Ship what is read from now on as *how* says."""
        self._builder.labels = how.labels
        self._delivery.ack = how.ack

    def list(self, listing: Listing) -> None:
        """Take *listing*: the files that the source has now."""
        self._listing = listing
        self._resend_at_s = 0.0
        self._row = None
        if not self._is_in_thread and self._matching is None:
            if self.chain.takes_long(listing.files):
                self._matching = self._shared.spawn(self._match())
            else:
                self._update()
        self.wake()

    def identities(self) -> Sequence[tuple[int, int, int]]:
        """Return the identities of the files that it knows, or is about to recognise."""
        listed = self._listing.files if self._listing is not None else ()
        return [*self.chain.identities(), *(file.identity for file in listed)]

    def owe(self, gap: Gap) -> None:
        """Send the bytes of *gap* again."""
        self.account.owe(gap)
        self._changed()

    def lose(self, gap: Gap) -> None:
        """Report the bytes of *gap* as lost."""
        self.account.lose(gap)
        self._changed()

    def doubt(self, cause: str) -> bool:
        """Send again all bytes that are not confirmed, because acknowledged bytes were lost; return
        False if all bytes are confirmed.
        """
        is_any = self.account.doubt(cause)
        if is_any:
            self._shared.totals.doubts += 1
            self._changed()
        return is_any

    def confirm(self, group: str, committed: Committed) -> Sequence[Gap]:
        """Note how far *group* has collected the source, and return the holes that it reports."""
        was_settled = self.account.is_settled
        gaps = self.account.confirm(group, committed)
        self._confirmed(was_settled=was_settled)
        return gaps

    def forget_group(self, group: str) -> None:
        """Wait no longer for what *group* has."""
        was_settled = self.account.is_settled
        self.account.forget_group(group)
        self._confirmed(was_settled=was_settled)

    def answer(self, progress: Progress, known: Mapping[str, Committed | None]) -> Sequence[Gap]:
        """Note what a group has of the generations that it was asked for, and return the gaps: what
        it must have read, and does not have.
        """
        was_settled = self.account.is_settled
        gaps = self.account.answer(progress, known, self._shared.clock())
        self._confirmed(was_settled=was_settled)
        return gaps

    def _confirmed(self, *, was_settled: bool) -> None:
        self._row = None
        # Saved also if nothing more is written, so that the checkpoint shows that all is settled.
        if self.account.is_settled and not was_settled:
            self._shared.changed()

    @property
    def has_debts(self) -> bool:
        """Whether something must be sent again, or reported as lost."""
        return self.account.has_debts or self.chain.has_losses

    def _changed(self) -> None:
        self._row = None
        self._shared.changed()
        self.wake()

    def record(self) -> SourceRecord:
        """Return the state to save: while a thread reads, the state from before the read."""
        if self._is_in_thread:
            saved = self._saved
        else:
            # A loss and the chain that lost the bytes are saved together, or neither is.
            self._take_losses()
            saved = self.chain.saved()
        # Those of a former process as well: this one may be killed before it sends them again.
        intents = tuple(dict.fromkeys((*self.earlier.noted, *self._delivery.in_flight)))
        return SourceRecord(saved=saved, intents=intents, account=self.account)

    def row(self) -> str:
        """Return `record` as it is written; it is kept until something changes."""
        if self._row is not None:
            return self._row
        row = encode_row(self.key, self.record())
        if not self.is_running:
            self._row = row
        return row

    def count(self, name: str, value: int) -> int:
        """Return by how much the chain's counter *name* rose since the last time."""
        more = value - self._counted.get(name, 0)
        if more:
            self._counted[name] = value
        return more

    def close_idle(self) -> None:
        """Close descriptors that are not needed now."""
        if not self._is_in_thread:
            self.chain.close_idle(self._shared.clock())

    async def finish(self) -> None:
        """Wait until the batch in flight is acknowledged."""
        if tasks := [task for task in (self._task, self._matching) if task is not None]:
            await asyncio.wait(tasks)

    def cancel(self) -> None:
        """Give up the batch in flight: its outcome stays unknown, and its intent noted."""
        if self._task is not None:
            self._task.cancel()

    def _may_go_on(self) -> bool:
        # Bytes that are owed are sent again even if the source is not read any more.
        return (self.is_wanted or self.has_debts) and not self._shared.is_stopping

    def _take_losses(self) -> None:
        for lost in self.chain.take_losses():
            self.account.begin(lost.generation, lost.begin)
            self.account.lose(Gap(lost.generation, lost.start, lost.end, lost.cause))

    def _update(self) -> None:
        if self._listing is not None:
            listing, self._listing = self._listing, None
            self.chain.update(listing, self._shared.clock())

    async def _match(self) -> None:
        """Take the last listing, whose files are compared, and unpacked, from end to end."""
        try:
            while self._listing is not None:
                await self._in_thread(self._update, is_long=True)
        except Exception:
            self._shared.totals.failures += 1
            log.exception("the files of a source were not recognised", extra=self.key._asdict())
        finally:
            self._matching = None

    async def _matched(self) -> None:
        """Wait until the chain can be used, and take a listing that came meanwhile."""
        await self._unused()
        if self._listing is not None and self.chain.takes_long(self._listing.files):
            await self._in_thread(self._update, is_long=True)
        self._update()

    async def _unused(self) -> None:
        """Wait while files are recognised. A task does so whenever it has waited for something
        else, before it uses the chain.
        """
        while self._matching is not None:
            await asyncio.wait([self._matching])

    async def _run(self) -> None:
        try:
            self._row = None
            while self._may_go_on():
                self._again = False
                await self._matched()
                self._take_losses()
                await self._resend_owed()
                if (lost := self.account.next_loss()) is not None:
                    await self._delivery.name(lost)
                    self._changed()
                elif not (self.is_wanted and await self._ship()) and not self._again:
                    return
        except Exception:
            # A defect that shows in one source must not stop the others; the next tick tries again.
            self._shared.totals.failures += 1
            self.earlier.note(self._delivery.in_flight)
            await self._unused()
            self.chain.rewind()
            log.exception("a source failed; it is tried again", extra=self.key._asdict())
        finally:
            self._task = None
            self.active_s = self._shared.clock()

    async def _resend_owed(self) -> None:
        """Send again each gap whose file can be read now."""
        if self._shared.clock() < self._resend_at_s:
            return
        try:
            for gap in self.account.owed():
                try:
                    await self._resend(gap)
                except NotNow:
                    # For example, its file is being renamed: new lines need not wait for it.
                    self._resend_at_s = self._shared.clock() + RESEND_INTERVAL_S
        finally:
            self.chain.end_again()

    async def _resend(self, gap: Gap) -> None:
        """Publish exactly the bytes of *gap* once more; those whose file is gone become a loss.

        Raises:
            NotNow: the rest cannot be read now, and stays owed.
        """
        shared, fields = self._shared, {**self.key._asdict(), **gap._asdict()}
        generation, at, end = gap.generation, gap.start, gap.end
        attempt, begin = secrets.token_hex(ATTEMPT_BYTES), self.account.began_at(generation)
        log.warning("what the server lost is sent again", extra=fields)
        while at < end and not shared.is_stopping:
            await shared.budget.take(2 * shared.options.bytes_max)
            try:
                await self._unused()
                found = await self._in_thread(
                    partial(self.chain.read_again, generation, begin, at, shared.clock())
                )
                if found is Outcome.WAITING:
                    continue
                if found is Outcome.ENDED:
                    self.account.lose(gap._replace(start=at))
                    shared.totals.unhealed_bytes += end - at
                    log.error(
                        "the server lost lines whose file is gone", extra={**fields, "start": at}
                    )
                    return
                chunk = resend.within(found, at, end, self.id.format)
                begins = self.account.begins_at(generation, at)
                await self._delivery.repeat(replace(chunk, begins=begins), attempt)
            finally:
                shared.budget.give_back(2 * shared.options.bytes_max)
            self.account.pay(generation, (at, chunk.end))
            at = chunk.end
            shared.totals.filled_bytes += len(chunk.data)

    async def _ship(self) -> bool:
        """Send what can be read now; return whether there were any bytes."""
        prepared = await self._next()
        is_any = prepared is not None
        while prepared is not None:
            prepared = await self._send_and_read_on(prepared)
        return is_any

    async def _send_and_read_on(self, prepared: PreparedChunk) -> PreparedChunk | None:
        ahead = None
        sending = asyncio.create_task(self._delivery.deliver(prepared))
        try:
            # Only if more is certainly waiting: else the next batch would be a tiny one.
            if (
                not prepared.is_part
                and 2 * len(prepared.chunk.data) >= self._shared.options.bytes_max
            ):
                ahead = await self._ahead()
            await sending
            await self._unused()
            self._acknowledge(prepared)
            is_next = self._may_go_on() and not self.has_debts
            if ahead is not None and is_next:
                going_on, ahead = ahead, None
                return going_on
            self.chain.rewind()
            return None
        finally:
            sending.cancel()
            for unused in (prepared, ahead):
                if unused is not None:
                    self._shared.budget.give_back(unused.held_bytes)

    def _acknowledge(self, prepared: PreparedChunk) -> None:
        self.chain.acknowledge(prepared.chunk)
        self.earlier.acknowledged(prepared.chunk)
        self._delivery.in_flight.clear()
        totals = self._shared.totals
        totals.progress += 1
        totals.lines += prepared.chunk.lines
        self.acked_lines += prepared.chunk.lines
        self.acked_bytes += prepared.chunk.end - prepared.chunk.start
        self._shared.changed()
        reach("shipper.after-ack")

    async def _next(self) -> PreparedChunk | None:
        """Return the next chunk; a small one waits for further lines first."""
        options = self._shared.options
        prepared = None
        for is_patient in (options.linger_s > 0, False):
            await self._reserve(2 * options.bytes_max)
            prepared = await self._read()
            if (
                prepared is None
                or not is_patient
                or 4 * len(prepared.chunk.data) >= options.bytes_max
            ):
                break
            if not self.chain.can_rewind():
                break  # the file is gone: the bytes in memory are all that is left of it
            self._shared.budget.give_back(prepared.held_bytes)
            self.chain.rewind()
            await asyncio.sleep(options.linger_s)
        if prepared is None and not self.chain.backlog_bytes():
            self.earlier.read_all()
            self.behind_since_s = None
        elif self.behind_since_s is None:
            self.behind_since_s = self._shared.clock()
        return prepared

    async def _reserve(self, size: int) -> None:
        if not self._shared.budget.try_take(size):
            # The file may be gone when the bytes fit: pods are deleted while the server is away.
            await self._unused()
            hold = partial(self.chain.hold, self._shared.clock())
            await self._in_thread(hold, is_long=True) if self.chain.takes_long() else hold()
            await self._shared.budget.take(size)

    async def _ahead(self) -> PreparedChunk | None:
        # A source that holds bytes must not wait for more: all would wait for one another.
        if not self._shared.budget.try_take(2 * self._shared.options.bytes_max):
            return None
        return await self._read()

    async def _read(self) -> PreparedChunk | None:
        """Read and compress the next chunk, and give back the rest of the reserved budget."""
        reserved = 2 * self._shared.options.bytes_max
        held = 0
        try:
            await self._matched()
            is_long = self.chain.takes_long()
            if is_long or self._is_much():
                prepared = await self._in_thread(self._read_now, is_long=is_long)
            else:
                prepared = self._read_now()
            held = min(prepared.held_bytes, reserved) if prepared is not None else 0
        finally:
            self._shared.budget.give_back(reserved - held)
        if prepared is not None:
            prepared.held_bytes = held
        return prepared

    def _is_much(self) -> bool:
        return self.chain.backlog_bytes() >= THREAD_BYTES_MIN

    async def _in_thread(self, work: Callable[[], T], *, is_long: bool = False) -> T:
        """Return the result of *work*, which uses the chain. *is_long*: it may compare or unpack
        whole files, and take minutes.
        """
        if is_long:
            async with self._shared.comparing:
                return await self._in_thread(work)
        loop = asyncio.get_running_loop()
        self._saved = self.chain.saved()
        self._is_in_thread = True
        working = loop.run_in_executor(self._shared.threads, work)
        try:
            return await asyncio.shield(working)
        finally:
            if not working.done():
                # Cancelled: the thread still uses the chain, which must not be used here meanwhile.
                await asyncio.wait([working])
            self._is_in_thread = False
            self._saved = None

    def _read_now(self) -> PreparedChunk | None:
        chunk = self.chain.read(self._shared.clock())
        return None if chunk is None else self._delivery.prepare(chunk)
