"""What the commands that look at a running pipeline promise: `status`, `tail` and `files`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import pytest

import warm
from components.pipeline_up import PipelineUp
from waiting import WITHIN_S, eventually

POD = "shop_web-0_8e1b6f3c-6b1e-4f6e-9a52-0d3d5f6f7a11"
HOSTILE = b"\x1b]0;mine\x07 \xe2\x80\xae\xff end"


@pytest.fixture
async def up(tmp_path: Path) -> AsyncIterator[PipelineUp]:
    """A pipeline with a plain file of host web1, and pods of host node-a."""
    pods = tmp_path / "pods"
    container = pods / POD / "web"
    container.mkdir(parents=True)
    (container / "0.log").write_text(
        "2026-11-21T10:00:00.000000001Z stdout F from a pod\n"
        "2026-11-21T10:00:00.000000002Z stdout F ERROR in a pod\n"
    )
    pipeline = PipelineUp(tmp_path)
    shippers = [*pipeline.spec["local"]["shippers"], _pod_shipper(pods)]
    pipeline.write(local={"shippers": shippers})
    async with pipeline:
        yield pipeline


def _pod_shipper(pods: Path) -> dict[str, object]:
    return {"name": "pods", "host": "node-a", "pods": str(pods)}


async def test_status_shows_every_partition_with_its_owner(up: PipelineUp) -> None:
    """Owner, epoch, lag and parts stand in the text as in the JSON."""
    up.append(["one", "two"])
    await up.arrived(["one", "two"])

    async def settled() -> bool:
        status = await up.json("status")
        states = status["partitions"]
        return all(s["owner"] == "collector-0" and not s["lag_messages"] for s in states)

    await eventually(settled, what="no lag")
    status, text = await up.json("status"), (await up.run("status")).stdout

    assert [state["partition"] for state in status["partitions"]] == [0, 1]
    assert {state["epoch"] for state in status["partitions"]} == {1}
    assert (len(status["shippers"]), len(status["collectors"])) == (2, 1)
    assert (status["missing"], status["deadLetters"]) == ([], 0)
    assert text.count("collector-0") == 2
    assert "2 shippers, 1 collectors answer; lag 0 messages" in text


@pytest.mark.long
async def test_a_watched_status_outlives_its_server(up: PipelineUp) -> None:
    """While the server is away the watcher is told so, and then sees the status again."""
    with (up.folder / "watched").open("wb") as out:
        words = ["status", "-w", "--data", str(up.layout.data)]
        watcher = warm.start(words, stdout=out, stderr=out)
    try:
        shown = up.folder / "watched"
        await eventually(lambda: "lag 0" in shown.read_text(), what="a status")
        up.freeze("nats-server")
        await eventually(lambda: "does not answer" in shown.read_text())
        up.thaw("nats-server")
        length = len(shown.read_text())
        await eventually(lambda: "lag 0" in shown.read_text()[length:])
        assert watcher.poll() is None
    finally:
        up.thaw("nats-server")
        watcher.send_signal(signal.SIGINT)
        code = await asyncio.to_thread(watcher.wait, WITHIN_S)
    assert code == 130


async def test_tail_shows_lines_from_a_time_on(up: PipelineUp) -> None:
    """With --since, lines that were sent before are shown, of the wanted host alone."""
    lines = ["one", "two", "ERROR three"]
    for number, line in enumerate(lines):
        up.append([line])
        await up.arrived(lines[: number + 1])

    two = await up.run("tail", "web1", "--since", "10m", "--lines", "2")
    error = await up.run("tail", "--since", "10m", "--grep", "^ERROR", "--lines", "2")
    pod = await up.run(
        "tail", "--since", "10m", "--namespace", "shop", "--pod", "web-0", "--lines", "2", "--raw"
    )

    source = up.logs / "app.log"
    assert two.stdout == f"web1 {source} | one\nweb1 {source} | two\n"
    assert sorted(error.stdout.splitlines()) == [
        "node-a shop/web-0/web | ERROR in a pod",
        f"web1 {source} | ERROR three",
    ]
    assert pod.stdout == "from a pod\nERROR in a pod\n"


async def test_tail_follows_live_through_a_pipe(up: PipelineUp) -> None:
    """A line is shown when it passes, though nobody's terminal is at the other end."""
    out = up.folder / "followed"
    with out.open("wb") as file, (up.folder / "follower.log").open("wb") as log:
        words = ["tail", "web1", "--data", str(up.layout.data)]
        # Where Python never buffers, nothing would be shown by this test.
        env = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
        follower = warm.start(words, stdout=file, stderr=log, env=env)
    try:
        await eventually(lambda: _is_shown(up, out), what="a line is followed")
        up.append(["the last"])
        await eventually(lambda: "the last" in out.read_text(), what="the last line")
        follower.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(follower.wait, WITHIN_S) == 130
    finally:
        follower.kill()
        follower.wait()


def _is_shown(up: PipelineUp, out: Path) -> bool:
    # Until it follows, lines pass unseen.
    if not out.read_bytes():
        if not (up.logs / "app.log").exists() or up.collected() == up.written():
            up.append(["again"])
        return False
    return True


async def test_tail_and_files_never_act_on_a_terminal(up: PipelineUp) -> None:
    """Escapes and reversed text are shown as text, unless the bytes themselves are asked for."""
    up.append_bytes(HOSTILE + b"\n")
    await eventually(lambda: HOSTILE in up.collected_bytes(), what="the line")

    async def both(*words: str) -> tuple[bytes, bytes]:
        tail = await up.run_bytes("tail", "web1", "--since", "10m", "--lines", "1", *words)
        return tail.split(b"| ")[-1], await up.run_bytes("files", "cat", "web1", *words)

    shown = b"\\x1b]0;mine\\x07 \\u202e\\xff end\n"
    assert await both() == (shown, shown)
    assert await both("--raw") == (HOSTILE + b"\n", HOSTILE + b"\n")


async def test_files_are_listed_and_printed(up: PipelineUp) -> None:
    """The list has what is committed of each host, and cat prints exactly that."""
    up.append([f"line {number}" for number in range(1000)])
    await up.arrived([f"line {number}" for number in range(1000)])
    size = (up.logs / "app.log").stat().st_size

    async def listed() -> bool:
        files = await up.json("files", "ls")
        return {file["host"] for file in files} == {"web1", "node-a"}

    await eventually(listed, what="both hosts")
    [entry] = await up.json("files", "ls", "web1")
    text = (await up.run("files", "ls")).stdout

    assert (entry["bytes"], entry["rotated"], entry["compressed"]) == (size, False, False)
    assert entry["collector"] == "collector-0"
    assert entry["path"] in text
    assert await up.run_bytes("files", "cat", "web1", "--raw") == (up.logs / "app.log").read_bytes()
    assert (await up.run("files", "cat", "node-a")).stdout == "from a pod\nERROR in a pod\n"
    assert (await up.run("files", "cat", "node-a", "--path", "*/no*")).returncode == 1


async def test_stack_trace_is_shown_as_a_whole(up: PipelineUp) -> None:
    """By each command that shows lines, to who looks for a word in one of its lines."""
    trace = ["ERROR failed", "java.io.IOException: no route", "\tat a.B.c(B.java:1)"]
    lines = ["one", *trace, "two"]
    up.append(lines)
    await up.arrived(lines)
    words = ("--multiline", "java", "--grep", "no route$")

    tailed = await up.run_bytes("tail", "web1", "--since", "10m", "--lines", "1", "--raw", *words)
    found = await up.run_bytes("files", "cat", "web1", "--raw", *words)
    line = await up.run_bytes("files", "cat", "web1", "--raw", *words[2:])
    consumed = await up.run(
        *("consume", "events", "-o", "json", "--multiline", "java", "--until-caught-up"),
    )

    assert tailed.decode().splitlines() == trace
    assert found.decode().splitlines() == trace
    assert line.decode().splitlines() == trace[1:2]
    events = [json.loads(each) for each in consumed.stdout.splitlines()]
    of_web1 = [each for each in events if each["host"] == "web1"]
    assert [(each["message"], each["lines"]) for each in of_web1] == [
        ("one", 1),
        ("\n".join(trace), 3),
        ("two", 1),
    ]


async def test_rotated_and_packed_files_are_printed_in_order(tmp_path: Path) -> None:
    """Whatever became of a host's file meanwhile, cat prints each of its lines once, in order."""
    collectors = {"replicas": 1, "rotation": {"maxBytes": "4Ki"}, "compression": "zstd"}
    async with PipelineUp(tmp_path, collectors=collectors) as up:

        async def count(state: str) -> int:
            return sum(bool(file[state]) for file in await up.json("files", "ls"))

        for turn in range(3):
            up.append([f"line {turn} {number:06d}" for number in range(1000)])
            await eventually(lambda: _is_more(count("rotated"), turn))  # noqa: B023  awaited in this turn
        await eventually(lambda: _is_more(count("compressed"), 1), what="packed")

        assert await up.run_bytes("files", "cat", "web1") == (up.logs / "app.log").read_bytes()


async def _is_more(count: Awaitable[int], than: int) -> bool:
    return await count > than
