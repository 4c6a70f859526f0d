"""Fixtures of tests of readers. The tests that need a Loki run in a soak only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from components.consuming import Streams, streams_on
from faults.settings import is_soak
from logpipeline.embedded import EmbeddedServer

# It needs a Loki, which takes ten minutes of two processors to build.
collect_ignore = [] if is_soak() else ["test_sinks_loki.py"]


@pytest.fixture
async def streams(nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Streams]:
    """Three empty streams of a pipeline."""
    async with streams_on(nats_server, tmp_path / "pipeline") as made:
        yield made


@pytest.fixture
def where(streams: Streams) -> dict[str, Any]:
    """The arguments that name the pipeline of *streams*, and its server."""
    return {"pipeline": streams.file, "nats": streams.server.url}
