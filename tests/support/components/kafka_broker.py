"""A real Kafka of one node, which is broker and controller, in a Java of its own: with few
megabytes, on free ports, in a folder of its own. It can be killed, and started again.
"""

from __future__ import annotations

import os
import shutil
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import spark_versions
from components.real_server import RealServer
from logpipeline_spark.requirements import has_java
from ports import free_port

# Some seconds, and minutes where others use the processors.
START_WITHIN_S = 240.0
CALL_S = 120.0
# Of Kafka's format 2 of batches, and the bit of those that hold a marker.
BATCH_HEADER_BYTES = 61
IS_CONTROL = 0x20
# Where the state is in what Kafka keeps of a transaction (version, producer, epoch and timeout come
# before), and those of one that goes on or is being committed or taken back.
STATE_AT = 16
UNFINISHED = {1, 2, 3}
CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"
# A short life: all that the compiler would gain later costs now.
JAVA = (
    *("-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    "-XX:-UsePerfData",
)
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners={protocol}://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={protocol}://127.0.0.1:{broker}
inter.broker.listener.name={protocol}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,{protocol}:{protocol}
log.dirs={folder}/data
auto.create.topics.enable=true
num.partitions=2
offsets.topic.replication.factor=1
offsets.topic.num.partitions=2
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=2
group.initial.rebalance.delay.ms=0
num.network.threads=1
num.io.threads=2
background.threads=1
log.cleaner.enable=false
"""
LOGIN = """\
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="shop" password="word" user_shop="word";
"""  # noqa: E501  # one line for Kafka


class Stored(NamedTuple):
    """A record as a reader gets it."""

    partition: int
    key: bytes
    value: bytes
    headers: dict[str, bytes]


class Broker(RealServer):
    """A Kafka in *folder*; with *has_login* it wants `shop:word`."""

    def __init__(self, folder: Path, *, has_login: bool = False) -> None:
        folder.mkdir(parents=True)
        super().__init__(folder)
        self._port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{self._port}"
        self._client: dict[str, Any] = {"bootstrap.servers": self.address, "log_level": 0}
        protocol = "SASL_PLAINTEXT" if has_login else "PLAINTEXT"
        if has_login:
            login = {"sasl.username": "shop", "sasl.password": "word", "sasl.mechanism": "PLAIN"}
            self._client |= {"security.protocol": protocol, **login}
        text = PROPERTIES.format(
            controller=controller, broker=self._port, protocol=protocol, folder=folder
        )
        # An answer never comes to one that is collected meanwhile.
        self._admin = AdminClient(self._client)
        self._file = folder / "server.properties"
        self._file.write_text(text + (LOGIN if has_login else ""))
        words = ("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(self._file))
        self.spawn(self._command(*words)).wait()

    def _command(self, *words: str) -> list[str]:
        jars = [jar for jar in spark_versions.locked() if jar.kind == "kafka"]
        path = os.pathsep.join(str(jar.place) for jar in jars)
        return ["java", *JAVA, "-cp", path, *words]

    def start(self) -> None:
        """Return once it answers."""
        self.launch(
            self._command("kafka.Kafka", str(self._file)),
            lambda: self._admin.list_topics(timeout=1),
            until=KafkaException,
            within_s=START_WITHIN_S,
        )

    def create(self, *topics: str, partitions: int = 2, **config: str) -> None:
        """Make *topics*; an option's ``_`` stands for a dot."""
        options = {name.replace("_", "."): value for name, value in config.items()}
        wanted = [NewTopic(topic, partitions, 1, config=options) for topic in topics]
        for made in self._admin.create_topics(wanted).values():
            made.result(CALL_S)

    def topics(self) -> set[str]:
        """Return the names of the topics that are not Kafka's own."""
        names = self._admin.list_topics(timeout=CALL_S).topics
        return {name for name in names if not name.startswith("__")}

    def groups(self) -> set[str]:
        """Return the names of all consumer groups."""
        found = self._admin.list_consumer_groups().result(CALL_S)
        return {each.group_id for each in found.valid}

    def is_at_rest(self) -> bool:
        """Return whether Kafka has finished all transactions that were committed."""
        states = {each.key: each.value[STATE_AT] for each in self.records("__transaction_state")}
        return not UNFINISHED & set(states.values())

    def lose_markers(self) -> None:
        """Take the last marker of a commit out of each partition of a topic or of the groups. So a
        broker leaves them that was killed just before it wrote them, where its coordinator took
        them for written when it came back. To be called at rest, while it is not running.
        """
        for path in sorted((self._file.parent / "data").glob("*/00000000000000000000.log")):
            *_, (start, attributes) = [(0, 0), *_batches(path.read_bytes())]
            if attributes & IS_CONTROL and not path.parent.name.startswith("__cluster"):
                os.truncate(path, start)

    def records(self, topic: str, *, committed: bool = True) -> list[Stored]:
        """Return the records of *topic* in the order of each partition: those that a reader of what
        is *committed* gets, or all.
        """
        consumer = Consumer(
            {
                **self._client,
                "group.id": "test",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
            }
        )
        try:
            found = consumer.list_topics(topic, timeout=CALL_S).topics[topic]
            consumer.assign([TopicPartition(topic, number, 0) for number in found.partitions])
            return list(_until_end(consumer, len(found.partitions)))
        finally:
            consumer.close()


def _batches(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each batch of a partition's file begins, with its attributes."""
    start = 0
    while start + BATCH_HEADER_BYTES <= len(data):
        (length,) = struct.unpack_from(">i", data, start + 8)
        if length == 0:
            return
        yield start, struct.unpack_from(">h", data, start + 21)[0]
        start += 12 + length


def _until_end(consumer: Consumer, partitions: int) -> Iterator[Stored]:
    ended = set[int | None]()
    deadline = time.monotonic() + CALL_S
    while len(ended) < partitions:
        assert time.monotonic() < deadline, "the end of the topic does not come"
        message = consumer.poll(1)
        if message is None:
            continue
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
            continue
        found = dict(message.headers() or {})
        headers = {name: value for name, value in found.items() if isinstance(value, bytes)}
        partition = message.partition()
        assert partition is not None
        yield Stored(partition, message.key() or b"", message.value() or b"", headers)


@contextmanager
def kafka_broker(folder: Path, *, has_login: bool = False) -> Iterator[Broker]:
    """Run a Kafka beneath *folder* for as long as the block lasts."""
    if not has_java():
        pytest.skip("there is no Java here")
    spark_versions.need_jars("kafka")
    broker = Broker(folder, has_login=has_login)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
        # A gigabyte of files that Kafka reserves, of which nothing is written.
        shutil.rmtree(folder / "data", ignore_errors=True)
