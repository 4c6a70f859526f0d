"""The fixture of tests that disturb an operator on this machine; a module names this one in its
`pytest_plugins`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api_server.world import World, world
from cluster.handle import Cluster
from logpipeline.embedded import EmbeddedServer


@pytest.fixture
async def here(
    cluster: Cluster, nats_server: EmbeddedServer, tmp_path: Path, namespace: str
) -> AsyncIterator[World]:
    """Everything for a pipeline in a namespace of this test, and no operator yet."""
    async with world(cluster, nats_server, tmp_path, namespace) as made:
        yield made
