"""A data folder under another host's name: a machine that was made from the image of one that
ships, or was renamed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from components.shipping import (
    HOST,
    append,
    config_of,
    jetstream,
    make_stream,
    read_once,
    shipping,
    stored,
    until,
    until_stored,
)
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.jetstream import JetStream
from logpipeline_shipper.files.listing import HostSources

OTHER = "node-b"


@pytest.mark.parametrize("is_rotated", [False, True])
async def test_what_is_written_under_another_name_is_that_hosts(
    nats_server: EmbeddedServer, tmp_path: Path, *, is_rotated: bool
) -> None:
    """Under the former name it would be taken for what that host has at the same place, or the
    server would refuse it.
    """
    config = config_of(tmp_path, nats_server.url)
    live = tmp_path / "logs" / "app.log"
    append(live, b"before 1\nbefore 2\n")
    async with jetstream(nats_server) as js:
        await make_stream(js)
        async with shipping(config):
            await until_stored(js, live, b"before 1\nbefore 2\n")
        if is_rotated:
            live.rename(live.with_name("app.log.1"))
        append(live, b"after\n")
        hosts = (HostSources(host=OTHER, include=config.hosts[0].include),)
        async with shipping(replace(config, hosts=hosts)):
            await until(partial(is_there, js, b"after\n"), what="the line written later")
        content = read_once(await stored(js))

    assert content[HOST, str(live)] == b"before 1\nbefore 2\n"
    assert content[OTHER, str(live)] == b"before 1\nbefore 2\nafter\n"


async def is_there(js: JetStream, data: bytes) -> bool:
    return any(data in content for content in read_once(await stored(js)).values())
