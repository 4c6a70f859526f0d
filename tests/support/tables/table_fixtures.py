"""The fixtures of tests that keep a table of streams of their own; a module names this one in its
`pytest_plugins`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tables.jobs import Table
from tables.streams import Streams, running_streams


@pytest.fixture
def streams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Streams]:
    """A server of this test alone."""
    with running_streams(tmp_path_factory.mktemp("nats")) as made:
        yield made


@pytest.fixture
def table(streams: Streams, tmp_path: Path) -> Table:
    """A table that nobody kept yet."""
    return Table(streams, tmp_path / "table")
