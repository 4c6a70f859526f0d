"""Spark, pyarrow, DuckDB, polars and pandas read the same rows from the files that a table's log
names, and by a glob where nothing was merged yet, on disk and in a bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import duckdb
import pandas as pd  # type: ignore[import-untyped]  # it has no types of its own
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
import pytest
from obstore.fsspec import FsspecStore

from logpipeline_spark.lines.schema import LINES
from logpipeline_spark.table.scan import files, urls
from logpipeline_spark.table.storage import LocalStorage, Storage
from spark_versions import need_jars
from tables.bucket_queries import ask
from tables.local_spark import local_spark
from tables.made import batch, lines, logs, opened
from tables.s3 import ACCESS_KEY, REGION, SECRET_KEY, S3Server

pytest_plugins = ["tables.s3_fixtures"]

LAST = 130
READERS = ("pyarrow", "duckdb", "polars", "pandas", "spark")
# Which of them `make test` asks.
QUICK = ("pyarrow", "duckdb")
PLACES = ("disk", "bucket")
# Of so many, one was seen to hang in three runs of four, where it could.
MANY_FILES = 12
QUERIES = 120
ORDER = ["stream", "incarnation", "seq", "idx"]
Rows = list[tuple[Any, ...]]


class Bucket(FsspecStore):
    """What obstore offers to DuckDB; its own globs find nothing where a scheme is said."""

    def glob(self, path: str, maxdepth: int | None = None, **options: Any) -> list[str]:
        return [f"s3://{found}" for found in super().glob(path.removeprefix("s3://"), maxdepth)]


@pytest.fixture(scope="module")
def tables(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Storage]:
    """The same table in both places."""
    made: dict[str, Storage] = {
        "disk": LocalStorage(tmp_path_factory.mktemp("disk") / "table"),
        "bucket": server.storage("readers/table"),
    }
    for storage in made.values():
        table = opened(storage)
        batch(table, storage, "0", 1, 50)
        batch(table, storage, "1", 51, LAST)
        assert len(files(logs(storage))) == 4
        # What a batch that is under way would leave is not what this is about.
        table.close()
    return made


@pytest.mark.parametrize("how", ["log", "glob"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "reader",
    [pytest.param(name, marks=[pytest.mark.smoke] * (name in QUICK)) for name in READERS],
)
def test_all_readers_read_the_same(
    request: pytest.FixtureRequest, tables: dict[str, Storage], reader: str, place: str, how: str
) -> None:
    """Every column of every row is what was written, with times in UTC."""
    storage = tables[place]
    if how == "log":
        paths = urls(storage, files(logs(storage)))
    else:
        paths = [f"{storage.url}/lines/dt=*/hour=*/*.parquet"]
    read: Callable[..., pa.Table] = globals()[f"by_{reader}"]

    found = read(paths, request, is_in_bucket=place == "bucket")

    assert rows_of(found) == rows_of(lines(1, LAST))


def test_folders_are_columns_to_those_who_ask(tables: dict[str, Storage]) -> None:
    """`dt` and `hour` are known to readers from the folders, and save them the other files."""
    url = f"{tables['disk'].url}/lines/dt=*/hour=*/*.parquet"
    counted = duckdb.sql(
        f"select hour, count(*) from read_parquet('{url}', hive_partitioning = true) "
        "where dt = '2026-11-21' group by hour order by hour"
    )

    assert counted is not None
    assert [(int(hour), count) for hour, count in counted.fetchall()] == [
        (10, 120),
        (11, 120),
        (12, 20),
    ]


def test_each_query_of_a_bucket_ends(server: S3Server) -> None:
    """However many files are opened at once: Arrow's threads ask Python for each of them."""
    storage = server.storage("readers/many-files")
    table = opened(storage)
    for number in range(MANY_FILES):
        batch(table, storage, str(number), number + 1, number + 1)
    table.close()

    assert ask(server, "readers/many-files", QUERIES) == [2 * MANY_FILES] * QUERIES


def by_pyarrow(paths: list[str], request: pytest.FixtureRequest, *, is_in_bucket: bool) -> pa.Table:
    filesystem = _arrow_s3(request) if is_in_bucket else pyarrow.fs.LocalFileSystem()
    plain = [path.removeprefix("s3://") for path in paths]
    if "*" in plain[0]:
        # pyarrow knows no globs: it reads a folder, and passes over hidden names, as Delta's log.
        return ds.dataset(plain[0].partition("/dt=")[0], filesystem=filesystem).to_table()
    return ds.dataset(plain, filesystem=filesystem).to_table()


def by_duckdb(paths: list[str], request: pytest.FixtureRequest, *, is_in_bucket: bool) -> pa.Table:
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    if is_in_bucket:
        server: S3Server = request.getfixturevalue("server")
        # Its own extension for S3 is fetched from the network when first used; this is not.
        connection.register_filesystem(
            Bucket(
                "s3",
                endpoint=server.endpoint,
                access_key_id=ACCESS_KEY,
                secret_access_key=SECRET_KEY,
                region=REGION,
                client_options={"allow_http": True},
            )
        )
    return connection.read_parquet(paths, hive_partitioning=False).to_arrow_table()


def by_polars(paths: list[str], request: pytest.FixtureRequest, *, is_in_bucket: bool) -> pa.Table:
    options = None
    if is_in_bucket:
        server: S3Server = request.getfixturevalue("server")
        options = {
            "aws_endpoint_url": server.endpoint,
            "aws_access_key_id": ACCESS_KEY,
            "aws_secret_access_key": SECRET_KEY,
            "aws_region": REGION,
            "aws_allow_http": "true",
        }
    found = pl.scan_parquet(paths, storage_options=options, hive_partitioning=False)
    return found.collect().to_arrow()


def by_pandas(paths: list[str], request: pytest.FixtureRequest, *, is_in_bucket: bool) -> pa.Table:
    filesystem = _arrow_s3(request) if is_in_bucket else None
    plain = [path.removeprefix("s3://") for path in paths]
    if "*" in plain[0]:
        folder = plain[0].partition("/dt=")[0]
        frame = pd.read_parquet(folder, filesystem=filesystem, dtype_backend="pyarrow")
    else:
        parts = [
            pd.read_parquet(p, filesystem=filesystem, dtype_backend="pyarrow", partitioning=None)
            for p in plain
        ]
        frame = pd.concat(parts)
    return pa.Table.from_pandas(frame[LINES.names], preserve_index=False)


def by_spark(paths: list[str], request: pytest.FixtureRequest, *, is_in_bucket: bool) -> pa.Table:
    reader = local_spark().read
    if is_in_bucket:
        need_jars("s3")
        server: S3Server = request.getfixturevalue("server")
        options = {
            "endpoint": server.endpoint,
            "endpoint.region": REGION,
            "access.key": ACCESS_KEY,
            "secret.key": SECRET_KEY,
            "path.style.access": "true",
        }
        reader = reader.options(**{f"fs.s3a.{name}": value for name, value in options.items()})
    found = reader.parquet(*[path.replace("s3://", "s3a://") for path in paths])
    return found.select(*LINES.names).toArrow()


def rows_of(table: pa.Table) -> Rows:
    """Return rows as plain values, by key."""
    plain = table.select(LINES.names).sort_by([(name, "ascending") for name in ORDER])
    return [tuple(_utc(value) for value in row.values()) for row in plain.to_pylist()]


def _utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _arrow_s3(request: pytest.FixtureRequest) -> pyarrow.fs.S3FileSystem:
    server: S3Server = request.getfixturevalue("server")
    return pyarrow.fs.S3FileSystem(
        access_key=ACCESS_KEY,
        secret_key=SECRET_KEY,
        endpoint_override=server.endpoint,
        region=REGION,
    )
