"""Which registration a table has beside its manifest. What keeps it from that is found out before
the first batch, and as far as possible before a JVM is started.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING

from logpipeline_spark.errors import Refused
from logpipeline_spark.formats.format import Format, Parquet
from logpipeline_spark.table.s3 import S3Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Which Spark Delta's library is made for.
DELTA_SPARK = "4.2"
# The property of a catalogue that is ours: how it calls the table.
TABLE_PROPERTY = "table"


def check(name: str, catalog: Mapping[str, str]) -> None:
    """See that the format *name* can be had here.

    Raises:
        Refused: it cannot; the sentence says what is missing.
    """
    if name == "iceberg":
        if importlib.util.find_spec("pyiceberg") is None:
            raise Refused("pyiceberg is not installed: pip install 'logpipeline[iceberg]'")
        if not catalog.get(TABLE_PROPERTY):
            raise Refused(
                "spec.archive.catalog names no table: add `table: logs.lines`, or what yours is"
            )
    if name == "delta" and not version("pyspark").startswith(f"{DELTA_SPARK}."):
        raise Refused(
            f"Delta's library works with Spark {DELTA_SPARK}, and this is {version('pyspark')}: "
            f"pip install 'pyspark=={DELTA_SPARK}.*', or ask for the format parquet or iceberg"
        )


def format_of(
    name: str,
    url: str,
    *,
    catalog: Mapping[str, str],
    s3: S3Options,
    spark: SparkSession | None = None,
) -> Format:
    """Return the format *name* of the table at *url*; Delta needs a *spark*.

    Raises:
        Refused: it cannot be had here.
    """
    check(name, catalog)
    if name == "iceberg":
        from logpipeline_spark.formats.iceberg import Iceberg

        properties = {**_reaching(s3), **catalog}
        return Iceberg(url, properties.pop(TABLE_PROPERTY), properties)
    if name == "delta":
        from logpipeline_spark.formats.delta import Delta

        if spark is None:
            raise Refused(
                "Delta's log is written by Spark alone: let `logpipeline archive run` do this"
            )
        return Delta(spark, url)
    return Parquet()


def _reaching(s3: S3Options) -> dict[str, str]:
    """Return how pyiceberg reaches the bucket that the table is in, by its own names."""
    return s3.named("s3.endpoint", "s3.region", "s3.access-key-id", "s3.secret-access-key")
