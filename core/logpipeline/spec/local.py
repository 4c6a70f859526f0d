"""The folders that only this machine knows: its data folder, and the user's home."""

from __future__ import annotations

import glob
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

from logpipeline.spec.components import FilePatterns, LocalNats, LocalShipper
from logpipeline.spec.model import LogPipeline

DATA_VARIABLE = "${DATA}"

Expand = Callable[[str], str]


def expand_local(pipeline: LogPipeline, data: Path) -> LogPipeline:
    """Return *pipeline* with ``${DATA}`` and ``~`` replaced where a path in its local part, or its
    table's, begins with them.
    """
    local = pipeline.spec.local
    folders = str(data.absolute()), str(Path.home())
    # A folder's own name may hold what means something in a glob.
    escaped = tuple(map(glob.escape, folders))

    def path(text: str) -> str:
        return _replaced(text, *folders)

    def pattern(text: str) -> str:
        return _replaced(text, *escaped)

    given = {field.name: getattr(local.nats, field.name) for field in fields(local.nats)}
    expanded = replace(
        local,
        nats=LocalNats(**{name: text and path(text) for name, text in given.items()}),
        shippers=tuple(_shipper(shipper, path, pattern) for shipper in local.shippers),
    )
    table = pipeline.spec.table
    table = replace(table, path=table.path and path(table.path))
    return replace(pipeline, spec=replace(pipeline.spec, local=expanded, table=table))


def _shipper(shipper: LocalShipper, path: Expand, pattern: Expand) -> LocalShipper:
    return replace(
        shipper,
        pods=shipper.pods and path(shipper.pods),
        hosts_below=shipper.hosts_below and path(shipper.hosts_below),
        files=tuple(
            FilePatterns(
                include=tuple(map(pattern, patterns.include)),
                exclude=tuple(map(pattern, patterns.exclude)),
                ack=patterns.ack,
            )
            for patterns in shipper.files
        ),
    )


def _replaced(text: str, data: str, home: str) -> str:
    for start, folder in ((DATA_VARIABLE, data), ("~", home)):
        if text.startswith(f"{start}/"):
            return folder + text.removeprefix(start)
    return text
