"""A collector whose connection swallows what it carries neither skips nor doubles a line."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from components.collecting import HOSTS, Source, collecting, config_for, pipeline
from faults.proxy import Proxy
from logpipeline.embedded import EmbeddedServer
from waiting import eventually


async def test_commits_whose_answers_never_come_are_told_apart(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Swaps arrive, their answers do not: what is known is read from the record."""
    source = Source(HOSTS[0])
    with Proxy(port_of(nats_server)) as proxy:
        config = config_for(proxy.url, tmp_path / "c", commit_interval_s=0.01)
        async with pipeline(nats_server) as made, collecting(config):
            await made.assign("collector-0")
            for round_number in range(8):
                for number in range(30):
                    await source.send(made.js, f"{round_number} {number}")
                await eventually(lambda: len(source.collected(tmp_path / "c")) > 0)
                proxy.cut_answers()
                for number in range(30):
                    await source.send(made.js, f"{round_number} {number} cut")
                proxy.heal()
            await made.until_committed(len(source.batches))
            record = await made.epoch()

    assert source.collected(tmp_path / "c") == source.sent
    assert record is not None
    assert record.epoch == 1


async def test_a_collector_that_is_cut_off_without_a_word_is_replaced(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """It finds itself replaced when it is back; what it had not committed stands once."""
    folders, source = (tmp_path / "a", tmp_path / "b"), Source(HOSTS[0])
    with Proxy(port_of(nats_server)) as proxy:
        cut_off = config_for(proxy.url, folders[0], commit_interval_s=3600.0)
        successor = config_for(nats_server, folders[1], "collector-1")
        async with pipeline(nats_server) as made, collecting(cut_off), collecting(successor):
            await made.assign("collector-0")
            await source.send(made.js, "one", "two")
            await eventually(lambda: source.written(folders[0]) == source.sent)
            proxy.cut()
            await made.assign("collector-1")
            await source.send(made.js, "three")
            await made.until_committed(2)
            proxy.heal()

            await eventually(lambda: source.collected(*folders) == source.sent)
            assert source.collected(folders[1]) == source.sent


def port_of(server: EmbeddedServer) -> int:
    port = urlsplit(server.url).port
    assert port is not None
    return port
