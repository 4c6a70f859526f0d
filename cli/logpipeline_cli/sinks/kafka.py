"""Apache Kafka: each batch is one transaction, which also stores the position in its stream. A
reader with `isolation.level=read_committed` gets each line once: see `kafka_writer`.

The client is confluent-kafka, that is librdkafka: its transactions are those that most users of
Kafka outside of Java rely on, its wheels bring all that it needs (17 MB, types included), and an
error says whether it is final. aiokafka is smaller and speaks asyncio, but one batch at a time
needs no asyncio, and its transactions are less tried.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from logpipeline.consuming.message import Batch
from logpipeline_cli.sinks.destination import Misdirected, TryAgain, created_of
from logpipeline_cli.sinks.kafka_errors import Heard
from logpipeline_cli.sinks.kafka_options import KafkaOptions, kafka_options
from logpipeline_cli.sinks.kafka_writer import (
    Where,
    Writer,
    check_topic,
    client_properties,
    consumer_properties,
    prefix_of,
)

log = logging.getLogger(__name__)

# So long a broker is waited for at the start, before the log says that it is away.
OPEN_S = 5.0
# So much longer than a batch may take, a call of the client is waited for. One of them
# (`send_offsets_to_transaction`) forgets its own deadline where the group's coordinator was away.
GRACE_S = 15.0
# Each such call keeps a thread and a producer.
HUNG_MAX = 16


class KafkaDestination:
    """Produces the batches; each stream has a producer of its own, since one that begins fences
    those before it, and the streams of a group have different owners.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._writers: dict[tuple[str, str], Writer] = {}
        self._hung = 0

    async def open(self) -> None:
        """Look whether the topic is there; brokers that are away are waited for, batch by batch.

        Raises:
            Misdirected: the topic does not exist, or this login may not see it.
        """
        if self._options.is_reset:
            await asyncio.to_thread(self._forget)
        if not self._options.shape.has_fields:
            await asyncio.to_thread(self._check)

    async def write(self, batch: Batch) -> None:
        """Produce the lines; see `Destination.write`."""
        key = (batch.stream, created_of(batch))
        if key not in self._writers:
            self._writers[key] = Writer(self._options, batch)
        writing = partial(self._writers[key].write, batch)
        try:
            await in_time(writing, self._options.timeout_s + GRACE_S)
        except TimeoutError:
            # The next writer fences this one, which therefore commits nothing should it go on.
            del self._writers[key]
            self._hung += 1
            where = f"{self._options.brokers}: Kafka's client did not return in time"
            if self._hung > HUNG_MAX:
                raise Misdirected(f"{where}, {self._hung} times: start the sink again") from None
            raise TryAgain(where) from None

    async def close(self) -> None:
        """Let all producers go."""
        for writer in self._writers.values():
            await asyncio.to_thread(writer.drop)

    def _check(self) -> None:
        options, heard = self._options, Heard()
        group = prefix_of(options.name) + "start"
        consumer = Consumer(consumer_properties(options, group, heard))
        where = Where(options.brokers, time.monotonic() + min(OPEN_S, options.timeout_s))
        try:
            check_topic(consumer, options.shape.topic, heard, where)
        except KafkaException as error:
            found = heard.meaning(error.args[0], options.brokers)
            if isinstance(found, Misdirected):
                raise found from error
            log.warning("%s; it is waited for", found)
        finally:
            consumer.close()

    def _forget(self) -> None:
        """Delete what Kafka keeps of how far streams are copied.

        Raises:
            Misdirected: it could not be deleted.
        """
        options, heard = self._options, Heard()
        admin = AdminClient(client_properties(options, heard))
        try:
            found = admin.list_consumer_groups(request_timeout=options.timeout_s).result()
            # One of several brokers did not answer: the groups that it keeps are not among them.
            for error in found.errors or ():
                raise error
            prefix = prefix_of(options.name)
            groups = [each.group_id for each in found.valid if each.group_id.startswith(prefix)]
            if not groups:
                return
            for done in admin.delete_consumer_groups(groups).values():
                done.result()
        except KafkaException as error:
            admin.poll(0)
            reason = heard.meaning(error.args[0], options.brokers)
            raise Misdirected(f"{reason}; run it with --reset again") from error


async def in_time(call: Callable[[], None], within_s: float) -> None:
    """Return when *call* has returned, which a thread of its own carries out, and raise what it
    raises. No end of the process waits for a thread that is left behind.

    Raises:
        TimeoutError: it did not return in time.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            call()
        except BaseException as raised:  # noqa: BLE001  # it is raised where it is waited for
            error = raised
        # The loop is closed where nobody waits any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, error)

    threading.Thread(target=run, name="kafka", daemon=True).start()
    async with asyncio.timeout(within_s):
        await done


def destination_of(args: argparse.Namespace) -> KafkaDestination:
    """Return the destination that the arguments name.

    Raises:
        UsageError: one of them is wrong.
    """
    return KafkaDestination(kafka_options(args))
