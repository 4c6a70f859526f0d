"""The choice of a lake format, and what each one needs."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Literal

from logpipeline_spark.errors import Refused
from logpipeline_spark.formats.log import AREAS, Logs
from logpipeline_spark.table.files import LINES, ROLLUP_MINUTE, ROLLUP_SOURCE, TABLE, partitions_of
from logpipeline_spark.table.s3 import S3Options
from logpipeline_spark.table.storage import Storage

Format = Literal["delta", "iceberg"]
# The property of a catalogue that names the table of lines; it is logpipeline's own.
TABLE_PROPERTY = "table"
# The suffixes of the names of Iceberg tables of counts, after the name of the table of lines.
_SUFFIXES = {LINES: "", ROLLUP_MINUTE: "_minutes", ROLLUP_SOURCE: "_sources"}
# The folder of each format's own files.
_PLACES: Mapping[Format, str] = {"delta": f"{LINES}/_delta_log", "iceberg": "_iceberg"}
# Only older versions of logpipeline wrote this.
_FORMER = f"{TABLE}/commits"


def check(name: Format, catalog: Mapping[str, str]) -> None:
    """Check that the format *name* is available here.

    Raises:
        Refused: it is not available; the message names what is missing.
    """
    if name == "iceberg":
        if importlib.util.find_spec("pyiceberg") is None:
            raise Refused("pyiceberg is not installed: pip install 'logpipeline[iceberg]'")
        if not catalog.get(TABLE_PROPERTY):
            raise Refused(
                "spec.table.catalog names no table: add `table: logs.lines`, or another name"
            )


def logs_of(name: Format, storage: Storage, *, catalog: Mapping[str, str], s3: S3Options) -> Logs:
    """Return the logs of the table in *storage*, by area.

    Raises:
        Refused: the format is not available here, or an older version of logpipeline wrote the
            table.
    """
    check(name, catalog)
    for other, place in _PLACES.items():
        if other != name and _has(storage, place):
            raise Refused(
                f"{storage.url} is a table of format {other}: set spec.table.format to that, or "
                f"choose another path for {name}."
            )
    if _has(storage, _FORMER):
        raise Refused(
            f"{storage.url} is a table that a former version of logpipeline wrote, in a form that "
            "no other program can read: choose another path; the job then fills a new table from "
            "the streams."
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
    """Return pyiceberg's options for the bucket of the table."""
    return s3.named("s3.endpoint", "s3.region", "s3.access-key-id", "s3.secret-access-key")
