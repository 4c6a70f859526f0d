"""``logpipeline report``: a page of plots, made from the counts alone."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

from logpipeline_cli.errors import CliError
from logpipeline_cli.exits import EXIT_OK
from logpipeline_cli.tables.duck import opened
from logpipeline_cli.tables.places import logs_for, moment, storage_for


def run(args: argparse.Namespace) -> int:
    """Write the page, and say where."""
    try:
        from logpipeline_cli.tables.page import ask, page
    except ImportError as error:
        raise CliError(f"{error.name} is not installed: pip install 'logpipeline[query]'") from None
    now = datetime.now(UTC)
    storage = storage_for(args)
    logs = logs_for(args, storage)
    since, until = moment(args.since, now=now), moment(args.until, now=now)
    with opened(storage, logs, since=since, until=until) as connection:
        answers = ask(connection, storage, logs)
    target = Path(args.output)
    target.write_text(page(f"Logs of {storage.url}", answers, made=now), encoding="utf-8")
    print(f"{target}: {answers.lines} lines")
    return EXIT_OK
