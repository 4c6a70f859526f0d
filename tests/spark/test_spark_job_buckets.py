"""A job whose table is in a bucket: keys come from the environment, and what the bucket refuses is
one sentence after which nothing is lost.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from logpipeline_spark.errors import Refused
from logpipeline_spark.job.service import logs_for
from logpipeline_spark.lines.schema import LINES
from logpipeline_spark.table import s3
from logpipeline_spark.table.scan import files, tables
from logpipeline_spark.table.verify import verify
from tables.jobs import Table
from tables.s3 import BUCKET, REGION, S3Server
from tables.streams import Streams

pytest_plugins = ["tables.table_fixtures", "tables.s3_fixtures"]

SMALL = "small"


@pytest.fixture
def table(streams: Streams, server: S3Server, tmp_path: Path) -> Table:
    """A table of this test's own in the bucket."""
    url = f"s3://{BUCKET}/{tmp_path.name}"
    return Table(streams, tmp_path, path=url, endpoint=server.endpoint, region=REGION)


def test_a_full_bucket_is_said_and_costs_nothing(
    server: S3Server, streams: Streams, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one sentence; with room again the command, which has the keys from its environment, brings
    all lines.
    """
    where = {"endpoint": server.endpoint, "region": REGION}
    environment = server.environment()
    # Others go on writing to theirs.
    table.change(path=f"s3://{SMALL}/t")
    storage = server.storage("t", SMALL)
    server.storage("others", SMALL).write("large", bytes(3_000_000))
    streams.send("node-a", "one", "two")
    server.enforce_quota(SMALL, 1)
    with monkeypatch.context() as patched:
        for name, value in environment.items():
            patched.setenv(name, value)
        with pytest.raises(Refused, match="works and has room") as full:
            table.keep()
    server.enforce_quota(SMALL, None)
    well = table.command("run", "--once", environment=environment, s3=where)

    assert "\n" not in str(full.value)
    assert "Traceback" not in str(full.value)
    assert well.returncode == 0, well.stderr
    found = tables(storage, files(logs_for(table.settings, storage)), LINES)
    assert [row["line"] for table in found for row in table.to_pylist()] == ["one", "two"]
    assert verify(storage, logs_for(table.settings, storage)).is_well


@pytest.mark.parametrize(
    ("variables", "path", "said"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, None, "refuses access: check the access key"),
        ({"AWS_ACCESS_KEY_ID": "wrong"}, None, "refuses access: check the access key"),
        ({}, "s3://nowhere/t", "There is no bucket nowhere: create it, or name another one"),
    ],
)
def test_what_a_bucket_refuses_is_said(
    server: S3Server,
    table: Table,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    path: str | None,
    said: str,
) -> None:
    """Before the first batch, and where others read why the table does not go on."""
    for name, value in {**server.environment(), **variables}.items():
        monkeypatch.setenv(name, value)
    table.change(path=path or table.settings.path)
    with pytest.raises(Refused, match=said):
        table.keep()

    assert said in table.told().problem
    assert "only-for-tests" not in table.told().problem


def test_without_any_key_somebody_is_told_where_they_come_from(
    server: S3Server, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no environment and no machine gives one."""
    for name in server.environment():
        monkeypatch.delenv(name, raising=False)
    # What a cloud's machine would answer; here nobody does.
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr(s3, "RETRY_TIMEOUT_S", 1)

    with pytest.raises(Refused, match=r"needs keys, and there are none: set AWS_ACC"):
        table.keep()
