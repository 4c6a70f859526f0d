"""What `logpipeline up` promises: lines arrive, a changed file is applied live, crashes heal."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from components.contents import modes_below
from components.pipeline_up import PipelineUp, run_command
from logpipeline.embedded import EmbeddedServer, ServerOptions
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from waiting import WITHIN_S, eventually


def numbered(first: int, end: int) -> list[str]:
    """Return lines that are all different."""
    return [f"line {number}" for number in range(first, end)]


async def test_lines_in_a_file_arrive_and_ctrl_c_writes_what_was_there(tmp_path: Path) -> None:
    """All that stood in the files before Ctrl-C is collected when the command has ended."""
    async with PipelineUp(tmp_path) as up:
        up.append(numbered(0, 500))
        await up.arrived(numbered(0, 500))
        up.append(numbered(500, 3000))
        code = await up.stop(signal.SIGINT)

    assert code == 0
    assert up.collected() == numbered(0, 3000)
    assert up.pids() == {}


async def test_collectors_are_added_and_removed_while_lines_flow(tmp_path: Path) -> None:
    """A changed number of collectors restarts nothing, and every line arrives once."""
    async with PipelineUp(tmp_path, partitions=4) as up:
        before = up.pids()
        up.append(numbered(0, 200))
        await up.arrived(numbered(0, 200))
        up.write(collectors={"replicas": 3})
        await eventually(lambda: "collector-2" in up.pids(), what="three collectors")
        up.append(numbered(200, 400))
        await eventually(
            lambda: _owners(up, {"collector-0", "collector-1", "collector-2"}), what="all own"
        )
        up.append(numbered(400, 600))
        during = up.pids()
        up.write(collectors={"replicas": 2})
        await eventually(lambda: "collector-2" not in up.pids(), what="two collectors")
        up.append(numbered(600, 800))
        await eventually(lambda: len(up.collected()) >= 800, what="800 lines")
        after = up.pids()

    assert sorted(up.collected()) == sorted(numbered(0, 800))
    assert {name: during[name] for name in before} == before
    assert {name: during[name] for name in after} == after


async def _owners(up: PipelineUp, wanted: set[str]) -> bool:
    status = await up.json("status")
    return {entry["owner"] for entry in status["partitions"] if not entry["released"]} == wanted


@pytest.mark.parametrize("part", ["collector-0", "shipper-web", "nats-server"])
async def test_a_killed_part_comes_back(tmp_path: Path, part: str) -> None:
    """Whichever process is killed, another takes its place, and each line arrives once."""
    async with PipelineUp(tmp_path) as up:
        up.append(numbered(0, 200))
        await up.arrived(numbered(0, 200))
        up.append(numbered(200, 400))
        await up.kill(part)
        up.append(numbered(400, 600))
        await up.arrived(numbered(0, 600))


async def test_prometheus_finds_each_part_that_runs(tmp_path: Path) -> None:
    """By a file that is right again after a part came back on another port, and gone at the end."""
    async with PipelineUp(tmp_path) as up:
        await up.kill("shipper-web")
        await up.running()
        targets = json.loads(up.layout.targets_file.read_text())
        pages = {
            each["labels"]["pod"]: await asyncio.to_thread(_page, each["targets"][0])
            for each in targets
        }
    assert "logpipeline_shipper_acked_bytes_total" in pages["test-shipper-web"]
    assert "logpipeline_collector_lines_total" in pages["test-collector-0"]
    assert not up.layout.targets_file.exists()


def _page(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
        return str(answer.read().decode())


async def test_what_up_writes_is_for_its_user_and_group(tmp_path: Path) -> None:
    """Lines of logs and passwords; but not the addresses that Prometheus reads."""
    async with PipelineUp(tmp_path) as up:
        up.append(numbered(0, 10))
        await up.arrived(numbered(0, 10))
        open_ones = [path for path, mode in modes_below(up.layout.data) if mode & 0o007]

    assert open_ones == [up.layout.targets_file]


async def test_a_part_whose_port_was_taken_takes_another(tmp_path: Path) -> None:
    """A stranger that listens where a crashed part served its metrics does not keep it away."""
    async with PipelineUp(tmp_path) as up:
        (before,) = [part for part in up.record().components if part.name == "collector-0"]
        os.kill(up.record().pid, signal.SIGSTOP)
        up.send_signal("collector-0", signal.SIGKILL)
        stranger = await eventually(lambda: _listener(before.http), what="its port is free")
        assert stranger is not None
        with stranger:
            os.kill(up.record().pid, signal.SIGCONT)
            await eventually(lambda: up.pids()["collector-0"] not in (0, before.pid))
            await up.running()
            (after,) = [part for part in up.record().components if part.name == "collector-0"]
            up.append(numbered(0, 100))
            await up.arrived(numbered(0, 100))

    assert after.http != before.http


def _listener(address: str) -> socket.socket | None:
    host, _, port = address.rpartition(":")
    with suppress(OSError):
        return socket.create_server((host, int(port)))
    return None


async def test_a_mistake_in_a_changed_file_changes_nothing(tmp_path: Path) -> None:
    """A wrong resource is told with the field's path, and the pipeline goes on as it was."""
    async with PipelineUp(tmp_path) as up:
        before = up.pids()
        up.write(collectors={"replicas": "many"})
        await eventually(lambda: "spec.collectors.replicas" in up.log(), what="the mistake")
        up.write(collectors={"replicas": 1}, partitions=3)
        await eventually(lambda: "spec.partitions: cannot change" in up.log(), what="the refusal")
        up.append(numbered(0, 10))
        await up.arrived(numbered(0, 10))

        assert up.pids() == before


@pytest.mark.parametrize("words", [(), ("--allow-data-loss",)], ids=["", "allowed-at-the-start"])
async def test_a_change_with_a_held_back_field_changes_nothing_while_it_runs(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    """A lower maxAge is held back, and with it the stream's other limits and the new files. It is
    a problem until the file is as it was. A service that was once started with a permission to
    delete does not have it for each edit that follows.
    """
    stream = {"name": "LOGS", "maxAge": "24h", "maxMsgs": 1_000_000}
    async with PipelineUp(tmp_path, *words, stream=stream) as up:
        before = up.layout.pipeline.read_text()
        up.write(stream={**stream, "maxAge": "2h", "maxMsgs": 1})
        await eventually(lambda: "was not applied" in up.log(), what="the refusal")
        up.append(numbered(0, 50))
        await up.arrived(numbered(0, 50))
        up.append(numbered(50, 100))
        await up.arrived(numbered(0, 100))

        check = await up.run("status", "--check")
        assert up.layout.pipeline.read_text() == before
        assert "max_age" in up.log()
        assert (check.returncode, "the changed file is not applied" in check.stdout) == (1, True)
        up.write(stream=stream)
        await eventually(lambda: not up.record().held, what="the file is as it was")


async def test_up_starts_with_what_is_there_and_shows_the_held_change(tmp_path: Path) -> None:
    """A change that would delete messages waits for a person; the lines do not."""
    stream = {"name": "LOGS", "maxAge": "24h"}
    async with PipelineUp(tmp_path, stream=stream) as up:
        up.append(numbered(0, 50))
        await up.arrived(numbered(0, 50))
    up.write(stream={"name": "LOGS", "maxAge": "2h", "maxMsgs": 1})

    async with up:
        up.append(numbered(50, 100))
        await up.arrived(numbered(0, 100))
        status = await up.run("status")
        check = await up.run("status", "--check")

    assert "--allow-data-loss" in up.log()
    assert "max_age" in status.stdout
    assert (check.returncode, "a part of the resource waits" in check.stdout) == (1, True)


@pytest.mark.long
async def test_a_part_that_ends_at_each_start_is_a_problem(tmp_path: Path) -> None:
    """It cannot say so itself. A collector that is stopped does not answer, either."""
    async with PipelineUp(tmp_path) as up:
        up.append(numbered(0, 50))
        await up.arrived(numbered(0, 50))
        fine = await up.run("status", "--check")
        positions = up.layout.shipper("web") / "positions"
        kept = positions.with_name("kept")
        positions.rename(kept)
        # As unreadable as one of another user, for root as well.
        positions.mkdir()
        (positions / "file").touch()
        os.kill(up.pids()["shipper-web"], signal.SIGKILL)
        os.kill(up.pids()["collector-0"], signal.SIGSTOP)
        check = await up.run("status", "--check")
        os.kill(up.pids()["collector-0"], signal.SIGCONT)

    assert (fine.returncode, fine.stdout) == (0, "no problems\n")
    assert check.returncode == 1
    assert "shipper-web does not run, or does not answer: see" in check.stdout
    assert "collector-0 does not run, or does not answer: see" in check.stdout


async def test_a_second_up_on_the_same_data_says_what_to_do(tmp_path: Path) -> None:
    """Two supervisors never work in one folder."""
    async with PipelineUp(tmp_path) as up:
        done = await up.run("up", "-f", str(up.file))

    assert done.returncode == 1
    assert "already runs" in done.stderr
    assert "--data DIR" in done.stderr


async def test_up_uses_a_given_server(tmp_path: Path, nats_server: EmbeddedServer) -> None:
    """With --nats no server is started, and lines pass through the given one."""
    async with PipelineUp(tmp_path / "up", "--nats", nats_server.url) as up:
        up.append(numbered(0, 50))
        await up.arrived(numbered(0, 50))

        assert "nats-server" not in up.pids()
        assert not up.layout.server.exists()


async def test_a_password_in_an_address_is_shown_to_nobody(tmp_path: Path) -> None:
    """Arguments of processes can be read by every user, and so can many a file."""
    options = ServerOptions(user="logs", password="hidden-word")
    async with EmbeddedServer(tmp_path / "server", options) as server:
        address = server.url.replace("nats://", "nats://logs:hidden-word@")
        async with PipelineUp(tmp_path / "up", nats={"servers": [address]}) as up:
            up.append(numbered(0, 50))
            await up.arrived(numbered(0, 50))
            pids = ",".join(map(str, (up.record().pid, *up.pids().values())))
            shown = await asyncio.create_subprocess_exec(
                "ps", "-ww", "-o", "args=", "-p", pids, stdout=asyncio.subprocess.PIPE
            )
            arguments = (await shown.communicate())[0].decode()
            mode = up.layout.pipeline.stat().st_mode
        asked = await up.run("delete", "-f", str(up.file))

    assert " ship " in arguments
    assert "hidden-word" not in arguments
    assert "hidden-word" not in up.full_log() + asked.stdout + asked.stderr
    assert mode & 0o077 == 0


async def test_a_second_group_reads_everything_for_itself(
    tmp_path: Path, nats_server: EmbeddedServer
) -> None:
    """It begins with what the streams hold, owns none of them, and ships into them as well."""
    words = ("--nats", nats_server.url)
    owner = PipelineUp(tmp_path / "prod", *words, subject="logs", stream={"name": "LOGS"})
    audit = PipelineUp(
        tmp_path / "audit",
        *words,
        name="audit",
        subject="logs",
        stream={"name": "LOGS", "external": True},
        collectors={"group": "audit"},
    )
    async with owner:
        owner.append(numbered(0, 100))
        await owner.arrived(numbered(0, 100))
        async with audit:
            await audit.arrived(numbered(0, 100))
            owner.append(numbered(100, 200))
            audit.append(numbered(200, 300), "elsewhere.log")
            for each in (owner, audit):
                await each.arrived(numbered(0, 200))
                await each.arrived(numbered(200, 300), "elsewhere.log")
            status = await audit.json("status")
            plan = await audit.run("plan", "-f", str(audit.file))

    assert {entry["owner"] for entry in status["partitions"]} == {"collector-0"}
    assert plan.returncode == 0, plan.stdout


async def test_a_second_up_of_one_name_and_group_is_refused(
    tmp_path: Path, nats_server: EmbeddedServer
) -> None:
    """Here with more collectors, which would share the partitions out otherwise; the first one is
    not disturbed, and no line is lost.
    """
    words = ("--nats", nats_server.url)
    one = PipelineUp(tmp_path / "one", *words, partitions=4)
    two = PipelineUp(tmp_path / "two", *words, partitions=4, collectors={"replicas": 2})
    async with one:
        one.append(numbered(0, 100))
        await one.arrived(numbered(0, 100))
        before = (await one.json("status"))["partitions"]
        refused = await run_command(
            "up", "-f", str(two.file), "--data", str(two.layout.data), *words
        )
        one.append(numbered(100, 200))
        await one.arrived(numbered(0, 200))
        after = (await one.json("status"))["partitions"]

    assert refused.returncode == 1
    assert "collector-0 of the group main runs elsewhere" in refused.stderr
    assert [each["epoch"] for each in before] == [each["epoch"] for each in after]


async def test_up_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """What was written between two runs arrives in the second, and nothing arrives again."""
    up = PipelineUp(tmp_path)
    async with up:
        up.append(numbered(0, 100))
        await up.arrived(numbered(0, 100))
    up.append(numbered(100, 200))
    async with up:
        await up.arrived(numbered(0, 200))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"partitions": 1}, "partitions"),
        ({"partitions": 4}, "partitions"),
        ({"collectors": {"replicas": 1, "group": "other"}}, "collectors.group"),
        ({"subject": "other"}, "subject"),
    ],
)
async def test_what_cannot_change_while_it_runs_cannot_at_a_start(
    tmp_path: Path, change: dict[str, Any], field: str
) -> None:
    """A machine may start again with a file that was refused: it goes on as before, and says so;
    another group would write all lines a second time.
    """
    up = PipelineUp(tmp_path)
    async with up:
        up.append(numbered(0, 100))
        await up.arrived(numbered(0, 100))
    before = dict(up.spec)
    up.spec |= change
    up.write()
    async with up:
        up.append(numbered(100, 200))
        await up.arrived(numbered(0, 200))
        refused = await up.run("status", "--check")
        up.spec = before
        up.write()
        await eventually(lambda: not up.record().held, what="the file is as it was")

    assert refused.returncode == 1
    assert f"the changed file is not applied: spec.{field}: cannot change" in refused.stdout


async def test_parts_end_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    """A crash of the supervisor leaves no process behind that would hold folders and ports."""
    async with PipelineUp(tmp_path) as up:
        pids = list(up.pids().values())
        up.crash()
        await eventually(lambda: not any(_is_alive(pid) for pid in pids), what="all have ended")


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.long
async def test_a_file_that_was_never_read_to_its_end_is_a_problem(tmp_path: Path) -> None:
    """Lines that were added while nothing ran, to a file that was then deleted, are not known;
    the file is: in the status, its column, and the exit code.
    """
    async with PipelineUp(tmp_path) as up:
        up.append(numbered(0, 50))
        await up.arrived(numbered(0, 50))
    up.append(numbered(50, 60))
    (up.logs / "app.log").unlink()

    async with up:

        async def is_named() -> bool:
            check = await up.run("status", "--check")
            return check.returncode == 1 and "before they were read" in check.stdout

        await eventually(is_named, what="the unread file is named")
        status = await up.run("status")

    assert "fine" not in status.stdout
    assert "before they were read" in status.stdout


async def test_a_pipeline_that_ships_nothing_says_so(tmp_path: Path) -> None:
    """As a sample does that has no shippers: it runs, and nothing arrives."""
    async with PipelineUp(tmp_path, local={}) as up:
        await eventually(lambda: "no files are shipped" in up.log(), what="the warning")


async def test_up_does_not_write_to_streams_of_others(
    tmp_path: Path, nats_server: EmbeddedServer
) -> None:
    """It ends with what to do, whatever else it would start with."""
    up = PipelineUp(tmp_path, "--nats", nats_server.url, stream={"name": "LOGS"}, subject="logs")
    connection = Connection(NatsOptions(servers=(nats_server.url,)))
    await connection.start(patience_s=WITHIN_S)
    config = {"name": "LOGS_0", "subjects": ["logs.p0.>"]}
    await JetStream(connection).call("STREAM.CREATE.LOGS_0", config)
    await connection.close()

    done = await up.run("up", "-f", str(up.file), "--nats", nats_server.url)

    assert done.returncode == 1
    assert "spec.stream.adopt" in done.stderr


async def test_up_starts_without_a_consumer_that_the_resource_no_longer_lists(
    tmp_path: Path,
) -> None:
    """The consumer keeps its position until a person says that it may go."""
    async with PipelineUp(tmp_path, consumers=[{"name": "audit"}]) as up:
        up.append(numbered(0, 10))
        await up.arrived(numbered(0, 10))
    up.write(consumers=[])

    async with up:
        up.append(numbered(10, 20))
        await up.arrived(numbered(0, 20))
        up.write(batch={"linger": "30ms"})
        await eventually(lambda: "applied the changed file" in up.log(), what="a later change")

    assert "deleting it loses its position" in up.log()
