"""What a lake format must be able to do. Our own manifest is the table; a format follows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from logpipeline_spark.table.commit import FileEntry


class Format(Protocol):
    """A registration of a table's files in another catalogue."""

    @property
    def name(self) -> str:
        """As users ask for it."""

    def paths(self) -> set[str]:
        """Return the registered files, as paths within the table."""

    def commit(
        self,
        added: Sequence[FileEntry],
        removed: Sequence[str],
        *,
        number: int,
        schema: pa.Schema,
    ) -> None:
        """Register what our commit *number* changed, at once; a second time does nothing.

        It is called after our commit, and before removed files go away.
        """


class Parquet:
    """Files and our manifest: there is nothing more to register."""

    name = "parquet"

    def paths(self) -> set[str]:
        return set()

    def commit(
        self,
        added: Sequence[FileEntry],
        removed: Sequence[str],
        *,
        number: int,
        schema: pa.Schema,
    ) -> None:
        """Do nothing."""
