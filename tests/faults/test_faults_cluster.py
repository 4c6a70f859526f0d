"""What the servers of a JetStream cluster do to a pipeline whose streams have three replicas."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from faults import server_cluster, settings
from faults.pipeline_state import answered
from faults.pipeline_under_test import PipelineUnderTest
from faults.server_cluster import SERVERS, ServerCluster
from faults.small_disk import small_disk
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError
from logpipeline.nats.unanswered import bucket_part, stream_part
from waiting import eventually

ROUNDS, ROUNDS_SOAK = 3, 60
FROZEN_S = 3.0
# Small, and enough for all lines of the test; a soak writes more.
DISK_BYTES = (1024 if settings.is_soak() else 64) * 1024 * 1024
DISK_ROUNDS = 2
TOLD_WITHIN_S = 60.0


async def restarted(pipeline: PipelineUnderTest, servers: ServerCluster, number: int) -> None:
    """One server ends in good order, and starts again."""
    await servers.stop_one(number)
    await pipeline.write(300)
    servers.start_one(number)


async def killed(pipeline: PipelineUnderTest, servers: ServerCluster, number: int) -> None:
    """One server ends at once, and starts again."""
    servers.kill_one(number)
    await pipeline.write(300)
    servers.start_one(number)


async def frozen(pipeline: PipelineUnderTest, servers: ServerCluster, number: int) -> None:
    """One server does not run for a while."""
    servers.freeze_one(number)
    await pipeline.write(300)
    # The time itself is the fault: the others elect leaders meanwhile.
    await asyncio.sleep(FROZEN_S)
    servers.thaw_one(number)


async def moved(pipeline: PipelineUnderTest, servers: ServerCluster, number: int) -> None:
    """The leader of each log stream gives up."""
    names = pipeline.pipeline.names
    for partition in range(pipeline.shape.partitions):
        stream = names.stream(partition)
        with_leader = f"STREAM.LEADER.STEPDOWN.{stream}"

        async def is_moved(request: str = with_leader) -> bool:
            try:
                await pipeline.js.call(request)
            except (ApiError, NotSent, OutcomeUnknown):
                return False
            return True

        await eventually(is_moved, within_s=60, what=f"the leader of {stream} gives up")
    await pipeline.write(300)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ServerCluster]:
    """Three servers, not yet started."""
    with ServerCluster(tmp_path / "nats") as made:
        yield made


@pytest.mark.parametrize("fault", [moved, restarted, killed, frozen], ids=lambda f: f.__name__)
async def test_servers_of_a_cluster_lose_and_repeat_nothing(
    tmp_path: Path,
    seed: int,
    servers: ServerCluster,
    fault: Callable[[PipelineUnderTest, ServerCluster, int], Any],
    say: Callable[[str], None],
) -> None:
    """Each server in turn, while each part of the pipeline is a client of another one."""
    pipeline = server_cluster.replicated(tmp_path, seed, servers)
    rounds = ROUNDS_SOAK if settings.is_soak() else ROUNDS
    async with pipeline:
        await server_cluster.run(pipeline)
        info = await pipeline.js.stream_info(pipeline.pipeline.names.stream(0))
        assert info is not None
        assert len(info["cluster"]["replicas"]) == SERVERS - 1
        pipeline.rounds = rounds
        for number in range(rounds):
            await pipeline.write(300)
            await fault(pipeline, servers, number % SERVERS)
        await pipeline.write(300)
        began_s = time.monotonic()
        verdict = await pipeline.settle()

    taken_s = time.monotonic() - began_s
    say(f"a server {fault.__name__}, {rounds} times: {verdict.summary()}; {taken_s:.0f} s")
    assert verdict.is_clean, verdict.explain()


async def test_a_full_disk_of_the_server_that_leads_loses_and_repeats_nothing(
    tmp_path: Path, seed: int, servers: ServerCluster, say: Callable[[str], None]
) -> None:
    """Another one leads from then on, and `status` names it. nats-server keeps no streams any more
    until it is started again, with room: it gets what it missed, and the next one may end.
    """
    pipeline = server_cluster.replicated(tmp_path, seed, servers)
    rounds = ROUNDS_SOAK if settings.is_soak() else DISK_ROUNDS
    with ExitStack() as stack:
        disks = [
            stack.enter_context(small_disk(servers.store_of(number), size_bytes=DISK_BYTES))
            for number in range(SERVERS)
        ]
        async with pipeline:
            await server_cluster.run(pipeline)
            pipeline.rounds = rounds
            for _ in range(rounds):
                await pipeline.write(300)
                full = await _leader(pipeline)
                disks[full].fill()
                await pipeline.write(500)
                await _told(pipeline, {f"server-{full}"})
                assert await _leader(pipeline) != full
                disks[full].free()
                await servers.stop_one(full)
                servers.start_one(full)
                await pipeline.write(300)
                await _told(pipeline, set())
            began_s = time.monotonic()
            verdict = await pipeline.settle()

    taken_s = time.monotonic() - began_s
    say(f"the leader's disk full, {rounds} times: {verdict.summary()}; {taken_s:.0f} s")
    assert verdict.is_clean, verdict.explain()


@pytest.mark.parametrize("is_bucket_there", [False, True], ids=["without-bucket", "with-bucket"])
@pytest.mark.parametrize("is_frozen", [False, True], ids=["killed", "frozen"])
async def test_status_names_what_no_server_answers_for_and_shows_the_rest(
    tmp_path: Path, seed: int, servers: ServerCluster, is_frozen: bool, is_bucket_there: bool
) -> None:
    """Each stream is on one server alone, and one of these does not run."""
    async with server_cluster.spread(tmp_path, seed, servers) as pipeline:
        await server_cluster.run(pipeline)
        names = pipeline.pipeline.names
        await _move(pipeline, servers, names.stream(0), server="server-1")
        await _move(pipeline, servers, names.stream(1), server="server-2")
        bucket = "server-2" if is_bucket_there else "server-1"
        await _move(pipeline, servers, pipeline.state.bucket.stream, server=bucket)
        places = await _places(pipeline)
        gone = {part for part, server in places.items() if server == "server-1"}
        if is_frozen:
            servers.freeze_one(1)
        else:
            servers.kill_one(1)

        async def names_what_is_gone() -> dict[str, Any]:
            status = await pipeline.status()
            assert status["unanswered"].keys() == gone
            return status

        status = await eventually(
            names_what_is_gone, within_s=TOLD_WITHIN_S, what="status names what is gone"
        )
        told = await pipeline.problems()
        if is_frozen:
            servers.thaw_one(1)

    assert any(f"no server answers for the {min(gone)}" in problem for problem in told)
    assert (bucket_part(names.state_bucket) in gone) is not is_bucket_there
    for state in status["partitions"]:
        is_gone = not is_bucket_there or stream_part(state["stream"]) in gone
        assert (state["is_there"], state["is_known"]) == (True, not is_gone)
        assert bool(state["owner"]) is not is_gone
    assert (status["deadLetters"] is None) is (stream_part(names.dead_letter_stream) in gone)


async def _move(
    pipeline: PipelineUnderTest, servers: ServerCluster, stream: str, *, server: str
) -> None:
    """Have *stream* moved to *server*."""
    info = await _info(pipeline, stream)
    config = {**info["config"], "placement": {"tags": [server]}}
    await pipeline.js.call(f"STREAM.UPDATE.{stream}", config)

    async def is_there() -> bool:
        cluster = (await _info(pipeline, stream))["cluster"]
        # Others are asked for its messages, too, until they have removed their copies.
        is_alone = servers.keepers_of(stream) == {server}
        return cluster.get("leader") == server and not cluster.get("replicas") and is_alone

    await eventually(is_there, within_s=TOLD_WITHIN_S, what=f"{stream} is on {server}")


async def _places(pipeline: PipelineUnderTest) -> dict[str, str]:
    """Return which server leads each log stream, the bucket and the dead letters."""
    names = pipeline.pipeline.names
    streams = [names.stream(number) for number in range(pipeline.shape.partitions)]
    parts = {stream_part(name): name for name in (*streams, names.dead_letter_stream)}
    parts[bucket_part(names.state_bucket)] = pipeline.state.bucket.stream
    infos = {part: await _info(pipeline, name) for part, name in parts.items()}
    return {part: str(info["cluster"]["leader"]) for part, info in infos.items()}


async def _info(pipeline: PipelineUnderTest, stream: str) -> dict[str, Any]:
    info = await answered(lambda: pipeline.js.stream_info(stream))
    assert info is not None
    return info


async def _leader(pipeline: PipelineUnderTest) -> int:
    """Return which server leads the first stream, once one does."""

    async def is_led() -> str:
        info = await _info(pipeline, pipeline.pipeline.names.stream(0))
        return str(info["cluster"].get("leader", ""))

    leader = await eventually(is_led, within_s=TOLD_WITHIN_S, what="a server leads")
    return int(leader.rpartition("-")[2])


async def _told(pipeline: PipelineUnderTest, behind: set[str]) -> None:
    """Return when `status` says that just the servers *behind* lack something of a stream, and
    `status --check` calls each of them a problem.
    """

    async def are_told() -> bool:
        states = (await pipeline.status())["partitions"]
        assert {name for state in states for name in state["replicas_behind"]} == behind
        named = [each for each in await pipeline.problems() if "does not keep up" in each]
        assert {each.partition(" ")[0] for each in named} == behind
        return True

    await eventually(are_told, within_s=TOLD_WITHIN_S, what=f"{behind} are told")
