"""Which folders of a node a shipper sees: those of container logs, and those that its globs begin
with, each mounted where it is on the node, so that paths mean the same inside and outside.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from logpipeline.spec import LogPipeline
from logpipeline_operator.children.config import POD_LOGS

_WILD = re.compile(r"[*?\[]")


def host_folders(pipeline: LogPipeline) -> list[str]:
    """Return the folders to mount, sorted, none below another."""
    shippers = pipeline.spec.shippers
    wanted = {POD_LOGS} if shippers.container_logs else set()
    wanted |= {base_of(glob) for files in shippers.host_files for glob in files.include}
    paths = {PurePosixPath(folder) for folder in wanted}
    return sorted(str(path) for path in paths if not paths & set(path.parents))


def base_of(glob: str) -> str:
    """Return the folder above the first part of *glob* that has a wildcard, or above its file."""
    parts = PurePosixPath(glob).parts
    literal = next(
        (number for number, part in enumerate(parts) if _WILD.search(part)), len(parts) - 1
    )
    return str(PurePosixPath(*parts[:literal]))
