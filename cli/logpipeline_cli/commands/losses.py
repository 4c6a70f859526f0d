"""``logpipeline losses``: list lost bytes with their file, time and cause, and acknowledge them."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from logpipeline.nats.bucket import Bucket
from logpipeline_cli.commands import status
from logpipeline_cli.errors import EXIT_OK, CliError
from logpipeline_cli.output import bytes_text, print_json, table
from logpipeline_cli.problems import acknowledge
from logpipeline_cli.target import Target, connected, find_target
from logpipeline_cli.time_arguments import time_text


def run(args: argparse.Namespace) -> int:
    """List losses, or acknowledge them."""
    target = find_target(file=args.file, data=args.data, nats=args.nats)
    return asyncio.run(show(target, args))


async def show(target: Target, args: argparse.Namespace) -> int:
    """List or acknowledge losses of the pipeline of *target*."""
    async with connected(target, "losses") as js:
        gathered = await status.gather(js, target)
        if args.acknowledge:
            bucket = Bucket(js, target.pipeline.names.state_bucket)
            ids = _chosen(args.acknowledge, gathered["lost"])
            await acknowledge(bucket, ids)
            print(f"Acknowledged: {len(ids)}.")
            return EXIT_OK
    rows = [row for row in gathered["lost"] if args.all or not row["acknowledged"]]
    if args.output == "json":
        print_json(rows)
    else:
        _print(rows, gathered["untoldLostBytes"])
    return EXIT_OK


def _chosen(words: list[str], rows: list[dict[str, Any]]) -> list[str]:
    known = [row["id"] for row in rows]
    if words == ["all"]:
        return known
    if unknown := [word for word in words if word not in known]:
        raise CliError(
            f"no such loss: {', '.join(unknown)}; see `logpipeline losses --all`, or give `all`"
        )
    return words


def _print(rows: list[dict[str, Any]], untold: int) -> None:
    if not rows:
        print("No unacknowledged losses.")
    else:
        columns = ("ID", "SINCE", "HOST", "SOURCE", "FROM", "TO", "BYTES", "CAUSE", "")
        print(table(columns, [_cells(row) for row in rows]))
    if untold:
        print(f"and {bytes_text(untold)} in older losses, which are only counted")


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    seen = "acknowledged" if row["acknowledged"] else ""
    since = time_text(row["time_ns"])
    place = (row["host"], row["source"], row["start"], row["end"])
    return row["id"], since, *place, row["bytes"], row["cause"], seen
