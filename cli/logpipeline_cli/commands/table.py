"""``logpipeline table``: write and maintain a table of all lines."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logpipeline.spec import LogPipeline
from logpipeline.tables.progress import table_key
from logpipeline_cli.errors import EXIT_FAILED, EXIT_OK, CliError
from logpipeline_cli.output import agreed, bytes_text, print_json, table
from logpipeline_cli.tables.target import logs_for, pipeline_and_layout, storage_for
from logpipeline_cli.time_arguments import moment_ns

if TYPE_CHECKING:
    from logpipeline_spark.job.settings import JobSettings
    from logpipeline_spark.table.upkeep import Upkeep
    from logpipeline_spark.table.verify import Report


def run(args: argparse.Namespace) -> int:
    """Carry out the given action."""
    return _ACTIONS[args.action](args)


def _run(args: argparse.Namespace) -> int:
    from logpipeline.observe import logs
    from logpipeline_cli.commands.components import http_address, server_of
    from logpipeline_cli.local.parts import die_with_parent
    from logpipeline_spark.job import service
    from logpipeline_spark.job.settings import settings_of

    die_with_parent()
    logs.setup("table")
    pipeline, layout = pipeline_and_layout(args)
    settings = settings_of(
        pipeline,
        key=table_key(pipeline.namespace, pipeline.name),
        path=str(layout.table),
        folder=Path(layout.spark),
        nats=server_of(pipeline, args.nats),
        master=args.master,
    )
    if args.begin is not None:
        settings = _beside(settings, args)
    elif args.path:
        settings = replace(settings, path=args.path)
    settings = replace(
        settings,
        is_scheduled=settings.is_scheduled or args.once,
        stops_on_loss=args.stop_on_loss,
    )
    host, port = http_address(args.http)
    service.run(settings, host=host, port=port, is_once=args.once)
    return EXIT_OK


def _beside(settings: JobSettings, args: argparse.Namespace) -> JobSettings:
    """Return the settings of a second table, beside the pipeline's own. It has its own folder, and
    does not report its progress: streams are trimmed by reported progress, and the pipeline's own
    table may be behind.

    Raises:
        CliError: the path of another table is missing, or the time is wrong.
    """
    from logpipeline_spark.source.offsets import EARLIEST, Place
    from logpipeline_spark.table.s3 import storage_of

    own, path = storage_of(settings.path).url, args.path and storage_of(args.path).url
    if not path or path == own:
        raise CliError(
            f"--from writes a table beside {own}: give its path with --path; give the same path "
            "again to continue it"
        )
    begin = EARLIEST
    if args.begin != EARLIEST.kind:
        begin = Place("time", time_ns=moment_ns("--from", args.begin))
    folder = settings.folder / hashlib.sha256(path.encode()).hexdigest()[:16]
    holder = f"{settings.holder}, at {path}"
    return replace(settings, path=path, folder=folder, holder=holder, key="", begin=begin)


def _list(args: argparse.Namespace) -> int:
    from logpipeline_spark.table.scan import files

    entries = files(logs_for(args, storage_for(args)))
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

    storage = storage_for(args)
    report = verify(storage, logs_for(args, storage))
    if args.output == "json":
        print_json(_json_of(report))
    else:
        print("\n".join(report.sentences()))
    return EXIT_OK if report.is_well else EXIT_FAILED


def _json_of(report: Report) -> dict[str, Any]:
    """Return all of *report* for a program: ranges of messages name their stream."""
    covered = [(stream, one) for stream, found in report.covered.items() for one in found]
    ranges = {
        name: [{"stream": stream, **asdict(one)} for stream, one in found]
        for name, found in (("covered", covered), ("skipped", report.skipped))
    }
    # From the report's own fields, so that none is left out of one of the two outputs.
    return asdict(report) | ranges


def _compact(args: argparse.Namespace) -> int:
    from logpipeline_spark.table.compaction import Sizes

    pipeline, upkeep = _upkeep(args)
    merges = upkeep.compact(
        datetime.now(UTC), Sizes.of(pipeline.spec.table.compaction.target_bytes)
    )
    print(f"{sum(len(merge.sources) for merge in merges)} files of {len(merges)} hours were merged")
    return EXIT_OK


def _retain(args: argparse.Namespace) -> int:
    from logpipeline_spark.table.upkeep import Limits

    pipeline, upkeep = _upkeep(args)
    kept = pipeline.spec.table.retention
    age = None if kept.max_age_ns is None else timedelta(microseconds=kept.max_age_ns / 1000)
    gone = upkeep.retain(datetime.now(UTC), Limits(age=age, total_bytes=kept.max_bytes))
    print(f"{len(gone)} files were removed")
    return EXIT_OK


def _erase(args: argparse.Namespace) -> int:
    from logpipeline_cli.tables.erasing import erase

    storage = storage_for(args)
    return erase(args, storage, logs_for(args, storage))


def _rebuild(args: argparse.Namespace) -> int:
    from logpipeline_spark.job.rebuild import Rebuild
    from logpipeline_spark.table.writer import PATIENCE_S

    storage = storage_for(args)
    rebuilding = Rebuild(storage, logs_for(args, storage))
    plan = rebuilding.plan()
    if plan is None:
        print(f"The state of table {storage.url} is intact; nothing to do.")
        return EXIT_OK
    print("\n".join(plan.sentences()))
    if args.dry_run:
        return EXIT_OK
    if not agreed("Continue from there?", yes=args.yes):
        print("Nothing was changed.")
        return EXIT_FAILED
    print(f"Checking for {PATIENCE_S:.0f} seconds that no job writes the table.", flush=True)
    rebuilding.carry_out(plan)
    print("The state was restored; the next job continues from it.")
    return EXIT_OK


def _upkeep(args: argparse.Namespace) -> tuple[LogPipeline, Upkeep]:
    """Return the upkeep of the table, which may run beside the job that writes it."""
    from logpipeline_spark.table.upkeep import Upkeep

    pipeline, _ = pipeline_and_layout(args)
    storage = storage_for(args)
    has_words = pipeline.spec.table.compaction.words
    return pipeline, Upkeep(storage, logs_for(args, storage), has_words=has_words)


def _time(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="seconds")


_ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": _run,
    "ls": _list,
    "verify": _verify,
    "compact": _compact,
    "retain": _retain,
    "erase": _erase,
    "rebuild": _rebuild,
}
