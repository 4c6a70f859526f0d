"""The model of JetStream that worlds are simulated with answers as a real nats-server does: both
are asked the same questions.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, Protocol

import pytest

import logpipeline.nats.connection
from components.shipping import jetstream
from logpipeline.embedded import EmbeddedServer, ServerOptions
from logpipeline.nats.bucket import Bucket, Conflict, bucket_stream_config
from logpipeline.nats.connection import (
    Connection,
    Denied,
    NatsOptions,
    NoResponders,
    NotSent,
    OutcomeUnknown,
)
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.nats.pull import PullReader, ReaderClosed
from logpipeline.nats.scan import DirectGets, DirectReader, Range, Scan, following
from simulated.loop import WORLD, VirtualLoop
from simulated.network import Network
from simulated.server import Server
from waiting import eventually

Answers = list[Any]
Script = Callable[[JetStream], Awaitable[Answers]]
FaultScript = Callable[[JetStream, "Faults"], Awaitable[Answers]]
STREAM = {"name": "S", "subjects": ["s.>"], "storage": "file", "allow_direct": True}
CONSUMER = {"ack_policy": "none", "deliver_policy": "all", "mem_storage": True}
# Differ from run to run, and are nothing that anyone compares.
VOLATILE = (
    "type",
    "created",
    "ts",
    "first_ts",
    "last_ts",
    "time",
    "bytes",
    "config",
    "data",
    "hdrs",
)


async def made(js: JetStream, **changes: Any) -> None:
    await js.call("STREAM.CREATE.S", {**STREAM, **changes})


async def tried(work: Awaitable[Any]) -> Any:
    """Return what *work* comes to, or the error that it ends with."""
    try:
        return await work
    except ApiError as error:
        return [error.code, error.err_code]
    except Denied as error:
        return ["denied", error.subject]
    except (NoResponders, Conflict, ReaderClosed) as error:
        return type(error).__name__


async def state(js: JetStream) -> dict[str, Any]:
    info = await js.stream_info("S")
    assert info is not None
    names = ("messages", "first_seq", "last_seq")
    return {name: info["state"][name] for name in names}


def of(message: Any) -> Any:
    """Return what two servers should say alike of a stored message."""
    return message and [message.subject, message.sequence, message.data.decode()]


async def acknowledgements(js: JetStream) -> Answers:
    """What is stored, what is known already, and what nobody takes."""
    await made(js, duplicate_window=120_000_000_000)
    named = {"Nats-Msg-Id": "one"}
    return [
        await state(js),
        await js.publish("s.a", b"1"),
        await js.publish("s.b", b"2", named),
        await js.publish("s.b", b"other", named),
        await state(js),
        await tried(js.publish("t.a", b"nobody")),
        await tried(js.stream_info("T")),
        await tried(js.call("STREAM.PURGE.T")),
    ]


async def limits(js: JetStream) -> Answers:
    """A full stream that refuses, and one that drops its oldest."""
    await made(js, discard="new", max_msgs=2)
    said = [await tried(js.publish("s.a", b"%d" % number)) for number in range(4)]
    await js.call("STREAM.DELETE.S")
    await made(js, discard="old", max_msgs=2)
    said += [await tried(js.publish("s.a", b"%d" % number)) for number in range(4)]
    return [*said, await state(js)]


async def direct_gets(js: JetStream) -> Answers:
    """By sequence, by subject, the last one, several at once."""
    await made(js)
    for number in range(1, 8):
        await js.publish(f"s.{'ab'[number % 2]}", b"%d" % number, {"Number": str(number)})
    await js.message_delete("S", 3)
    reader = DirectReader(js, "S", "s.b")
    await reader.open()
    several = [await reader.take(2), await reader.take(8), await reader.take(7)]
    await reader.close()
    return [
        of(await js.message("S", 2)),
        of(await js.message("S", 3)),
        of(await js.message("S", 99)),
        of(await js.last_message("S", "s.a")),
        of(await js.last_message("S", "s.c")),
        of(await js.newest_message("S", "s.*")),
        of(await js.next_message("S", "s.b", sequence=2)),
        of(await js.next_message("S", "s.c")),
        of(await js.next_from_leader("S", 3)),
        of(await js.next_from_leader("S", 8)),
        await tried(js.message("T", 1)),
        [[of(message) for message in found] for found in several],
        await js.message_delete("S", 3),
        await state(js),
    ]


async def purges(js: JetStream) -> Answers:
    """Up to a sequence, of a subject, of all."""
    await made(js)
    for number in range(1, 9):
        await js.publish(f"s.{'ab'[number % 2]}", b"%d" % number)
    said = []
    for body in ({"seq": 3}, {"filter": "s.a"}, {"filter": "s.b", "seq": 6}, None):
        said += [await js.call("STREAM.PURGE.S", body), await state(js)]
    await js.publish("s.a", b"after")
    return [*said, await state(js)]


async def values(js: JetStream) -> Answers:
    """A bucket: one value a key, compare and swap, erase."""
    config = bucket_stream_config("B", replicas=1, storage="file", max_bytes=1 << 20)
    await js.call("STREAM.CREATE.KV_B", config)
    bucket = Bucket(js, "B")
    said: Answers = [await bucket.get("k"), await bucket.swap("k", b"1", revision=0)]
    said += [await tried(bucket.swap("k", b"2", revision=0)), await bucket.put("other", b"x")]
    said += [await bucket.swap("k", b"2", revision=1, headers={"More": "here"})]
    entry = await bucket.get("k")
    assert entry is not None
    said += [entry.value.decode(), entry.revision, entry.header("More")]
    await bucket.erase("k")
    said += [await bucket.get("k"), await tried(bucket.swap("k", b"3", revision=3))]
    said += [await tried(bucket.swap("k", b"3", revision=0))]
    return [*said, await tried(js.message_delete("KV_B", 2))]


async def consumers(js: JetStream) -> Answers:
    """What two pulls bring, and how they end."""
    await made(js)
    for number in range(1, 6):
        await js.publish(f"s.{'ab'[number % 2]}", b"%d" % number, {"Number": str(number)})
    begin = {"deliver_policy": "by_start_sequence", "opt_start_seq": 2}
    made_one = await js.consumer_create("S", {**CONSUMER, **begin, "name": "c"}, action="create")
    again = await tried(js.consumer_create("S", {**CONSUMER, "name": "c"}, action="create"))
    reader = PullReader(js, "S", "c", pull_bytes=1 << 20)
    await reader.open()
    came: list[Any] = []
    while len(came) < 4:
        came += await reader.take(timeout_s=1.0)
    await js.publish("s.a", b"late")
    while len(came) < 5:
        came += await reader.take(timeout_s=1.0)
    numbers = [[each.sequence, each.delivery, each.pending] for each in came]
    subjects = [each.message.subject.decode() for each in came]
    data = [each.message.data.decode() for each in came]
    info = await js.call("CONSUMER.INFO.S.c")
    names = await js.call("CONSUMER.NAMES.S")
    gone = [await js.consumer_delete("S", "c"), await js.consumer_delete("S", "c")]
    ended = await tried(_until_closed(reader))
    await reader.close()
    return [
        made_one["num_pending"], again, numbers, subjects, data, info["num_pending"],
        info["delivered"]["consumer_seq"], names["consumers"], gone, ended,
    ]  # fmt: skip


async def filtered(js: JetStream) -> Answers:
    """A scan of one subject, and one of headers alone."""
    await made(js)
    for number in range(1, 9):
        await js.publish(f"s.{'ab'[number % 2]}", b"%d" % number, {"Number": str(number)})
    await js.message_delete("S", 4)
    said: Answers = []
    for scan in (
        Scan(js, "S", Range(last=8), subject="s.b"),
        Scan(js, "S", Range(first=3, last=6)),
        Scan(js, "S", Range(first=7, last=8), headers_only=True),
        Scan(js, "S", Range(first=20, last=30)),
    ):
        async for batch in scan.batches():
            said += [
                [
                    each.sequence,
                    each.message.data.decode(),
                    b"Nats-Msg-Size" in each.message.headers,
                ]
                for each in batch
            ]
        said.append("end")
    return said


async def several_subjects(js: JetStream) -> Answers:
    """A consumer of two of three subjects, what the leader has of one, and how much is behind."""
    await made(js)
    for number in range(1, 10):
        await js.publish(f"s.{'abc'[number % 3]}.x", b"%d" % number)
    wanted = {"filter_subjects": ["s.a.>", "s.c.>"], "opt_start_seq": 3}
    config = {**CONSUMER, **wanted, "name": "two", "deliver_policy": "by_start_sequence"}
    info = await js.consumer_create("S", config, action="create")
    said: Answers = [info["num_pending"]]
    reader = PullReader(js, "S", "two", pull_bytes=1024)
    await reader.open()
    while len(said) < 6:
        taken = await reader.take(timeout_s=1.0)
        said += [[each.sequence, each.delivery, each.pending] for each in taken]
    await reader.close()
    gets = DirectGets(js, "S")
    await gets.open()
    for subject, sequence in (("s.b.>", 1), ("s.b.>", 5), ("s.b.>", 8), ("s.d.>", 1)):
        leader = await js.next_from_leader("S", sequence, subject)
        behind = await following(gets, subject, sequence)
        said.append([leader and leader.sequence, behind and behind.messages])
    await gets.close()
    return said


async def _until_closed(reader: PullReader) -> None:
    while True:
        await reader.take(timeout_s=1.0)


class Faults(Protocol):
    """What happens to a server: the same to the real one and to its model."""

    async def keep(self) -> None:
        """Keep its store as it is."""

    async def go_back(self) -> None:
        """Have it come back with the store that was kept."""


async def expiry(js: JetStream, faults: Faults) -> Answers:
    """What is too old is gone, and its sequences are not used again."""
    second_ns = 10**9
    await made(js, max_age=second_ns, duplicate_window=second_ns)
    said: Answers = [await js.publish("s.a", b"%d" % number) for number in range(3)]
    await eventually(lambda: _is_empty(js))
    said += [await state(js), of(await js.message("S", 2)), of(await js.last_message("S", "s.a"))]
    return [*said, await js.publish("s.a", b"after"), await state(js)]


async def _is_empty(js: JetStream) -> bool:
    return not (await state(js))["messages"]


async def full(js: JetStream, faults: Faults) -> Answers:
    """A stream with too many bytes refuses, and takes again what fits once some are gone."""
    await made(js, discard="new", max_bytes=1000)
    said = [await tried(js.publish("s.a", b"x" * 400)) for _ in range(4)]
    said += [await state(js), await js.message_delete("S", 1), await state(js)]
    said += [await tried(js.publish("s.a", b"x" * 400)) for _ in range(2)]
    await js.call("STREAM.PURGE.S")
    return [*said, await tried(js.publish("s.b", b"x" * 400)), await state(js)]


async def roll_back(js: JetStream, faults: Faults) -> Answers:
    """A server that comes back without its last messages hands out their sequences again, knows the
    ids of those that it kept, and has no consumer of before.
    """
    await made(js, duplicate_window=120_000_000_000)
    for number in range(1, 6):
        await js.publish("s.a", b"%d" % number, {"Nats-Msg-Id": str(number)})
    await faults.keep()
    for number in range(6, 9):
        await js.publish("s.b", b"%d" % number, {"Nats-Msg-Id": str(number)})
    await js.consumer_create("S", {**CONSUMER, "name": "c"}, action="create")
    await faults.go_back()
    said: Answers = [
        await state(js),
        of(await js.message("S", 7)),
        of(await js.last_message("S", "s.b")),
        await js.consumer_delete("S", "c"),
        await js.publish("s.a", b"again", {"Nats-Msg-Id": "5"}),
        await js.publish("s.b", b"again", {"Nats-Msg-Id": "7"}),
    ]
    return [*said, of(await js.message("S", 6)), await state(js)]


FAULTS = (expiry, full, roll_back)
SCRIPTS = (
    acknowledgements,
    limits,
    direct_gets,
    purges,
    values,
    consumers,
    filtered,
    several_subjects,
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
async def test_both_answer_alike(
    nats_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, script: Script
) -> None:
    """Acknowledgements, errors by their codes, order, ends."""
    async with jetstream(nats_server) as js:
        real = _plain(await script(js))

    model = await asyncio.to_thread(_of_model, lambda js, server: script(js), monkeypatch)
    assert _plain(model) == real


@pytest.mark.parametrize("script", FAULTS, ids=lambda script: script.__name__)
async def test_both_fail_alike(
    nats_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, script: FaultScript
) -> None:
    """What expires, what is refused, and what a server is that lost its last messages."""
    async with jetstream(nats_server) as js:
        real = _plain(await script(js, RealFaults(nats_server, js)))

    assert _plain(await asyncio.to_thread(_of_failing_model, script, monkeypatch)) == real


async def denied(js: JetStream) -> Answers:
    """Lines and consumers that a login may not make: it hears which subject, and nothing is
    stored; all else goes on.
    """
    await made(js)
    said = [await tried(js.publish("s.Anyone", b"1")), await state(js)]
    said += [await tried(js.consumer_create("S", {**CONSUMER, "name": "c"}, action="create"))]
    return [*said, (await js.call("CONSUMER.NAMES.S"))["consumers"], js.connection.problem]


async def test_both_deny_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A login without a right is told so by the subject, in its own letters."""
    rights = {"publish": {"deny": ["s.>", "$JS.API.CONSUMER.CREATE.>"]}}
    users = [{"user": "u", "password": "p", "permissions": rights}]
    options = ServerOptions(
        accounts={"A": {"jetstream": "enabled", "users": users}},
        streams_account="A",
        max_file_store_bytes=1 << 40,
    )
    async with EmbeddedServer(tmp_path / "nats", options) as server:
        connection = Connection(
            NatsOptions(servers=(server.url.replace("//", "//u:p@"),), name="test")
        )
        await connection.start(patience_s=10)
        try:
            real = _plain(await denied(JetStream(connection)))
        finally:
            await connection.close()

    model = await asyncio.to_thread(
        _of_model, lambda js, _: denied(js), monkeypatch, has_no_rights=True
    )
    assert ["denied", "s.Anyone"] in real
    assert _plain(model) == real


class RealFaults:
    """Faults of a nats-server."""

    def __init__(self, server: EmbeddedServer, js: JetStream) -> None:
        self._server = server
        self._js = js
        self._kept = server.folder / "kept"

    async def keep(self) -> None:
        """Keep its store as it is."""
        await self._server.stop()
        await asyncio.to_thread(shutil.copytree, self._server.store, self._kept)
        await self._again()

    async def go_back(self) -> None:
        """Have it come back with the store that was kept."""
        await self._server.stop()
        await asyncio.to_thread(shutil.rmtree, self._server.store)
        await asyncio.to_thread(shutil.copytree, self._kept, self._server.store)
        await self._again()

    async def _again(self) -> None:
        await self._server.start()
        await eventually(self._answers)

    async def _answers(self) -> bool:
        try:
            return await self._js.stream_info("S") is not None
        except (ApiError, NoResponders, NotSent, OutcomeUnknown):
            return False


class ModelFaults:
    """Faults of a model."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._last: dict[str, int] = {}

    async def keep(self) -> None:
        """Keep how far its streams are."""
        self._last = {name: stream.last for name, stream in self._server.streams.items()}

    async def go_back(self) -> None:
        """Have it come back with what it had then."""
        streams = self._server.streams
        self._server.lose_tails({n: streams[n].last - last for n, last in self._last.items()})
        # Whoever was connected is cut off, and connects again.
        await asyncio.sleep(5)


def _of_failing_model(script: FaultScript, monkeypatch: pytest.MonkeyPatch) -> Answers:
    return _of_model(lambda js, server: script(js, ModelFaults(server)), monkeypatch)


def _of_model(
    script: Callable[[JetStream, Server], Awaitable[Answers]],
    monkeypatch: pytest.MonkeyPatch,
    *,
    has_no_rights: bool = False,
) -> Answers:
    random = Random(1)
    loop = VirtualLoop(random)
    server = Server(loop, lambda what: None)
    network = Network(loop, server, random)
    if has_no_rights:
        network.denied.add(WORLD)
        network.unable.add(WORLD)
    # The network's own installation is for a process that simulates and nothing else.
    monkeypatch.setattr(logpipeline.nats.connection, "Session", network.session)

    async def play() -> Answers:
        connection = Connection(NatsOptions(name="test"))
        await connection.start(patience_s=10)
        try:
            return await script(JetStream(connection), server)
        finally:
            await connection.close()

    try:
        return loop.run_until_complete(play())
    finally:
        loop.close()


def _plain(answers: Answers) -> Any:
    """Return *answers* without what may differ."""

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: without(v) for k, v in value.items() if k not in VOLATILE}
        if isinstance(value, list | tuple):
            return [without(each) for each in value]
        return value

    return without(json.loads(json.dumps(answers, default=_fields)))


def _fields(value: Any) -> Any:
    return {name: getattr(value, name) for name in value.__slots__}
