"""``logpipeline losses``: list lost bytes with their file, time and cause, and acknowledge them."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from logpipeline.nats.bucket import Bucket
from logpipeline.observe.logs import printable
from logpipeline_cli.commands import status
from logpipeline_cli.errors import EXIT_FAILED, EXIT_OK, CliError
from logpipeline_cli.losses import acknowledge
from logpipeline_cli.output import bytes_text, print_json, table
from logpipeline_cli.silence import owning
from logpipeline_cli.target import Target, connected, find_target
from logpipeline_cli.time_arguments import time_text

ALL = "all"


def run(args: argparse.Namespace) -> int:
    """List losses, or acknowledge them."""
    target = find_target(file=args.file, data=args.data, nats=args.nats)
    return asyncio.run(show(target, args))


async def show(target: Target, args: argparse.Namespace) -> int:
    """List or acknowledge losses of the pipeline of *target*. Where some are not listed, or not
    acknowledged, it says so, and returns `EXIT_FAILED`.
    """
    async with connected(target, "losses") as js:
        gathered = await status.gather(
            js, target, patience_s=status.ANSWER_WITHIN_S, with_all_losses=True
        )
        if args.acknowledge:
            bucket = Bucket(js, target.pipeline.names.state_bucket)
            chosen = _chosen(args.acknowledge, gathered)
            is_all = args.acknowledge == [ALL]
            await acknowledge(bucket, chosen, gathered["sums"], with_unlisted=is_all)
            print(f"Acknowledged: {len(chosen)}{_counted(gathered) if is_all else ''}.")
            return _said(_unheard(gathered) if is_all else ())
    rows = [row for row in gathered["lost"] if args.all or not row["acknowledged"]]
    unlisted = list(_unlisted(gathered))
    if args.output == "json":
        print_json(rows)
    elif rows:
        columns = ("ID", "SINCE", "HOST", "SOURCE", "FROM", "TO", "BYTES", "CAUSE", "")
        print(table(columns, [_cells(row, gathered["group"]) for row in rows]))
    elif not unlisted:
        print("No unacknowledged losses.")
    return _said(unlisted)


def _said(left_out: Iterable[str]) -> int:
    """Print the sentences about losses that were left out to standard error; return the exit
    code.
    """
    sentences = list(left_out)
    for each in sentences:
        print(printable(each), file=sys.stderr)
    return EXIT_FAILED if sentences else EXIT_OK


def _unlisted(gathered: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence for each reason why not all losses are listed."""
    yield from _unheard(gathered)
    if size := sum(each["lost_unlisted"] for each in gathered["sums"] if each["is_heard"]):
        yield (
            f"{bytes_text(size)} are lost that collectors only count: `--acknowledge all` "
            "acknowledges them as well"
        )


def _unheard(gathered: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence for each part of the losses that could not be listed."""
    unknown = [str(each["partition"]) for each in gathered["partitions"] if not each["is_known"]]
    if unknown:
        yield (
            f"no server answers for the streams of partitions {', '.join(unknown)}, or for the "
            "bucket of their records: their losses may not be listed (`logpipeline status`)"
        )
    for owner, numbers in gathered["silentOwners"].items():
        yield f"{owner}, {owning(numbers)}, does not answer: its losses are not listed"
    if size := sum(each["lost_unlisted"] for each in gathered["sums"] if not each["is_heard"]):
        yield f"{bytes_text(size)} are lost that no collector lists"


def _counted(gathered: dict[str, Any]) -> str:
    size = sum(each["lost_unlisted"] for each in gathered["sums"] if each["is_heard"])
    return f", and {bytes_text(size)} that collectors only count" if size else ""


def _chosen(words: list[str], gathered: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = gathered["lost"]
    if words == [ALL]:
        return rows
    known = {row["id"] for row in rows}
    if unknown := [word for word in words if word not in known]:
        raise CliError(
            f"no such loss: {', '.join(unknown)}; see `logpipeline losses --all`, or give `all`"
            + "".join(f"; {each}" for each in _unheard(gathered))
        )
    return [row for row in rows if row["id"] in words]


def _cells(row: dict[str, Any], own: str) -> tuple[object, ...]:
    seen = "acknowledged" if row["acknowledged"] else ""
    remark = ", ".join(filter(None, (seen, status.of_group(row, own))))
    since = time_text(row["time_ns"])
    place = (row["host"], row["source"], row["start"], row["end"])
    return row["id"], since, *place, row["bytes"], row["cause"], remark
