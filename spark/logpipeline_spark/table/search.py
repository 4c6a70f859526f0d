"""Text search: which groups of rows of a table's files a search must read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from logpipeline_spark.errors import Refused
from logpipeline_spark.lines.schema import TIME
from logpipeline_spark.table.files import FileEntry
from logpipeline_spark.table.parquet import reporting_damage
from logpipeline_spark.table.storage import LocalStorage, Storage, StorageFailed
from logpipeline_spark.table.word_filters import Chosen, Hashes, chosen, words_of

# A bucket answers a request after some 30 ms, and many requests at once.
ASKED_AT_ONCE = 16

# Off by default: a changed page would be read as other text.
_CHECKED = ds.ParquetFragmentScanOptions(page_checksum_verification=True)


@dataclass(frozen=True)
class Search:
    """A search for lines that hold all *texts*, each as it is written and as whole words: no word
    of the line extends past an end of the text. So the words of a text are words of the line, as
    filters have them.

    Raises:
        Refused: a text is empty, or not UTF-8.
    """

    texts: tuple[str, ...]

    def __post_init__(self) -> None:
        for text in self.texts:
            if not text:
                raise Refused("--grep is empty: pass a word, or leave it out.")
            try:
                text.encode()
            except UnicodeEncodeError:
                raise Refused(f"--grep {text!a} is not UTF-8: pass it as text.") from None

    @cached_property
    def words(self) -> Hashes:
        """The hashes of all words of all texts. Without words, everything is read."""
        return np.unique(np.concatenate([words_of(text) for text in self.texts]))

    def chosen(self, storage: Storage, entries: Sequence[FileEntry]) -> dict[str, Chosen]:
        """Return the groups of files that may hold such lines, by path; files without an entry must
        be read whole.
        """
        if not len(self.words):
            return {}

        def ask(entry: FileEntry) -> Chosen | None:
            try:
                return chosen(storage, entry, self.words)
            except StorageFailed:
                # A user without the right to read the filters reads more. An outage is reported
                # when the files are read.
                return None

        with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
            answers = pool.map(ask, entries)
            return {
                entry.path: answer
                for entry, answer in zip(entries, answers, strict=True)
                if answer is not None
            }


def dataset(
    storage: Storage,
    entries: Sequence[FileEntry],
    schema: pa.Schema,
    chosen: Mapping[str, Chosen] | None = None,
) -> ds.Dataset:
    """Return the rows of *entries*; columns that a file lacks are null. Files whose times a
    condition on `ts` excludes are not opened; of files in *chosen*, by path, only the chosen groups
    are read.

    Raises:
        Damaged: a file of which some groups are chosen is missing or cannot be read.
        OSError: the storage refuses it now.
    """
    above = ""
    if isinstance(storage, LocalStorage):
        above = f"{storage.url}/"
        files: pafs.FileSystem = pafs.LocalFileSystem()
    else:
        sizes = {entry.path: entry.bytes for entry in entries}
        files = pafs.PyFileSystem(_Files(storage, sizes))
    kind = ds.ParquetFileFormat(default_fragment_scan_options=_CHECKED)
    fragments: list[ds.ParquetFileFragment] = []
    for entry in entries:
        fragment = kind.make_fragment(f"{above}{entry.path}", files, _times_of(entry))
        with reporting_damage(storage, entry.path):
            fragments += _narrowed(fragment, (chosen or {}).get(entry.path))
    return _Dataset(fragments, schema, kind, files)


class _Dataset(ds.FileSystemDataset):  # type: ignore[misc]  # Arrow has no types
    """A dataset whose scans start without Python's lock."""

    def scanner(self, **options: Any) -> _Scanner:
        return _Scanner(super().scanner(**options))


class _Scanner:
    """Arrow's scanner, with the methods that DuckDB calls.

    Arrow's own `to_reader` starts to scan while it holds Python's lock, and then waits for a lock
    of Arrow's. A thread may hold that one and wait for Python's, to open a file of a bucket: such a
    query never ended. `to_batches` releases Python's lock.
    """

    def __init__(self, scanner: ds.Scanner) -> None:
        self._scanner = scanner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scanner, name)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows, which are read on demand."""
        schema = self._scanner.projected_schema
        return pa.RecordBatchReader.from_batches(schema, self._scanner.to_batches())


def _narrowed(
    fragment: ds.ParquetFileFragment, chosen: Chosen | None
) -> list[ds.ParquetFileFragment]:
    if chosen is None:
        return [fragment]
    if not chosen.numbers:
        return []
    # Arrow keeps the footer that this reads, and uses it to read the rows.
    is_same = chosen.rows == tuple(group.num_rows for group in fragment.row_groups)
    return [fragment.subset(row_group_ids=list(chosen.numbers)) if is_same else fragment]


def _times_of(entry: FileEntry) -> ds.Expression:
    first, last = (pa.scalar(at, TIME) for at in (entry.first_us, entry.last_us))
    return (ds.field("ts") >= first) & (ds.field("ts") <= last)


class _Files(pafs.FileSystemHandler):  # type: ignore[misc]  # Arrow has no types
    """A storage as a file system of Arrow, to read files that are known to exist."""

    def __init__(self, storage: Storage, sizes: dict[str, int]) -> None:
        super().__init__()
        self._storage = storage
        self._sizes = sizes

    def get_type_name(self) -> str:
        return "logpipeline"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[Any]:
        return [
            pafs.FileInfo(path, pafs.FileType.File, size=self._sizes[path])
            if path in self._sizes
            else pafs.FileInfo(path, pafs.FileType.NotFound)
            for path in paths
        ]

    def get_file_info_selector(self, selector: Any) -> list[Any]:
        return self.get_file_info(list(self._sizes))

    def open_input_file(self, path: str) -> Any:
        return pa.PythonFile(self._storage.open(path), mode="r")

    def open_input_stream(self, path: str) -> Any:
        return self.open_input_file(path)

    def create_dir(self, path: str, recursive: bool) -> None:
        raise NotImplementedError(_READ_ONLY)

    def delete_dir(self, path: str) -> None:
        raise NotImplementedError(_READ_ONLY)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool) -> None:
        raise NotImplementedError(_READ_ONLY)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError(_READ_ONLY)

    def delete_file(self, path: str) -> None:
        raise NotImplementedError(_READ_ONLY)

    def move(self, source: str, target: str) -> None:
        raise NotImplementedError(_READ_ONLY)

    def copy_file(self, source: str, target: str) -> None:
        raise NotImplementedError(_READ_ONLY)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError(_READ_ONLY)

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError(_READ_ONLY)


_READ_ONLY = "readers of a table write nothing"
