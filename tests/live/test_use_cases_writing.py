"""The use cases of the samples in which lines are written, into the streams or out of them: each
with its writer killed in mid-stream over three partitions, and again with its option taken away.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from components.consuming import HOSTS, PARTITIONS, Streams, in_order
from components.contents import lines_below
from components.use_cases import Sample, Scenario, Without, fails, holds
from components.writing import being_written, have_reached, lines_of, messages_of
from logpipeline.embedded import EmbeddedServer
from waiting import eventually

# Starts of several processes on a busy machine.
START_S = 30
# By the folders of their data.
GROUPS = ("logpipeline", "second")
SOME = Counter(dict.fromkeys(HOSTS, 50))


async def push_for_fshipper(sample: Sample) -> None:
    """What waited before it ran, and what came while it was away, is in the files of the hosts;
    what was on its way when it was killed may lack.
    """
    streams = sample.streams
    await push(streams, 5)
    first = sample.start()

    async def all_written() -> bool:
        await push(streams, 1)
        return all(pushed_to(sample, host) for host in HOSTS)

    await eventually(all_written, within_s=START_S)
    assert all(pushed_to(sample, host)[0] == f"{host} 0" for host in HOSTS)
    await push(streams, 100)
    first.kill()
    await eventually(lambda: nobody_listens(streams))
    await push(streams, 20)
    sample.start()
    for host in HOSTS:
        wanted = [line for line in streams.written if line.startswith(f"{host} ")]

        def is_there(host: str = host, last: str = wanted[-1]) -> bool:
            return pushed_to(sample, host)[-1:] == [last]

        await eventually(is_there, within_s=START_S)
        lines = pushed_to(sample, host)
        assert (lines[:5], lines[-20:]) == (wanted[:5], wanted[-20:])
        assert lines == [line for line in wanted if line in set(lines)]


async def line_per_message(sample: Sample) -> None:
    """Each message is a bare line. What is written once the shipper is back is stored once and in
    order; of what was sent just before its death, some may lack or come twice.
    """
    streams = sample.streams
    async with being_written(streams.folder / "var" / "log" / "hosts") as files:
        first = sample.start()
        await eventually(lambda: have_reached(streams, SOME), within_s=START_S)
        first.kill()
        at_the_kill = Counter(files.counts)
        sample.start()
        await eventually(lambda: have_reached(streams, at_the_kill + SOME), within_s=START_S)
        back = Counter(files.counts)
        await eventually(lambda: have_reached(streams, back + SOME))
    await eventually(lambda: have_reached(streams, files.counts))
    for host in HOSTS:
        messages = await messages_of(streams, host)
        assert not any(message.headers for message in messages)
        lines, written = [message.data.decode() for message in messages], files.lines(host)
        assert set(lines) <= set(written)
        assert [line for line in lines if line in written[back[host] :]] == written[back[host] :]


async def audit_mode(sample: Sample) -> None:
    """Though the server is killed, and then the shipper, each line is stored once and in order, in
    a message of its own.
    """
    streams = sample.streams
    async with being_written(streams.folder / "var" / "log" / "hosts") as files:
        first = sample.start()
        await eventually(lambda: have_reached(streams, SOME), within_s=START_S)
        streams.server.kill()
        at_the_kill = Counter(files.counts)
        await streams.server.start()
        await eventually(lambda: have_reached(streams, at_the_kill + SOME), within_s=START_S)
        first.kill()
        at_the_kill = Counter(files.counts)
        sample.start()
        await eventually(lambda: have_reached(streams, at_the_kill + SOME), within_s=START_S)
    await eventually(lambda: have_reached(streams, files.counts))
    for host in HOSTS:
        found = [lines_of(message) for message in await messages_of(streams, host)]
        assert found == [[line] for line in files.lines(host)]


async def redundant_groups(sample: Sample) -> None:
    """The collectors of one are killed and started again; both have written each line once, and in
    order.
    """
    streams = sample.streams
    sample.start()
    second = sample.start("second.yaml")

    async def both_write() -> bool:
        await streams.write(1)
        return second.has_ended or all(collected(sample, group) for group in GROUPS)

    await eventually(both_write, within_s=START_S)
    assert not second.has_ended, second.log
    second.kill()
    await streams.write(50)
    await eventually(lambda: has_all(sample, GROUPS[0]), within_s=START_S)
    sample.start("second.yaml")
    await eventually(lambda: has_all(sample, GROUPS[1]), within_s=START_S)
    for group in GROUPS:
        lines = collected(sample, group)
        assert sorted(lines) == sorted(streams.written)
        assert in_order(lines)


async def push(streams: Streams, count: int) -> None:
    """Store so many bare lines of each host, as fshipper's consumer takes them."""
    for _ in range(count):
        for host in HOSTS:
            number = sum(line.startswith(f"{host} ") for line in streams.written)
            await streams.js.publish(streams.subject(host), f"{host} {number}".encode())
            streams.written.append(f"{host} {number}")


def pushed_to(sample: Sample, host: str) -> list[str]:
    """The lines of a host in fshipper's files."""
    return lines_below(sample.streams.folder / "files" / host)


async def nobody_listens(streams: Streams) -> bool:
    """Whether the server has noticed that the reader is gone."""
    found = [await streams.consumer("fshipper", number) for number in range(PARTITIONS)]
    return not any(each.get("push_bound") for each in found)


def collected(sample: Sample, group: str) -> list[str]:
    """The lines in the files of a group."""
    return lines_below(*(sample.streams.folder / "data" / group).glob("collectors/*/logs"))


def has_all(sample: Sample, group: str) -> bool:
    """Whether all lines, at least, are in the files of a group."""
    return len(collected(sample, group)) >= len(sample.streams.written)


CASES: dict[str, tuple[Scenario, Without]] = {
    "push-for-fshipper": (
        push_for_fshipper,
        Without("export SHIPPER_STREAM_TARGET=out.logs\n"),
    ),
    "line-per-message": (line_per_message, Without("    message: line\n", file="logpipeline.yaml")),
    "audit-mode": (audit_mode, Without("    ack: each\n", "    ack: batch\n", "logpipeline.yaml")),
    "redundant-groups": (redundant_groups, Without("    group: second\n", file="second.yaml")),
}


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
async def test_a_writing_use_case_works(
    nats_server: EmbeddedServer, tmp_path: Path, name: str
) -> None:
    """As its sample says."""
    await holds(nats_server, tmp_path / "sample", name, CASES[name][0])


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
async def test_it_does_not_write_so_without_its_option(
    nats_server: EmbeddedServer, tmp_path: Path, name: str
) -> None:
    """So it is the option that does it."""
    scenario, without = CASES[name]
    await fails(nats_server, tmp_path / "sample", name, scenario, without)
