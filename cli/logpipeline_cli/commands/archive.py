"""``logpipeline archive``: keeps a table of all lines, and looks after it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from logpipeline.archiving import archive_key
from logpipeline.spec import LogPipeline
from logpipeline_cli.errors import CliError
from logpipeline_cli.exits import EXIT_FAILED, EXIT_OK
from logpipeline_cli.output import bytes_text, print_json, table
from logpipeline_cli.tables.places import pipeline_and_layout, s3_options, storage_for
from logpipeline_spark.table.table import Table


def run(args: argparse.Namespace) -> int:
    """Carry out the action that the words name."""
    return _ACTIONS[args.action](args)


def _run(args: argparse.Namespace) -> int:
    from logpipeline.observe import logs
    from logpipeline_cli.commands.component import http_address, server_of
    from logpipeline_cli.local.parts import die_with_parent

    try:
        from logpipeline_spark.running import service
        from logpipeline_spark.running.settings import settings_of
    except ImportError as error:
        raise CliError(f"{error.name} is not installed: pip install 'logpipeline[spark]'") from None
    die_with_parent()
    logs.setup("archive")
    pipeline, layout = pipeline_and_layout(args)
    settings = settings_of(
        pipeline,
        key=archive_key(pipeline.namespace, pipeline.name),
        folder=Path(layout.archive),
        nats=server_of(pipeline, args.nats),
        master=args.master,
    )
    if args.path:
        settings = replace(settings, path=args.path)
    settings = replace(
        settings,
        is_scheduled=settings.is_scheduled or args.once,
        stops_on_loss=args.stop_on_loss,
    )
    host, port = http_address(args.http)
    service.run(settings, host=host, port=port, is_once=args.once)
    return EXIT_OK


def _list(args: argparse.Namespace) -> int:
    from logpipeline_spark.table.reading import files

    entries = files(storage_for(args))
    if args.output == "json":
        print_json(
            [
                {
                    "path": entry.path,
                    "rows": entry.rows,
                    "bytes": entry.bytes,
                    "first": _time(entry.first_us),
                    "last": _time(entry.last_us),
                }
                for entry in entries
            ]
        )
        return EXIT_OK
    rows = [
        (entry.path, str(entry.rows), bytes_text(entry.bytes), _time(entry.last_us))
        for entry in entries
    ]
    print(table(("PATH", "ROWS", "BYTES", "LAST"), rows))
    return EXIT_OK


def _verify(args: argparse.Namespace) -> int:
    from logpipeline_spark.table.verify import verify

    report = verify(storage_for(args))
    if args.output == "json":
        print_json(
            {
                "files": report.files,
                "rows": report.rows,
                "problems": list(report.problems),
                "uncommitted": list(report.uncommitted),
                "strange": list(report.strange),
            }
        )
    else:
        print("\n".join(report.sentences()))
    return EXIT_OK if report.is_well else EXIT_FAILED


def _compact(args: argparse.Namespace) -> int:
    from logpipeline_spark.table.compact import Sizes

    pipeline, opened = _opened(args)
    sizes = Sizes.of(pipeline.spec.archive.compaction.target_bytes)
    try:
        merges = opened.compact(datetime.now(UTC), sizes)
    finally:
        opened.close()
    print(f"{sum(len(merge.sources) for merge in merges)} files of {len(merges)} hours were merged")
    return EXIT_OK


def _retain(args: argparse.Namespace) -> int:
    from logpipeline_spark.table.retain import Limits

    pipeline, opened = _opened(args)
    kept = pipeline.spec.archive.retention
    age = None if kept.max_age_ns is None else timedelta(microseconds=kept.max_age_ns / 1000)
    try:
        gone = opened.retain(datetime.now(UTC), Limits(age=age, total_bytes=kept.max_bytes))
    finally:
        opened.close()
    print(f"{len(gone)} files were removed")
    return EXIT_OK


def _opened(args: argparse.Namespace) -> tuple[LogPipeline, Table]:
    """Return the table as its only writer: the job that keeps it must be stopped, or else this
    says so.
    """
    from logpipeline_spark.formats.choosing import format_of
    from logpipeline_spark.lines.schema import LINES_ENCODED
    from logpipeline_spark.table.owner import Owner

    pipeline, _ = pipeline_and_layout(args)
    archive = pipeline.spec.archive
    owner = Owner(f"{pipeline.namespace}/{pipeline.name}", archive.format)
    storage = storage_for(args)
    holder = f"logpipeline archive {args.action} (process {os.getpid()})"
    format = format_of(
        archive.format, storage.url, catalog=archive.catalog, s3=s3_options(pipeline)
    )
    return pipeline, Table.open(storage, owner, holder=holder, schema=LINES_ENCODED, format=format)


def _time(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="seconds")


_ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": _run,
    "ls": _list,
    "verify": _verify,
    "compact": _compact,
    "retain": _retain,
}
