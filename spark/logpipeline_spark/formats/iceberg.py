"""Iceberg's log, through pyiceberg: existing files become data files of a snapshot, without being
rewritten and without Java.

`Table.add_files` alone cannot replace files, as compaction must. So both are done in one overwrite,
with the parts of `add_files` itself. The number of the last batch is a property of the table, set
in the same transaction as the snapshot. The catalogue accepts a transaction only if there is no
other snapshot since: so each change makes a snapshot, also one without files.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, TypeVar, cast

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile
from pyiceberg.table import CommitTableResponse, FileScanTask, Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from pyiceberg.types import StringType

from logpipeline import json_text
from logpipeline.failpoints import reach
from logpipeline_spark.errors import Refused
from logpipeline_spark.formats.log import (
    GRACE_HOURS,
    Change,
    Conflict,
    Former,
    Overtaken,
    Version,
    is_late,
)
from logpipeline_spark.table.files import SUFFIX, FileEntry, is_ours, name_of
from logpipeline_spark.table.storage import Storage, Stored

T = TypeVar("T")

TRANSACTION = "logpipeline.transaction"
SAID = "logpipeline.said"
STATE = "logpipeline.state"
# A SQL catalogue keeps tables under its own name: readers must use the same one.
CATALOG_NAME = "logpipeline"
# The folder of Iceberg's own files, beside the data files.
METADATA = "_iceberg"
GRACE = timedelta(hours=GRACE_HOURS)
# Other processes commit rarely: after so many attempts something else is wrong.
ATTEMPTS_MAX = 100
# The suffixes of Iceberg's manifests, and of its table metadata.
ICEBERG_SUFFIXES = (".avro", ".metadata.json")
# Other programs give data files names of their own, and may need long from writing one to the
# snapshot that names it. Iceberg's remove_orphan_files waits as long.
ORPHANED_AFTER = timedelta(days=3)
# So much of a catalogue's message is shown; the sentence must still hold what to do.
SAID_CHARS_MAX = 250
_PROPERTIES = {
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "100",
    # This module decides whether a batch may follow another process's snapshot.
    "commit.retry.num-retries": "0",
}


# Arrow has two types of each; the table uses these.
_PLAIN = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


class IcebergLog:
    """The table *identifier* of a catalogue, for the files below *area* of *storage*; *properties*
    are pyiceberg's properties of the catalogue.
    """

    def __init__(
        self, storage: Storage, area: str, identifier: str, properties: Mapping[str, str]
    ) -> None:
        self._storage = storage
        self._area = area
        self._root = storage.url if "://" in storage.url else f"file://{storage.url}"
        self._location = f"{self._root}/{METADATA}/{area}"
        self._identifier = identifier
        self._properties = dict(properties)
        self._seen = 0
        self._version = -1

    @cached_property
    def _catalog(self) -> Catalog:
        return load_catalog(CATALOG_NAME, **self._properties)

    def transaction(self) -> int | None:
        """Read the table and return the number of its last batch.

        Raises:
            Refused: the catalogue does not answer.
        """
        with self._reporting():
            table = self._loaded()
            if table is None:
                return None
            self._seen = int(table.properties.get(TRANSACTION, 0))
            self._version = _version_of(table)
            return self._seen

    def version(self) -> int:
        """Return the snapshot that was read, or committed, last; -1 if there is none."""
        return self._version

    def begin(self, schema: pa.Schema, properties: Mapping[str, str]) -> None:
        """Create the table if there is none, and add the columns of *schema* that it lacks.

        Raises:
            Refused: its properties differ, or a column would change its type.
        """
        with self._reporting():
            namespace = self._identifier.rpartition(".")[0]
            if namespace:
                self._catalog.create_namespace_if_not_exists(namespace)
            table = self._catalog.create_table_if_not_exists(
                self._identifier,
                schema=schema,
                location=self._location,
                properties={**_PROPERTIES, **properties},
            )
            self._refuse_elsewhere(table)
            for name, value in properties.items():
                if (found := table.properties.get(name)) != value:
                    raise Refused(
                        f"{self._identifier} is a table of {name.rpartition('.')[2]} "
                        f"{found or '(none)'}, and this is {value}: give it a table of its own."
                    )
            self._add_columns(table, schema)
        self.transaction()

    def _add_columns(self, table: Table, schema: pa.Schema) -> None:
        for _ in range(ATTEMPTS_MAX):
            # Upkeep may commit at the same time: then the columns are added to its version.
            with suppress(CommitFailedException):
                with table.transaction() as transaction:
                    _evolve(transaction, schema)
                return
            table.refresh()
        raise self._too_busy()

    def schema(self) -> pa.Schema | None:
        """Return the columns of all files."""
        with self._reporting():
            table = self._loaded()
            if table is None:
                return None
            found = table.schema().as_arrow()
        return pa.schema([(field.name, _PLAIN.get(field.type, field.type)) for field in found])

    def commit(self, change: Change) -> None:
        """Commit *change*; see `Log`."""
        was_gone = False
        for _ in range(ATTEMPTS_MAX):
            with self._reporting():
                looked = datetime.now(UTC)
                table = self._catalog.load_table(self._identifier)
                self._refuse_elsewhere(table)
                table.catalog = _landed_catalog(self._catalog)
                self._refuse_overtaking(table, change)
                change.refuse_late()
                try:
                    with table.transaction() as transaction:
                        self._replace(table, transaction, change)
                        if change.transaction is not None:
                            # Not in the snapshot's summary: all summaries are written with each
                            # commit.
                            state = json.dumps([change.transaction, dict(change.state)])
                            number = str(change.transaction)
                            transaction.set_properties({TRANSACTION: number, STATE: state})
                        if is_late(looked):
                            # This process was suspended: a clean-up may have removed the lists of
                            # files that were just written. They are written again.
                            raise CommitFailedException("the process was suspended")
                except CommitFailedException:
                    # Another change came first: read it and try again.
                    continue
                except FileNotFoundError as error:
                    if was_gone:
                        raise self._gone(error) from error
                    # While this process was suspended a clean-up took its files. The next look
                    # finds the writer that came first.
                    was_gone = True
                    continue
            self._seen = change.transaction or self._seen
            self._version = _version_of(table)
            reach("table.committed")
            return
        raise self._too_busy()

    def files(self) -> list[FileEntry]:
        """Return the files of the current snapshot.

        Raises:
            Refused: the catalogue does not answer.
        """
        with self._reporting():
            table = self._loaded()
            if table is None:
                return []
            ts = table.schema().find_field("ts").field_id
            return [
                FileEntry(
                    self._path(task.file.file_path),
                    task.file.record_count,
                    task.file.file_size_in_bytes,
                    int.from_bytes(task.file.lower_bounds[ts], "little", signed=True),
                    int.from_bytes(task.file.upper_bounds[ts], "little", signed=True),
                )
                for task in self._planned(table)
            ]

    def history(self) -> Iterator[Version]:
        """Give the snapshots that the table keeps, the oldest first."""
        with self._reporting():
            table = self._loaded()
            kept = [] if table is None else sorted(table.snapshots(), key=lambda s: s.timestamp_ms)
        for snapshot in kept:
            said = snapshot.summary.get(SAID) if snapshot.summary is not None else None
            yield Version(snapshot.timestamp_ms * 1000, json_text.parse(said) if said else {})

    def state(self) -> Mapping[str, Any]:
        """Return the state that came with the last transaction."""
        with self._reporting():
            table = self._loaded()
            if table is None or STATE not in table.properties:
                return {}
            number, state = json_text.parse(table.properties[STATE])
            # Older versions of logpipeline do not update this property.
            is_last = number == int(table.properties[TRANSACTION])
            return dict(state) if is_last else {}

    def former(self) -> list[Former]:
        """Return files that former snapshots name."""

        def look(table: Table) -> list[Former]:
            goes_at: dict[str, datetime] = {}
            for snapshot, end in _ended(table):
                for path in self._named(table, [snapshot]):
                    goes_at[path] = end + GRACE
            there = self._named(table, [table.current_snapshot()])
            return [Former(path, at) for path, at in goes_at.items() if path not in there]

        with self._reporting():
            return self._looked(look) or []

    def drop(self, paths: Sequence[str]) -> None:
        """Remove files that only former snapshots name, and these snapshots with them."""
        dropped = set(paths)

        def look(table: Table) -> tuple[Table, list[Snapshot], set[str]]:
            assert not dropped & self._named(table, [table.current_snapshot()])
            former = [snapshot for snapshot, _ in _ended(table)]
            gone = [each for each in former if dropped & self._named(table, [each])]
            return table, gone, _manifests(table, gone)

        with self._reporting():
            if (seen := self._looked(look)) is None:
                return
            table, gone, lists = seen
            # Lines first: after a crash in between, the snapshots expire like others.
            self._storage.delete(paths)
            self._expire(table, gone)
            lists -= self._looked(lambda table: _manifests(table, table.snapshots())) or set()
            self._storage.delete(self._path(url) for url in lists)

    def keep_up(self, now: datetime) -> None:
        """Expire old snapshots, and remove files that none needs any more."""

        def look(table: Table) -> set[str]:
            files = {self._path(each.metadata_file) for each in table.metadata.metadata_log}
            files.add(self._path(table.metadata_location))
            return set(old) - files - self._needed(table, table.snapshots())

        def ended(table: Table) -> tuple[Table, list[Snapshot], set[str]]:
            # By the time of the next snapshot, not by its own: the last snapshot of a quiet night
            # has readers until then.
            gone = [each for each, end in _ended(table) if end <= now - GRACE]
            return table, gone, self._needed(table, gone)

        with self._reporting():
            if (seen := self._looked(ended)) is None:
                return
            table, gone, spent = seen
            self._expire(table, gone)
            old = [
                stored.path
                for folder in (self._area, f"{METADATA}/{self._area}")
                for stored in self._storage.list(folder)
                if stored.modified <= now - GRACE and (stored.path in spent or _may_go(stored, now))
            ]
            unneeded = self._looked(look) or set()
            if unneeded - spent:
                # Some belong to no snapshot: maybe to one that a process is about to commit, which
                # was suspended for hours. After another snapshot the catalogue refuses it.
                self.commit(Change(operation="VACUUM START"))
                unneeded = self._looked(look) or set()
        self._storage.delete(path for path in old if path in unneeded)

    def _looked(self, look: Callable[[Table], T]) -> T | None:
        """Return what *look* finds in the table; None if there is none.

        Another clean-up may expire a snapshot whose lists of files are being read: it is no longer
        in the table that is looked at then.
        """
        for _ in range(ATTEMPTS_MAX):
            table = self._loaded()
            if table is None:
                return None
            before = {each.snapshot_id for each in table.snapshots()}
            try:
                return look(table)
            except FileNotFoundError:
                table.refresh()
                if before <= {each.snapshot_id for each in table.snapshots()}:
                    raise  # nothing was expired: the table is damaged
        raise self._too_busy()

    def _expire(self, table: Table, snapshots: Collection[Snapshot]) -> None:
        gone = {each.snapshot_id for each in snapshots}
        for _ in range(ATTEMPTS_MAX):
            held = {ref.snapshot_id for ref in table.metadata.refs.values()}
            numbers = [
                each.snapshot_id
                for each in table.snapshots()
                if each.snapshot_id in gone and each.snapshot_id not in held
            ]
            if not numbers:
                return
            # A batch that came first does not matter, nor does another clean-up. If that one has
            # expired a snapshot, the library raises a ValueError for it.
            with suppress(CommitFailedException, ValueError):
                table.maintenance.expire_snapshots().by_ids(numbers).commit()
            table.refresh()
        raise self._too_busy()

    def _too_busy(self) -> Refused:
        return Refused(f"Other programs commit to {self._identifier} all the time: find out which.")

    def _named(self, table: Table, snapshots: Sequence[Snapshot | None]) -> set[str]:
        """Return the paths of all data files that *snapshots* name."""
        manifests = {
            manifest.manifest_path: manifest
            for snapshot in snapshots
            if snapshot is not None
            for manifest in snapshot.manifests(table.io)
        }
        return {
            self._path(entry.data_file.file_path)
            for manifest in manifests.values()
            for entry in manifest.fetch_manifest_entry(table.io)
        }

    def _needed(self, table: Table, snapshots: Collection[Snapshot]) -> set[str]:
        """Return the paths of all files that *snapshots* name, lists of files among them."""
        lists = {self._path(url) for url in _manifests(table, snapshots)}
        return self._named(table, list(snapshots)) | lists

    def _loaded(self) -> Table | None:
        try:
            table = self._catalog.load_table(self._identifier)
        except NoSuchTableError:
            return None
        self._refuse_elsewhere(table)
        return table

    def _refuse_elsewhere(self, table: Table) -> None:
        """Refuse a table whose files have other URLs than those below this storage, maybe another
        spelling of the same folder: a clean-up would take all files here for unneeded.
        """
        if (there := spelled(table.location()).rstrip("/")) != self._location:
            raise self._elsewhere(there)

    def _elsewhere(self, url: str) -> Refused:
        place = url.removesuffix(f"/{METADATA}/{self._area}")
        return Refused(
            f"{self._identifier} has files at {place}, and not below {self._root}: give "
            "spec.table.path (or --path) as the catalogue spells it, or this path a table of its "
            "own (spec.table.catalog)."
        )

    def _refuse_overtaking(self, table: Table, change: Change) -> None:
        if change.transaction is None:
            return
        if int(table.properties.get(TRANSACTION, 0)) != self._seen:
            raise Overtaken(
                f"Another writer committed to {self._identifier} meanwhile: "
                "stop one of them: a table has one writer."
            )

    def _replace(self, table: Table, transaction: Transaction, change: Change) -> None:
        urls = [f"{self._root}/{entry.path}" for entry in change.added]
        files = [_data_file(table, transaction.table_metadata, url) for url in urls]
        said = {SAID: json.dumps(dict(change.said))}
        update = transaction.update_snapshot(snapshot_properties=said)
        if not change.removed:
            # An overwrite reads every manifest.
            with update.merge_append() as append:
                for file in files:
                    append.append_data_file(file)
            return
        removed = {entry.path for entry in change.removed}
        there = {self._path(task.file.file_path): task.file for task in self._planned(table)}
        if removed - there.keys():
            raise Conflict(f"Another process removed files of {self._identifier} meanwhile.")
        with update.overwrite() as overwrite:
            for file in files:
                overwrite.append_data_file(file)
            for path in removed:
                overwrite.delete_data_file(there[path])

    def _gone(self, error: FileNotFoundError) -> Refused:
        return Refused(
            f"A file of {self._identifier} is gone before it was committed: let no other program "
            f"remove files ({error!s:.{SAID_CHARS_MAX}})."
        )

    def _planned(self, table: Table) -> Iterator[FileScanTask]:
        """Give the files of the current snapshot; all of their rows count."""
        for task in table.scan().plan_files():
            if task.delete_files:
                # Rows that these exclude would be read, and written again by a merge.
                raise Refused(
                    f"Another program deleted rows of {self._identifier} with delete files, which "
                    "logpipeline does not read: let it rewrite the data files without them "
                    "(CALL system.rewrite_data_files, with delete-file-threshold 1)."
                )
            yield task

    def _path(self, url: str) -> str:
        path = spelled(url).removeprefix(f"{self._root}/")
        if path == spelled(url):
            raise self._elsewhere(url)
        return path

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Turn the errors of a catalogue, whichever library reaches it, into a sentence."""
        try:
            yield
        except Refused:
            raise
        except Exception as error:
            lines = str(error).splitlines() or [type(error).__name__]
            raise Refused(
                f"The Iceberg catalogue of {self._identifier} refused a request or failed: check "
                f"spec.table.catalog, and the catalogue ({lines[0]:.{SAID_CHARS_MAX}})."
            ) from error


class _LandedCatalog:
    """A catalogue that is read again before a commit counts as refused.

    A request that is sent twice, since its first answer was lost, is refused the second time.
    pyiceberg then deletes the lists of files of a snapshot that is committed.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Commit *updates*.

        Raises:
            CommitFailedException: another change came first.
        """
        try:
            return self._catalog.commit_table(table, requirements, updates)
        except CommitFailedException:
            added = [each.snapshot for each in updates if isinstance(each, AddSnapshotUpdate)]
            now = self._catalog.load_table(table.name())
            if not added or any(now.snapshot_by_id(each.snapshot_id) is None for each in added):
                raise
            location = {"metadata-location": now.metadata_location}
            return CommitTableResponse(metadata=now.metadata, **location)


def _landed_catalog(catalog: Catalog) -> Catalog:
    return cast(Catalog, _LandedCatalog(catalog))


def _version_of(table: Table) -> int:
    snapshot = table.current_snapshot()
    return -1 if snapshot is None else snapshot.snapshot_id


def _ended(table: Table) -> list[tuple[Snapshot, datetime]]:
    """Return the snapshots that another one followed, each with the time of that one."""
    kept = sorted(table.snapshots(), key=lambda snapshot: snapshot.sequence_number or 0)
    return [
        (one, datetime.fromtimestamp(following.timestamp_ms / 1000, UTC))
        for one, following in itertools.pairwise(kept)
    ]


def _may_go(stored: Stored, now: datetime) -> bool:
    """Return whether a file that no snapshot names may be removed."""
    # Manifests hold the smallest and the largest value of most columns. A change that the catalogue
    # refused leaves its manifests.
    if is_ours(name_of(stored.path)) or stored.path.endswith(ICEBERG_SUFFIXES):
        return True
    # A clean-up that was killed after it had expired the last snapshot of another program's file.
    return stored.path.endswith(SUFFIX) and stored.modified <= now - ORPHANED_AFTER


def _manifests(table: Table, snapshots: Collection[Snapshot]) -> set[str]:
    """Return the paths of the manifest lists of *snapshots*, and of their manifests."""
    lists = {snapshot.manifest_list for snapshot in snapshots}
    return lists | {
        manifest.manifest_path for each in snapshots for manifest in each.manifests(table.io)
    }


def spelled(url: str) -> str:
    """Return *url* as we write it: Hadoop, and so Spark, writes `file:/a` for `file:///a`."""
    is_short = url.startswith("file:/") and not url.startswith("file://")
    return f"file://{url.removeprefix('file:')}" if is_short else url


def _data_file(table: Table, metadata: TableMetadata, url: str) -> DataFile:
    """Return the file at *url* as a snapshot lists it, with the bounds of its columns."""
    try:
        return parquet_file_to_data_file(table.io, metadata, url)
    except UnicodeEncodeError:
        # pyiceberg cuts the greatest text after 16 characters and increments the last one. After
        # U+D7FF come surrogates, which are no text. Bounds only save reading: the file goes
        # without those of text.
        prefix = TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX
        schema = metadata.schema()
        counted = {
            f"{prefix}.{name}": "counts"
            for name in schema.column_names
            if isinstance(schema.find_type(name), StringType)
        }
        properties = {**metadata.properties, **counted}
        unbounded = metadata.model_copy(update={"properties": properties})
        return parquet_file_to_data_file(table.io, unbounded, url)


def _evolve(transaction: Transaction, schema: pa.Schema) -> None:
    """Add new columns, and map names to ids, since the files carry no ids."""
    with transaction.update_schema() as update:
        update.union_by_name(schema)
    mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
    transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
