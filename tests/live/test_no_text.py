"""A byte that stands in no text stops nobody, wherever a stranger puts it into a message: libraries
send text, others need not.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from components import raw_nats
from components.pipeline_up import PipelineUp
from logpipeline.authority import OPERATOR
from logpipeline.layout import RunRecord
from logpipeline.spec import load
from logpipeline.subjects import Subjects
from logpipeline.wire import MESSAGE_ID, Batch, encode_headers
from waiting import eventually

HOST = "web1"
PAYLOAD = b"x" * 99 + b"\n"


@pytest.fixture
async def up(tmp_path: Path) -> AsyncIterator[PipelineUp]:
    """A pipeline whose stream holds such messages between two lines; a file has such a name."""
    async with PipelineUp(tmp_path) as pipeline:
        pipeline.append(["before"])
        pipeline.append(["odd"], name=os.fsdecode(b"odd-\xff.log"))
        await pipeline.arrived(["before"])
        await strange(pipeline)
        pipeline.append(["after"])
        yield pipeline


async def strange(pipeline: PipelineUp) -> None:
    """Publish messages of another source of the host, each with such a byte in another place."""
    batch = Batch(
        source="/other", generation="f" * 16, start=0, end=len(PAYLOAD), lines=1, format="plain"
    )
    headers = encode_headers(batch, "")
    del headers[MESSAGE_ID]
    spec = load(pipeline.file)
    subject = Subjects(spec.names.subject, spec.spec.partitions).of_host(HOST)
    record = RunRecord.read(pipeline.layout)
    assert record is not None
    login = pipeline.layout.login(OPERATOR)
    names = {name: (login / name).read_text() for name in ("user", "password")}
    messages = raw_nats.no_text(subject, headers, PAYLOAD)
    await raw_nats.publish(record.nats, *messages, **names)


async def test_what_comes_behind_is_collected(up: PipelineUp) -> None:
    """And the books balance."""
    await up.arrived(["before", "after"])

    async def balances() -> bool:
        done = await up.run("status", "--check")
        return "letter" in done.stdout + done.stderr

    await eventually(balances, what="status tells the letters")


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("tail", "--since", "10m", "--lines", "2"),
        ("dlq", "ls", "--all"),
        ("dlq", "ls", "--all", "-o", "json"),
        ("dlq", "show", "1"),
        ("losses",),
        ("consume", "reader", "--on-error", "dead-letter", "--until-caught-up"),
    ],
    ids=" ".join,
)
async def test_every_command_that_looks_at_such_messages_ends_well(
    up: PipelineUp, words: tuple[str, ...]
) -> None:
    """Whatever it shows of them."""
    await up.arrived(["before", "after"])

    done = await up.run(*words)

    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
