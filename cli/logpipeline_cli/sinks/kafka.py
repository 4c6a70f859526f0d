"""Apache Kafka: each batch is one transaction, which also keeps how far its stream is copied. A
reader of what is committed sees each line once; `kafka_writer` says why.

The client is confluent-kafka, that is librdkafka: its transactions are those that most users of
Kafka outside of Java rely on, its wheels bring all that it needs (17 MB, types included), and an
error says whether it is final. aiokafka is smaller and speaks asyncio, but one batch at a time
needs no asyncio, and its transactions are less tried.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import time

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from logpipeline.consuming.message import Batch
from logpipeline_cli.sinks.destination import Misdirected, created_of
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


class KafkaDestination:
    """Produces the batches; each stream has a producer of its own, since one that begins fences
    those before it, and the streams of a group have different owners.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._writers: dict[tuple[str, str], Writer] = {}

    async def open(self) -> None:
        """Look whether the topic is there; brokers that are away are waited for, batch by batch.

        Raises:
            Misdirected: there is no such topic, or we may not look.
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
        await asyncio.to_thread(self._writers[key].write, batch)

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


def destination_of(args: argparse.Namespace) -> KafkaDestination:
    """Return the destination that the arguments name.

    Raises:
        UsageError: one of them is wrong.
    """
    return KafkaDestination(kafka_options(args))
