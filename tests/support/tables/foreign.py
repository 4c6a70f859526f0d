"""What other programs do to a table, as their formats allow it."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestWriter,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record


class _DeletesWriter(ManifestWriterV2):
    """pyiceberg's writer of lists of data files, made one of lists of deletes, which it lacks."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _Deletes(_FastAppendFiles):
    """An append whose files are deletes."""

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        output = self.new_manifest_output()
        return _DeletesWriter(spec, self.schema(), output, self._snapshot_id, self._compression)


def delete_by_position(table: Table, row: int) -> None:
    """Delete one row of the first data file, as merge-on-read does: by a file that names it."""
    data = next(iter(table.scan().plan_files())).file.file_path
    path = Path(table.location().removeprefix("file://")) / f"{uuid4()}-deletes.parquet"
    pq.write_table(pa.table({"file_path": [data], "pos": pa.array([row], pa.int64())}), path)
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=path.stat().st_size,
    )
    deletes.spec_id = table.spec().spec_id
    with table.transaction() as transaction:
        _Deletes(Operation.DELETE, transaction, table.io).append_data_file(deletes).commit()
    table.refresh()
