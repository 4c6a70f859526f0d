"""A server that asks who a pod is: nodes that come with their token speak for themselves alone."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from cluster.pod_tokens import ApiServer
from components.managed_server import Managed, connected, managed, refused, resource
from logpipeline.authority import READERS_DOMAIN, inbox_prefix, user_of_host, user_of_reader
from logpipeline.lag import survey
from logpipeline.layout import Layout
from logpipeline.nats.bucket import bucket_stream_config
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.partition import partition_of
from logpipeline.plan.apply import plan_pipeline
from logpipeline.plan.render import to_json
from logpipeline.subjects import ControlSubjects, Subjects
from logpipeline_cli.commands.tail import Printer, tail
from logpipeline_cli.following import Filter
from logpipeline_cli.target import Target, ask
from logpipeline_operator.callout.claims import Issuer
from logpipeline_operator.callout.refusals import Cause
from logpipeline_operator.callout.service import Answers, Callout, KeysFile
from logpipeline_operator.children import config, credentials
from logpipeline_operator.jetstream import refusals
from waiting import eventually

PIPELINE = resource()
SUBJECTS = Subjects(PIPELINE.names.subject, PIPELINE.spec.partitions)
CONTROL = ControlSubjects(PIPELINE.names.control_subject)
BUCKET = PIPELINE.names.state_bucket
STREAM = PIPELINE.names.stream(0)
AUDIENCE = credentials.audience(PIPELINE)
FORBIDDEN_TO_READERS = (
    SUBJECTS.of_host("node-1"),
    CONTROL.asks("node-1"),
    f"$KV.{BUCKET}.main.epoch.0",
    f"$JS.API.STREAM.PURGE.{STREAM}",
    f"$JS.{READERS_DOMAIN}.API.STREAM.PURGE.{STREAM}",
    f"$JS.{READERS_DOMAIN}.API.CONSUMER.CREATE.{STREAM}.mine",
    f"$JS.{READERS_DOMAIN}.API.CONSUMER.MSG.NEXT.{STREAM}.main-0",
    f"$JS.{READERS_DOMAIN}.API.STREAM.UPDATE.{STREAM}",
    f"$JS.API.STREAM.DELETE.{STREAM}",
    f"$JS.API.CONSUMER.CREATE.{STREAM}.mine",
    f"$JS.API.CONSUMER.DELETE.{STREAM}.main-0",
    f"$JS.API.STREAM.MSG.DELETE.{STREAM}",
)
REFUSED = re.compile("(?i)authorization|credentials")
USELESS: list[dict[str, Any]] = [
    {"account": "default"},
    {"namespace": "team-b"},
    {"node": None},
    {"node": "*"},
    {"node": "a.>"},
    {"lives_s": -60},
    {"claims": {"aud": ["https://kubernetes.default.svc.cluster.local"]}},
    {"claims": {"kubernetes.io": {"namespace": "logging"}}},
]


@dataclass
class Asking:
    """A server that asks, whose cluster signs tokens as *api* does."""

    at: Managed
    api: ApiServer
    folder: Path

    def options(self, token: str, host: str = "node-1") -> NatsOptions:
        """How the shipper of *host* logs in with *token*."""
        file = self.folder / f"{host}.token"
        file.write_text(token)
        prefix = inbox_prefix(user_of_host(host))
        return NatsOptions(servers=(self.at.url,), token_file=file, inbox_prefix=prefix)

    def of_node(self, host: str) -> NatsOptions:
        """How the shipper on the node *host* logs in."""
        return self.options(self.api.token(AUDIENCE, node=host), host)

    def of_reader(self) -> NatsOptions:
        """How somebody who looks logs in."""
        token = self.api.token(AUDIENCE, account="prod-reader", pod=None, node=None)
        prefix = inbox_prefix(user_of_reader(token))
        options = self.options(token, "reader")
        return replace(options, inbox_prefix=prefix, js_domain=READERS_DOMAIN)

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[Callout]:
        """Answer the server as the container beside it does."""
        keys = self.folder / "jwks.json"
        keys.write_text(self.api.jwks())
        issuer = Issuer((self.at.folder / credentials.ISSUER_SEED).read_text())
        local = config.for_callout(PIPELINE)
        async with connected(self.at.options(credentials.CALLOUT, local)) as js:
            callout = Callout(js.connection, Answers(PIPELINE, issuer, KeysFile(keys).current))
            await callout.start()
            yield callout


@asynccontextmanager
async def asking(folder: Path) -> AsyncIterator[Asking]:
    """Run a server with streams, that asks."""
    async with managed(PIPELINE, folder / "server", has_accounts=True, has_callout=True) as at:
        async with connected(at.operator()) as js:
            for number in range(PIPELINE.spec.partitions):
                name = PIPELINE.names.stream(number)
                subjects = SUBJECTS.of_stream(number)
                stream = {"name": name, "subjects": subjects, "storage": "file"}
                await js.call(f"STREAM.CREATE.{name}", {**stream, "allow_direct": True})
            bucket = bucket_stream_config(BUCKET, replicas=1, storage="file", max_bytes=-1)
            await js.call(f"STREAM.CREATE.{bucket['name']}", dict(bucket))
        yield Asking(at, ApiServer(), folder)


def counted(callout: Callout) -> tuple[int, int]:
    """Return how many clients were admitted, and how many refused."""
    admitted = callout.metrics.value("admitted_total")
    was_refused = [callout.metrics.value("refused_total", reason=each.value) for each in Cause]
    return int(admitted or 0), sum(int(count or 0) for count in was_refused)


async def stays_out(options: NatsOptions) -> None:
    """Return once somebody with *options* was refused; fail where he gets in."""
    connection = Connection(options)
    await connection.start()
    try:
        await eventually(lambda: REFUSED.search(connection.problem or ""), within_s=60.0)
        assert connection.sessions == 0
    finally:
        await connection.close()


async def test_a_node_speaks_for_itself_alone(tmp_path: Path) -> None:
    """Its lines are stored; those for another host are not, and it hears of no other host."""
    async with asking(tmp_path) as there, there.answering() as callout:
        async with connected(there.of_node("node-1")) as js:
            stored = await js.connection.request(SUBJECTS.of_host("node-1"), b"mine")
            assert b'"seq"' in stored.data
            for subject in (SUBJECTS.of_host("node-2"), CONTROL.asks("node-2"), "$JS.API.INFO"):
                await js.connection.publish(subject, b"forged")
                await refused(js.connection, subject, "a subject of another")
        assert counted(callout) == (1, 0)


async def test_a_token_that_proves_no_shippers_node_opens_nothing(tmp_path: Path) -> None:
    """Signed by the cluster, and still not that of a shipper on a node; or signed by another, also
    where it names the cluster's key; or none at all.
    """
    async with asking(tmp_path) as there, there.answering() as callout:
        tokens = [
            "",
            *(there.api.token(AUDIENCE, **changes) for changes in USELESS),
            *(ApiServer(name).token(AUDIENCE) for name in ("key-1", "key-2")),
        ]
        await asyncio.gather(
            *(
                stays_out(there.options(token, f"node-{number}"))
                for number, token in enumerate(tokens)
            )
        )

        admitted, was_refused = counted(callout)
        assert admitted == 0
        assert was_refused >= len(tokens)
        async with connected(there.at.operator()) as operator:
            [told] = await refusals(operator.connection, PIPELINE)
        assert set(told.counts) == set(Cause) - {Cause.UNKNOWN_USER}
        assert set(told.addresses.values()) == {"127.0.0.1"}


async def test_a_reader_sees_all_and_changes_nothing(tmp_path: Path) -> None:
    """It surveys streams and positions, and asks parts how they are; it sends no line, makes no
    consumer, purges nothing, writes no key, and hears no other reader.
    """
    async with asking(tmp_path) as there, there.answering(), connected(there.of_reader()) as js:
        states = await survey(js, PIPELINE)
        assert [state.is_there for state in states] == [True, True]
        await ask(js.connection, PIPELINE.names.control_subject)
        for subject in FORBIDDEN_TO_READERS:
            await js.connection.publish(subject, b"{}")
            await refused(js.connection, subject, "what a reader may not")
        other = inbox_prefix(user_of_reader("another token"))
        await js.connection.listen(f"{other}.>", lambda _: None)
        await refused(js.connection, f"{other}.>", "another reader's answers")


@pytest.mark.parametrize(
    "asked", ["INFO", "STREAM.LIST", "STREAM.INFO.{}", "CONSUMER.LIST.{}", "DIRECT.GET.{}"]
)
async def test_what_a_reader_is_told_is_stored_nowhere(tmp_path: Path, asked: str) -> None:
    """A server answers wherever it is asked to: that must be no host's subject, and no key."""
    question = f"$JS.{READERS_DOMAIN}.API.{asked.format(STREAM)}"
    async with (
        asking(tmp_path) as there,
        there.answering(),
        connected(there.at.operator()) as operator,
        connected(there.of_reader()) as reader,
    ):
        await operator.connection.request(SUBJECTS.of_host("node-1"), b"a line")
        before = await stored(operator)
        for reply in (SUBJECTS.of_host("node-2"), f"$KV.{BUCKET}.main.epoch.0"):
            for query in (b'{"seq": 1}', b'{"seq": 1, "batch": 9, "next_by_subj": ">"}'):
                await reader.connection.publish(question, query, reply=reply)
        # Answers come in the order of the questions.
        await reader.connection.request(question, b'{"seq": 1}')

        assert await stored(operator) == before


async def test_a_reader_tails_and_plans_and_leaves_no_trace(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Lines of both streams, from a time on, then those that pass; and what applying would change.
    The server has made nothing for it.
    """
    begin = time.time_ns()
    async with asking(tmp_path) as there, there.answering():
        login = there.of_reader()
        hosts = [_host_in(0), _host_in(1)]
        async with connected(there.at.operator()) as operator:
            for host in hosts:
                for text in (b"first", b"second"):
                    await operator.connection.request(SUBJECTS.of_host(host), text)
            target = Target(PIPELINE, Layout(tmp_path / "data"), login, None)
            printer = Printer(None, 6, raw=True)
            async with asyncio.TaskGroup() as tasks:
                tailing = tasks.create_task(tail(target, None, begin, Filter(), (), printer))
                await eventually(lambda: printer.left == 2)
                for host in hosts:
                    await operator.connection.request(SUBJECTS.of_host(host), b"passing")
                await tailing
            async with connected(login) as js:
                plan = await plan_pipeline(js, PIPELINE)
            told = await plan_pipeline(operator, PIPELINE)
            for number in range(PIPELINE.spec.partitions):
                names = await operator.call(f"CONSUMER.NAMES.{PIPELINE.names.stream(number)}")
                assert names["total"] == 0

    assert sorted(capsysbinary.readouterr().out.split()) == sorted(
        [b"first", b"second", b"passing"] * 2
    )
    assert to_json(plan) == to_json(told)
    assert not plan.is_empty


def _host_in(partition: int) -> str:
    """The first host whose lines are in *partition*."""
    hosts = (f"node-{number}" for number in range(100))
    return next(host for host in hosts if partition_of(host, 2) == partition)


async def stored(js: JetStream) -> list[int]:
    """How many messages each stream has got, and the bucket."""
    names = [*map(PIPELINE.names.stream, range(PIPELINE.spec.partitions)), f"KV_{BUCKET}"]
    infos = [await js.stream_info(name) for name in names]
    return [info["state"]["last_seq"] for info in infos if info is not None]


async def test_who_is_connected_goes_on_without_an_answerer(tmp_path: Path) -> None:
    """A new one gets in as soon as somebody answers; the parts with a user of the server's own
    never depend on it.
    """
    async with asking(tmp_path) as there:
        async with there.answering():
            node = Connection(there.of_node("node-1"))
            await node.start(patience_s=10.0)
        late = Connection(there.of_node("node-2"))
        await late.start()
        assert b'"seq"' in (await node.request(SUBJECTS.of_host("node-1"), b"on")).data
        async with connected(there.at.operator()):
            assert not late.is_connected
        async with there.answering():
            await eventually(lambda: late.is_connected, within_s=60.0)
        await late.close()
        await node.close()


async def test_a_node_comes_again_with_its_next_token(tmp_path: Path) -> None:
    """When the token ends, the server ends the connection; the kubelet has put another there."""
    async with asking(tmp_path) as there, there.answering() as callout:
        node = Connection(there.options(there.api.token(AUDIENCE, lives_s=3)))
        await node.start()

        def is_back() -> bool:
            # The kubelet's part: what lies there is always fresh.
            there.options(there.api.token(AUDIENCE, lives_s=3))
            return node.sessions > 1 and node.is_connected

        await eventually(is_back, within_s=60.0)
        assert counted(callout)[0] >= 2
        await node.close()


async def test_new_keys_of_the_cluster_are_taken_without_a_restart(tmp_path: Path) -> None:
    """And a file that holds none changes nothing."""
    async with asking(tmp_path) as there, there.answering():
        there.api = ApiServer("key-2")
        (tmp_path / "jwks.json").write_text("{}")
        await stays_out(there.of_node("node-1"))
        (tmp_path / "jwks.json").write_text(there.api.jwks())
        async with connected(there.of_node("node-1")):
            pass
