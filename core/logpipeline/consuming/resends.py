"""Which lines of a message were in its stream before: a shipper sends a batch again, marked, where
it does not know whether the server has stored it.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator
from typing import NamedTuple, TypeVar

from logpipeline.checksum import Checksum, extend
from logpipeline.consuming.message import Message
from logpipeline.dead_letters import RETRY_FOR
from logpipeline.deduplication import NOTHING, SourceState, decide
from logpipeline.extents import Sums
from logpipeline.messages import Read, has_its_size, read_message
from logpipeline.nats import scan
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.nats.pull import Delivered
from logpipeline.nats.session import RawMessage
from logpipeline.subjects import Subjects
from logpipeline.wire import BadMessage, Batch, decode_payload

T = TypeVar("T")

log = logging.getLogger(__name__)

# Sources that are known; the one that wrote longest ago is forgotten first, and what it sends again
# is handed out again.
SOURCES_MAX = 100_000
# Resends of a stream that are kept with what is new in them, and messages that were looked at.
PLACES_MAX = 10_000
# Messages of a stream whose places are kept, to look at those that stand for a resend. Older ones
# are believed by their headers.
HELD_MAX = 50_000

# A message of a stream: a sequence is given again after a roll-back, and then with another time.
_Place = tuple[int, int]
# Host, source and generation.
_File = tuple[str, str, str]


class _Held(NamedTuple):
    """The bytes of a file that the message at *place* holds, as its headers say; maybe a message
    that left the stream held them before.
    """

    start: int
    end: int
    place: _Place
    may_repeat: bool


class Resends:
    """Cuts off resends what their stream held before; only resends make it read the stream.

    Each is decided on once, in the order of the stream. So it does not matter how often it is
    delivered, and what was looked at before: what stands behind it, and itself, are not what its
    stream held before. Of messages before it the headers are read; those that stand for bytes of a
    resend are decoded before these are left out, since another reader may have met them.
    """

    def __init__(
        self, js: JetStream, subjects: Subjects, stream: str, partition: int, reader: str
    ) -> None:
        self._js = js
        # Below the name of the reader, so that its rights can name it.
        self._scan_name = f"{reader}-scan"
        self._subjects = subjects
        self._stream = stream
        self._partition = partition
        self._known: dict[tuple[str, str], SourceState] = {}
        self._last = 0
        self._decided: dict[_Place, list[tuple[int, int]]] = {}
        self._unreadable: dict[_Place, None] = {}
        self._readable: dict[_Place, None] = {}
        self._held: dict[_File, deque[_Held]] = {}
        # The files of what is held, the oldest first.
        self._order: deque[_File] = deque()
        # Whether the stream held all that it ever got, as it was looked at.
        self._is_whole = True
        self._repeats: dict[_Place, None] = {}
        self._is_said = False

    async def cut(self, message: Message, created: str) -> bool:
        """Cut off *message* what the stream, *created* then, held before; return whether something
        is left.

        Raises:
            Denied: we lack the right to look.
        """
        try:
            read = message.read
        except BadMessage:
            return True
        if read.batch is None or not read.batch.resend:
            return True
        if RETRY_FOR in read.fields:
            # It is a dead letter, which is sent again on purpose.
            return True
        place = _place_of(message.delivered)
        try:
            await self._look_until(message.delivered, created)
            while self._leaves_out(place, read.batch):
                if not await self._meets_unreadable(read, place):
                    break
                await self._learn_again(message, read, created)
        except (scan.StreamChanged, ApiError) as error:
            log.warning(
                "lines that were sent again may be handed out twice",
                extra={"stream": self._stream, "reason": str(error)},
            )
            return True
        # One that was forgotten, or that stands where another one stood, is handed out whole.
        parts = self._decided.get(place)
        message.parts = parts
        return parts is None or bool(parts)

    def may_repeat(self, message: Message) -> bool:
        """Return whether what is left of *message*, which was sent again, may have come in one that
        the stream held no longer when it was looked at.
        """
        if _place_of(message.delivered) not in self._repeats:
            return False
        if not self._is_said:
            self._is_said = True
            log.warning(
                f"lines of stream {self._stream} that a shipper sent again may have come before, "
                "and are handed out: the stream no longer holds what was before them",
                extra={"stream": self._stream, "sequence": message.sequence},
            )
        return True

    def leave_out(self, message: Message) -> None:
        """Note that *message* cannot be decoded: what it should hold is sent again, and is new."""
        _keep(self._unreadable, _place_of(message.delivered), None)

    def _leaves_out(self, place: _Place, batch: Batch) -> bool:
        parts = self._decided.get(place)
        return parts is not None and sum(end - start for start, end in parts) < (
            batch.end - batch.start
        )

    async def _look_until(self, last: Delivered, created: str) -> None:
        if last.sequence <= self._last:
            return
        first = 0
        if last.sequence > self._last + 1:
            wanted = scan.Range(first=self._last + 1, last=last.sequence - 1)
            async for delivered in self._scanned(wanted, created):
                first = first or delivered.sequence
                self._is_whole &= first == self._last + 1
                self._learn(delivered)
        self._is_whole &= (first or last.sequence) == self._last + 1
        self._learn(last)
        self._last = last.sequence

    async def _scanned(
        self, wanted: scan.Range, created: str, subject: str | None = None
    ) -> AsyncIterator[Delivered]:
        looking = scan.Scan(
            self._js,
            self._stream,
            wanted,
            created=created,
            subject=subject,
            headers_only=True,
            name=self._scan_name,
        )
        async with contextlib.aclosing(looking.batches()) as parts:
            async for taken in parts:
                for delivered in taken:
                    yield delivered

    async def _meets_unreadable(self, read: Read, place: _Place) -> bool:
        """Look at the messages before *place* that stand for bytes of it; return whether some of
        them cannot be decoded, and are noted.
        """
        batch, found = read.batch, False
        assert batch is not None
        for held in tuple(self._held.get((read.host, batch.source, batch.generation), ())):
            is_part = held.start < batch.end and batch.start < held.end
            if held.place >= place or not is_part:
                continue
            if held.place not in self._readable and held.place not in self._unreadable:
                is_readable = await self._is_readable(held.place)
                _keep(self._readable if is_readable else self._unreadable, held.place, None)
            found |= held.place in self._unreadable
        return found

    async def _is_readable(self, place: _Place) -> bool:
        """Return whether the message at *place* can be decoded; one that is gone was handed out."""
        while True:
            try:
                stored = await self._js.next_from_leader(self._stream, place[0])
            except (NotSent, OutcomeUnknown) as error:
                await self._js.wait_after(error)
            else:
                break
        if stored is None or (stored.sequence, stored.time_ns) != place:
            return True
        raw = RawMessage(stored.subject.encode(), b"", stored.headers, stored.data)
        read = _read(self._subjects, self._partition, Delivered(raw, place[0], 0, place[1], 0))
        return read is not None and read.batch is not None and _decoded(read.batch, stored.data)

    async def _learn_again(self, message: Message, read: Read, created: str) -> None:
        """Forget what is known of the source of *message*, and learn it without what cannot be
        decoded.
        """
        assert read.batch is not None
        name = (read.host, read.batch.source)
        self._known.pop(name, None)
        for file, held in self._held.items():
            if file[:2] == name:
                held.clear()
        place = _place_of(message.delivered)
        wanted = scan.Range(last=self._last)
        async for delivered in self._scanned(wanted, created, message.subject):
            # By its payload more is known of it.
            is_it = _place_of(delivered) == place
            self._learn(message.delivered if is_it else delivered, only=name)

    def _learn(self, delivered: Delivered, only: tuple[str, str] | None = None) -> None:
        read = _read(self._subjects, self._partition, delivered)
        if read is None or read.batch is None:
            return
        batch, name, place = read.batch, (read.host, read.batch.source), _place_of(delivered)
        if only is not None and name != only:
            return
        if not has_its_size(batch, delivered.message.headers) or place in self._unreadable:
            return
        # At the end, as the one that wrote last.
        before = self._known.pop(name, NOTHING)
        decision = decide(before, batch, sums=_sums_of(batch, delivered.message.data))
        self._known[name] = decision.after
        if len(self._known) > SOURCES_MAX:
            del self._known[next(iter(self._known))]
        if decision.is_misfit:
            # It is none that came before.
            return
        file = (*name, batch.generation)
        ranges = [(part.start, part.end) for part in decision.ranges]
        may_repeat = bool(batch.resend and ranges) and not self._follows(file, ranges[0][0])
        if batch.resend:
            _keep(self._decided, place, ranges)
        if may_repeat:
            _keep(self._repeats, place, None)
        if not batch.lost:
            self._hold(file, _Held(batch.start, batch.end, place, may_repeat))

    def _follows(self, file: _File, start: int) -> bool:
        """Return whether bytes of *file* from *start* on can be in no message that left the stream:
        those before them came later than all that left it.
        """
        if self._is_whole:
            return True
        before = reversed(self._held.get(file, ()))
        return any(each.start < start <= each.end and not each.may_repeat for each in before)

    def _hold(self, file: _File, held: _Held) -> None:
        self._held.setdefault(file, deque()).append(held)
        self._order.append(file)
        if len(self._order) <= HELD_MAX:
            return
        oldest = self._order.popleft()
        if those := self._held.get(oldest):
            those.popleft()
        if not those:
            self._held.pop(oldest, None)


def _sums_of(batch: Batch, payload: bytes) -> Sums | None:
    """Return the running checksums in a message of *batch*; None where only its headers were read,
    or it has none.
    """
    sums = batch.checksums
    if sums is None or not batch.resend or not payload:
        return None
    before = sums.before
    try:
        data = decode_payload(batch, payload)
    except BadMessage:
        return None

    def at(offset: int) -> Checksum:
        return extend(before, data[: offset - batch.start])

    return at


def _decoded(batch: Batch, payload: bytes) -> bool:
    try:
        decode_payload(batch, payload)
    except BadMessage:
        return False
    return True


def _place_of(delivered: Delivered) -> _Place:
    return delivered.sequence, delivered.time_ns


def _keep(kept: dict[_Place, T], place: _Place, value: T) -> None:
    """Keep *value* for *place*, and forget the oldest beyond `PLACES_MAX`."""
    kept[place] = value
    if len(kept) > PLACES_MAX:
        del kept[next(iter(kept))]


def _read(subjects: Subjects, partition: int, delivered: Delivered) -> Read | None:
    try:
        return read_message(subjects, partition, delivered)
    except BadMessage:
        return None
