"""Members of a consumer's group that share one partition, as a model to be searched: they take it,
read batches from it, freeze, wake, are taken for dead, and lose answers of the bucket. `Claims`,
`HeldRecord` and `OrderedReader` themselves run. A member that does not take its next step is
frozen; one that never takes it is dead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple, cast

from logpipeline.consuming import claims as product
from logpipeline.consuming.consumer import Consumer
from logpipeline.consuming.message import PROCESSED
from logpipeline.consuming.options import KV, Acks, ConsumeOptions
from logpipeline.consuming.ordered import OrderedReader
from logpipeline.consuming.partition_reader import Reading
from logpipeline.consuming.records import Claim
from logpipeline.group.ownership import Fenced
from logpipeline.nats.bucket import Bucket, Conflict, Entry
from logpipeline.nats.connection import NoResponders, OutcomeUnknown
from logpipeline.nats.jetstream import JetStream, StoredMessage
from logpipeline.spec import parse
from protocol.replay import Asked, Do, Ended, Raised, Request, run

CREATED, GROUP, SUBJECT = "2026-11-25T00:00:00Z", "work", "logs.p0.web1"
PIPELINE = parse(
    {
        "apiVersion": "logpipeline.dev/v1alpha1",
        "kind": "LogPipeline",
        "metadata": {"name": "demo"},
        "spec": {"partitions": 1},
    }
)


class Handled(NamedTuple):
    """A batch that *member* handed out in its *epoch*: its sequences, and whether it says that it
    may repeat.
    """

    member: int
    epoch: int
    first: int
    last: int
    may_repeat: bool


@dataclass(frozen=True, slots=True)
class World:
    """All of it at one moment: the messages *stored*, the claim in the bucket, the members' results
    (None: not started), and the batches that were handled.
    """

    stored: int = 0
    claim: bytes | None = None
    revision: int = 0
    writes: int = 0
    members: tuple[tuple[Any, ...] | None, ...] = ()
    is_started: tuple[bool, ...] = ()
    handled: tuple[Handled, ...] = ()
    unknown: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How far to look: processes one after another or side by side, messages in the partition, how
    many of them make a batch, and lost answers of the bucket.
    """

    members: int = 2
    messages: int = 3
    batch: int = 2
    unknown: int = 1


class _Bucket:
    """The state bucket, whose calls are effects."""

    def __init__(self, do: Do) -> None:
        self._do = do

    async def get(self, key: str) -> Entry | None:
        found: Entry | None = self._do("get", key)
        return found

    async def swap(
        self, key: str, value: bytes, *, revision: int, headers: dict[str, str] | None = None
    ) -> int:
        return int(self._do("swap", value, revision))


class _JetStream:
    """The stream; which messages are there is asked for."""

    connection = None

    def __init__(self, do: Do, messages: int) -> None:
        self._do = do
        self._messages = messages

    async def stream_info(self, name: str) -> dict[str, Any]:
        count = self._messages
        state = {
            "first_seq": 1,
            "last_seq": count,
            "messages": count,
            "bytes": count,
            "last_ts": "2026-11-25T00:00:01Z",
        }
        return {"created": CREATED, "state": state, "config": {"subjects": ["logs.p0.>"]}}

    async def call(self, subject: str, body: Any) -> Any:
        raise NoResponders(subject)

    async def message(self, name: str, sequence: int) -> StoredMessage:
        return StoredMessage(SUBJECT, sequence, sequence, b"", b"line")

    async def next_from_leader(
        self, name: str, sequence: int, subjects: str
    ) -> StoredMessage | None:
        is_there = sequence <= self._messages and self._do("fetch", sequence)
        return await self.message(name, sequence) if is_there else None


@dataclass(frozen=True, slots=True)
class Group:
    """The model, within *bounds*."""

    bounds: Bounds
    asked: Asked = field(default_factory=Asked)

    def first(self) -> World:
        """Return the world in which nobody has begun."""
        count = self.bounds.members
        return World(members=(None,) * count, is_started=(False,) * count)

    # -- promises

    def wrong(self, world: World) -> str:
        """Return which promise does not hold."""
        names: dict[int, tuple[int, int]] = {}
        high = 0
        begun: set[tuple[int, int]] = set()
        for batch in world.handled:
            name = (batch.first, batch.last)
            if batch.first > high + 1:
                return f"message {high + 1} was passed over"
            for sequence in range(batch.first, batch.last + 1):
                if names.setdefault(sequence, name) != name:
                    return f"message {sequence} was handled in two batches of other names"
            if batch.first <= high and name not in begun:
                return f"batch {name} comes behind what follows it"
            high = max(high, batch.last)
            begun.add(name)
        for number in range(len(world.members)):
            own = [batch for batch in world.handled if batch.member == number]
            late = [batch for at, batch in enumerate(world.handled) if _is_late(world, at)]
            if sum(batch.member == number for batch in late) > 1:
                return f"member {number} went on after another one"
            if any(after.first <= before.last for before, after in pairwise(own)):
                return f"member {number} handled a batch twice"
        return self._wrong_progress(world, high)

    def _wrong_progress(self, world: World, high: int) -> str:
        if world.claim is None:
            return ""
        progress = Claim.decode(world.claim).progress
        done = progress.position.sequence if progress is not None else 0
        if done > high:
            return f"message {done} counts as processed, and was not handled"
        return ""

    # -- steps

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Yield each step that may come next."""
        if world.stored < self.bounds.messages:
            more = replace(world, stored=world.stored + 1)
            yield f"message {more.stored} is stored", more
        for number, results in enumerate(world.members):
            if results is None:
                if not world.is_started[number]:
                    is_started = list(world.is_started)
                    is_started[number] = True
                    started = replace(world, is_started=tuple(is_started))
                    yield f"member {number} starts", _with(started, number, ())
                continue
            request = self._next(number, results)
            if isinstance(request, Ended):
                if request.error:
                    raise AssertionError(f"member {number} ends: {request.error}")
                continue
            for text, after, result in self._effects(world, number, request):
                yield f"member {number} {text}", _with(after, number, (*results, result))

    def _effects(
        self, world: World, number: int, request: Request
    ) -> Iterator[tuple[str, World, Any]]:
        match request:
            case ("get", _):
                entry = None if world.claim is None else Entry(world.claim, world.revision, 0)
                yield "reads the claim", world, entry
            case ("living", (owner,)):
                # It may be taken for dead at any moment: a frozen member shows no sign of life.
                yield f"takes {owner} for dead", world, ()
            case ("swap", (value, revision)):
                yield from self._swaps(world, value, revision)
            case ("fetch", (sequence,)):
                is_there = sequence <= world.stored
                yield f"fetches {sequence}", world, is_there
            case ("wait", (sequence,)):
                if sequence <= world.stored:
                    yield "finds a message", world, None
            case ("handle", (epoch, first, last, may_repeat)):
                batch = Handled(number, epoch, first, last, may_repeat)
                handled = replace(world, handled=(*world.handled, batch))
                again = " once more" if may_repeat else ""
                yield f"handles {first}-{last}{again}", handled, None

    def _swaps(self, world: World, value: bytes, revision: int) -> Iterator[tuple[str, World, Any]]:
        if revision != world.revision:
            yield "fails to write the claim", world, Raised(Conflict, "another revision")
            return
        writes = world.writes + 1
        written = replace(world, claim=value, revision=writes, writes=writes)
        what = _told(value)
        yield f"writes {what}", written, writes
        if world.unknown < self.bounds.unknown:
            unknown = Raised(OutcomeUnknown, "no answer")
            lost = replace(written, unknown=world.unknown + 1)
            yield f"writes {what}, without an answer", lost, unknown
            nothing = replace(world, unknown=world.unknown + 1)
            yield f"does not write {what}, without an answer", nothing, unknown

    def _next(self, number: int, results: tuple[Any, ...]) -> Request | Ended:
        def program(do: Do) -> Any:
            return run(_member(do, number, self.bounds))

        return self.asked.next_effect(number, program, results)


def _told(value: bytes) -> str:
    claim = Claim.decode(value)
    progress = claim.progress
    if progress is None:
        return f"epoch {claim.epoch}"
    working = f", working up to {progress.working}" if progress.working else ""
    return f"epoch {claim.epoch}: {progress.position.sequence} done{working}"


async def _member(do: Do, number: int, bounds: Bounds) -> None:
    """Do as `Reader` does for one partition, with what it is made of."""
    member, incarnation = f"member{number}", f"process{number}"
    options = ConsumeOptions(
        name=GROUP, acks=Acks("each"), batch=bounds.batch, state=KV, group=True, member=member
    )
    js = cast(JetStream, _JetStream(do, bounds.messages))
    claims = product.Claims(
        cast(Bucket, _Bucket(do)), consumer=GROUP, member=member, incarnation=incarnation
    )
    found = (await claims.read(0)).record
    living = do("living", found.owner) if found is not None and not found.released else ()
    if not product.may_take(
        found, incarnation=incarnation, living=living, is_group=True, was_ours=False
    ):
        return
    try:
        held = await claims.take(0)
    except OutcomeUnknown:
        return
    if held is None:
        return
    reader = OrderedReader(Reading(js, PIPELINE, options, 1), 0, held, None)
    reader.consumer = _consumer(bounds.messages)
    try:
        await reader.prepare()
        while reader.sequence < bounds.messages:
            # A reader waits in the server for deliveries, and these only say that there are some.
            do("wait", reader.sequence + 1)
            reader._fill_until = bounds.messages
            batch = await reader.next()
            await reader.begin(batch)
            do("handle", held._held.record.epoch, batch.first, batch.last, batch.may_repeat)
            batch.outcome = PROCESSED
            await reader.settle(batch)
    except Fenced:
        return


def _is_late(world: World, at: int) -> bool:
    """Return whether a member of a later epoch had begun before the batch at the place *at*."""
    epoch = world.handled[at].epoch
    return any(before.epoch > epoch for before in world.handled[:at])


def _consumer(delivered: int) -> Consumer:
    """Return a consumer that delivered all messages to a reader that is gone, unacknowledged: the
    reader has to fetch each of them.
    """
    config = {"ack_policy": "explicit"}
    return Consumer("LOGS_0", GROUP, CREATED, config, delivered, 0, 0, delivered)


def _with(world: World, number: int, results: tuple[Any, ...] | None) -> World:
    members = list(world.members)
    members[number] = results
    return replace(world, members=tuple(members))
