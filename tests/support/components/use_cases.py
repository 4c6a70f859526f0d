"""The samples of deploy/samples/use-cases, run as users run them, and with an option taken away to
see that it matters.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from components.consuming import TAKEOVER_S, Reading, Streams, streams_of
from logpipeline.embedded import EmbeddedServer

FOLDER = Path(__file__).parents[3] / "deploy" / "samples" / "use-cases"


@dataclass(frozen=True)
class Without:
    """What is taken out of a sample's *file*, or stands there *instead*."""

    option: str
    instead: str = ""
    file: str = "run.sh"


@dataclass
class Sample:
    """A sample in a folder of its own, on a server of its own."""

    streams: Streams

    def start(self, *words: str, **environment: str) -> Reading:
        """Run its script with *words*."""
        return self.streams.start(["sh", "run.sh", *words], **environment)


# A reader that is killed may have had batches that are the same when they are read again.
ATTEMPTS = 3
Scenario = Callable[[Sample], Awaitable[None]]


@asynccontextmanager
async def sample(
    server: EmbeddedServer, folder: Path, name: str, without: Without | None = None
) -> AsyncIterator[Sample]:
    """Put the sample *name* into *folder*, without an option, and make its streams."""
    shutil.copytree(FOLDER / name, folder)
    if without is not None:
        path = folder / without.file
        assert without.option in path.read_text(), f"{path.name} has no {without.option}"
        path.write_text(path.read_text().replace(without.option, without.instead))
    for resource in folder.glob("*.yaml"):
        resource.write_text(_for_a_test(resource.read_text(), folder))
    async with streams_of(server, folder) as streams:
        yield Sample(streams)


def _for_a_test(resource: str, folder: Path) -> str:
    """Let it take over soon, and find the machine's files in *folder*."""
    if "  collectors:\n" not in resource:
        resource = resource.replace("  partitions: 3\n", "  partitions: 3\n  collectors:\n")
    quick = f"  collectors:\n    takeoverAfter: {TAKEOVER_S}s\n"
    resource = resource.replace("  collectors:\n", quick)
    return resource.replace(" /var/log/", f" {folder}/var/log/")


async def holds(server: EmbeddedServer, folder: Path, name: str, scenario: Scenario) -> None:
    """Play *scenario* with the sample as it is."""
    async with sample(server, folder, name) as made:
        await scenario(made)


async def fails(
    server: EmbeddedServer, folder: Path, name: str, scenario: Scenario, without: Without
) -> None:
    """Play it without the option that it shows: then it does not go well; once or twice it may, by
    chance.
    """
    for attempt in range(ATTEMPTS):
        async with sample(server, folder / str(attempt), name, without) as made:
            try:
                await scenario(made)
            except AssertionError:
                return
            js = made.streams.js
            for stream in (await js.call("STREAM.NAMES"))["streams"]:
                await js.call(f"STREAM.DELETE.{stream}")
    pytest.fail(f"it goes well without {without.option}")
