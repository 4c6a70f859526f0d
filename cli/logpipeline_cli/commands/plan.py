"""``logpipeline plan`` and ``apply``: the changes to JetStream that a resource needs."""

from __future__ import annotations

import argparse
import asyncio

from logpipeline.plan.apply import Report, plan_pipeline
from logpipeline.plan.apply import apply as apply_plan
from logpipeline.plan.model import Kind, Plan
from logpipeline.plan.render import render_report, render_text, report_to_json, to_json
from logpipeline_cli.errors import EXIT_CHANGES, EXIT_FAILED, EXIT_OK
from logpipeline_cli.output import print_json
from logpipeline_cli.target import Target, connected, find_target


def plan(args: argparse.Namespace) -> int:
    """Print the plan; exit 0 without changes, 2 with some."""
    target = find_target(file=args.file, data=args.data, nats=args.nats)
    return show_plan(target, as_json=args.output == "json")


def show_plan(
    target: Target, *, as_json: bool, installation: str = "", storage_bytes: int | None = None
) -> int:
    """Print the plan for *target*; see `desired` for the other arguments."""
    made = asyncio.run(_plan(target, installation, storage_bytes))
    if as_json:
        print_json(to_json(made))
    else:
        print(render_text(made), end="")
    return EXIT_OK if made.is_empty else EXIT_CHANGES


async def _plan(target: Target, installation: str, storage_bytes: int | None) -> Plan:
    async with connected(target, "plan") as js:
        return await plan_pipeline(
            js, target.pipeline, installation=installation, storage_bytes=storage_bytes
        )


def apply(args: argparse.Namespace) -> int:
    """Apply, and print the result of each change; exit 1 if one was refused or held back."""
    target = find_target(file=args.file, data=args.data, nats=args.nats)
    report = asyncio.run(_apply(target, allow_data_loss=args.allow_data_loss))
    if args.output == "json":
        print_json(report_to_json(report))
    else:
        print(explain_report(report))
    return EXIT_OK if report.is_complete else EXIT_FAILED


async def _apply(target: Target, *, allow_data_loss: bool) -> Report:
    async with connected(target, "apply") as js:
        changes = await plan_pipeline(js, target.pipeline)
        return await apply_plan(js, changes, allow_data_loss=allow_data_loss)


def explain_report(report: Report) -> str:
    """Return *report* as text, with what to do about changes that were held back."""
    text = render_report(report).rstrip("\n")
    held = (change for outcome in report.outcomes for change in outcome.held)
    if any(change.kind is Kind.DELETES_DATA for change in held):
        text += "\nto make changes that delete stored messages, give --allow-data-loss"
    return text
