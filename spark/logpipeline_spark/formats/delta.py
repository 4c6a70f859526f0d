"""Delta, by its own library in Spark: files that are there become actions of its log.

Delta has no public call that registers files one batch at a time (`CONVERT TO DELTA` takes a whole
folder, and writing appends what Spark writes itself). Its transaction takes actions, and these are
the published protocol: they are given as JSON, through the session's gateway. The number of our
commit is an application transaction (`txn`) of Delta's, which makes a repeated commit do nothing.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from logpipeline_spark.errors import Refused, sentence_of
from logpipeline_spark.table.commit import FileEntry
from logpipeline_spark.table.names import LINES, folder_of, hour_of, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APPLICATION = "logpipeline"
PARTITIONS = ("dt", "hour")
PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
# What a session needs to be told when it begins.
SESSION = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
}
# Of what Java says; a sentence must still hold what to do.
SAID_CHARS_MAX = 250
_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES = {
    "string": "string",
    "int32": "integer",
    "int64": "long",
    "binary": "binary",
    "bool": "boolean",
    "timestamp[us, tz=UTC]": "timestamp",
}
# The oldest protocol that has all we use, so that the most readers can read.
_PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


class Delta:
    """The Delta table whose log stands beneath `lines`."""

    name = "delta"

    def __init__(self, spark: SparkSession, url: str) -> None:
        # Hadoop, by which Delta reads, calls S3 so.
        root = url.replace("s3://", "s3a://", 1) if "://" in url else f"file:{url}"
        self._root = root
        self._lines = f"{root}/{LINES}"
        self._spark = spark

    def paths(self) -> set[str]:
        """Return the files of the log's last version.

        Raises:
            Refused: there is no Delta here, or it cannot read its log.
        """
        java = self._library()
        with self._said():
            if not java.io.delta.tables.DeltaTable.isDeltaTable(self._session, self._lines):
                return set()
            files = self._spark.read.format("delta").load(self._lines).inputFiles()
        return {unquote(url).removeprefix(f"{self._root}/") for url in files}

    def commit(
        self,
        added: Sequence[FileEntry],
        removed: Sequence[str],
        *,
        number: int,
        schema: pa.Schema,
    ) -> None:
        """Register a commit as one version of the log.

        Raises:
            Refused: Delta does not take it; the next start registers it.
        """
        delta = self._library().org.apache.spark.sql.delta
        with self._said():
            transaction = delta.DeltaLog.forTable(self._session, self._lines).startTransaction()
            if transaction.txnVersion(APPLICATION) >= number:
                return
            now_ms = time.time_ns() // 1_000_000
            said = {"appId": APPLICATION, "version": number, "lastUpdated": now_ms}
            actions: list[Any] = [{"txn": said}]
            actions += self._head(transaction, schema, now_ms)
            actions += (self._added(entry, now_ms) for entry in added)
            actions += (self._removed(path, now_ms) for path in removed)
            operation = getattr(getattr(delta, "DeltaOperations$ManualUpdate$"), "MODULE$")
            transaction.commit(self._sequence(actions), operation)

    @contextmanager
    def _said(self) -> Iterator[None]:
        """Say in a sentence what Java says in hundreds of lines."""
        try:
            yield
        except (Py4JError, PySparkException) as error:
            raise Refused(
                f"Delta's log at {self._lines} cannot be kept: see whether something else writes "
                f"there ({sentence_of(error):.{SAID_CHARS_MAX}})."
            ) from error

    @property
    def _session(self) -> Any:
        return self._spark._jsparkSession

    def _library(self) -> Any:
        """Return the gateway to Java.

        Raises:
            Refused: the session has no Delta.
        """
        java: Any = self._spark._jvm
        if not hasattr(java.org.apache.spark.sql.delta, "DeltaLog") or not callable(
            java.org.apache.spark.sql.delta.DeltaLog
        ):
            raise Refused(
                "Spark has no Delta library: add io.delta:delta-spark_4.2_2.13 to its packages "
                "(Spark 4.2), or ask for the format parquet."
            )
        return java

    def _head(self, transaction: Any, schema: pa.Schema, now_ms: int) -> list[Any]:
        """Return what a new log begins with, or what says that there are new columns."""
        text = json.dumps(_struct(schema))
        if transaction.readVersion() < 0:
            data = {
                "id": str(uuid.uuid4()),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": text,
                "partitionColumns": list(PARTITIONS),
                "configuration": {},
                "createdTime": now_ms,
            }
            return [_PROTOCOL, {"metaData": data}]
        known = json.loads(transaction.metadata().json())
        if json.loads(known["metaData"]["schemaString"]) == json.loads(text):
            return []
        known["metaData"]["schemaString"] = text
        return [known]

    def _added(self, entry: FileEntry, now_ms: int) -> Any:
        return {
            "add": {
                "path": self._place(entry.path),
                "partitionValues": _partition(entry.path),
                "size": entry.bytes,
                "modificationTime": now_ms,
                "dataChange": True,
                "stats": json.dumps(_statistics(entry)),
            }
        }

    def _removed(self, path: str, now_ms: int) -> Any:
        said = {"path": self._place(path), "deletionTimestamp": now_ms, "dataChange": True}
        return {"remove": said}

    def _place(self, path: str) -> str:
        """Return a file's place relative to the log's, or all of it where it is elsewhere."""
        is_beneath = path.startswith(f"{LINES}/")
        place = path.removeprefix(f"{LINES}/") if is_beneath else f"{self._root}/{path}"
        return quote(place, safe="/:=~")

    def _sequence(self, actions: Iterable[Any]) -> Any:
        java: Any = self._spark._jvm
        found = java.java.util.ArrayList()
        for action in actions:
            text = json.dumps(action)
            found.add(java.org.apache.spark.sql.delta.actions.Action.fromJson(text))
        return java.scala.jdk.javaapi.CollectionConverters.asScala(found).toSeq()


def _struct(schema: pa.Schema) -> Any:
    columns = [(field.name, _TYPES[str(field.type)]) for field in schema]
    columns += [(name, "string") for name in PARTITIONS]
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns
    ]
    return {"type": "struct", "fields": fields}


def _partition(path: str) -> dict[str, str]:
    hour = hour_of(folder_of(shown(path)))
    return {"dt": f"{hour:%Y-%m-%d}", "hour": f"{hour:%H}"}


def _statistics(entry: FileEntry) -> Any:
    """Delta has milliseconds here: the end is rounded up, so that no line is skipped."""
    return {
        "numRecords": entry.rows,
        "minValues": {"ts": _instant(entry.first_us // 1000)},
        "maxValues": {"ts": _instant(entry.last_us // 1000 + 1)},
        "nullCount": {"ts": 0},
    }


def _instant(milliseconds: int) -> str:
    time_utc = _BEGIN + timedelta(milliseconds=milliseconds)
    return time_utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")
