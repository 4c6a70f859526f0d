"""The table that a command is for: the one of the pipeline that runs here, or the given one."""

from __future__ import annotations

import argparse
from pathlib import Path

from logpipeline.layout import Layout, default_data, running_layout
from logpipeline.spec import LogPipeline, load
from logpipeline.spec.parse import expand_local
from logpipeline_cli.errors import CliError
from logpipeline_cli.tables.status import why_no_table
from logpipeline_spark.formats.choice import logs_of
from logpipeline_spark.formats.log import Logs
from logpipeline_spark.table.s3 import S3Options, storage_of
from logpipeline_spark.table.storage import LocalStorage, Storage


def pipeline_and_layout(args: argparse.Namespace) -> tuple[LogPipeline, Layout]:
    """Return the pipeline that *args* choose, and its data folder.

    Raises:
        CliError: they choose none.
        SpecError: the resource has mistakes.
    """
    given = load(Path(args.file)) if args.file else None
    if given is not None and args.data is None:
        layout = Layout(default_data(given.namespace, given.name))
    else:
        layout = running_layout(args.data, None)
    pipeline = given or load(layout.pipeline)
    return expand_local(pipeline, layout.data), layout


def storage_for(args: argparse.Namespace) -> Storage:
    """Return the storage of the table that *args* choose.

    Raises:
        CliError: they choose none, or one that is not kept; the message says what to do.
        SpecError: the resource has mistakes.
        Refused: a table cannot be at that path.
    """
    if args.path and not args.file:
        return storage_of(args.path)
    pipeline, layout = pipeline_and_layout(args)
    path = args.path or pipeline.spec.table.path or str(layout.table)
    storage = storage_of(path, s3_options(pipeline))
    is_nowhere = isinstance(storage, LocalStorage) and not Path(storage.url).exists()
    if is_nowhere and not args.path and (sentence := why_no_table(pipeline)):
        name = f"{pipeline.namespace}/{pipeline.name}"
        raise CliError(f"{name} keeps no table: {sentence}")
    return storage


def logs_for(args: argparse.Namespace, storage: Storage) -> Logs:
    """Return the logs of the table in *storage* that *args* choose. A table that is given by its
    path only has no catalog, so that its format is Delta.

    Raises:
        CliError: they choose none.
        SpecError: the resource has mistakes.
        Refused: its format is not available here.
    """
    if args.path and not args.file:
        return logs_of("delta", storage, catalog={}, s3=S3Options())
    pipeline, _ = pipeline_and_layout(args)
    table = pipeline.spec.table
    return logs_of(table.format, storage, catalog=table.catalog, s3=s3_options(pipeline))


def s3_options(pipeline: LogPipeline) -> S3Options:
    """Return the access to the bucket of *pipeline*'s table; keys come from the environment."""
    s3 = pipeline.spec.table.s3
    return S3Options(endpoint=s3.endpoint, region=s3.region)
