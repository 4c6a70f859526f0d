"""``logpipeline tail``: lines as they pass, without touching any reader's position."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys

from logpipeline.nats.jetstream import StoredMessage
from logpipeline.subjects import Subjects, check_host
from logpipeline_cli.errors import EXIT_OK, UsageError
from logpipeline_cli.following import Filter, Line, followers
from logpipeline_cli.output import escaped_name, write_line
from logpipeline_cli.target import Target, connected, find_target
from logpipeline_cli.time_arguments import moment_ns


def run(args: argparse.Namespace) -> int:
    """Print lines, as many as asked for, or until Ctrl-C."""
    return show(find_target(file=args.file, data=args.data, nats=args.nats), args)


def show(target: Target, args: argparse.Namespace) -> int:
    """Print the lines of *target* that *args* choose."""
    lines = Filter(args.pod_namespace, args.pod, _pattern(args.grep), args.lines)
    since_ns = moment_ns("--since", args.since) if args.since else None
    host = check_host(args.host) if args.host else None
    asyncio.run(tail(target, host, since_ns, lines, raw=args.raw))
    return EXIT_OK


async def tail(
    target: Target, host: str | None, since_ns: int | None, lines: Filter, *, raw: bool
) -> None:
    """Print lines of *host*, or of all, from *since_ns* on, until there were enough."""
    pipeline = target.pipeline
    subjects = Subjects(pipeline.names.subject, pipeline.spec.partitions)
    enough = asyncio.Event()

    def show(messages: list[StoredMessage]) -> None:
        for message in messages:
            if enough.is_set():
                break
            _print(message, subjects, lines, enough, raw=raw)
        # A reader behind a pipe, too, gets lines as they pass.
        sys.stdout.flush()

    async with connected(target, "tail") as js, asyncio.TaskGroup() as tasks:
        following = [
            tasks.create_task(follower.follow(show))
            for follower in followers(js, pipeline, host, since_ns)
        ]
        await enough.wait()
        for each in following:
            each.cancel()


def _print(
    message: StoredMessage, subjects: Subjects, lines: Filter, enough: asyncio.Event, *, raw: bool
) -> None:
    """Print the wanted lines of *message*; set *enough* with the last one that is."""
    for line in lines.lines_of(message, subjects):
        if raw and line.is_damaged:
            continue
        write_line(line.text if raw else _prefixed(line), raw=raw)
        if lines.left is not None:
            lines.left -= 1
            if lines.left <= 0:
                enough.set()
                return


def _prefixed(line: Line) -> bytes:
    if line.is_damaged:
        return line.text
    label = f"{line.label} " if line.label else ""
    return f"{line.host} {label}| ".encode("utf-8", "backslashreplace") + line.text


def _pattern(text: str | None) -> re.Pattern[bytes] | None:
    if text is None:
        return None
    try:
        return re.compile(os.fsencode(text))
    except re.error as error:
        raise UsageError(f"--grep {escaped_name(text)!r}: {error}") from error
