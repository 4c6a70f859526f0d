"""``logpipeline losses``: which bytes are lost, of which file, when and why; and that a person has
seen it.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from logpipeline.nats.bucket import Bucket
from logpipeline_cli.balance import acknowledge
from logpipeline_cli.commands import status
from logpipeline_cli.errors import CliError
from logpipeline_cli.exits import EXIT_OK
from logpipeline_cli.moments import time_text
from logpipeline_cli.output import bytes_text, print_json, table
from logpipeline_cli.target import Target, connected, find_target


def run(args: argparse.Namespace) -> int:
    """List losses, or note that they were seen."""
    target = find_target(file=args.file, data=args.data, nats=args.nats)
    return asyncio.run(show(target, args))


async def show(target: Target, args: argparse.Namespace) -> int:
    """Do what *args* say in the pipeline of *target*."""
    async with connected(target, "losses") as js:
        gathered = await status.gather(js, target)
        if args.acknowledge:
            bucket = Bucket(js, target.pipeline.names.state_bucket)
            ids = _meant(args.acknowledge, gathered["lost"])
            await acknowledge(bucket, ids)
            print(f"Acknowledged: {len(ids)}.")
            return EXIT_OK
    rows = [row for row in gathered["lost"] if args.all or not row["acknowledged"]]
    if args.output == "json":
        print_json(rows)
    else:
        _print(rows, gathered["untoldLostBytes"])
    return EXIT_OK


def _meant(words: list[str], rows: list[dict[str, Any]]) -> list[str]:
    known = [row["id"] for row in rows]
    if words == ["all"]:
        return known
    if strangers := [word for word in words if word not in known]:
        raise CliError(
            f"no such loss: {', '.join(strangers)}; see `logpipeline losses --all`, or say `all`"
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
