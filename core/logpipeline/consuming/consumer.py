"""The JetStream consumer that a partition is read by: one that the resource names, one that is
there, or one of the reader's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import Any

from logpipeline.consuming.options import ConsumeOptions, ConsumerGone
from logpipeline.nats.connection import Listener, NoResponders, NotSent
from logpipeline.nats.jetstream import (
    CONSUMER_EXISTS,
    CONSUMER_NOT_FOUND,
    STREAM_NOT_FOUND,
    ApiError,
    JetStream,
)
from logpipeline.nats.pull import WENT_BACK, Delivered, ReaderClosed, read_reply
from logpipeline.nats.session import RawMessage
from logpipeline.spec import LogPipeline

log = logging.getLogger(__name__)

ACK_WAIT_S = 30.0
# An ephemeral consumer outlives its reader's cuts for so long.
INACTIVE_S = 300.0
NS = 1_000_000_000
_POLICIES = {"byStartTime": "by_start_time", "byStartSequence": "by_start_sequence"}


class PushReader:
    """Messages of one push consumer, in order of delivery, at most *bytes_max* of them waiting:
    further ones are dropped, and counted in `dropped`. A consumer that wants acknowledgements
    delivers them again; a reader with a position fetches them.
    """

    def __init__(self, js: JetStream, subject: str, queue: str, *, bytes_max: int) -> None:
        self.dropped = 0
        self._connection = js.connection
        self._subject = subject
        self._group = queue
        self._bytes_max = bytes_max
        self._bytes = 0
        self._queue: list[Delivered] = []
        self._answers: list[str] = []
        self._arrived = asyncio.Event()
        self._listener: Listener | None = None
        self._session = 0
        # The number of the last delivery, among all of the consumer.
        self._delivery = 0
        self._is_other_consumer = False

    async def open(self) -> None:
        """Start listening."""
        self._session = self._connection.sessions
        self._listener = await self._connection.listen(self._subject, self._receive, self._group)

    async def close(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            await self._connection.unlisten(self._listener)
            self._listener = None

    async def drain(self) -> list[Delivered]:
        """Stop listening; return all that the server delivered to us and was not taken."""
        if self._listener is not None:
            await self._connection.drain(self._listener)
            self._listener = None
        return self.held

    async def take(self, *, timeout_s: float) -> list[Delivered]:
        """Return the messages that came: at once if there are some, else after at most *timeout_s*.

        Raises:
            ReaderClosed: the consumer was made anew, or its server lost what it had delivered.
            NotSent: the connection is gone.
        """
        if not self._queue:
            if self._is_other_consumer:
                raise ReaderClosed(WENT_BACK)
            self._arrived.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._arrived.wait()
        taken, self._queue, self._bytes = self._queue, [], 0
        answers, self._answers = self._answers, []
        for reply in answers:
            # Flow control: the server waits for this before it sends more.
            await self._connection.publish(reply, b"")
        is_other = self._connection.sessions != self._session
        if not taken and (is_other or not self._connection.is_connected):
            raise NotSent("the connection to NATS was lost")
        return taken

    @property
    def has_ended(self) -> bool:
        """Whether it is known to bring nothing more: the connection or the consumer is gone."""
        return self._connection.sessions != self._session or self._is_other_consumer

    @property
    def held(self) -> list[Delivered]:
        """What came and was not taken yet."""
        return list(self._queue)

    def _receive(self, message: RawMessage) -> None:
        if message.reply.startswith(b"$JS.ACK."):
            delivered = read_reply(message)
            # Sequences of a stream that was made anew would look like messages that were processed.
            self._is_other_consumer |= delivered.delivery <= self._delivery
            if self._is_other_consumer:
                self._arrived.set()
                return
            self._delivery = delivered.delivery
            size = len(message.data) + len(message.headers)
            if self._queue and self._bytes + size > self._bytes_max:
                if not self.dropped:
                    log.warning("messages come faster than they are read", extra={"at": "push"})
                self.dropped += 1
                return
            self._queue.append(delivered)
            self._bytes += size
        elif message.status == 100 and message.reply:
            self._answers.append(message.reply.decode())
        self._arrived.set()


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer as the server has it, and how far it is: *delivered* and *acked* are sequences of
    the stream, *pending* messages were not delivered yet, *unacknowledged* ones were. *deliveries*
    counts all that it ever made. *created* tells it from one of the same name that was deleted.
    """

    stream: str
    name: str
    created: str
    config: dict[str, Any]
    delivered: int
    acked: int
    pending: int
    unacknowledged: int
    deliveries: int = 0

    @property
    def ack_policy(self) -> str:
        """The acknowledgements that it wants: ``none``, ``all`` or ``explicit``."""
        return str(self.config.get("ack_policy", "none"))

    @property
    def ack_wait_s(self) -> float:
        """The time within which a message must be acknowledged."""
        return int(self.config.get("ack_wait", ACK_WAIT_S * NS)) / NS

    @property
    def max_deliver(self) -> int:
        """The number of deliveries of a message; 0: no limit."""
        return max(0, int(self.config.get("max_deliver", 0)))

    @property
    def max_ack_pending(self) -> int:
        """The messages that it delivers before one of them is acknowledged; 0: no limit."""
        return max(0, int(self.config.get("max_ack_pending", 0)))

    @property
    def deliver_subject(self) -> str:
        """The subject that a push consumer sends to; empty for a pull consumer."""
        return str(self.config.get("deliver_subject", ""))

    @property
    def filter(self) -> str:
        """The filter of the subjects that it delivers."""
        return str(self.config.get("filter_subject", "") or ">")

    @property
    def is_contiguous(self) -> bool:
        """Whether it delivers each message of its filter from where it began."""
        return self.config.get("deliver_policy") != "last_per_subject"

    def differs(self, other: Consumer) -> list[str]:
        """Return the settings in which *other* is not the same."""
        mine, others = ({**each.config, "metadata": None} for each in (self, other))
        return sorted(name for name in mine | others if mine.get(name) != others.get(name))

    @property
    def is_whole(self) -> bool:
        """Whether each message of its stream is one for it: then one that is deleted before it
        was delivered is missed. With a filter nothing says which of the deleted ones it was for.
        """
        return self.is_contiguous and self.filter == ">" and not self.config.get("filter_subjects")

    @property
    def done(self) -> int:
        """The last message that was processed, as far as the server knows."""
        return self.delivered if self.ack_policy == "none" else self.acked


async def find(js: JetStream, stream: str, name: str) -> Consumer:
    """Return consumer *name* of *stream*.

    Raises:
        NotSent, OutcomeUnknown, ApiError: it is not there, or the server could not be asked.
    """
    return _consumer_of(await js.call(f"CONSUMER.INFO.{stream}.{name}"))


async def ensure(
    js: JetStream,
    pipeline: LogPipeline,
    stream: str,
    options: ConsumeOptions,
    *,
    after: int | None,
    was_there: bool,
) -> Consumer:
    """Return the consumer, made if it is the reader's own and not there. *after* is the sequence
    that was read last, None where that is not known; with *was_there* it was read already.

    Raises:
        ConsumerGone: it is not there, and the resource says that it should be; or its
            acknowledgements are not those that *options* need.
        NotSent, OutcomeUnknown, ApiError: the server could not be asked.
    """
    try:
        return _fitting(await find(js, stream, options.name), options)
    except ApiError as error:
        if error.err_code == STREAM_NOT_FOUND:
            raise ConsumerGone(
                f"there is no stream {stream}; make it with `logpipeline apply`"
            ) from error
        if error.err_code != CONSUMER_NOT_FOUND:
            raise
    what = f"consumer {options.name} of stream {stream}"
    if any(template.name == options.name for template in pipeline.spec.consumers):
        raise ConsumerGone(
            f"{what} {'was deleted while it was read' if was_there else 'is not there'}; the "
            "resource names it: make it with `logpipeline apply`, then start again"
        )
    if was_there and after is None:
        raise ConsumerGone(
            f"{what} was deleted while it was read, and with it what was acknowledged; start again "
            "to make a new one, which begins with what --deliver, --since or --from-seq says"
        )
    if was_there:
        log.warning(f"{what} was deleted while it was read; a new one goes on behind {after}")
    elif after is None:
        after = await _beginning(js, stream, options)
    try:
        made = await js.consumer_create(stream, config(options, after), action="create")
    except ApiError as error:
        # Another member was faster, and may have found another beginning.
        if error.err_code != CONSUMER_EXISTS:
            raise
        return _fitting(await find(js, stream, options.name), options)
    return _consumer_of(made)


def _fitting(consumer: Consumer, options: ConsumeOptions) -> Consumer:
    """Return *consumer* if its acknowledgements are those that *options* need.

    Raises:
        ConsumerGone: they are not, and messages would be lost without a word.
    """
    what = f"consumer {consumer.name} of stream {consumer.stream} has ackPolicy"
    keeps_state = options.state is not None or options.positions is not None
    if consumer.ack_policy == "none" and options.acks.mode != "none" and not keeps_state:
        raise ConsumerGone(
            f"{what} none: what its reader has in hand when it ends would not come again; read it "
            "with --ack none or with a --state, or another consumer, of ackPolicy explicit"
        )
    if consumer.ack_policy == "all" and options.is_shared:
        raise ConsumerGone(
            f"{what} all: one member would acknowledge what others have in hand; read it with "
            "--ack all or --state kv, by which each partition is one member's, or share the work "
            "of another consumer, of ackPolicy explicit"
        )
    return consumer


async def _beginning(js: JetStream, stream: str, options: ConsumeOptions) -> int | None:
    """Return the sequence behind which a new reader begins, None where the server is to find it.

    A server cannot wind back (see `wind`) a consumer whose deliver policy is new or last.
    """
    if options.deliver_policy not in ("new", "last"):
        return None
    info = await js.stream_info(stream)
    last = int(info["state"]["last_seq"]) if info else 0
    return last if options.deliver_policy == "new" else max(last - 1, 0)


async def wind(js: JetStream, consumer: Consumer, sequence: int) -> Consumer:
    """Return *consumer*, which delivers all behind *sequence* at once, also what it delivered
    before: what a dead reader did not acknowledge would otherwise come only after ``ack_wait``.

    Raises:
        NotSent, OutcomeUnknown: the server could not be asked.
    """
    is_there = consumer.delivered == sequence and not consumer.unacknowledged
    if is_there or not consumer.is_contiguous:
        return consumer
    request = f"CONSUMER.RESET.{consumer.stream}.{consumer.name}"
    try:
        return _consumer_of(await js.call(request, {"seq": sequence + 1}))
    except (ApiError, NoResponders) as error:
        # Below its start, or a server without this call: the reader fetches what is left out.
        log.debug("consumer not wound", extra={"at": request, "reason": str(error)})
        return consumer


def config(options: ConsumeOptions, after: int | None) -> dict[str, Any]:
    """Return the configuration of a consumer of the reader's own, which goes on behind *after*
    where that is known.
    """
    values: dict[str, Any] = {
        "name": options.name,
        "ack_policy": _ack_policy(options),
        "deliver_policy": _POLICIES.get(options.deliver_policy, options.deliver_policy),
        "opt_start_time": options.opt_start_time,
        "opt_start_seq": options.opt_start_seq,
    }
    if after is not None:
        values |= {"deliver_policy": "by_start_sequence", "opt_start_seq": after + 1}
        values["opt_start_time"] = None
    if options.ephemeral:
        values["inactive_threshold"] = int(INACTIVE_S * NS)
    else:
        values["durable_name"] = options.name
    if values["ack_policy"] != "none":
        values["ack_wait"] = int(ACK_WAIT_S * NS)
        values["max_ack_pending"] = 1 if options.in_order else None
        # No max_deliver: the server drops a message after so many deliveries, tried or not.
    return {name: value for name, value in values.items() if value}


def _ack_policy(options: ConsumeOptions) -> str:
    if options.acks.mode == "none":
        return "none"
    return "all" if options.acks.mode in ("spaced", "all") else "explicit"


def _consumer_of(info: dict[str, Any]) -> Consumer:
    """Return the consumer that JetStream's answer to CONSUMER.INFO describes."""
    return Consumer(
        stream=info["stream_name"],
        name=info["name"],
        created=str(info["created"]),
        config=dict(info["config"]),
        delivered=int(info["delivered"].get("stream_seq", 0)),
        acked=int(info["ack_floor"].get("stream_seq", 0)),
        pending=int(info.get("num_pending", 0)),
        unacknowledged=int(info.get("num_ack_pending", 0)),
        deliveries=int(info["delivered"].get("consumer_seq", 0)),
    )
