"""``logpipeline apply``: makes JetStream as the resource says."""

from __future__ import annotations

import argparse
import asyncio

from logpipeline.plan.apply import Report
from logpipeline.plan.render import report_to_json
from logpipeline_cli.exits import EXIT_FAILED, EXIT_OK
from logpipeline_cli.output import print_json
from logpipeline_cli.planning import apply_for, explain_report
from logpipeline_cli.target import Target, connected, find_target


def run(args: argparse.Namespace) -> int:
    """Apply, print what became of each change; exit 1 if something was refused or held back."""
    target = find_target(file=args.file, data=args.data, nats=args.nats)
    report = asyncio.run(_apply(target, allow_data_loss=args.allow_data_loss))
    if args.output == "json":
        print_json(report_to_json(report))
    else:
        print(explain_report(report))
    return EXIT_OK if report.is_complete else EXIT_FAILED


async def _apply(target: Target, *, allow_data_loss: bool) -> Report:
    async with connected(target, "apply") as js:
        return await apply_for(js, target.pipeline, allow_data_loss=allow_data_loss)
