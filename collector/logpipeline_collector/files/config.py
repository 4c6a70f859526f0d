"""What an archive is told: where its files go, how they look, and when they are set aside and
removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesConfig:
    """One collector's folder and the shape of its files. Sizes in bytes, ages in seconds."""

    folder: Path
    group: str
    path: str
    file_path: str
    output: Literal["raw", "cri", "json"]
    rotate_bytes: int
    rotate_age_s: float
    compression: Literal["gzip", "zstd", "none"]
    retention_age_s: float
    retention_bytes: int | None
    min_free_percent: int
    open_files_max: int
    cluster: str = ""

    @property
    def logs(self) -> Path:
        """The folder of the output files."""
        return self.folder / "logs"

    def state(self, partition: int) -> Path:
        """The file that says what is committed of *partition*."""
        return self.folder / "state" / self.group / f"p{partition}.sqlite"
