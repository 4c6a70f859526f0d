"""Who has a node's credentials speaks for that node's host alone: whatever else is tried is
refused, or has no effect, and the others' lines arrive meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from components.managed_server import connected, refused
from components.pipeline_up import PipelineUp
from logpipeline.authority import OPERATOR
from logpipeline.credentials import nats_options
from logpipeline.layout import RunRecord
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import NatsOptions, NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import JetStream
from logpipeline.records import Committed, EpochRecord, Progress, assignment_key, epoch_key
from logpipeline.spec import LogPipeline, load
from logpipeline.subjects import ControlSubjects, Subjects, advisory_subjects, key_value_subject
from logpipeline_cli.target import ask
from waiting import eventually

OWN, OTHER = "web1", "db1"
FORGED = b"a line that the other host never wrote"


class Rogue(NamedTuple):
    """A machine with two hosts, each with a shipper; the *node* has the credentials of one."""

    up: PipelineUp
    pipeline: LogPipeline
    node: JetStream
    # The eyes of the test, which may see everything.
    eyes: JetStream

    @property
    def subjects(self) -> Subjects:
        return Subjects(self.pipeline.names.subject, self.pipeline.spec.partitions)

    @property
    def control(self) -> ControlSubjects:
        return ControlSubjects(self.pipeline.names.control_subject)

    @property
    def bucket(self) -> Bucket:
        return Bucket(self.eyes, self.pipeline.names.state_bucket)

    def key(self, key: str) -> str:
        """The subject of a key of the pipeline's state."""
        return key_value_subject(self.pipeline.names.state_bucket, key)

    def others(self) -> dict[str, str]:
        """Subjects that a node has no business with, by what is tried with them."""
        names, stream = self.pipeline.names, self.pipeline.names.stream(0)
        partition = self.subjects.read(self.subjects.of_host(OTHER))[0]
        return {
            "lines of another host": self.subjects.of_host(OTHER),
            "lines of a host below ours": f"{self.subjects.of_host(OWN)}.more",
            "lines of each host": f"{names.subject}.p{partition}.*",
            "positions told to another host": self.control.committed(partition, OTHER),
            "positions told to us": self.control.committed(partition, OWN),
            "a question for another host": self.control.ask_committed(partition, OTHER),
            "a question for a collector": self.control.status("collector"),
            "who owns what": self.key(assignment_key("main")),
            "an epoch": self.key(epoch_key("main", 0)),
            "a snapshot": f"{names.snapshot_subject}.main.0",
            "a dead letter": f"{names.dead_letter_subject}.p0.undecodable",
            "word of a reader that gave up": advisory_subjects(stream, "audit")[0],
            "an acknowledgement": f"$JS.ACK.{stream}.audit.1.1.1.1.1",
            "purging a stream": f"$JS.API.STREAM.PURGE.{stream}",
            "deleting a stream": f"$JS.API.STREAM.DELETE.{stream}",
            "deleting a message": f"$JS.API.STREAM.MSG.DELETE.{stream}",
            "changing a stream": f"$JS.API.STREAM.UPDATE.{stream}",
            "making a stream": "$JS.API.STREAM.CREATE.MINE",
            "listing streams": "$JS.API.STREAM.NAMES",
            "making a consumer": f"$JS.API.CONSUMER.CREATE.{stream}.a",
            "deleting a consumer": f"$JS.API.CONSUMER.DELETE.{stream}.a",
            "reading a stream": f"$JS.API.DIRECT.GET.{stream}",
            "another host's line": f"$JS.API.DIRECT.GET.{stream}.{self.subjects.of_host(OTHER)}",
            "a key of the state": f"$JS.API.DIRECT.GET.KV_{names.state_bucket}.{self.key('a')}",
            "an answer to another shipper": "_INBOX_shipper-db.x.1",
            "an answer to a collector": "_INBOX_collector.x.1",
            "the server itself": "$SYS.REQ.SERVER.PING",
        }

    def heard(self) -> dict[str, str]:
        """Subjects that a node must not listen to, by what it would hear."""
        names = self.pipeline.names
        return {
            "everything": ">",
            "every host's lines": f"{names.subject}.>",
            "every host's positions": self.control.committed_anywhere(),
            "another host's positions": self.control.committed_anywhere(OTHER),
            "every host's questions": self.control.asks(),
            "the state": self.key(">"),
            "everybody's answers": "_INBOX.>",
            "another shipper's answers": "_INBOX_shipper-db.>",
            "what happens to streams": "$JS.EVENT.>",
            "what happens to the server": "$SYS.>",
            "calls of JetStream": "$JS.API.>",
        }


@pytest.fixture
async def rogue(tmp_path: Path) -> AsyncIterator[Rogue]:
    """Two shippers and a collector at work, and a client with the credentials of the one."""

    def shipper(name: str, host: str) -> dict[str, Any]:
        files = [{"include": [f"{tmp_path}/up/logs/{host}.log"]}]
        return {"name": name, "host": host, "files": files}

    local = {"shippers": [shipper("web", OWN), shipper("db", OTHER)]}
    async with PipelineUp(tmp_path / "up", local=local) as up:
        pipeline = load(up.layout.pipeline)
        run = RunRecord.read(up.layout)
        assert run is not None

        def options(user: str) -> NatsOptions:
            return nats_options(pipeline, servers=(run.nats,), login=up.layout.login(user))

        async with (
            connected(options("shipper-web")) as node,
            connected(options(OPERATOR)) as eyes,
        ):
            yield Rogue(up, pipeline, node, eyes)


async def flow(rogue: Rogue, text: str) -> None:
    """Write a line for each host, and return when both are collected and nothing else is."""
    for host in (OWN, OTHER):
        rogue.up.append([text], f"{host}.log")
    for host in (OWN, OTHER):
        await rogue.up.arrived(rogue.up.written(f"{host}.log"), f"{host}.log")


async def test_a_node_says_nothing_for_others(rogue: Rogue) -> None:
    """Each publish that is not about its own host is refused, by name."""
    await flow(rogue, "before")
    for what, subject in rogue.others().items():
        await rogue.node.connection.publish(subject, FORGED)
        await refused(rogue.node.connection, subject, what)

    await flow(rogue, "after")


async def test_a_node_hears_nothing_of_others(rogue: Rogue) -> None:
    """Each subscription that is not about its own host is refused, and nothing comes by it."""
    got: list[bytes] = []
    for what, subject in rogue.heard().items():
        await rogue.node.connection.listen(subject, lambda message: got.append(message.subject))
        await refused(rogue.node.connection, subject, what)

    await flow(rogue, "meanwhile")
    assert got == []


async def test_the_server_s_own_answers_go_to_nobody_else(rogue: Rogue) -> None:
    """A server answers where it is asked to, and checks no permission for it: such an answer to a
    node is neither stored as another's line, nor over the state, nor taken for a call.
    """
    await flow(rogue, "before")
    own = rogue.subjects.of_host(OWN)
    other = rogue.subjects.of_host(OTHER)
    stream = rogue.pipeline.names.stream(rogue.subjects.read(other)[0])
    last = await rogue.eyes.last_message(stream, other)
    assigned = await rogue.bucket.get(assignment_key("main"))
    for subject in rogue.others().values():
        if "*" not in subject:
            await rogue.node.connection.publish(own, FORGED, reply=subject)
    # The server takes them in order: what is answered now comes after all of those.
    stored = await rogue.node.connection.request(own, FORGED)

    assert b'"seq"' in stored.data
    assert await rogue.eyes.last_message(stream, other) == last
    assert await rogue.bucket.get(assignment_key("main")) == assigned
    for partition in range(rogue.pipeline.spec.partitions):
        entry = await rogue.bucket.get(epoch_key("main", partition))
        assert entry is not None
        EpochRecord.decode(entry.value)
    rogue.up.append(["after"], f"{OTHER}.log")
    await rogue.up.arrived(rogue.up.written(f"{OTHER}.log"), f"{OTHER}.log")


async def test_what_a_server_answers_from_a_node_s_lines_is_no_word_of_a_collector(
    rogue: Rogue,
) -> None:
    """A node can store what a collector would report, and have it sent to another node."""
    await flow(rogue, "before")
    own, other = rogue.subjects.of_host(OWN), rogue.subjects.of_host(OTHER)
    partition = rogue.subjects.read(other)[0]
    path = str(rogue.up.logs / f"{OTHER}.log")
    stream = rogue.pipeline.names.stream(rogue.subjects.read(own)[0])
    subject = rogue.control.committed(partition, OTHER)
    for group, rollbacks in (("main", 10**9), ("fake", 0)):
        forged = Progress(group, partition, 1, rollbacks, (Committed(path, "0" * 16, 0),))
        await rogue.node.connection.request(own, forged.encode())
        await rogue.node.connection.publish(
            f"$JS.API.DIRECT.GET.{stream}.{own}", b"", reply=subject
        )
    rogue.up.append(["after"], f"{OTHER}.log")
    await rogue.up.arrived(rogue.up.written(f"{OTHER}.log"), f"{OTHER}.log")

    async def is_settled() -> bool:
        answers = await ask(rogue.eyes.connection, rogue.pipeline.names.control_subject)
        return [each["on_the_way_bytes"] for each in answers["shipper"]] == [0, 0]

    await eventually(is_settled, what="nothing waits for the group that is none")


async def test_a_collector_s_answers_go_to_nobody_else(rogue: Rogue) -> None:
    """A collector answers where a node asks it to; that is no way to speak by its mouth."""
    await flow(rogue, "before")
    other = rogue.subjects.of_host(OTHER)
    partition = rogue.subjects.read(rogue.subjects.of_host(OWN))[0]
    stream = rogue.pipeline.names.stream(rogue.subjects.read(other)[0])
    last = await rogue.eyes.last_message(stream, other)
    question = rogue.control.ask_committed(partition, OWN)
    for subject in (other, rogue.key(assignment_key("main")), f"$JS.API.STREAM.DELETE.{stream}"):
        await rogue.node.connection.publish(question, b"", reply=subject)
    answer = await rogue.node.connection.request(question)

    assert Progress.decode(answer.data).partition == partition
    assert await rogue.eyes.last_message(stream, other) == last
    await flow(rogue, "after")


async def test_a_node_s_own_work_is_allowed(rogue: Rogue) -> None:
    """It sends its lines, asks and hears how far they are, and sees its own last message."""
    await flow(rogue, "before")
    own, heard = rogue.subjects.of_host(OWN), asyncio.Event()
    partition = rogue.subjects.read(own)[0]
    subject = rogue.control.committed(partition, OWN)
    await rogue.node.connection.listen(subject, lambda message: heard.set())

    assert await rogue.node.last_message(rogue.pipeline.names.stream(partition), own) is not None
    assert (await rogue.node.connection.request(rogue.control.ask_committed(partition, OWN))).data
    await flow(rogue, "after")
    async with asyncio.timeout(20):
        await heard.wait()
    assert rogue.node.connection.problem is None


async def test_a_stolen_password_ends_with_its_shipper(rogue: Rogue) -> None:
    """A shipper that is taken out of the resource is shut out, with all who use its name."""
    local = rogue.up.spec["local"]
    rogue.up.write(local={**local, "shippers": local["shippers"][1:]})

    async def is_out() -> bool:
        try:
            await rogue.node.connection.request(rogue.subjects.of_host(OWN), FORGED, timeout_s=1)
        except (NotSent, OutcomeUnknown):
            return not rogue.node.connection.is_connected
        return False

    await eventually(is_out, what="the node is shut out")
    rogue.up.append(["after"], f"{OTHER}.log")
    await rogue.up.arrived(rogue.up.written(f"{OTHER}.log"), f"{OTHER}.log")
