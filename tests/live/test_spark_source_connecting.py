"""A server that refuses is not waited for; one that is away is, and that is said early."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from logpipeline.authority import TABLE, permissions
from logpipeline.spec import parse as parse_resource
from logpipeline_spark.errors import Refused
from logpipeline_spark.source import planning
from logpipeline_spark.source.client import Client
from logpipeline_spark.source.options import parse
from ports import free_port
from tables.streams import STREAMS, Streams, running_streams
from waiting import eventually

# Far longer than a test may take: who waits for so long is ended by its limit.
PATIENCE_S = "600"


def refusal(streams: Streams, **changes: str) -> str:
    """Return why the streams cannot be looked at, by somebody who is patient."""
    options = parse(streams.options(**{"patienceSeconds": PATIENCE_S, **changes}))
    with pytest.raises(Refused) as caught, Client(options) as client:
        planning.look(client, options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_server_that_asks_for_a_login_is_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """None, or an old one: the sentence names the options, and what prints them."""
    with running_streams(tmp_path / "nats", token="right") as streams:
        (tmp_path / "wrong").write_text("wrong")
        for changes in ({}, {"tokenFile": str(tmp_path / "wrong")}):
            said = refusal(streams, **changes)
            assert said.startswith(f"cannot connect to NATS at {streams.server.url}")
            assert "the server asks for credentials" in said
            assert "log in with 'userFile' and 'passwordFile', 'tokenFile'" in said
            assert "`logpipeline stream options`" in said
    assert "waiting for at most" not in caplog.text


def test_a_login_that_comes_a_moment_later_is_waited_for(tmp_path: Path) -> None:
    """A Secret that is renewed reaches a pod and its server one after the other."""
    with running_streams(tmp_path / "nats", token="right") as streams:
        token = tmp_path / "token"
        token.write_text("wrong")
        options = parse(streams.options(tokenFile=str(token), patienceSeconds=PATIENCE_S))
        with ThreadPoolExecutor() as threads:
            opening = threads.submit(Client(options).open)
            token.write_text("right")
            client = opening.result()
        assert set(planning.look(client, options)) == set(STREAMS)
        client.close()


def test_a_file_that_is_not_on_this_machine_is_not_waited_for(tmp_path: Path) -> None:
    """Tasks run elsewhere than what read the options."""
    with running_streams(tmp_path / "nats", token="right") as streams:
        token = tmp_path / "token"
        token.write_text("right")
        options = parse(streams.options(tokenFile=str(token), patienceSeconds=PATIENCE_S))
        token.unlink()
        with pytest.raises(Refused, match="No such file"):
            Client(options).open()


async def test_that_a_server_is_waited_for_is_said_early(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, with its address and for how long; when it comes, reading begins."""
    port = free_port()
    options = parse(
        {
            "servers": f"nats://127.0.0.1:{port}",
            "stream": "LOGS",
            "patienceSeconds": PATIENCE_S,
        }
    )

    def told() -> list[str]:
        return [
            record.getMessage()
            for record in caplog.records
            if record.name == "logpipeline_spark.source.client"
        ]

    with ThreadPoolExecutor() as threads, caplog.at_level(logging.WARNING):
        opening = threads.submit(Client(options).open)
        await eventually(lambda: bool(told()), what="a warning")
        assert not opening.done()
        streams = Streams(tmp_path / "nats", port=port)
        threads.submit(streams.start).result()
        client = opening.result()
        threads.submit(streams.close).result()
        threads.submit(client.close).result()

    (said,) = told()
    assert said.startswith(f"jetstream: cannot connect to NATS at nats://127.0.0.1:{port}: ")
    assert said.endswith("waiting for at most 600 s (option 'patienceSeconds')")


PIPELINE = parse_resource(
    {
        "apiVersion": "logpipeline.dev/v1alpha1",
        "kind": "LogPipeline",
        "metadata": {"name": "prod", "namespace": "logging"},
        "spec": {"partitions": 2},
    }
)


@contextmanager
def server_of_a_pipeline(folder: Path) -> Iterator[tuple[Streams, dict[str, str]]]:
    """The server that a pipeline has, and how its table's job logs in there."""
    folder.mkdir()
    (folder / "user").write_text(TABLE)
    (folder / "password").write_text("secret")
    accounts: dict[str, Any] = {
        "LOGS": {
            "jetstream": "enabled",
            "users": [
                {"user": "maker", "password": "secret"},
                {
                    "user": TABLE,
                    "password": "secret",
                    "permissions": permissions(PIPELINE, TABLE),
                },
            ],
        }
    }
    with running_streams(
        folder / "nats", login=("maker", "secret"), accounts=accounts, streams_account="LOGS"
    ) as streams:
        login = {
            "userFile": str(folder / "user"),
            "passwordFile": str(folder / "password"),
            "inboxPrefix": "_INBOX_table",
        }
        yield streams, login


def test_a_right_that_is_missing_is_not_waited_for(tmp_path: Path) -> None:
    """The server's own words name it: who may only read streams may not list them."""
    with server_of_a_pipeline(tmp_path / "server") as (streams, login):
        options = {"servers": streams.server.url, "patienceSeconds": PATIENCE_S, **login}
        pattern = parse({**options, "subscribePattern": "LP_.*"})
        with pytest.raises(Refused) as caught, Client(pattern) as client:
            planning.look(client, pattern)

    assert "$JS.API.STREAM.NAMES" in str(caught.value)
    assert "grant this user the right" in str(caught.value)


def test_who_may_read_the_streams_may_read_a_pipeline_by_its_name(tmp_path: Path) -> None:
    """The rights of a table's job are enough: streams are asked for one by one."""
    with server_of_a_pipeline(tmp_path / "server") as (streams, login):
        for number in range(2):
            name = PIPELINE.names.stream(number)
            streams.create(name, subjects=[f"{PIPELINE.names.subject}.p{number}.>"])
        options = parse({"servers": streams.server.url, "pipeline": "logging/prod", **login})
        with Client(options) as client:
            seen = planning.look(client, options)

    assert list(seen) == ["LP_logging_prod_0", "LP_logging_prod_1"]
    assert set(planning.roots(options, seen).values()) == {PIPELINE.names.subject}
