"""Streams as code: what is there becomes a resource that changes nothing, and messages go by hand
only after a person agreed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import warm
from logpipeline import zstd
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.wire import Batch, encode_headers, encode_payload, message_id, source_key
from waiting import WITHIN_S


def run(*words: str, code: int = 0) -> str:
    """What the command prints, which ends with *code*."""
    done = warm.run_text(words, timeout_s=WITHIN_S)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
async def js(nats_server: EmbeddedServer) -> AsyncIterator[JetStream]:
    """A connection to an empty server."""
    connection = Connection(NatsOptions(servers=(nats_server.url,)))
    await connection.start(patience_s=WITHIN_S)
    yield JetStream(connection)
    await connection.close()


async def by_hand(js: JetStream) -> None:
    """Three streams and a consumer on each, made as people make them."""
    for number in range(3):
        name = f"APP_{number}"
        config: dict[str, Any] = {
            "name": name,
            "subjects": [f"app.p{number}.>"],
            "max_bytes": 1_000_000 * (2 if number == 2 else 1),
            "max_age": 3600 * 10**9,
            "allow_direct": True,
        }
        await js.call(f"STREAM.CREATE.{name}", config)
        await js.consumer_create(
            name,
            {"name": "audit", "durable_name": "audit", "ack_policy": "explicit", "max_deliver": 5},
        )
        for line in range(4):
            await js.publish(f"app.p{number}.web{number}", f"line {line}".encode())


async def test_what_is_there_becomes_a_resource_that_changes_nothing(
    js: JetStream, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Adopted, the streams and consumers are as they were but for our mark, and so are messages."""
    await by_hand(js)
    before = await found(js)
    text = run("export", "APP", "--nats", nats_server.url)
    resource = yaml.safe_load(text)
    file = tmp_path / "logpipeline.yaml"
    file.write_text(text)

    here = ("-f", str(file), "--data", str(tmp_path / "data"), "--nats", nats_server.url)
    run("apply", *here)

    assert await found(js) == before
    assert resource["spec"]["partitions"] == 3
    assert [each["name"] for each in resource["spec"]["consumers"]] == ["audit"]
    assert resource["spec"]["stream"]["overrides"][0]["partitions"] == "2"
    run("plan", *here)


async def test_a_stream_that_is_not_there_is_named_beside_those_that_are(
    js: JetStream, nats_server: EmbeddedServer
) -> None:
    """A mistyped name costs no look elsewhere."""
    await by_hand(js)

    said = run("export", "APPS", "--nats", nats_server.url, code=1)

    assert "there is no stream APPS" in said
    assert "APP_0, APP_1, APP_2" in said


async def test_one_message_goes_when_somebody_says_yes(
    js: JetStream, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """It is shown before; without a word nothing happens."""
    await by_hand(js)
    here = resource(tmp_path, nats_server)

    asked = run("stream", "rm-msg", "1", "3", *here, code=1)
    assert "line 2" in asked
    assert "--yes" in asked
    assert await js.message("APP_1", 3) is not None
    run("stream", "rm-msg", "1", "3", *here, "--yes")

    assert await js.message("APP_1", 3) is None
    assert await count(js, "APP_1") == 3
    assert "no message 3" in run("stream", "rm-msg", "1", "3", *here, "--yes", code=1)
    assert "no partition 9" in run("stream", "rm-msg", "9", "3", *here, "--yes", code=1)


async def test_messages_of_a_partition_go_and_others_stay(
    js: JetStream, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """All of one, or all but the newest."""
    await by_hand(js)
    here = resource(tmp_path, nats_server)

    assert "4 messages" in run("stream", "purge", "--partition", "0", *here, code=1)
    assert await count(js, "APP_0") == 4
    run("stream", "purge", "--partition", "0", *here, "--yes")
    run("stream", "purge", "--partition", "1", "--keep", "1", *here, "--yes")

    assert [await count(js, f"APP_{number}") for number in range(3)] == [0, 1, 4]


def resource(folder: Path, server: EmbeddedServer) -> tuple[str, ...]:
    """The words that name the pipeline of the streams."""
    file = folder / "app.yaml"
    spec = {"subject": "app", "partitions": 3, "stream": {"name": "APP"}}
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "logpipeline.dev/v1alpha1",
                "kind": "LogPipeline",
                "metadata": {"name": "app"},
                "spec": spec,
            }
        )
    )
    return ("-f", str(file), "--data", str(folder / "data"), "--nats", server.url)


async def count(js: JetStream, stream: str) -> int:
    """How many messages *stream* holds."""
    info = await js.stream_info(stream)
    assert info is not None
    return int(info["state"]["messages"])


async def found(js: JetStream) -> list[Any]:
    """Streams, their consumers and their messages, without whose they are."""
    everything = []
    for number in range(3):
        stream = await js.stream_info(f"APP_{number}")
        consumer = await js.call(f"CONSUMER.INFO.APP_{number}.audit")
        assert stream is not None
        configs = [stream["config"], consumer["config"]]
        for config in configs:
            config.pop("metadata", None)
            # Where there was none, ours is the server's own.
            config.pop("max_consumers", None)
        everything.append((configs, stream["created"], stream["state"]["messages"]))
    return everything


async def test_a_packed_message_is_shown_as_its_lines(
    js: JetStream, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """A person decides by what was logged, and not by compressed bytes."""
    await by_hand(js)
    data = b"the line to forget\n" * 50
    payload, is_packed = encode_payload(data, zstd.Compressor(3))
    batch = Batch(
        source="/var/log/app.log",
        generation="0123456789abcdef",
        start=0,
        end=len(data),
        lines=50,
        format="plain",
        compressed=is_packed,
    )
    name = message_id(source_key("test", "web1", batch.source), batch)
    await js.publish("app.p1.web1", payload, encode_headers(batch, name))

    asked = run("stream", "rm-msg", "1", "5", *resource(tmp_path, nats_server), code=1)

    assert is_packed
    assert "the line to forget" in asked
