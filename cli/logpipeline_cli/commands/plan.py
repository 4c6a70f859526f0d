"""``logpipeline plan``: what applying would change, and nothing else."""

from __future__ import annotations

import argparse
import asyncio

from logpipeline.plan.apply import plan_pipeline
from logpipeline.plan.model import Plan
from logpipeline.plan.render import render_text, to_json
from logpipeline_cli.exits import EXIT_CHANGES, EXIT_OK
from logpipeline_cli.output import print_json
from logpipeline_cli.target import Target, connected, find_target


def run(args: argparse.Namespace) -> int:
    """Print the plan; exit 0 without changes, 2 with some."""
    target = find_target(file=args.file, data=args.data, nats=args.nats)
    return show(target, as_json=args.output == "json")


def show(
    target: Target, *, as_json: bool, installation: str = "", storage_bytes: int | None = None
) -> int:
    """Print the plan for *target*; see `desired` for the other arguments."""
    plan = asyncio.run(_plan(target, installation, storage_bytes))
    if as_json:
        print_json(to_json(plan))
    else:
        print(render_text(plan), end="")
    return EXIT_OK if plan.is_empty else EXIT_CHANGES


async def _plan(target: Target, installation: str, storage_bytes: int | None) -> Plan:
    async with connected(target, "plan") as js:
        return await plan_pipeline(
            js, target.pipeline, installation=installation, storage_bytes=storage_bytes
        )
