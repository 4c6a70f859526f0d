"""Reads a partition's stream in order, and detects gaps, through a consumer that belongs to one
epoch. Deleting the predecessor's consumer fences it: its waiting pulls end.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.nats.pull import Delivered, PullReader, ReaderClosed
from logpipeline.plan.model import COLLECTOR_GROUP_KEY
from logpipeline.records import StreamPosition
from logpipeline.streamstate import StreamState, state_of

# Longer than a collector's reconnects, short enough that consumers of dead processes do not pile
# up.
CONSUMER_INACTIVE_S = 60
# After this time without a message, the server is asked whether it has one.
SILENCE_BEFORE_LOOK_S = 5.0
# Pages of consumer names that are looked through for predecessors.
NAME_PAGES_MAX = 64


class Interrupted(Exception):
    """Reading broke off. Verify the position, then open again."""


@dataclass(frozen=True, slots=True)
class ConsumerName:
    """The name of a consumer of ours: a group's, of one *epoch*, opened for the n-th time; where a
    stream holds several partitions, of one *partition*.
    """

    group: str
    epoch: int
    opened: int
    partition: int | None = None

    def __str__(self) -> str:
        return f"{_reader_of(self.group, self.partition)}-e{self.epoch}-{self.opened}"

    def read(self, text: str) -> ConsumerName | None:
        """Return the parsed name *text*, or None if it is none of our group and partition."""
        reader = re.escape(_reader_of(self.group, self.partition))
        found = re.fullmatch(reader + r"-e([0-9]{1,18})-([0-9]{1,18})", text)
        return replace(self, epoch=int(found[1]), opened=int(found[2])) if found else None

    def is_before(self, other: ConsumerName) -> bool:
        """Return whether *other* replaces this one."""
        return (self.epoch, self.opened) < (other.epoch, other.opened)


def _reader_of(group: str, partition: int | None) -> str:
    # No group has this sign in its name.
    return group if partition is None else f"{group}@p{partition}"


def consumer_config(
    name: ConsumerName, *, after: int, subjects: Sequence[str] = (), headers_only: bool = False
) -> dict[str, Any]:
    """Return the configuration of a consumer that begins behind the sequence *after*, of what has
    one of *subjects*; without any, of all that the stream holds.
    """
    return {
        **({"filter_subjects": list(subjects)} if subjects else {}),
        "name": str(name),
        "ack_policy": "none",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": after + 1,
        "replay_policy": "instant",
        "max_deliver": -1,
        "mem_storage": True,
        "num_replicas": 1,
        "headers_only": headers_only,
        "inactive_threshold": CONSUMER_INACTIVE_S * 1_000_000_000,
        "metadata": {COLLECTOR_GROUP_KEY: name.group},
    }


async def delete_before(js: JetStream, stream: str, name: ConsumerName) -> int:
    """Delete the group's consumers that *name* replaces, and return how many there were."""
    deleted = 0
    for other in await _names(js, stream):
        known = name.read(other)
        if known is not None and known.is_before(name):
            deleted += await js.consumer_delete(stream, other)
    return deleted


async def _names(js: JetStream, stream: str) -> list[str]:
    names: list[str] = []
    for _ in range(NAME_PAGES_MAX):
        answer = await js.call(f"CONSUMER.NAMES.{stream}", {"offset": len(names)})
        page = answer.get("consumers") or []
        names += page
        if not page or len(names) >= answer.get("total", 0):
            break
    return names


class Order:
    """Checks that each delivery follows the one before."""

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.delivery = 0

    def accept(self, delivered: Delivered) -> None:
        """Go on to *delivered*.

        Raises:
            Interrupted: it is not the next one.
        """
        if delivered.delivery != self.delivery + 1:
            raise Interrupted(
                f"delivery {delivered.delivery} came after {self.delivery}: some were lost "
                "between the server and this collector"
            )
        if delivered.sequence <= self.sequence:
            raise Interrupted(
                f"sequence {delivered.sequence} came after {self.sequence}: the stream went back"
            )
        self.delivery, self.sequence = delivered.delivery, delivered.sequence


@dataclass(slots=True)
class Missed:
    """How many messages left a stream before they were read: they expired, or were removed."""

    count: int = 0
    _counted_to: int = 0

    def note(self, *, read: int, found: int) -> None:
        """Note that *found* is the first message behind *read*, the last one that was read. Before
        the first message was read nothing is missed: what expired before a group existed is not its
        own.
        """
        last = max(read, self._counted_to)
        if read and found > last + 1:
            self.count += found - last - 1
            self._counted_to = found - 1

    def go_back(self) -> None:
        """Note a roll-back: sequences are used again."""
        self._counted_to = 0


class StreamReader:
    """Deliveries of one consumer, in order: of what has one of *subjects*, or of the whole stream.
    *stream_state* is the state of the stream at the last look, which happens while nothing comes.

    *passed* is up to where the stream is known to hold nothing for us that did not come: at a look
    where other partitions' messages stand behind the last one that came, None before.
    """

    def __init__(
        self,
        js: JetStream,
        stream: str,
        name: ConsumerName,
        *,
        pull_bytes: int,
        headers_only: bool,
        subjects: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.pending = 0
        self.stream_state: StreamState | None = None
        self.passed: StreamPosition | None = None
        self._js = js
        self._stream = stream
        self._subjects = tuple(subjects)
        self._seen_before: StreamState | None = None
        self._headers_only = headers_only
        self._reader = PullReader(js, stream, str(name), pull_bytes=pull_bytes)
        self._order = Order(0)
        self._heard_at_s = 0.0

    async def open(self, position: StreamPosition) -> None:
        """Begin behind *position*, and delete every consumer that this one replaces.

        Raises:
            Interrupted: the server could not be asked, or refused.
        """
        self._order = Order(position.sequence)
        config = consumer_config(
            self.name,
            after=position.sequence,
            subjects=self._subjects,
            headers_only=self._headers_only,
        )
        try:
            await delete_before(self._js, self._stream, self.name)
            info = await self._js.consumer_create(self._stream, config, action="create")
            await self._reader.open()
        except (NotSent, OutcomeUnknown, ApiError) as error:
            raise Interrupted(str(error)) from error
        self.pending = int(info["num_pending"])
        self._heard_at_s = asyncio.get_running_loop().time()

    async def close(self, *, delete: bool) -> None:
        """Stop reading, and *delete* the consumer at the server, if it answers."""
        await self._reader.close()
        if delete and self._js.connection.is_connected:
            try:
                await self._js.consumer_delete(self._stream, str(self.name))
            except (NotSent, OutcomeUnknown, ApiError):
                return  # It ends by itself after CONSUMER_INACTIVE_S.

    def wake(self) -> None:
        """Let a `take` that waits return now."""
        self._reader.wake()

    async def take(self, *, timeout_s: float) -> list[Delivered]:
        """Return what has come, or an empty list after *timeout_s*.

        Raises:
            Interrupted: the connection or the consumer is gone, a delivery was lost on the way, or
            the server has messages and does not send them.
        """
        try:
            deliveries = await self._reader.take(timeout_s=timeout_s)
        except (ReaderClosed, NotSent) as error:
            raise Interrupted(str(error)) from error
        for delivery in deliveries:
            self._order.accept(delivery)
        if deliveries:
            self._seen_before = self.passed = None
        now_s = asyncio.get_running_loop().time()
        if deliveries:
            self.pending, self._heard_at_s = deliveries[-1].pending, now_s
        elif now_s - self._heard_at_s > SILENCE_BEFORE_LOOK_S:
            await self._look()
            self._heard_at_s = now_s
        return deliveries

    async def _look(self) -> None:
        # After restarts and changes of leader, nats-server has had consumers that were stuck with
        # messages pending.
        try:
            info = await self._js.stream_info(self._stream)
            last = int(info["state"]["last_seq"]) if info is not None else 0
            is_more = await is_unread(
                self._js, self._stream, self._subjects, read=self._order.sequence, last=last
            )
            # Asked last: a message that was sent, and removed from the stream since, is not found
            # there, but is counted here.
            consumer = await self._js.call(f"CONSUMER.INFO.{self._stream}.{self.name}")
        except (NotSent, OutcomeUnknown, ApiError) as error:
            raise Interrupted(str(error)) from error
        if info is not None:
            self.stream_state = state_of(info)
        known = max(self._order.sequence, self.passed.sequence if self.passed else 0)
        if last < known:
            raise Interrupted(f"the stream went back from {known} to {last}")
        if is_more or consumer["num_pending"]:
            raise Interrupted(
                f"nothing came for {SILENCE_BEFORE_LOOK_S:.0f} s though messages up to {last} are "
                f"there, and {self._order.sequence} was the last to come"
            )
        # The server has nothing more: pending messages of the last delivery were removed.
        self.pending = 0
        # Messages that the consumer has sent may not have arrived yet.
        is_all_here = int(consumer["delivered"]["consumer_seq"]) == self._order.delivery
        if self._subjects and is_all_here and self.stream_state is not None:
            self._pass(self.stream_state)

    def _pass(self, stream: StreamState) -> None:
        """Pass what other partitions had stored at the look before, if now again nothing up to
        there is missing: one answer could be that of a leader who does not know yet that it is none
        any more.
        """
        before, self._seen_before = self._seen_before, stream
        if before is None or before.created != stream.created:
            return
        if before.last > self._order.sequence:
            self.passed = StreamPosition(before.created, before.last, before.last_time_ns)


async def is_unread(
    js: JetStream, stream: str, subjects: Sequence[str], *, read: int, last: int
) -> bool:
    """Return whether *stream*, whose last sequence is *last*, holds messages behind the sequence
    *read*; only those of *subjects* count, if there are any.

    Raises:
        ApiError, NotSent, OutcomeUnknown: the server could not be asked.
    """
    if last <= read:
        return False
    if not subjects:
        return await js.message(stream, last) is not None
    # Not by direct gets, which replicas answer that may lack the newest messages.
    found = [await js.next_from_leader(stream, read + 1, subject) for subject in subjects]
    return any(each is not None and each.sequence <= last for each in found)
