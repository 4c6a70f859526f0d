"""Shipping of one source, as a model to be searched: the shipper publishes, saves its position, is
killed and loses its positions; acknowledgements are lost and messages delayed; the server forgets
ids, loses its tail and stored messages; the file is rotated away; the collector reads, answers, and
names holes. What each of them decides is the product's own code.

The file has two bytes a line. The collector's commits are those of `protocol.partitions`: here it
archives what it reads at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from logpipeline import deduplication, streamstate
from logpipeline.checksum import NOTHING, Checksum, extend
from logpipeline.deduplication import all_committed_of
from logpipeline.extents import Repeat
from logpipeline.nats.jetstream import StoredMessage
from logpipeline.records import Committed, Named, Progress, Question, StreamPosition, answers
from logpipeline.spans import outside
from logpipeline.streamstate import StreamState, Verdict
from logpipeline_shipper import resend
from logpipeline_shipper.account import Gap, admit
from logpipeline_shipper.checkpoint import LastAck
from logpipeline_shipper.files.chunk import ROTATED
from logpipeline_shipper.resend import EarlierSends, Piece, Rollbacks
from protocol.shipping_world import (
    ANSWER_S,
    CREATED,
    DELAY,
    GENERATIONS,
    GROUP,
    KILL,
    LATE,
    LINE_BYTES,
    LINES,
    LOST_ACK,
    LOST_POSITIONS,
    POWER_CUT,
    PURGE,
    SOURCE,
    TAIL,
    WINDOW,
    Answer,
    Books,
    Bounds,
    Collector,
    Flight,
    Saved,
    Shipper,
    Stored,
    World,
    chunk_of,
    intents_of,
    known_as_sent,
    lines_of,
    message_of,
)


@dataclass(frozen=True, slots=True)
class Shipping:
    """The model, within *bounds*."""

    bounds: Bounds

    def first(self) -> World:
        """Return the world in which nothing was written."""
        return World()

    # -- promises

    def wrong(self, world: World) -> str:
        """Return which promise does not hold."""
        written = world.collector.wrote
        if twice := [line for line in written if written.count(line) > 1]:
            return f"line {_name(twice[0])} was written twice"
        shipper = world.shipper
        if shipper is None:
            return ""
        if line := self._claimed(world, shipper):
            return f"line {line} counts as collected, and is not"
        if self._is_idle(world, shipper):
            return self._unbalanced(world, shipper)
        return ""

    def _claimed(self, world: World, shipper: Shipper) -> str:
        """Return a line that the shipper holds for settled, and that is neither written nor named
        as lost.
        """
        account = shipper.books.opened()
        for place, generation in enumerate(GENERATIONS):
            settled = (0, shipper.offsets[place])
            entry = account._entries.get(generation)
            owed = [(start, end) for start, end, _ in entry.owed] if entry is not None else []
            for span in outside(settled, [*account.open_spans(generation), *owed]):
                for line in lines_of(span):
                    if not _is_known(world.collector, generation, line):
                        return _name((generation, line))
        return ""

    def _is_idle(self, world: World, shipper: Shipper) -> bool:
        """Return whether nothing is left to do but to ask, and asking would change nothing."""
        is_read = shipper.offsets == world.written
        is_still = is_read and not shipper.flight.pieces and shipper.flight.loss is None
        if not is_still or world.network or world.answer is not None:
            return False
        if self._at_end(world) and not shipper.books.opened().has_debts:
            asked = self._asked(world, shipper)
            after = _delivered(replace(world, answers=world.answers + 1), shipper, asked)
            return after.books == shipper.books
        return False

    def _at_end(self, world: World) -> bool:
        position = world.collector.position
        return _judged(world) is Verdict.GOOD and position.sequence == len(world.stream)

    def _unbalanced(self, world: World, shipper: Shipper) -> str:
        for place, generation in enumerate(GENERATIONS):
            for line in lines_of((0, world.written[place])):
                if not _is_known(world.collector, generation, line):
                    return (
                        f"line {_name((generation, line))} is neither collected nor named as lost"
                    )
        if not shipper.books.opened().is_settled:
            return "the books never close"
        return ""

    # -- steps

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Yield each step that may come next."""
        yield from self._of_file(world)
        yield from self._of_server(world)
        yield from self._of_collector(world)
        if world.shipper is None:
            yield from self._started(world)
        else:
            yield from self._of_shipper(world, world.shipper)

    def _may(self, world: World, fault: int) -> bool:
        bounds = self.bounds
        most = (
            *(bounds.lost_acks, bounds.delays, bounds.windows, bounds.tails, bounds.purges),
            *(bounds.kills, bounds.power_cuts, bounds.lost_positions, bounds.late_answers),
        )
        return world.faults[fault] < most[fault]

    def _of_file(self, world: World) -> Iterator[tuple[str, World]]:
        most = self.bounds.lines * LINE_BYTES
        first, second = world.written
        if first < most and not second and not world.is_gone:
            yield "a line is written", replace(world, written=(first + LINE_BYTES, second))
        if self.bounds.rotates and first == most:
            if second < most:
                grown = replace(world, written=(first, second + LINE_BYTES))
                yield "a line is written to the next file", grown
            is_seen = world.shipper is not None and world.shipper.flight == Flight()
            if second and not world.is_gone and is_seen and world.shipper is not None:
                given_up = self._given_up(world, world.shipper)
                gone = replace(world, is_gone=True, shipper=given_up)
                yield "the rotated file is removed", gone

    def _given_up(self, world: World, shipper: Shipper) -> Shipper:
        """Name what was not read of the removed file, as `Chain` and `Source` do."""
        offset, length = shipper.offsets[0], world.written[0]
        if offset == length:
            return shipper
        account = shipper.books.opened()
        account.begin(GENERATIONS[0], 0)
        account.lose(Gap(GENERATIONS[0], offset, length, ROTATED))
        return replace(shipper, offsets=(length, shipper.offsets[1]), books=Books.of(account))

    def _of_server(self, world: World) -> Iterator[tuple[str, World]]:
        if world.network:
            late, *rest = world.network
            arrived, _ = _published(replace(world, network=tuple(rest)), late)
            yield f"a delayed message arrives: {_span_of(late)}", arrived
        if world.window and self._may(world, WINDOW):
            forgot = replace(world, window=frozenset())
            yield "the server forgets the ids of messages", _count(forgot, WINDOW)
        if world.stream and world.stream[-1] is not None and self._may(world, TAIL):
            gone = world.stream[-1]
            assert gone is not None
            window = world.window - {gone.identifier}
            lost = replace(world, stream=world.stream[:-1], window=window)
            yield f"the server loses its tail: {_span_of(gone)}", _count(lost, TAIL)
        if self._may(world, PURGE):
            for place, stored in enumerate(world.stream):
                if stored is not None:
                    purged = (*world.stream[:place], None, *world.stream[place + 1 :])
                    without = replace(world, stream=purged)
                    yield f"message {place + 1} is deleted", _count(without, PURGE)

    def _of_collector(self, world: World) -> Iterator[tuple[str, World]]:
        collector = world.collector
        if _judged(world) is not Verdict.GOOD:
            back = replace(
                collector,
                position=StreamPosition(CREATED, 0, 0),
                rollbacks=collector.rollbacks + 1,
                known_until_ns=collector.position.time_ns,
            )
            yield "the collector goes back to 0", replace(world, collector=back)
        elif collector.position.sequence < len(world.stream):
            read = _read(collector, world.stream[collector.position.sequence])
            at = read.position.sequence
            yield f"the collector reads message {at}", replace(world, collector=read)
        shipper = world.shipper
        if shipper is None or world.answers >= self.bounds.answers:
            return
        if world.answer is None and shipper.books.opened().unconfirmed():
            answer = self._asked(world, shipper)
            asked = replace(world, answers=answer.number)
            told = replace(asked, shipper=_delivered(asked, shipper, answer))
            yield "the collector answers", told
            if self._may(world, LATE):
                late = _count(replace(asked, answer=answer), LATE)
                yield "the collector sends an answer", late

    def _asked(self, world: World, shipper: Shipper) -> Answer:
        """Return the collector's answer about what the shipper has not confirmed."""
        collector, stream = world.collector, world.stream
        names = shipper.books.opened().unconfirmed()
        question = Question(tuple(Named(SOURCE, name) for name in names))
        has = all_committed_of(SOURCE, collector.known, set(names)) if names else []
        ((rows, unknown),) = answers(question, has)
        first = next((n for n, each in enumerate(stream, start=1) if each is not None), None)
        sequence = collector.position.sequence
        progress = Progress(
            group=GROUP,
            partition=0,
            epoch=1,
            rollbacks=collector.rollbacks,
            sources=rows,
            created=CREATED,
            sequence=sequence,
            pending=sum(each is not None for each in stream[sequence:]),
            first=first if first is not None else len(stream) + 1,
            unknown=unknown,
        )
        known: dict[str, Committed | None] = {row.generation: row for row in rows}
        known |= dict.fromkeys((name.generation for name in unknown), None)
        return Answer(progress, tuple(known.items()), world.answers + 1)

    # -- the shipper

    def _of_shipper(self, world: World, shipper: Shipper) -> Iterator[tuple[str, World]]:
        if self._may(world, KILL):
            yield "the shipper is killed", _count(replace(world, shipper=None), KILL)
        if self._may(world, POWER_CUT):
            saved = world.saved._replace(intents=(), is_lost=bool(world.saved.intents))
            cut = replace(world, shipper=None, saved=saved, answer=None)
            yield "the shipper's machine loses power", _count(cut, POWER_CUT)
        if self._may(world, LOST_POSITIONS) and not world.is_gone:
            lost = Saved(Shipper(), (), is_lost=True)
            without = replace(world, shipper=None, saved=lost, answer=None)
            yield (
                "the shipper is killed, and its positions are lost",
                _count(without, LOST_POSITIONS),
            )
        if world.answer is not None:
            told = replace(world, answer=None, shipper=_delivered(world, shipper, world.answer))
            yield "the answer arrives", told
        kept = _kept(shipper)
        is_killable = self.bounds.kills or self.bounds.power_cuts
        # As `Source.record` does.
        intents = tuple(dict.fromkeys((*_earlier(shipper).noted, *intents_of(shipper.flight))))
        if is_killable and world.saved != Saved(kept, intents):
            noted = replace(world, saved=Saved(kept, intents))
            yield "the shipper saves its positions", noted
        flight = shipper.flight
        if flight.pieces or flight.loss is not None:
            yield from self._publishes(world, shipper)
            return
        looked = self._looked(world, shipper)
        if looked != shipper:
            yield "the shipper sees what the server lost", replace(world, shipper=looked)
        account = shipper.books.opened()
        if owed := account.owed():
            if world.repairs < self.bounds.repairs:
                yield self._repairs(world, shipper, owed[0])
        elif (loss := account.next_loss()) is not None:
            named = replace(shipper, flight=Flight(loss=loss))
            yield "the shipper names a loss", replace(world, shipper=named)
        else:
            yield from self._reads(world, shipper)

    def _looked(self, world: World, shipper: Shipper) -> Shipper:
        """Compare the last acknowledgement with the server, as at a new connection."""
        if shipper.last is None or not world.faults[TAIL]:
            return shipper
        sequence, identifier = shipper.last
        place = next((n for n, each in reversed([*enumerate(world.stream)]) if each), None)
        found = None
        if place is not None:
            stored = world.stream[place]
            assert stored is not None
            headers = f"NATS/1.0\r\nNats-Msg-Id: {stored.identifier}\r\n\r\n".encode()
            found = StoredMessage("subject", place + 1, stored.time_ns, headers, b"")
        last = LastAck("stream", sequence, identifier, 0.0)
        if not resend.is_lost(last, found, 0.0):
            return shipper
        account = shipper.books.opened()
        account.doubt("rolled-back")
        return replace(shipper, books=Books.of(account), last=None)

    def _repairs(self, world: World, shipper: Shipper, gap: Gap) -> tuple[str, World]:
        text = f"{gap.generation} {gap.start}-{gap.end}"
        if gap.generation == GENERATIONS[0] and world.is_gone:
            account = shipper.books.opened()
            account.lose(gap)
            given_up = replace(shipper, books=Books.of(account))
            return f"the file of {text} is gone", replace(world, shipper=given_up)
        whole = chunk_of(gap.generation, 0, gap.end)
        chunk = resend.within(whole, gap.start, gap.end, "plain")
        piece = Piece(chunk, f"again{world.repairs}", True)
        repairing = replace(shipper, flight=Flight((piece,), is_repair=True))
        following = replace(world, shipper=repairing, repairs=world.repairs + 1)
        return f"the shipper sends {text} again", following

    def _reads(self, world: World, shipper: Shipper) -> Iterator[tuple[str, World]]:
        place = 0 if shipper.offsets[0] < world.written[0] else 1
        generation, start = GENERATIONS[place], shipper.offsets[place]
        for end in range(start + LINE_BYTES, world.written[place] + 1, LINE_BYTES):
            chunk = chunk_of(generation, start, end)
            pieces = tuple(_earlier(shipper).pieces(chunk, "plain"))
            account = shipper.books.opened()
            account.begin(generation, start)
            flight = Flight(pieces)
            sending = replace(shipper, flight=flight, books=Books.of(account))
            # The file is read once at a time: intents are noted before they are sent.
            noted = world.saved._replace(intents=(*world.saved.intents, *intents_of(flight)))
            text = f"the shipper reads {generation} {start}-{end}"
            yield text, replace(world, shipper=sending, saved=noted)

    def _publishes(self, world: World, shipper: Shipper) -> Iterator[tuple[str, World]]:
        message, is_marked = message_of(shipper.flight, world.repairs)
        stored, sequence = _published(world, message)
        text = f"{_span_of(message)}{' (marked)' if is_marked else ''}"
        arrived = _acknowledged(stored, shipper, sequence, message)
        yield f"{text} is stored, and acknowledged", arrived
        if not self._may(world, LOST_ACK):
            return
        again = replace(shipper, flight=known_as_sent(shipper.flight))
        unanswered = _count(replace(stored, shipper=again), LOST_ACK)
        yield f"{text} is stored, and the acknowledgement lost", unanswered
        if self._may(world, DELAY):
            late = _count(_count(replace(world, shipper=again), LOST_ACK), DELAY)
            waiting = replace(late, network=(*late.network, message))
            yield f"{text} is delayed, and given up", waiting

    def _started(self, world: World) -> Iterator[tuple[str, World]]:
        saved = world.saved
        shipper = replace(saved.shipper, noted=saved.intents, flight=Flight())
        if not saved.is_lost:
            yield "the shipper starts again", replace(world, shipper=shipper)
            return
        shipper = replace(shipper, is_in_doubt=True)
        if saved.shipper != Shipper():
            yield "the shipper starts, in doubt", replace(world, shipper=shipper)
            return
        # It waits until a collector has read all that was sent before.
        if self._at_end(world):
            recalled = _recalled(world.collector, shipper)
            yield "the shipper starts, and asks what is collected", replace(world, shipper=recalled)


# -- the shipper's parts


def _kept(shipper: Shipper) -> Shipper:
    """Return what of *shipper* is saved."""
    return replace(shipper, flight=Flight(), noted=(), is_in_doubt=False)


def _earlier(shipper: Shipper) -> EarlierSends:
    earlier = EarlierSends(shipper.noted, is_in_doubt=shipper.is_in_doubt)
    for place, generation in enumerate(GENERATIONS):
        if shipper.offsets[place]:
            earlier.acknowledged(chunk_of(generation, 0, shipper.offsets[place]))
    return earlier


def _acknowledged(world: World, shipper: Shipper, sequence: int, message: Stored) -> World:
    flight, batch = shipper.flight, message.batch
    span = (batch.start, batch.end)
    account = shipper.books.opened()
    now_s = world.answers * ANSWER_S
    account.acknowledged(batch.generation, span, sequence=sequence, now_s=now_s)
    offsets = shipper.offsets
    noted, is_in_doubt = shipper.noted, shipper.is_in_doubt
    if flight.loss is not None:
        account.name(flight.loss)
        flight = Flight()
    else:
        rest = flight.pieces[1:]
        if flight.is_repair:
            account.pay(batch.generation, span)
        elif not rest:
            # Positions move once all of the chunk is acknowledged.
            place = GENERATIONS.index(batch.generation)
            offsets = (*offsets[:place], batch.end, *offsets[place + 1 :])
            if offsets == world.written:
                noted, is_in_doubt = (), False
        flight = replace(flight, pieces=rest) if rest else Flight()
    last = shipper.last
    if last is None or last[0] < sequence:
        last = (sequence, message.identifier)
    following = replace(
        shipper,
        offsets=offsets,
        noted=noted,
        is_in_doubt=is_in_doubt,
        books=Books.of(account),
        flight=flight,
        last=last,
    )
    return replace(world, shipper=following)


def _delivered(world: World, shipper: Shipper, answer: Answer) -> Shipper:
    """Take *answer*, as `ProgressListener` does."""
    account, progress = shipper.books.opened(), answer.progress
    admit(account.groups, progress)
    for committed in progress.sources:
        for gap in account.confirm(progress.group, committed):
            account.owe(gap)
    rollbacks = Rollbacks(dict(shipper.rollbacks))
    if rollbacks.rose(progress.group, progress.partition, progress.rollbacks):
        account.doubt("rolled-back")
    known: Mapping[str, Committed | None] = dict(answer.known)
    for gap in account.answer(progress, known, answer.number * ANSWER_S):
        account.owe(gap)
    counts = tuple(rollbacks.counts.items())
    return replace(shipper, books=Books.of(account), rollbacks=counts)


def _recalled(collector: Collector, shipper: Shipper) -> Shipper:
    """Go on from what the collector has, as `Chain.recall` and `Account.recall` do."""
    account, offsets = shipper.books.opened(), list(shipper.offsets)
    for committed in all_committed_of(SOURCE, collector.known):
        if committed.checksum is not None:
            account.recall(committed, 0.0)
            offsets[GENERATIONS.index(committed.generation)] = committed.offset
    return replace(shipper, books=Books.of(account), offsets=tuple(offsets))


# -- the server's and the collector's parts


def _published(world: World, message: Stored) -> tuple[World, int]:
    """Store *message* unless its id is known; return the sequence of the acknowledgement."""
    if message.identifier in world.window:
        for sequence, stored in enumerate(world.stream, start=1):
            if stored is not None and stored.identifier == message.identifier:
                return world, sequence
        return world, len(world.stream)
    clock = world.clock + 1
    stream = (*world.stream, message._replace(time_ns=clock))
    window = world.window | {message.identifier}
    return replace(world, stream=stream, window=window, clock=clock), len(stream)


def _judged(world: World) -> Verdict:
    position, stream = world.collector.position, world.stream
    sequence = position.sequence
    stored = stream[sequence - 1] if 0 < sequence <= len(stream) else None
    time_ns = stored.time_ns if stored is not None else None
    return streamstate.judge(position, StreamState(CREATED, 1, len(stream)), time_ns)


def _read(collector: Collector, stored: Stored | None) -> Collector:
    sequence = collector.position.sequence + 1
    if stored is None:
        # A consumer does not show what was deleted.
        return replace(collector, position=StreamPosition(CREATED, sequence, 0))
    position = StreamPosition(CREATED, sequence, stored.time_ns)
    is_again = stored.time_ns <= collector.known_until_ns
    batch = stored.batch

    def sum_at(offset: int) -> Checksum:
        return extend(NOTHING, LINES[:offset])

    decision = deduplication.decide(
        collector.known, batch, repeat=Repeat.READ if is_again else None, sums=sum_at
    )
    if decision.is_misfit:
        letters = collector.dead_letters + 1
        return replace(collector, position=position, dead_letters=letters)
    wrote = list(collector.wrote)
    for part in decision.ranges:
        wrote += [(batch.generation, line) for line in lines_of((part.start, part.end))]
    return replace(collector, position=position, known=decision.after, wrote=tuple(sorted(wrote)))


def _is_known(collector: Collector, generation: str, line: int) -> bool:
    """Return whether a line is written, or named as lost."""
    if (generation, line) in collector.wrote:
        return True
    place = collector.known.find(generation)
    lost = collector.known.generations[place].lost if place is not None else ()
    at = line * LINE_BYTES
    return any(start <= at < end for start, end in lost)


def _name(line: tuple[str, int]) -> str:
    return f"{line[1]} of file {line[0]}"


def _span_of(message: Stored) -> str:
    batch = message.batch
    kind = "the loss of " if batch.lost else ""
    return f"{kind}{batch.generation} {batch.start}-{batch.end}"


def _count(world: World, fault: int) -> World:
    faults = list(world.faults)
    faults[fault] += 1
    return replace(world, faults=tuple(faults))
