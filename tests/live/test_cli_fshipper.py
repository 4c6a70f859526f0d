"""`ship` and `collect` take the places of fshipper's producer and consumer, in its own ways: on
core NATS without JetStream, and with the pipeline on the other side.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from components.component import Component
from components.contents import lines_below
from components.fshipping import (
    HOSTS,
    PARTITIONS,
    SUBJECT,
    arrived,
    connected,
    consumer,
    core_server,
    producer,
    write,
)
from components.pipeline_up import PipelineUp
from faults.small_disk import small_disk
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.session import RawMessage
from waiting import eventually

DISK_BYTES = 1024 * 1024
SUBJECT_OF_HOST = f"{SUBJECT}.p0.{HOSTS[0]}".encode()


@pytest.fixture
async def core_url(tmp_path: Path) -> AsyncIterator[str]:
    """A server without JetStream."""
    async with core_server(tmp_path / "nats") as url:
        yield url


@pytest.fixture
async def parts() -> AsyncIterator[list[Component]]:
    """Whatever a test puts in is ended with it, and shown where it fails."""
    started: list[Component] = []
    yield started
    for part in started:
        part.kill()
        print(part.log_tail())


async def start(parts: list[Component], *more: Component) -> None:
    for part in more:
        parts.append(part)
        part.start()
    for part in more:
        await part.ready()


def lines(first: int, last: int, name: str = "line") -> list[str]:
    return [f"{name} {number}" for number in range(first, last)]


async def test_a_line_travels_as_fshipper_sends_it(
    core_url: str, tmp_path: Path, parts: list[Component]
) -> None:
    """The subject of the host, the bare bytes without their newline, no header, no reply."""
    seen: list[RawMessage] = []
    file = tmp_path / f"{HOSTS[2]}.log"
    file.write_bytes(b"first\n\n  caf\xc3\xa9 \xff\r\nlast, without an end")
    async with connected(core_url) as connection:
        await connection.listen(">", seen.append)
        await start(parts, producer(tmp_path, core_url, HOSTS[2]))
        await eventually(lambda: len(seen) >= 3)
        await parts[0].stop()

    subject = f"{SUBJECT}.p2.{HOSTS[2]}".encode()
    assert seen == [
        RawMessage(subject, b"", b"", line) for line in (b"first", b"", b"  caf\xc3\xa9 \xff\r")
    ]


async def test_a_file_is_followed_through_rotation_and_restarts(
    core_url: str, tmp_path: Path, parts: list[Component]
) -> None:
    """What is rotated away meanwhile is sent, and nothing that was sent before; what was rotated
    before the first start is not, as fshipper knew one file only.
    """
    host, seen = HOSTS[0], list[bytes]()
    file = tmp_path / f"{host}.log"
    (tmp_path / f"{host}.log.1").write_text("from another time\n")
    write(tmp_path, host, lines(0, 10))
    async with connected(core_url) as connection:
        await connection.listen(f"{SUBJECT}.>", lambda message: seen.append(message.data))
        ship = producer(tmp_path, core_url, host)
        await start(parts, ship)
        await eventually(lambda: len(seen) >= 10)
        file.rename(tmp_path / f"{host}.log.1")
        write(tmp_path, host, lines(10, 20))
        await eventually(lambda: len(seen) >= 20)
        await ship.stop()
        write(tmp_path, host, lines(20, 30))
        file.rename(tmp_path / f"{host}.log.1")
        write(tmp_path, host, lines(30, 40))
        ship.start()
        await eventually(lambda: len(seen) >= 40)
        await ship.stop()

    assert seen == [line.encode() for line in lines(0, 40)]


async def test_both_ways_work_without_jetstream(
    core_url: str, tmp_path: Path, parts: list[Component]
) -> None:
    """Each host's lines arrive in its own file, in order."""
    await start(parts, consumer(tmp_path, core_url))
    await start(parts, *(producer(tmp_path, core_url, host) for host in HOSTS))
    for host in HOSTS:
        write(tmp_path, host, lines(0, 300, host))

    for host in HOSTS:
        await arrived(tmp_path, host, lines(0, 300, host))
    assert await parts[0].stop() == 0


async def test_a_killed_reader_goes_on_in_the_same_file(
    core_url: str, tmp_path: Path, parts: list[Component]
) -> None:
    """At most once: what came while it was away is lost, what stood there stays."""
    reader = consumer(tmp_path, core_url)
    await start(parts, reader)
    await start(parts, *(producer(tmp_path, core_url, host) for host in HOSTS))
    for host in HOSTS:
        write(tmp_path, host, lines(0, 50))
        await arrived(tmp_path, host, lines(0, 50))
    reader.kill()
    reader.start()
    await reader.ready()
    for host in HOSTS:
        write(tmp_path, host, lines(50, 100))

    for host in HOSTS:
        await arrived(tmp_path, host, lines(0, 100))
        assert len(list((tmp_path / "files" / host).iterdir())) == 1


async def test_a_full_disk_is_waited_for_and_no_line_is_torn(
    core_url: str, tmp_path: Path, parts: list[Component]
) -> None:
    """The reader says so, keeps what it can in memory, and goes on when there is room."""
    with small_disk(tmp_path / "files", size_bytes=DISK_BYTES) as disk:
        reader = consumer(tmp_path, core_url)
        ship = producer(tmp_path, core_url, HOSTS[0])
        await start(parts, reader, ship)
        write(tmp_path, HOSTS[0], lines(0, 10))
        await arrived(tmp_path, HOSTS[0], lines(0, 10))
        disk.fill()
        write(tmp_path, HOSTS[0], lines(10, 2000))

        async def is_unready() -> bool:
            return not await reader.is_ready()

        await eventually(is_unready)
        disk.free()
        await arrived(tmp_path, HOSTS[0], lines(0, 2000))
        await reader.ready()
        assert await reader.stop() == 0


async def test_lines_of_strangers_never_leave_the_folder(
    core_url: str, tmp_path: Path, parts: list[Component]
) -> None:
    """A host that is no name is refused and counted, and the others' lines go on."""
    reader = consumer(tmp_path, core_url)
    await start(parts, reader)
    async with connected(core_url) as connection:
        for host in ("../../etc", "a/b", "b\\c", "*", ">", "a..b", "x" * 300):
            await connection.publish(f"{SUBJECT}.p0.{host}", b"evil")
        await connection.publish(f"{SUBJECT}.p0.good", b"fine")
        await arrived(tmp_path, "good", ["fine"])

    assert [path.name for path in (tmp_path / "files").iterdir()] == ["good"]
    # The server itself delivers no empty tokens.
    assert (await reader.metrics())["refused"] == 5


async def test_what_ship_sends_arrives_in_our_collectors(
    nats_server: EmbeddedServer, tmp_path: Path, parts: list[Component]
) -> None:
    """Messages without headers, on the subjects of a LogPipeline, are lines in its files."""
    up = PipelineUp(
        tmp_path / "up", "--nats", nats_server.url, subject=SUBJECT, partitions=PARTITIONS
    )
    async with up:
        await start(parts, *(producer(tmp_path, nats_server.url, host) for host in HOSTS))
        for host in HOSTS:
            write(tmp_path, host, lines(0, 200, host))

        def collected(host: str) -> list[str]:
            return lines_below(*up.layout.data.glob(f"collectors/*/logs/{host}"))

        for host in HOSTS:
            wanted = lines(0, 200, host)
            await eventually(
                lambda host=host, wanted=wanted: collected(host) == wanted,  # type: ignore[misc]
            )


async def test_what_we_ship_a_line_a_message_arrives_behind_a_push_consumer(
    nats_server: EmbeddedServer, tmp_path: Path, parts: list[Component]
) -> None:
    """As in 2020: lines into the streams, pushed to `out.logs.p<N>`, written by host; a reader that
    is killed goes on with what the consumer kept for it.
    """
    shippers = [
        {"name": f"s{number}", "host": host, "files": [{"include": [f"{tmp_path}/{host}.log"]}]}
        for number, host in enumerate(HOSTS)
    ]
    up = PipelineUp(
        tmp_path / "up", "--nats", nats_server.url,
        subject=SUBJECT,
        partitions=PARTITIONS,
        batch={"message": "line", "ack": "none"},
        consumers=[
            {
                "name": "fshipper", "type": "push", "deliverSubject": "out.logs",
                "ackPolicy": "none",
            }
        ],
        local={"shippers": shippers},
    )  # fmt: skip
    seen: list[RawMessage] = []
    async with up, connected(nats_server.url) as connection:
        await connection.listen("out.logs.*", seen.append)
        reader = consumer(tmp_path, nats_server.url, target="out.logs")
        await start(parts, reader)
        for host in HOSTS:
            write(tmp_path, host, [*lines(0, 100, host), ""])
            await arrived(tmp_path, host, [*lines(0, 100, host), ""])
        reader.kill()
        for host in HOSTS:
            write(tmp_path, host, lines(100, 200, host))
        reader.start()
        for host in HOSTS:
            await arrived(tmp_path, host, [*lines(0, 100, host), "", *lines(100, 200, host)])
        assert (await reader.metrics())["undelivered"] == 0

    # What fshipper's own program would be given: the original subject, and the bare line.
    assert not any(message.headers for message in seen)
    of_host = [message.data for message in seen if message.subject == SUBJECT_OF_HOST]
    assert of_host[:2] == [b"localhost 0", b"localhost 1"]
