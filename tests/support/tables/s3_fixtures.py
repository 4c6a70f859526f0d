"""One S3 server for all tests of a run that keep tables in buckets; a module names this one in its
`pytest_plugins`. Each test has a prefix, or a bucket, of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tables.s3 import S3Server, s3_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server that starts with the first test that asks for it."""
    with s3_server(tmp_path_factory.mktemp("s3") / "server") as running:
        yield running
