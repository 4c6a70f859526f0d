"""What `losses` and `status --check` tell people and scripts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from components.pipeline_up import PipelineUp, run_command
from components.shipping import jetstream
from logpipeline.embedded import EmbeddedServer
from logpipeline.spec import load
from logpipeline.subjects import Subjects
from logpipeline.wire import Batch, encode_headers, message_id
from logpipeline_collector.reports import LOSSES_LISTED_MAX
from waiting import eventually

LOSS = Batch(
    source="/var/log/app.log",
    generation="0" * 16,
    start=0,
    end=2048,
    lines=0,
    format="plain",
    first_time_ns=1_795_262_400_000_000_000,
    lost="expired",
)


async def test_a_loss_is_listed_until_it_is_acknowledged(
    tmp_path: Path, nats_server: EmbeddedServer
) -> None:
    """A check fails by its exit code as long as nobody has seen it."""
    async with PipelineUp(tmp_path, "--nats", nats_server.url) as up:
        words = ["-f", str(up.file), "--data", str(up.layout.data), "--nats", nats_server.url]
        before = await run_command("status", "--check", *words)
        async with jetstream(nats_server) as js:
            root = load(up.file).names.subject
            subject = Subjects(root, up.spec["partitions"]).of_host("web2")
            await js.publish(subject, b"", encode_headers(LOSS, message_id("test", LOSS)))

        async def is_told() -> bool:
            return (await run_command("status", "--check", *words)).returncode == 1

        await eventually(is_told, within_s=60, what="the check fails")
        check = await run_command("status", "--check", *words)
        listed = await run_command("losses", *words, "-o", "json")
        status = json.loads((await run_command("status", *words, "-o", "json")).stdout)
        (row,) = json.loads(listed.stdout)
        stranger = await run_command("losses", *words, "--acknowledge", "0000000000")
        seen = await run_command("losses", *words, "--acknowledge", row["id"])
        after = await run_command("status", "--check", *words)
        rest = await run_command("losses", *words)
        everything = await run_command("losses", "--all", *words)

    assert (before.returncode, before.stdout) == (0, "no problems\n"), before.stdout
    assert check.stdout == "2.0 KiB are lost (expired): see `logpipeline losses`\n"
    assert (row["host"], row["source"], row["bytes"]) == ("web2", LOSS.source, 2048)
    assert stranger.returncode == 1
    assert "no such loss: 0000000000" in stranger.stderr
    # What the operator tells of a pipeline comes from the partitions' own records.
    assert sum(state["lost_bytes"] for state in status["partitions"]) == 2048
    assert seen.returncode == 0
    assert (after.returncode, after.stdout) == (0, "no problems\n")
    assert rest.stdout == "No unacknowledged losses.\n"
    assert "2026-11-21T12:00:00Z" in everything.stdout
    assert "acknowledged" in everything.stdout


async def test_of_many_losses_all_are_listed_and_acknowledged(
    tmp_path: Path, nats_server: EmbeddedServer
) -> None:
    """Also those that are too many for the status: none is left that only counts."""
    async with PipelineUp(tmp_path, "--nats", nats_server.url) as up:
        words = ["-f", str(up.file), "--data", str(up.layout.data), "--nats", nats_server.url]
        async with jetstream(nats_server) as js:
            root = load(up.file).names.subject
            subject = Subjects(root, up.spec["partitions"]).of_host("web2")
            for number in range(LOSSES_LISTED_MAX + 50):
                lost = replace(LOSS, source=f"/var/log/{number}.log")
                await js.publish(
                    subject, b"", encode_headers(lost, message_id(f"test{number}", lost))
                )

        async def are_recorded() -> bool:
            status = json.loads((await run_command("status", *words, "-o", "json")).stdout)
            return bool(sum(row["lost_new"] for row in status["sums"]) == 250 * 2048)

        await eventually(are_recorded, within_s=60, what="all losses are known")
        check = await run_command("status", "--check", *words)
        listed = await run_command("losses", *words, "-o", "json")
        seen = await run_command("losses", *words, "--acknowledge", "all")
        after = await run_command("status", "--check", *words)
        rest = await run_command("losses", *words)

    assert check.stdout.splitlines() == [
        "400.0 KiB are lost (expired): see `logpipeline losses`",
        "100.0 KiB are lost that are not listed here: see `logpipeline losses`",
    ]
    assert (listed.returncode, listed.stderr) == (0, "")
    assert len({row["source"] for row in json.loads(listed.stdout)}) == 250
    assert (seen.returncode, seen.stdout) == (0, "Acknowledged: 250.\n")
    assert (after.returncode, after.stdout) == (0, "no problems\n")
    assert (rest.returncode, rest.stdout) == (0, "No unacknowledged losses.\n")


@pytest.mark.long
async def test_what_a_silent_collector_lost_is_not_taken_for_nothing(
    tmp_path: Path, nats_server: EmbeddedServer
) -> None:
    """Neither by a person nor by a script: whose losses are not listed is said, and the exit code
    is 1.
    """
    async with PipelineUp(tmp_path, "--nats", nats_server.url) as up:
        words = ["-f", str(up.file), "--data", str(up.layout.data), "--nats", nats_server.url]
        async with jetstream(nats_server) as js:
            root = load(up.file).names.subject
            subject = Subjects(root, up.spec["partitions"]).of_host("web2")
            await js.publish(subject, b"", encode_headers(LOSS, message_id("test", LOSS)))

        async def is_recorded() -> bool:
            status = json.loads((await run_command("status", *words, "-o", "json")).stdout)
            return bool(sum(state["lost_bytes"] for state in status["partitions"]) == 2048)

        await eventually(is_recorded, within_s=60, what="the loss stands in the bucket")
        up.freeze("collector-0")
        try:
            text = await run_command("losses", *words)
            seen = await run_command("losses", *words, "--acknowledge", "all")
            rows = await run_command("losses", *words, "-o", "json")
        finally:
            up.thaw("collector-0")

    assert (text.returncode, text.stdout) == (1, "")
    assert text.stderr.splitlines() == [
        "collector-0, which owns partitions 0, 1, does not answer: its losses are not listed",
        "2.0 KiB are lost that no collector lists",
    ]
    assert (rows.returncode, rows.stdout.strip(), rows.stderr) == (1, "[]", text.stderr)
    # What was not shown is not acknowledged.
    assert seen.returncode == 1
