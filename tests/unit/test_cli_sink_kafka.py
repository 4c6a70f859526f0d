"""What the sink for Kafka makes of its options, of lines, and of what brokers say."""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from cluster.bare.certificates import Identity, make
from components.sink_batches import STORED_NS, batch_of, message
from logpipeline_cli.arguments import build_parser
from logpipeline_cli.errors import UsageError
from logpipeline_cli.main import main
from logpipeline_cli.sinks import kafka
from logpipeline_cli.sinks.destination import Misdirected, Refused, TryAgain, line_names
from logpipeline_cli.sinks.kafka_errors import Heard, TooLarge
from logpipeline_cli.sinks.kafka_options import KafkaOptions, kafka_options
from logpipeline_cli.sinks.kafka_records import shape_of
from logpipeline_cli.sinks.kafka_writer import (
    Position,
    Where,
    Writer,
    client_properties,
    patiently,
)

NOWHERE = {"--brokers": "127.0.0.1:1", "--topic": "logs"}
CRI = b"2026-11-25T10:00:00.000000001Z stdout F one\n2026-11-25T10:00:00.000000002Z stderr F \xff\n"
WHERE = "kafka.example.net:9092"


def command(*words: str) -> list[str]:
    """Return a command whose brokers and topic may be among *words*."""
    needed = [part for each in NOWHERE.items() if each[0] not in words for part in each]
    return ["sink", "kafka", "bus", *needed, *words]


def options(*words: str) -> KafkaOptions:
    """Return the options of `logpipeline sink kafka`."""
    return kafka_options(build_parser().parse_args(command(*words)))


def test_login_and_tls_reach_the_client(tmp_path: Path) -> None:
    """All that says who we are, and whom we trust, is in what the client is made with."""
    make(tmp_path, [Identity("sink", "sink")])
    (tmp_path / "login").write_text("shop:with:colon\n")
    (tmp_path / "more").write_text("# secret\nssl.key.password=word\n\n")
    found = options(
        "--sasl", "scram-sha-512", "--login-file", str(tmp_path / "login"),
        "--ca", str(tmp_path / "ca.crt"), "--cert", str(tmp_path / "sink.crt"),
        "--cert-key", str(tmp_path / "sink.key"), "--property-file", str(tmp_path / "more"),
        "--property", "batch.size=5000",
    )  # fmt: skip

    assert dict(client_properties(found, Heard())).items() >= {
        ("bootstrap.servers", "127.0.0.1:1"),
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "SCRAM-SHA-512"),
        ("sasl.username", "shop"),
        ("sasl.password", "with:colon"),
        ("ssl.ca.location", str(tmp_path / "ca.crt")),
        ("ssl.certificate.location", str(tmp_path / "sink.crt")),
        ("ssl.key.location", str(tmp_path / "sink.key")),
        ("ssl.key.password", "word"),
        ("batch.size", "5000"),
    }
    assert "colon" not in repr(found)


@pytest.mark.parametrize(
    ("words", "login", "protocol"),
    [
        ((), "", "PLAINTEXT"),
        (("--tls",), "", "SSL"),
        ((), "shop:word", "SASL_PLAINTEXT"),
        (("--tls",), "shop:word", "SASL_SSL"),
    ],
)
def test_the_protocol_follows_from_login_and_tls(
    words: tuple[str, ...], login: str, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A login alone is PLAIN."""
    monkeypatch.setenv("LOGPIPELINE_SINK_LOGIN", login)
    properties = options(*words).properties

    assert properties["security.protocol"] == protocol
    assert properties.get("sasl.mechanism") == ("PLAIN" if login else None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--brokers", "kafka"), "--brokers: give addresses"),
        (("--brokers", "me:secret@kafka:9092"), "--brokers: give addresses"),
        (("--topic", "logs-{pod}"), "{host}, {namespace}, {container} stand for"),
        (("--topic", "my logs"), "give the name of a topic"),
        (("--sasl", "plain"), "give the login"),
        (("--login-file", "/nowhere"), "cannot be read"),
        (("--property", "sasl.password=secret"), "on the command line"),
        (("--property", "secret"), "give a property of librdkafka"),
        (("--property", "acks=1"), "acks is set by the sink"),
        (("--property", "batch.sice=1"), 'No such configuration property: "batch.sice"'),
        (("--property", "batch.size=many"), "batch.size"),
        (("--ca", "/nowhere/ca.crt"), "--ca: /nowhere/ca.crt cannot be read"),
        (("--timeout", "soon"), "--timeout"),
    ],
)
def test_wrong_words_are_named(words: tuple[str, ...], said: str) -> None:
    """And no secret is repeated."""
    with pytest.raises(UsageError) as found:
        options(*words)
    assert said in str(found.value)
    assert "secret" not in str(found.value).replace("a secret does not", "")


def test_a_client_that_is_not_installed_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own extra, which the other kinds do not need."""
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    for name in ("kafka", "kafka_options", "kafka_writer", "kafka_errors"):
        monkeypatch.delitem(sys.modules, f"logpipeline_cli.sinks.{name}", raising=False)
    assert main(command()) == 1
    assert "pip install 'logpipeline[kafka]'" in capsys.readouterr().err


def test_a_line_says_where_it_is_from() -> None:
    """In headers that can be read without the value."""
    container = message(7, CRI, form="cri")
    shape = shape_of("logs-{namespace}-{host}", "host", "json")
    first, second = shape.records(container, "18d")

    assert shape.topic_of(container) == "logs-shop-node-a"
    assert shape.key_of(container) == b"node-a"
    assert first.headers == [
        ("id", line_names(container, "18d")[0].encode()),
        ("host", b"node-a"),
        ("namespace", b"shop"),
        ("pod", b"web"),
        ("container", b"app"),
        ("source", b"shop/web/1/app/0"),
        ("stream", b"stdout"),
    ]
    assert json.loads(first.value)["message"] == "one"
    assert first.time_ms == 1_795_600_800_000
    assert json.loads(second.value)["message_base64"] == "/w=="


def test_a_plain_line_is_what_was_written() -> None:
    """With -o raw byte for byte; a file has no namespace, and the time of its message."""
    plain = message(1, b"\xff one\n\ntwo\n", host="node.1")
    shape = shape_of("{namespace}.{host}", "source", "raw")
    records = list(shape.records(plain, "18d"))

    assert shape.topic_of(plain) == "none.node.1"
    assert shape.key_of(plain) == b"node.1//var/log/app.log"
    assert [each.value for each in records] == [b"\xff one", b"", b"two"]
    assert records[0].time_ms == (STORED_NS + 1_000_000) // 1_000_000


def test_lines_that_kafka_has_are_known_by_number_and_time() -> None:
    """A server that lost its tail gives a number to a later message, which is another one."""
    before, written, after = (message(sequence, b"one\n") for sequence in (6, 7, 8))
    position = Position(7, written.time_ns)

    assert position.left_of([before, written, after]) == [after]
    assert position.left_of([before]) == position.left_of([written]) == []
    assert position.left_of([after]) == [after]
    later = Position(7, written.time_ns - 1)
    assert later.left_of([written]) == [written]
    assert later.left_of([before, written]) == [before, written]
    # The one at the position was deleted.
    assert position.left_of([before, after]) == [after]


def test_a_clock_that_was_set_back_repeats_no_line() -> None:
    """Within a batch a later message may have an earlier time: it is the last one's that counts."""
    first, last, after = (message(sequence, b"one\n") for sequence in (3, 10, 11))
    first.time_ns = last.time_ns + 1

    assert Position(10, last.time_ns).left_of([first, last, after]) == [after]


def test_each_stream_has_an_identity_of_its_own() -> None:
    """A stream that was made anew, or of another server, is another one."""
    batch = batch_of([message(1, b"one\n")])
    later = batch_of([message(1, b"one\n")], created="2026-11-25T11:00:00Z")

    assert Writer(options(), batch).id.startswith("logpipeline.bus.LOGS_7.")
    assert Writer(options(), batch).id == Writer(options(), batch).id
    assert Writer(options(), batch).id != Writer(options(), later).id


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, TooLarge),
        (KafkaError.INVALID_TIMESTAMP, Refused),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Misdirected),
        (KafkaError.SASL_AUTHENTICATION_FAILED, Misdirected),
        (KafkaError.NOT_ENOUGH_REPLICAS, TryAgain),
        (KafkaError._FENCED, TryAgain),
        (KafkaError._TIMED_OUT, TryAgain),
    ],
)
def test_an_error_blames_the_record_the_set_up_or_the_moment(
    code: int, kind: type[Exception]
) -> None:
    """Only the first one can make a dead letter."""
    found = Heard().meaning(KafkaError(code, "as the test wants it"), WHERE)

    assert type(found) is kind
    assert WHERE in str(found)


def test_what_a_connection_said_explains_a_time_out() -> None:
    """The reason and not its consequence; a wrong certificate ends the sink."""
    heard = Heard()
    heard(KafkaError(KafkaError._TRANSPORT, "Connection refused"))
    heard(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    heard.check(WHERE)
    found = heard.meaning(KafkaError(KafkaError._TIMED_OUT, "timed out"), WHERE)
    assert str(found) == f"{WHERE} did not answer: Connection refused"

    heard(KafkaError(KafkaError._SSL, "broker certificate could not be verified"))
    with pytest.raises(Misdirected, match="could not be verified; check the login, --ca"):
        heard.check(WHERE)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    ],
)
def test_a_group_whose_coordinator_moves_is_asked_again(code: int) -> None:
    """A broker that has just started says so for a moment; a login that is refused is not asked
    again.
    """
    answers = [KafkaException(KafkaError(code)), KafkaException(KafkaError(code))]

    def ask(_: float) -> str:
        if answers:
            raise answers.pop()
        return "known"

    def refuse(_: float) -> str:
        raise KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))

    consumer = Consumer({"group.id": "any"})
    until = Where(WHERE, time.monotonic() + 60)
    try:
        assert patiently(consumer, ask, Heard(), until) == "known"
        with pytest.raises(KafkaException, match="Group authorization failed"):
            patiently(consumer, refuse, Heard(), until)
    finally:
        consumer.close()


async def test_a_call_that_never_returns_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka has calls that forget their deadline. The next try begins with another producer,
    and one too often ends the sink.
    """
    writers: list[Writer] = []
    ended = threading.Event()

    def hang(self: Writer, batch: object) -> None:
        writers.append(self)
        ended.wait()

    monkeypatch.setattr(Writer, "write", hang)
    monkeypatch.setattr(kafka, "GRACE_S", 0.05)
    monkeypatch.setattr(kafka, "HUNG_MAX", 1)
    destination = kafka.KafkaDestination(replace(options(), timeout_s=0.0))
    batch = batch_of([message(1, b"one\n")])
    with pytest.raises(TryAgain, match="client did not return in time"):
        await destination.write(batch)
    with pytest.raises(Misdirected, match="2 times: start the sink again"):
        await destination.write(batch)
    await destination.close()
    ended.set()

    assert len(set(writers)) == 2


async def test_what_a_call_raises_is_raised_where_it_is_waited_for() -> None:
    """From its thread."""

    def refuse() -> None:
        raise Refused("a reason")

    with pytest.raises(Refused, match="a reason"):
        await kafka.in_time(refuse, 10)
    await kafka.in_time(lambda: None, 10)


def test_a_reset_that_reaches_some_brokers_only_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The groups of the others say how far streams are copied: their lines would be left out. A
    stand-in for a cluster of which one broker is away.
    """

    class Half:
        def __init__(self, properties: object) -> None:
            self.valid: list[object] = []
            self.errors = [KafkaException(KafkaError(KafkaError._TRANSPORT))]

        def list_consumer_groups(self, **options: object) -> Half:
            return self

        def result(self) -> Half:
            return self

        def poll(self, timeout: float) -> int:
            return 0

    monkeypatch.setattr(kafka, "AdminClient", Half)
    made = kafka.destination_of(build_parser().parse_args(command("--reset")))
    with pytest.raises(Misdirected, match="run it with --reset again"):
        made._forget()
