"""Iceberg, by pyiceberg: files that are there become data files of a snapshot, without being
rewritten and without Java.

`Table.add_files` alone cannot replace files, as compaction must; so both are done in one overwrite,
by what `add_files` itself is made of. The number of our commit is kept as a property of the table,
in the same transaction, and makes a repeated commit do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.table import Table, TableProperties, Transaction

from logpipeline_spark.errors import Refused
from logpipeline_spark.table.commit import FileEntry

COMMIT_PROPERTY = "logpipeline.commit"
# A SQL catalogue keeps tables by its name: who reads must call it the same.
CATALOG_NAME = "logpipeline"
# Iceberg's own files stand beside ours.
METADATA = "_iceberg"
# Each commit is a snapshot, and all that are kept stand in the metadata that each commit writes.
SNAPSHOTS_KEPT = timedelta(hours=1)
EXPIRE_EVERY = 64
# Of what a catalogue says; a sentence must still hold what to do.
SAID_CHARS_MAX = 250
_PROPERTIES = {
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "100",
}


class Iceberg:
    """The table *identifier* of a catalogue that pyiceberg knows; *properties* say which."""

    name = "iceberg"

    def __init__(self, url: str, identifier: str, properties: Mapping[str, str]) -> None:
        self._root = url if "://" in url else f"file://{url}"
        self._identifier = identifier
        self._properties = dict(properties)

    @cached_property
    def _catalog(self) -> Catalog:
        return load_catalog(CATALOG_NAME, **self._properties)

    def paths(self) -> set[str]:
        """Return the files of the current snapshot.

        Raises:
            Refused: the catalogue does not answer.
        """
        with self._said():
            try:
                table = self._catalog.load_table(self._identifier)
            except NoSuchTableError:
                return set()
            return {self._path(task.file.file_path) for task in table.scan().plan_files()}

    def commit(
        self,
        added: Sequence[FileEntry],
        removed: Sequence[str],
        *,
        number: int,
        schema: pa.Schema,
    ) -> None:
        """Register a commit as one snapshot.

        Raises:
            Refused: the catalogue does not take it; the next start registers it.
        """
        with self._said():
            table = self._table(schema)
            if int(table.properties.get(COMMIT_PROPERTY, -1)) >= number:
                return
            with table.transaction() as transaction:
                self._evolve(transaction, schema)
                self._replace(table, transaction, added, set(removed))
                transaction.set_properties({COMMIT_PROPERTY: str(number)})
            if number % EXPIRE_EVERY == 0:
                expired = table.maintenance.expire_snapshots()
                expired.older_than(datetime.now(UTC) - SNAPSHOTS_KEPT).commit()

    def _table(self, schema: pa.Schema) -> Table:
        namespace = self._identifier.rpartition(".")[0]
        if namespace:
            self._catalog.create_namespace_if_not_exists(namespace)
        location = f"{self._root}/{METADATA}"
        return self._catalog.create_table_if_not_exists(
            self._identifier, schema=schema, location=location, properties=_PROPERTIES
        )

    def _evolve(self, transaction: Transaction, schema: pa.Schema) -> None:
        """Add columns that are new, and say by which names files have them: they carry no ids."""
        with transaction.update_schema() as update:
            update.union_by_name(schema)
        mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})

    def _replace(
        self,
        table: Table,
        transaction: Transaction,
        added: Sequence[FileEntry],
        removed: set[str],
    ) -> None:
        urls = [f"{self._root}/{entry.path}" for entry in added]
        files = parquet_files_to_data_files(table.io, transaction.table_metadata, iter(urls))
        update = transaction.update_snapshot()
        if not removed:
            # An overwrite looks into each manifest that there is.
            with update.merge_append() as append:
                for file in files:
                    append.append_data_file(file)
            return
        with update.overwrite() as overwrite:
            for file in files:
                overwrite.append_data_file(file)
            for task in table.scan().plan_files():
                if self._path(task.file.file_path) in removed:
                    overwrite.delete_data_file(task.file)

    def _path(self, url: str) -> str:
        return url.removeprefix(f"{self._root}/")

    @contextmanager
    def _said(self) -> Iterator[None]:
        """Say what a catalogue says, whatever library it is reached by, in a sentence."""
        try:
            yield
        except Refused:
            raise
        except Exception as error:
            lines = str(error).splitlines() or [type(error).__name__]
            raise Refused(
                f"The Iceberg catalogue of {self._identifier} does not do what it is asked for: "
                f"see spec.archive.catalog, and whether it is well ({lines[0]:.{SAID_CHARS_MAX}})."
            ) from error
