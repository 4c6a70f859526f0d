"""Writes the batches of one stream to Kafka, each in one transaction.

The transaction also commits how far the stream is copied, as the offset of a consumer group of the
stream's own. So Kafka knows at any time which batches it has: after a crash it is asked, and what
is there is not written again. Whoever begins to write fences who wrote before (`init_transactions`)
and only then asks; so two processes that both believe to have the stream cannot write the same
lines twice, whatever they do.

After any error the producer is dropped, and the next try begins so anew: it needs not to know what
became of a transaction whose outcome is unknown. It costs a connection, and is always right.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka import Message as Delivered

from logpipeline.consuming.message import Batch, Message
from logpipeline.failpoints import reach
from logpipeline_cli.sinks.destination import Misdirected, TryAgain, created_of
from logpipeline_cli.sinks.kafka_errors import Heard, TooLarge
from logpipeline_cli.sinks.kafka_options import KafkaOptions

T = TypeVar("T")

log = logging.getLogger(__name__)
# What librdkafka writes by itself is said by our own messages, once for each try.
_quiet = logging.getLogger(f"{__name__}.librdkafka")
_quiet.disabled = True

# What is not sent yet waits in memory, at most so much; beyond it we wait.
QUEUE_KIB = 64 * 1024
# Larger than any line: the topic's own limit decides.
RECORD_BYTES_MAX = 64 * 2**20
# Kafka finishes a transaction after it has said that it is committed; who begins the next one
# meanwhile is told to come again. By default after 100 ms, which would be a third of all time.
RETRY_MS, RETRY_MS_MAX = 5, 1000
# So often it is looked whether an error was said that no waiting mends.
LOOK_S = 0.5
POLL_S = 0.05
# So long an unfinished transaction may take to be taken back. If it is not, readers of what is
# committed wait until we begin again, or until `transaction.timeout.ms` is over.
ABORT_S = 2.0
# The offset of a group is kept for a partition of a topic; each topic has this one.
PARTITION = 0
ONE_BY_ONE = {"batch.num.messages": 1}


class Position(NamedTuple):
    """The last message that Kafka has of a stream; *time_ns* is when its server stored it."""

    sequence: int
    time_ns: int

    def left_of(self, messages: Sequence[Message]) -> list[Message]:
        """Return those of *messages*, in the order of their stream, that were not written. Under a
        number that was written there may be another message: its server lost what it had.
        """
        at = [each for each in messages if each.sequence == self.sequence]
        if at and at[0].time_ns != self.time_ns:
            return list(messages)
        # Of the others the time says nothing where the server's clock was set back in between. It
        # is all that there is to go by where the message at the position is not among them.
        return [
            each
            for each in messages
            if each.sequence > self.sequence or (not at and each.time_ns > self.time_ns)
        ]


NOTHING = Position(0, 0)
# What is over by itself, though the client calls retriable only what happens in a transaction: a
# broker that cannot be reached, and a group whose coordinator is just moving or starting.
PASSING = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)


class Writer:
    """Writes the batches of the stream that *batch* is from; one thread at a time uses it."""

    def __init__(self, options: KafkaOptions, batch: Batch) -> None:
        self._options = options
        self._stream = batch.stream
        self._created = created_of(batch)
        # Also when the stream was made: two servers may have streams of the same name.
        self.id = f"{prefix_of(options.name)}{batch.stream}.{self._created}"
        self._heard = Heard()
        self._producer: Producer | None = None
        self._group: Any = None
        self._topics: set[str] = set()
        self._position = NOTHING
        self._end = 0.0

    def write(self, batch: Batch) -> None:
        """Write the lines of *batch* that Kafka does not have.

        Raises:
            TryAgain, Refused, Misdirected, BadMessage: see `Destination.write`.
        """
        self._end = time.monotonic() + self._options.timeout_s
        try:
            self._try(batch, {})
        except TooLarge:
            # The limit is for what is sent together, too: of many records one may be too large,
            # or none.
            self._try(batch, ONE_BY_ONE)
            self.drop()

    def drop(self) -> None:
        """Let the producer go; a transaction that is not finished is taken back."""
        if (producer := self._producer) is None:
            return
        with contextlib.suppress(KafkaException):
            producer.abort_transaction(ABORT_S)
        producer.purge()
        # Not `close`, which tries the same once more and warns of it.
        self._producer = None
        self._topics = set()

    def _try(self, batch: Batch, more: dict[str, int]) -> None:
        if more:
            self.drop()
        try:
            producer = self._begun(batch, more)
            if messages := self._position.left_of(batch.messages):
                self._transact(producer, messages)
        except (KafkaException, SystemError) as error:
            self.drop()
            # The client raises a final error in the middle of its callbacks, which then end so.
            found = error.__cause__ if isinstance(error, SystemError) else error
            if not isinstance(found, KafkaException):
                raise
            raise self._heard.meaning(found.args[0], self._options.brokers) from error
        except BaseException:
            self.drop()
            raise

    def _begun(self, batch: Batch, more: dict[str, int]) -> Producer:
        """Return a producer that has fenced those before it, once it is known what they wrote."""
        topics = {self._options.shape.topic_of(each) for each in batch.messages}
        producer = self._producer
        if producer is None:
            self._heard = Heard()
            producer = self._producer = Producer(
                {
                    **client_properties(self._options, self._heard),
                    "batch.size": 1_000_000,
                    "message.max.bytes": RECORD_BYTES_MAX,
                    "queue.buffering.max.kbytes": QUEUE_KIB,
                    "retry.backoff.ms": RETRY_MS,
                    "retry.backoff.max.ms": RETRY_MS_MAX,
                    # As Kafka's own producers in Java choose a partition.
                    "partitioner": "murmur2_random",
                    "delivery.report.only.error": True,
                    **self._options.properties,
                    **more,
                    "transactional.id": self.id,
                    "transaction.timeout.ms": max(1000, int(self._options.timeout_s * 1000)),
                }
            )
            patiently(producer, producer.init_transactions, self._heard, self._where)
            self._position = self._look(topics)
        elif new := topics - self._topics:
            self._look(new)
        self._topics |= topics
        return producer

    @property
    def _where(self) -> Where:
        return Where(self._options.brokers, self._end)

    def _look(self, topics: Iterable[str]) -> Position:
        """Return how far Kafka has the stream in *topics*, once all of them are there."""
        consumer = Consumer(consumer_properties(self._options, self.id, self._heard))
        try:
            # Of several that are missing, each try names the same one.
            for topic in sorted(topics):
                check_topic(consumer, topic, self._heard, self._where)
            wanted = [TopicPartition(topic, PARTITION) for topic in topics]
            found = self._committed(consumer, wanted)
            self._group = consumer.consumer_group_metadata()
        finally:
            consumer.close()
        return max((self._position_in(each) for each in found), default=NOTHING)

    def _committed(self, consumer: Consumer, wanted: list[TopicPartition]) -> list[TopicPartition]:
        try:
            return patiently(
                consumer, lambda s: consumer.committed(wanted, timeout=s), self._heard, self._where
            )
        except KafkaException as error:
            if error.args[0].code() != KafkaError._TIMED_OUT or self._heard.has_reason:
                raise
            # A reader of what is committed gets no offset of a group while a transaction that holds
            # one is not finished.
            raise TryAgain(
                f"{self._options.brokers} answers, but not how far stream {self._stream} is copied "
                f"(group {self.id}): a transaction that it does not finish may hold this up; see "
                "kafka-transactions.sh find-hanging, for the topic __consumer_offsets, too"
            ) from error

    def _position_in(self, found: TopicPartition) -> Position:
        if found.error is not None:
            raise KafkaException(found.error)
        if found.offset < 0:
            return NOTHING
        try:
            return Position(found.offset, int(found.metadata or ""))
        except ValueError as error:
            raise Misdirected(
                f"group {self.id} of {self._options.brokers} is not this sink's: delete it, or "
                "choose another NAME"
            ) from error

    def _transact(self, producer: Producer, messages: list[Message]) -> None:
        shape, failed = self._options.shape, list[KafkaError]()
        last = Position(messages[-1].sequence, messages[-1].time_ns)

        def report(error: KafkaError | None, _: Delivered[Any, Any]) -> None:
            if error is not None:
                failed.append(error)

        producer.begin_transaction()
        for message in messages:
            topic, key = shape.topic_of(message), shape.key_of(message)
            for record in shape.records(message, self._created):
                queue = partial(
                    producer.produce,
                    topic,
                    record.value,
                    key,
                    headers=record.headers,
                    timestamp=record.time_ms,
                    on_delivery=report,
                )
                self._patiently(producer, queue)
        # What follows a refused record is not sent any more, and would be waited for to the end.
        while (left := producer.flush(min(self._left, LOOK_S))) and not failed:
            if time.monotonic() >= self._end:
                break
        if failed:
            raise KafkaException(failed[0])
        if left:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{left} lines were not sent"))
        reach("kafka.sent")
        topics = {shape.topic_of(message) for message in messages}
        offsets = [
            TopicPartition(topic, PARTITION, last.sequence, str(last.time_ns)) for topic in topics
        ]
        producer.send_offsets_to_transaction(offsets, self._group, self._left)
        reach("kafka.positioned")
        producer.commit_transaction(self._left)
        self._position = last

    @property
    def _left(self) -> float:
        return max(self._end - time.monotonic(), 0.001)

    def _patiently(self, producer: Producer, produce: Callable[[], None]) -> None:
        """Wait while the queue is full."""
        while True:
            try:
                produce()
            except BufferError as error:
                if time.monotonic() >= self._end:
                    raise TryAgain(f"{self._options.brokers} takes no more in time") from error
                producer.poll(POLL_S)
            else:
                return


class Where(NamedTuple):
    """Which *brokers* are asked, and until when by `time.monotonic`."""

    brokers: str
    end: float


def prefix_of(name: str) -> str:
    """Return what transactional ids and groups of the consumer *name* begin with."""
    return f"logpipeline.{name}."


def client_properties(options: KafkaOptions, heard: Heard) -> dict[str, Any]:
    """Return the properties of any client, which tells *heard* of its connections."""
    return {**options.properties, "error_cb": heard, "logger": _quiet, "log_level": 0}


def consumer_properties(options: KafkaOptions, group: str, heard: Heard) -> dict[str, Any]:
    """Return the properties of a consumer that only asks, and never makes a topic by it."""
    ours = {"group.id": group, "enable.auto.commit": False, "allow.auto.create.topics": False}
    return {**client_properties(options, heard), **ours}


def patiently(
    client: Producer | Consumer, call: Callable[[float], T], heard: Heard, where: Where
) -> T:
    """Return what *call* returns, given the seconds that it may take, once a broker answers.

    Raises:
        KafkaException: it did not in time, or said that something is wrong.
        Misdirected: no waiting helps.
    """
    while True:
        left = where.end - time.monotonic()
        try:
            return call(max(min(left, LOOK_S), 0.001))
        except KafkaException as error:
            # Where connections fail, the client says so only when it is asked.
            client.poll(POLL_S)
            heard.check(where.brokers)
            found = error.args[0]
            if not (found.retriable() or found.code() in PASSING) or left <= 0:
                raise


def check_topic(consumer: Consumer, topic: str, heard: Heard, where: Where) -> None:
    """Return if *topic* is there.

    Raises:
        KafkaException: no broker answered.
        Misdirected: it is not.
    """
    # Brokers may make a topic of any name that is written to, also of a mistyped one.
    found = patiently(consumer, lambda s: consumer.list_topics(topic, timeout=s), heard, where)
    error = found.topics[topic].error
    if error is None:
        return
    if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        raise Misdirected(f"{where.brokers} has no topic {topic}: create it")
    raise KafkaException(error)
