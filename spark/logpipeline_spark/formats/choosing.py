"""Which lake format a table has. What keeps it from that is found out before the first batch."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Literal

from logpipeline_spark.errors import Refused
from logpipeline_spark.formats.log import Log
from logpipeline_spark.table.names import LINES, ROLLUP_MINUTE, ROLLUP_SOURCE, TABLE, partitions_of
from logpipeline_spark.table.s3 import S3Options
from logpipeline_spark.table.storage import Storage

Format = Literal["delta", "iceberg"]
Logs = Mapping[str, Log]

AREAS = (LINES, ROLLUP_MINUTE, ROLLUP_SOURCE)
# The property of a catalogue that is ours: how it calls the table of lines.
TABLE_PROPERTY = "table"
# What an Iceberg table of counts is called, behind the name of that of lines.
_SUFFIXES = {LINES: "", ROLLUP_MINUTE: "_minutes", ROLLUP_SOURCE: "_sources"}
# Where each format has its own files.
_PLACES: Mapping[Format, str] = {"delta": f"{LINES}/_delta_log", "iceberg": "_iceberg"}
# What only former versions wrote.
_FORMER = f"{TABLE}/commits"


def check(name: Format, catalog: Mapping[str, str]) -> None:
    """See that the format *name* can be had here.

    Raises:
        Refused: it cannot; the sentence says what is missing.
    """
    if name == "iceberg":
        if importlib.util.find_spec("pyiceberg") is None:
            raise Refused("pyiceberg is not installed: pip install 'logpipeline[iceberg]'")
        if not catalog.get(TABLE_PROPERTY):
            raise Refused(
                "spec.table.catalog names no table: add `table: logs.lines`, or what yours is"
            )


def logs_of(name: Format, storage: Storage, *, catalog: Mapping[str, str], s3: S3Options) -> Logs:
    """Return the logs of the table in *storage*, by area.

    Raises:
        Refused: the format cannot be had here, or a former version wrote the table.
    """
    check(name, catalog)
    for other, place in _PLACES.items():
        if other != name and _has(storage, place):
            raise Refused(
                f"{storage.url} is a table of format {other}: ask for that, or choose another path "
                f"for {name}."
            )
    if _has(storage, _FORMER):
        raise Refused(
            f"{storage.url} is a table that a former version of logpipeline wrote, whose list of "
            "files no other program can read: choose another path, and let the table be filled "
            "anew from the streams."
        )
    if name == "iceberg":
        from logpipeline_spark.formats.iceberg import IcebergLog

        properties = {**_reaching(s3), **catalog}
        table = properties.pop(TABLE_PROPERTY)
        return {
            area: IcebergLog(storage, area, f"{table}{_SUFFIXES[area]}", properties)
            for area in AREAS
        }
    from logpipeline_spark.formats.delta import DeltaLog

    return {area: DeltaLog(storage, area, partitions_of(area)) for area in AREAS}


def _has(storage: Storage, folder: str) -> bool:
    return any(True for _ in storage.list(folder))


def _reaching(s3: S3Options) -> dict[str, str]:
    """Return how pyiceberg reaches the bucket that the table is in, by its own names."""
    return s3.named("s3.endpoint", "s3.region", "s3.access-key-id", "s3.secret-access-key")
