"""Whatever the server loses, and whenever: what is reported as lost is what is lost, to the byte,
and nothing is lost whose file is still there.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from components import balanced
from components.balanced import STREAM, Node, a_node, make_anew, purge
from components.collecting import log_stream
from components.contents import contents_below
from components.shipping import append, shipping
from faults.settings import is_soak, seeds
from logpipeline.embedded import EmbeddedServer
from waiting import eventually

INJECTIONS = 200 if is_soak() else 8
SOURCES = ("app", "audit", "job")
LINES_MAX = 400
HEADER = b"# every file begins with this line\n"


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait as long as in a cluster."""
    balanced.hurry(monkeypatch)


@dataclass
class World:
    """What was written, where it is, and what the server held at some time."""

    node: Node
    rng: random.Random
    copies: Path
    number: int = 0
    # Lines by the file that they were written to, and the paths of files that are still there.
    written: dict[int, list[bytes]] = field(default_factory=dict)
    there: dict[str, int] = field(default_factory=dict)
    # Generations that the shipper was seen to make of files.
    generations: dict[str, int] = field(default_factory=dict)
    injected: list[str] = field(default_factory=list)

    def path(self, source: str) -> Path:
        return self.node.live.with_name(f"{source}.log")

    def write(self) -> None:
        """Write some lines to some files; a new one begins like all others."""
        for source in self.rng.sample(SOURCES, self.rng.randint(1, len(SOURCES))):
            if source not in self.there:
                self.there[source] = len(self.written)
                self.written[self.there[source]] = []
                append(self.path(source), HEADER)
            lines = [b"%s %d\n" % (source.encode(), self._next()) for _ in range(self._many())]
            append(self.path(source), b"".join(lines))
            self.written[self.there[source]] += lines

    def delete(self) -> None:
        """Delete some of the files."""
        for source in self.rng.sample(sorted(self.there), self.rng.randint(0, len(self.there))):
            self.path(source).unlink()
            del self.there[source]

    def _next(self) -> int:
        self.number += 1
        return self.number

    def _many(self) -> int:
        return self.rng.choice((1, 20, self.rng.randint(1, LINES_MAX)))

    async def until_sent(self) -> None:
        """Return when the shipper has sent all that was written."""

        async def is_it() -> bool:
            told = await self.node.ask("shipper")
            read = {row["source"]: row["position"] or ("", 0) for row in told["sources"]}
            return all(self._is_sent(s, *read.get(str(self.path(s)), ("", 0))) for s in self.there)

        await eventually(is_it, what="everything is sent")

    def _is_sent(self, source: str, generation: str, offset: int) -> bool:
        """Whether that position is at the end of the file of *source*, and not of a former one of
        the same size.
        """
        number = self.there[source]
        if offset != self.path(source).stat().st_size:
            return False
        return self.generations.setdefault(generation, number) == number

    async def lose(self) -> None:
        """Let the server lose something."""
        name = self.rng.choice(sorted(WAYS))
        self.injected.append(name)
        await WAYS[name](self)

    def collected(self) -> list[bytes]:
        """Return the lines that stand in the collectors' files, but for the headers."""
        content = b"".join(data for _, _, data in contents_below(self.node.folder / "c" / "logs"))
        return [line for line in content.splitlines(keepends=True) if line != HEADER]

    async def check(self) -> None:
        """Wait until the books are settled, and compare them with what was written."""
        missing: set[bytes] = set()
        said = 0

        async def balances() -> bool:
            nonlocal missing, said
            rows = await self.node.losses()
            said = sum(row["end"] - row["start"] for row in rows)
            headers = sum(row["start"] == 0 for row in rows)
            missing = {line for lines in self.written.values() for line in lines}
            missing -= set(self.collected())
            expected: int = sum(map(len, missing)) + headers * len(HEADER)
            return said == expected

        await self.until_sent()
        await self.node.until_settled()
        try:
            await eventually(balances, what="what is named is what is missing")
        except AssertionError as error:
            raise AssertionError(
                f"after {self.injected}: {said} bytes are named as lost, and {len(missing)} lines "
                f"of {sum(map(len, missing))} bytes are"
            ) from error
        collected = self.collected()
        there = {line for number in self.there.values() for line in self.written[number]}

        assert len(collected) == len(set(collected)), f"lines are twice after {self.injected}"
        assert not missing & there, f"lines are lost whose file is there, after {self.injected}"


async def remove_some(world: World) -> None:
    """Delete some messages, one by one."""
    info = await world.node.made.js.stream_info(STREAM)
    assert info is not None
    state = info["state"]
    if state["messages"]:
        sequences = range(state["first_seq"], state["last_seq"] + 1)
        for sequence in world.rng.sample(sequences, world.rng.randint(1, len(sequences))):
            if await world.node.made.js.message(STREAM, sequence) is not None:
                await world.node.made.js.call(f"STREAM.MSG.DELETE.{STREAM}", {"seq": sequence})


async def purge_some(world: World) -> None:
    """Purge up to some message."""
    info = await world.node.made.js.stream_info(STREAM)
    assert info is not None
    sequence = world.rng.randint(1, info["state"]["last_seq"] + 1)
    await world.node.made.js.call(f"STREAM.PURGE.{STREAM}", {"seq": sequence})


async def expire(world: World) -> None:
    """Let all messages get too old."""
    js = world.node.made.js
    info = await js.stream_info(STREAM)
    assert info is not None
    config = {key: value for key, value in info["config"].items() if key != "duplicate_window"}
    await js.call(
        f"STREAM.UPDATE.{STREAM}",
        {**config, "max_age": 100_000_000, "duplicate_window": 100_000_000},
    )

    async def is_empty() -> bool:
        found = await js.stream_info(STREAM)
        return found is not None and not found["state"]["messages"]

    await eventually(is_empty, what="all messages have expired")
    await js.call(f"STREAM.UPDATE.{STREAM}", info["config"])


async def roll_back(world: World) -> None:
    """Put the stream back to what it was at some time before."""
    server = world.node.server
    copies = sorted(world.copies.iterdir())
    connection = world.node.made.js.connection
    await server.stop()
    await eventually(lambda: not connection.is_connected)
    [now] = server.store.rglob(f"streams/{STREAM}")
    shutil.rmtree(now)
    shutil.copytree(world.rng.choice(copies), now)
    await server.start()
    await connection.wait_connected()


async def empty_store(world: World) -> None:
    """Lose the stream with all that belongs to it, while the server is down."""
    server, connection = world.node.server, world.node.made.js.connection
    await server.stop()
    await eventually(lambda: not connection.is_connected)
    [store] = server.store.rglob(f"streams/{STREAM}")
    shutil.rmtree(store)
    await server.start()
    await connection.wait_connected()
    await world.node.made.js.call(f"STREAM.CREATE.{STREAM}", log_stream(0))


WAYS: dict[str, Callable[[World], Awaitable[None]]] = {
    "purge": lambda world: purge(world.node.made),
    "purge some": purge_some,
    "remove some": remove_some,
    "expire": expire,
    "make anew": lambda world: make_anew(world.node.made),
    "roll back": roll_back,
    "empty": empty_store,
}


@pytest.fixture
async def node(nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Node]:
    """Return a node whose collector was not started yet."""
    async with a_node(nats_server, tmp_path) as made:
        yield made


@pytest.mark.timeout(3600 if is_soak() else 600)
@pytest.mark.parametrize("seed", seeds())
async def test_what_is_reported_as_lost_is_what_is_lost(node: Node, seed: int) -> None:
    """Quiet and busy, with collectors there and away, and files there and gone."""
    world = World(node, random.Random(seed), node.folder / "copies")
    world.copies.mkdir()
    async with shipping(node.shipper()):
        for number in range(INJECTIONS):
            [store] = node.server.store.rglob(f"streams/{STREAM}")
            shutil.copytree(store, world.copies / f"{number:03d}")
            async with AsyncExitStack() as collector:
                if is_there := world.rng.random() < 0.5:
                    await collector.enter_async_context(node.collector())
                world.write()
                if is_quiet := world.rng.random() < 0.7:
                    await world.until_sent()
                    world.delete()
                await world.lose()
                if not is_quiet:
                    world.write()
                if not is_there:
                    await collector.enter_async_context(node.collector())
                await world.check()
