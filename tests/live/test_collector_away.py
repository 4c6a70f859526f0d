"""A collector whose server is away waits for it, and does nothing else meanwhile."""

from __future__ import annotations

from pathlib import Path

from components.collecting import HOSTS, Source, collecting, config_for, pipeline
from logpipeline.embedded import EmbeddedServer
from waiting import eventually


async def test_a_share_that_changed_before_the_server_went_away_does_not_keep_it_busy(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Once it was told of a new assignment, it must not try again without a pause: requests that
    cannot be sent fail at once, and nothing else, its own end included, would get its turn.
    """
    source = Source(HOSTS[0])
    async with (
        pipeline(nats_server) as made,
        collecting(config_for(nats_server, tmp_path / "a", "collector-0")),
        collecting(config_for(nats_server, tmp_path / "b", "collector-1")),
    ):
        await made.assign("collector-0")
        await source.send(made.js, "one")
        await made.until_committed(1)
        # The first partition stays where it is, under another generation; the second one moves.
        await made.assign("collector-0", "collector-1")
        await made.until_owned(1, "collector-1")

        # In order: a server that ends so tells its readers before it cuts them off.
        await nats_server.stop()
        connection = made.js.connection
        await eventually(lambda: not connection.is_connected, what="the connection is cut")
        await nats_server.start()
        await eventually(lambda: connection.is_connected, what="a connection")
        await source.send(made.js, "two")
        await made.until_committed(2)

    assert source.collected(tmp_path / "a") == b"one\ntwo\n"
