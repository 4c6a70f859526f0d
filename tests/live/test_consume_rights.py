"""A reader needs the rights that the documentation lists, and no other one; it names one that it
lacks, and ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from components.consuming import HOSTS, Streams, streams_on
from logpipeline.embedded import EmbeddedServer, ServerOptions

HOST = HOSTS[0]
STATE = "KV_LOGS_state"
CONSUMER = ("INFO", "MSG.NEXT", "RESET", "CREATE")
SCAN = ("INFO", "MSG.NEXT", "CREATE", "DELETE")
COMMON = [
    *("$JS.API.STREAM.INFO.LOGS_0", "$JS.API.STREAM.MSG.GET.LOGS_0", "$JS.API.DIRECT.GET.LOGS_0"),
    "$JS.API.STREAM.INFO.LOGS_dead",
]
EPHEMERAL = [
    *COMMON,
    *(f"$JS.API.CONSUMER.{verb}.LOGS_0.*" for verb in (*CONSUMER, "DELETE")),
    "$JS.ACK.LOGS_0.*.>",
    *(f"_lpd.logs.*.{reason}.*.*.*" for reason in ("rejected", "unreadable")),
]
DURABLE = [
    *COMMON,
    *(f"$JS.API.CONSUMER.{verb}.LOGS_0.own" for verb in CONSUMER),
    *(f"$JS.API.CONSUMER.{verb}.LOGS_0.own-scan" for verb in SCAN),
    "$JS.ACK.LOGS_0.own.>",
    *(f"_lpd.logs.*.{reason}.*.*.own" for reason in ("rejected", "unreadable")),
    "$KV.LOGS_state.consume.own.>",
    *(f"$JS.API.STREAM.INFO.{STATE}", f"$JS.API.DIRECT.GET.{STATE}.$KV.LOGS_state.consume.own.>"),
]


class Server(NamedTuple):
    """A server as `streams_on` needs it, with a user in its address."""

    url: str


@asynccontextmanager
async def allowed(folder: Path, rights: Sequence[str]) -> AsyncIterator[tuple[Streams, str]]:
    """Make streams, and a user that has only *rights*; yield them with its address."""
    permissions = {"publish": list(rights), "subscribe": "_INBOX.>"}
    users = [
        {"user": "all", "password": "a"},
        {"user": "reader", "password": "r", "permissions": permissions},
    ]
    options = ServerOptions(
        accounts={"LOGS": {"jetstream": "enabled", "users": users}}, streams_account="LOGS"
    )
    async with EmbeddedServer(folder / "nats", options) as server:
        url = server.url.replace("//", "//all:a@")
        async with streams_on(cast("EmbeddedServer", Server(url)), folder / "pipeline") as streams:
            yield streams, server.url.replace("//", "//reader:r@")


async def store_what_needs_all_rights(streams: Streams) -> None:
    """Store a message that cannot be decoded, and one that was sent again, among others."""
    await streams.store(HOST, 1000, b"broken\n", broken=True)
    await streams.write(1)
    await streams.store(HOST, 0, f"{streams.written[0]}\n".encode(), again=True)
    await streams.write(1)


@pytest.mark.parametrize(
    ("rights", "words"),
    [
        (EPHEMERAL, ("--ephemeral",)),
        (DURABLE, ()),
        (DURABLE, ("--group",)),
        (DURABLE, ("--state", "kv")),
    ],
)
async def test_a_reader_needs_no_more_rights_than_are_documented(
    tmp_path: Path, rights: list[str], words: tuple[str, ...]
) -> None:
    """Also for a message that was sent again, for which it reads its stream once more."""
    async with allowed(tmp_path, rights) as (streams, as_reader):
        await store_what_needs_all_rights(streams)
        words = (*words, "--partitions", "0", "--count", "2", "--on-error", "dead-letter")
        reading = streams.read("own", *words, NATS_URL=as_reader)
        log = await reading.ends(0)
        info = await streams.js.stream_info("LOGS_dead")
        assert info is not None

    assert len(reading.lines) == 2
    assert "1 sent again" in log
    assert info["state"]["messages"] == 1


@pytest.mark.parametrize(
    ("rights", "words", "lacking", "named"),
    [
        (
            EPHEMERAL,
            ("--ephemeral",),
            "$JS.API.CONSUMER.CREATE.LOGS_0.*",
            "publish to $JS.API.CONSUMER.CREATE.LOGS_0.own-",
        ),
        *(
            (
                DURABLE,
                words,
                f"$JS.API.CONSUMER.MSG.NEXT.LOGS_0.{name}",
                f"publish to $JS.API.CONSUMER.MSG.NEXT.LOGS_0.{name}",
            )
            for words in ((), ("--group",))
            for name in ("own", "own-scan")
        ),
        *(
            (
                DURABLE,
                words,
                "$JS.API.CONSUMER.CREATE.LOGS_0.own-scan",
                "publish to $JS.API.CONSUMER.CREATE.LOGS_0.own-scan",
            )
            for words in ((), ("--group",))
        ),
    ],
)
async def test_a_reader_that_lacks_a_right_names_it_and_ends(
    tmp_path: Path, rights: list[str], words: tuple[str, ...], lacking: str, named: str
) -> None:
    """It does not wait for ever: only a person can give it."""
    assert lacking in rights
    async with allowed(tmp_path, [each for each in rights if each != lacking]) as found:
        streams, as_reader = found
        await store_what_needs_all_rights(streams)
        words = (*words, "--partitions", "0", "--count", "2", "--on-error", "dead-letter")
        log = await streams.read("own", *words, NATS_URL=as_reader).ends(1)

    assert named in log
