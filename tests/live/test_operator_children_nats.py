"""The managed server as its children configure it: a real server with that very configuration, and
real components that log in as their roles.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from components.managed_parts import MEMBER, running
from components.managed_server import USERS, Managed, connected, managed, resource
from logpipeline.backlog import ShipperBacklog
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import (
    ConnectFailed,
    Connection,
    NatsOptions,
    NoResponders,
    NotSent,
    OutcomeUnknown,
)
from logpipeline.nats.jetstream import JetStream
from logpipeline.nats.pull import PullReader
from logpipeline.nats.session import RawMessage
from logpipeline.partition import partition_of
from logpipeline.records import assignment_key
from logpipeline.spec import LogPipeline
from logpipeline.subjects import ControlSubjects, advisory_subjects
from logpipeline_operator import jetstream
from logpipeline_operator.children import config, credentials, nats_conf
from logpipeline_operator.jetstream import Permission, behind, reconcile
from waiting import eventually

PAGES = (
    "/varz", "/connz", "/routez", "/gatewayz", "/leafz", "/subsz", "/subscriptionsz", "/accountz",
    "/accstatz", "/jsz", "/healthz", "/ipqueuesz", "/raftz", "/expvarz", "/stacksz", "/debug/vars",
    "/debug/pprof/heap",
)  # fmt: skip


def denials(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the server denied to any of the components."""
    return [
        str(getattr(record, "reason", ""))
        for record in caplog.records
        if "denies a permission" in record.getMessage()
    ]


@pytest.mark.parametrize(
    ("nats", "has_accounts"),
    [
        ({}, True),
        ({"managed": {"syncInterval": "10s"}}, True),
        ({}, False),
        ({"jsDomain": "hub"}, False),
    ],
)
async def test_each_role_may_do_its_work(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, nats: dict[str, Any], has_accounts: bool
) -> None:
    """Lines get from a node's logs to a collector's files through the managed server, what a reader
    gives up becomes a letter, and nobody is denied anything on the way.
    """
    caplog.set_level(logging.INFO)
    container = tmp_path / "pods" / "shop_web-1_1234" / "web"
    container.mkdir(parents=True)
    lines = [f"2026-01-31T12:00:00.00000000{number}Z stdout F line {number}" for number in (1, 2)]
    (container / "0.log").write_text("".join(f"{line}\n" for line in lines))
    collected = tmp_path / "files" / "logs" / "node-a" / "shop" / "web-1" / "web.log"
    async with (
        managed(
            resource(nats=nats, consumers=[{"name": "audit"}]),
            tmp_path / "nats",
            has_accounts=has_accounts,
        ) as at,
        connected(at.operator()) as js,
    ):
        await reconcile(js, at.pipeline, Permission(may_write=True), lambda assigned: [MEMBER])
        async with running(at, tmp_path / "pods", tmp_path / "files"):
            await eventually(
                lambda: collected.exists() and collected.read_text() == "line 1\nline 2\n",
            )
            await give_up(js, at.pipeline)
        await reconcile(js, at.pipeline, Permission(may_write=True), lambda assigned: [MEMBER])

    assert denials(caplog) == []


async def give_up(js: JetStream, pipeline: LogPipeline) -> None:
    """Terminate the message of node-a, and return when it is a letter."""
    names = pipeline.names
    partition = partition_of("node-a", pipeline.spec.partitions)
    reader = PullReader(js, names.stream(partition), "audit", pull_bytes=1_000_000)
    await reader.open()
    (delivered,) = await eventually(lambda: reader.take(timeout_s=0.1))
    await js.connection.publish(delivered.message.reply.decode(), b"+TERM")
    await reader.close()
    letter = f"{names.dead_letter_subject}.p{partition}.>"

    async def is_kept() -> bool:
        kept = await js.next_message(names.dead_letter_stream, letter)
        told = await js.next_message(names.dead_letter_stream, "$JS.EVENT.>")
        return kept is not None and told is None

    await eventually(is_kept, what="a letter in the place of what the server said")


def is_denied(js: JetStream, subject: str) -> bool:
    """Whether the server said so; the client hands its words on in small letters."""
    return f'"{subject}"'.lower() in (js.connection.problem or "").lower()


NAMES = resource().names
KV = f"$KV.{NAMES.state_bucket}"


@pytest.mark.parametrize(
    ("role", "subject"),
    [
        ("collector", f"{NAMES.subject}.p0.node-a"),
        ("collector", f"$JS.API.STREAM.CREATE.{NAMES.stream(0)}"),
        ("collector", f"$JS.API.STREAM.UPDATE.{NAMES.stream(0)}"),
        ("collector", f"$JS.API.STREAM.DELETE.{NAMES.stream(0)}"),
        ("collector", f"$JS.API.STREAM.PURGE.{NAMES.stream(0)}"),
        ("collector", f"$JS.API.STREAM.MSG.DELETE.{NAMES.stream(0)}"),
        ("collector", f"$JS.API.STREAM.PURGE.{NAMES.dead_letter_stream}"),
        ("collector", f"$JS.API.CONSUMER.CREATE.{NAMES.stream(0)}.a.{NAMES.subject}.p0.node-a"),
        ("collector", f"{KV}.assignment.main"),
        ("collector", f"{KV}.epoch.other.0"),
        ("collector", "_INBOX_shipper.x.1"),
        ("shipper", f"{KV}.epoch.main.0"),
        ("shipper", f"{NAMES.control_subject}.committed.p0.node-a"),
        ("shipper", f"{NAMES.dead_letter_subject}.p0.reason"),
        ("shipper", advisory_subjects(NAMES.stream(0), "audit")[0]),
        ("collector", advisory_subjects(NAMES.stream(0), "audit")[1]),
        ("shipper", f"$JS.API.STREAM.INFO.{NAMES.stream(0)}"),
        ("shipper", f"$JS.API.DIRECT.GET.{NAMES.stream(0)}"),
        ("shipper", f"$JS.API.CONSUMER.CREATE.{NAMES.stream(0)}.a"),
        ("table", f"{NAMES.subject}.p0.node-a"),
        ("table", f"$JS.API.STREAM.PURGE.{NAMES.stream(0)}"),
        ("table", f"$JS.API.STREAM.DELETE.{NAMES.stream(0)}"),
        ("table", f"$JS.API.STREAM.MSG.DELETE.{NAMES.stream(0)}"),
        ("table", f"$JS.API.CONSUMER.CREATE.{NAMES.stream(0)}.a"),
        ("table", "$JS.API.STREAM.NAMES"),
        ("table", f"{KV}.table.logging/other"),
        ("table", f"{KV}.epoch.main.0"),
        ("table", f"{KV}.assignment.main"),
        ("table", f"{NAMES.control_subject}.committed.p0.node-a"),
        ("table", "_INBOX_shipper.x.1"),
        ("operator", "$SYS.REQ.SERVER.PING"),
        ("operator", "somebody.elses"),
    ],
)
async def test_no_role_may_say_more(managed_nats: Managed, role: str, subject: str) -> None:
    """A stolen credential reaches no further than what its role needs."""
    async with connected(credentials_of(managed_nats, role)) as js:
        await js.connection.publish(subject, b"{}")
        await eventually(lambda: is_denied(js, subject))


@pytest.mark.parametrize(
    ("role", "subject"),
    [
        ("collector", "_INBOX_shipper.>"),
        ("collector", f"{NAMES.subject}.>"),
        ("shipper", "_INBOX.>"),
        ("shipper", "_INBOX_operator.>"),
        ("shipper", f"{NAMES.subject}.>"),
        ("shipper", f"{KV}.>"),
        ("table", f"{NAMES.subject}.>"),
        ("table", f"{KV}.>"),
        ("table", "_INBOX_collector.>"),
        ("operator", ">"),
    ],
)
async def test_no_role_may_hear_more(managed_nats: Managed, role: str, subject: str) -> None:
    """Nobody hears the lines of others, nor the answers that they get."""
    async with connected(credentials_of(managed_nats, role)) as js:
        await js.connection.listen(subject, lambda message: None)
        await eventually(lambda: is_denied(js, subject))


async def test_a_server_that_gets_less_storage_keeps_its_streams(tmp_path: Path) -> None:
    """Its volume stays as large as it is, and so does its limit: below what its streams reserve it
    would refuse to make them smaller.
    """
    large, small = (resource(nats={"managed": {"storage": size}}) for size in ("256Mi", "64Mi"))

    async def reconciled(at: Managed) -> list[int]:
        """How much each stream may hold."""
        permission = Permission(
            may_write=True, storage_bytes=nats_conf.managed_storage_bytes(at.pipeline)
        )
        async with connected(at.operator()) as js:
            await reconcile(js, at.pipeline, permission, lambda assigned: [MEMBER])
            streams = [at.pipeline.names.stream(number) for number in range(2)]
            found = [await js.stream_info(each) for each in streams]
            return [each["config"]["max_bytes"] for each in found if each is not None]

    async with managed(large, tmp_path / "large", has_accounts=True) as at:
        before = await reconciled(at)
        stream = at.pipeline.names.stream(0)
    claimed = large.spec.nats.managed.storage
    async with managed(
        small,
        tmp_path / "small",
        has_accounts=True,
        claimed_bytes=claimed,
        store=tmp_path / "large" / "store",
    ) as at:
        async with connected(at.operator()) as js:
            kept = await js.stream_info(stream)
        after = await reconciled(at)

    assert kept is not None
    assert kept["config"]["max_bytes"] == before[0]
    assert sum(after) < small.spec.nats.managed.storage < sum(before)


async def test_nobody_comes_in_without_a_password(managed_nats: Managed) -> None:
    """Not even to look."""
    connection = Connection(NatsOptions(servers=(managed_nats.url,)))

    with pytest.raises(ConnectFailed, match="credentials"):
        await connection.start(patience_s=1.0)


def test_a_stranger_finds_no_page_of_the_server(managed_nats: Managed) -> None:
    """Its pages name streams, subjects and who is connected, and know no login; who does not know
    where they lie is told nothing, and not by way of another path either.
    """
    for path in ("/", *PAGES, *(f"{nats_conf.pages('f' * 32)}{page}" for page in PAGES)):
        for way in (path, f"/.{path}", f"/x/..{path}", f"/{path}", f"{path}/"):
            status, told = get(managed_nats.monitor, way)
            # A path that is not plain is sent on to the plain one, which is not there either.
            assert status in (404, 301, 307), way
            assert not [word for word in ("prod", "127.0.0.1:", USERS) if word in told], way
    status, told = get(managed_nats.monitor, f"{nats_conf.pages(USERS)}/jsz?streams=true")
    assert (status, "streams" in told) == (200, True)


def get(port: int, path: str) -> tuple[int, str]:
    """What a server answers to who asks for the *path*, as it stands, with its headers."""
    connection = HTTPConnection("127.0.0.1", port)
    with closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, f"{answer.headers}{answer.read().decode()}"


async def test_a_role_s_name_alone_is_no_password(managed_nats: Managed) -> None:
    """The variables of the configuration are resolved, not taken for texts."""
    options = credentials_of(managed_nats, credentials.OPERATOR)
    assert options.password_file is not None
    options.password_file.write_text(f"${credentials.variable(credentials.OPERATOR)}")

    with pytest.raises(ConnectFailed, match="credentials"):
        await Connection(options).start(patience_s=1.0)


async def test_collectors_say_nothing_in_the_place_of_who_asks(tmp_path: Path) -> None:
    """They may answer wherever they were asked to: a node that asks for its answer at a call of
    JetStream, or as a line or a key, gets none, and the next question is answered.
    """
    (tmp_path / "pods").mkdir()
    async with (
        managed(resource(), tmp_path / "nats") as at,
        connected(at.operator()) as js,
    ):
        await reconcile(js, at.pipeline, Permission(may_write=True), lambda assigned: [MEMBER])
        async with (
            running(at, tmp_path / "pods", tmp_path / "files"),
            connected(credentials_of(at, credentials.SHIPPER)) as node,
        ):
            names = at.pipeline.names
            control = ControlSubjects(names.control_subject)
            for partition in range(at.pipeline.spec.partitions):
                question = control.ask_committed(partition, "node-a")

                async def answered(question: str = question) -> bool:
                    try:
                        answer = await node.connection.request(question, timeout_s=1)
                    except (NotSent, OutcomeUnknown):
                        return False
                    return bool(answer.data)

                await eventually(answered, what="a collector that answers")
                for elsewhere in (
                    f"$JS.API.STREAM.DELETE.{names.stream(partition)}",
                    f"{names.subject}.p{partition}.victim",
                    f"{KV}.assignment.main",
                ):
                    await node.connection.publish(question, b"", reply=elsewhere)
                assert await answered()
            assigned = await Bucket(js, names.state_bucket).get(assignment_key("main"))
            streams = [await js.stream_info(names.stream(n)) for n in range(2)]

    assert [(info or {})["state"]["messages"] for info in streams] == [0, 0]
    assert assigned is not None
    assert MEMBER.encode() in assigned.value


async def test_the_server_answers_a_node_in_no_other_s_place(managed_nats: Managed) -> None:
    """It puts an acknowledgement wherever the message asks for it: in the account of nodes there is
    neither a stream nor a key.
    """
    pipeline = managed_nats.pipeline
    others = [f"{NAMES.subject}.p1.victim", f"{KV}.assignment.main"]
    async with (
        connected(managed_nats.operator()) as js,
        connected(credentials_of(managed_nats, credentials.SHIPPER)) as node,
    ):
        await reconcile(js, pipeline, Permission(may_write=True), lambda assigned: [MEMBER])
        before = await Bucket(js, NAMES.state_bucket).get(assignment_key("main"))
        for subject in others:
            await node.connection.publish(f"{NAMES.subject}.p0.node-a", b"own", reply=subject)
        # The server takes them in order: what is answered now comes after all of those.
        await node.connection.request(f"{NAMES.subject}.p0.node-a", b"own")
        after = await Bucket(js, NAMES.state_bucket).get(assignment_key("main"))
        streams = [await js.stream_info(NAMES.stream(number)) for number in range(2)]

    stored = [(info or {})["state"]["messages"] for info in streams]
    assert stored == [len(others) + 1, 0]
    assert before == after


@pytest.mark.parametrize("role", [credentials.COLLECTOR, credentials.TABLE])
async def test_the_server_answers_a_part_wherever_it_asks(managed_nats: Managed, role: str) -> None:
    """SECURITY.md says so of collectors and tables: in the account of the streams they can have the
    server put what they may ask for in the place of a line or of a key. Should this ever fail, that
    page promises too little.
    """
    pipeline, line = managed_nats.pipeline, f"{NAMES.subject}.p0.node-a"
    async with (
        connected(managed_nats.operator()) as js,
        connected(credentials_of(managed_nats, role)) as part,
    ):
        await reconcile(js, pipeline, Permission(may_write=True), lambda assigned: [MEMBER])
        before = await Bucket(js, NAMES.state_bucket).get(assignment_key("main"))
        await js.publish(line, b"own")
        for asked, body, elsewhere in (
            (f"$JS.API.DIRECT.GET.{NAMES.stream(0)}", b'{"seq":1}', f"{NAMES.subject}.p1.victim"),
            (f"$JS.API.STREAM.INFO.{NAMES.stream(0)}", b"", f"{KV}.assignment.main"),
        ):
            await part.connection.publish(asked, body, reply=elsewhere)

        async def is_put() -> bool:
            after = await Bucket(js, NAMES.state_bucket).get(assignment_key("main"))
            info = await js.stream_info(NAMES.stream(1))
            return after != before and (info or {})["state"]["messages"] == 1

        await eventually(is_put, what="the answers in the place of a line and of a key")


async def test_all_shippers_answer_one_question(managed_nats: Managed) -> None:
    """The operator asks from another account, and hears each of them."""
    subject = ControlSubjects(NAMES.control_subject).status("shipper")
    heard: set[bytes] = set()
    async with AsyncExitStack() as stack:
        js = await stack.enter_async_context(connected(managed_nats.operator()))
        for number in range(3):
            options = credentials_of(managed_nats, credentials.SHIPPER)
            shipper = await stack.enter_async_context(connected(options))
            await shipper.connection.listen(subject, answering(shipper, b"%d" % number))
        inbox = js.connection.new_inbox()
        await js.connection.listen(inbox, lambda message: heard.add(message.data))

        async def all_answered() -> bool:
            await js.connection.publish(subject, b"", reply=inbox)
            return len(heard) == 3

        await eventually(all_answered, what="three answers")


async def test_no_node_takes_back_what_another_one_reports(managed_nats: Managed) -> None:
    """An answer under another shipper's name adds to that one's, and hides neither its problem nor
    its hosts.
    """
    subject = ControlSubjects(NAMES.control_subject).status("shipper")
    said = ShipperBacklog("node-b", "cannot read", {"b": (7, 400.0), "c": (1, 500.0)})
    lies = [
        ShipperBacklog("node-b", "", {}),
        ShipperBacklog("node-b", "cannot read", {}),
        ShipperBacklog("node-b", "cannot read", {"b": (9, 1.0)}),
    ]
    async with (
        connected(managed_nats.operator()) as js,
        connected(credentials_of(managed_nats, credentials.SHIPPER)) as node,
    ):
        answers = [each.encode() for each in (said, *lies)]
        await node.connection.listen(subject, answering(node, *answers))

        async def is_heard() -> bool:
            return said in await behind(js.connection, managed_nats.pipeline)

        await eventually(is_heard, what="all that was said of node-b")


async def test_what_nodes_answer_together_is_bounded(
    managed_nats: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that lies a thousand times does not fill the memory of the operator of all pipelines."""
    subject = ControlSubjects(NAMES.control_subject).status("shipper")
    said = [ShipperBacklog(f"node-{number}", "cannot read", {}).encode() for number in range(9)]
    monkeypatch.setattr(jetstream, "ANSWERS_BYTES_MAX", 3 * len(said[0]) + 1)
    async with (
        connected(managed_nats.operator()) as js,
        connected(credentials_of(managed_nats, credentials.SHIPPER)) as node,
    ):
        await node.connection.listen(subject, answering(node, *said))

        async def are_bounded() -> bool:
            return len(await behind(js.connection, managed_nats.pipeline)) == 3

        await eventually(are_bounded, what="three of nine answers")


def answering(js: JetStream, *said: bytes) -> Callable[[RawMessage], None]:
    """What answers each question with all of *said*, in this order."""

    async def answer_all(question: RawMessage) -> None:
        for each in said:
            await js.connection.answer(question, each)

    def answer(question: RawMessage) -> None:
        tasks.add(task := asyncio.ensure_future(answer_all(question)))
        task.add_done_callback(tasks.discard)

    tasks: set[asyncio.Future[None]] = set()
    return answer


async def test_a_node_is_told_that_a_stream_is_not_there(managed_nats: Managed) -> None:
    """Also from its own account: it need not wait for an answer that does not come."""
    async with connected(credentials_of(managed_nats, credentials.SHIPPER)) as node:
        with pytest.raises(NoResponders):
            await node.connection.request(f"{NAMES.subject}.p0.node-a", b"line")


@pytest.fixture
async def managed_nats(tmp_path: Path) -> AsyncIterator[Managed]:
    """A managed server of this test alone."""
    pipeline = resource(table={"enabled": True})
    async with managed(pipeline, tmp_path / "nats", has_accounts=True) as at:
        yield at


def credentials_of(at: Managed, role: str) -> NatsOptions:
    """How *role* logs in."""
    if role == credentials.OPERATOR:
        return at.operator()
    build = {
        credentials.TABLE: config.for_table,
        credentials.COLLECTOR: config.for_collector,
        credentials.SHIPPER: config.for_shipper,
    }[role]
    return at.options(role, build(at.pipeline))
