"""A server whose files are removed while it runs is ended, and no other one is."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from components.managed_server import USERS, Managed, connected, managed, resource
from logpipeline.nats.jetstream import JetStream
from logpipeline_operator.callout.store import SERVER, StoreWatch, end_servers
from logpipeline_operator.children import nats_conf
from waiting import eventually


class Watching:
    """A running server, and who looks at its files."""

    def __init__(self, at: Managed) -> None:
        self.at = at
        self.ended = 0
        pages = f"http://127.0.0.1:{at.monitor}{nats_conf.pages(USERS)}"
        self.watch = StoreWatch(self.store, pages, self._end)

    @property
    def store(self) -> Path:
        """Where the server keeps its files."""
        return self.at.folder / "store"

    def look(self, times: int = 4) -> int:
        """Look so often; return how often the server was ended."""
        for _ in range(times):
            self.watch.look()
        return self.ended

    def _end(self) -> int:
        self.ended += 1
        os.kill(self.at.pid, signal.SIGKILL)
        return 1


@pytest.fixture
async def watching(tmp_path: Path) -> AsyncIterator[Watching]:
    """A server with accounts and three streams, one of them in memory."""
    async with managed(resource(), tmp_path / "nats", has_accounts=True) as at:
        async with connected(at.operator()) as js:
            for name, storage in (("LOGS_0", "file"), ("LOGS_1", "file"), ("QUICK", "memory")):
                await make(js, name, storage)
        yield Watching(at)


async def make(js: JetStream, name: str, storage: str) -> None:
    """Make a stream."""
    body = {"name": name, "subjects": [f"{name}.>"], "storage": storage}
    await js.call(f"STREAM.CREATE.{name}", body)


async def test_a_server_goes_on_while_its_files_are_there(watching: Watching) -> None:
    """Also when streams come and go, and while nobody answers."""
    assert watching.look() == 0
    async with connected(watching.at.operator()) as js:
        await js.call("STREAM.DELETE.LOGS_1")
        assert watching.look() == 0
        await make(js, "LOGS_2", "file")
        assert watching.look() == 0
    watching.at.process.close()
    shutil.rmtree(watching.store)

    assert watching.look() == 0


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_server_is_ended_when_files_of_it_are_gone(
    watching: Watching, is_known: bool
) -> None:
    """All of them, or one stream's; also of files that were gone before anybody looked. It begins
    anew with what there is, and is left alone then.
    """
    if is_known:
        watching.look()
        shutil.rmtree(next(watching.store.rglob("streams/LOGS_1")))
    else:
        shutil.rmtree(watching.store)
        watching.store.mkdir()

    assert watching.look() == 1
    await watching.at.restart()
    assert watching.look() == 1
    async with connected(watching.at.operator()) as js:
        found = (await js.call("STREAM.NAMES"))["streams"]
    assert found == (["LOGS_0"] if is_known else None)


async def test_every_server_that_is_to_be_seen_is_ended(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pod that is its own alone; here the others are kept out of sight."""
    seen: list[int] = []
    own, kill = watching.at.pid, os.kill

    def kill_own(process: int, number: int) -> None:
        seen.append(process)
        if process == own:
            kill(process, number)

    monkeypatch.setattr(os, "kill", kill_own)
    count = end_servers()

    assert own in seen
    assert count == len(seen)
    assert Path(f"/proc/{own}/comm").read_text().strip() == SERVER
    await eventually(lambda: "Z" in Path(f"/proc/{own}/stat").read_text().split()[2])
