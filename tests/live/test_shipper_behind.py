"""A shipper that is asked whether it is behind answers when it is, and else says nothing."""

from __future__ import annotations

from pathlib import Path

from components.shipping import (
    CONTROL,
    HOST,
    append,
    config_of,
    jetstream,
    lines_of,
    make_stream,
    shipping,
    until,
    until_stored,
)
from logpipeline.backlog import ShipperBacklog, decode, question
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.connection import Connection
from logpipeline.nats.session import RawMessage
from logpipeline.subjects import ControlSubjects


async def answers(connection: Connection, behind_s: float, *, at_least: int) -> list[bytes]:
    """Ask how the shipper is, and who is behind; return the answers once there are *at_least*
    so many. The first question is answered in any case, and its answer follows the other's.
    """
    found: list[bytes] = []

    def keep(message: RawMessage) -> None:
        found.append(message.data)

    inbox = connection.new_inbox()
    await connection.listen(inbox, keep)
    subject = ControlSubjects(CONTROL).status("shipper")
    await connection.publish(subject, question(behind_s), reply=inbox)
    await connection.publish(subject, b"", reply=inbox)

    async def is_enough() -> bool:
        return len(found) >= at_least

    await until(is_enough, what=f"{at_least} answers")
    return found


async def test_shipper_is_silent_while_it_is_level(
    tmp_path: Path, nats_server: EmbeddedServer
) -> None:
    """Of the two questions only the one for all that it knows is answered."""
    config = config_of(tmp_path, nats_server.url)
    path = tmp_path / "logs" / "a.log"
    append(path, lines_of(0, 10))
    async with jetstream(nats_server) as js:
        await make_stream(js)
        async with shipping(config):
            await until_stored(js, path, lines_of(0, 10))
            found = await answers(js.connection, 0.0, at_least=1)

    assert [decode(data) for data in found] == [None]


async def test_shipper_that_cannot_send_says_so(
    tmp_path: Path, nats_server: EmbeddedServer
) -> None:
    """Without a stream lines wait: the answer names the host, and the reason in its own words."""
    config = config_of(tmp_path, nats_server.url)
    append(tmp_path / "logs" / "a.log", lines_of(0, 10))
    async with jetstream(nats_server) as js, shipping(config):

        async def is_told() -> ShipperBacklog | None:
            told = [decode(data) for data in await answers(js.connection, 0.0, at_least=2)]
            return next((each for each in told if each and each.hosts and each.problem), None)

        behind = await until(is_told, what="it says that it is behind")

    assert behind.hosts[HOST][0] == len(lines_of(0, 10))
