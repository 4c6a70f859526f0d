"""``logpipeline tail``: lines as they pass, without touching any reader's position."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Iterable, Sequence
from functools import partial

from logpipeline.multiline import Rules
from logpipeline.nats.jetstream import StoredMessage
from logpipeline.subjects import check_host
from logpipeline_cli.errors import EXIT_OK
from logpipeline_cli.events import FollowedEvents, event_rules
from logpipeline_cli.following import Filter, Line, followers
from logpipeline_cli.output import write_line
from logpipeline_cli.target import Target, connected, find_target
from logpipeline_cli.time_arguments import moment_ns


def run(args: argparse.Namespace) -> int:
    """Print lines, as many as asked for, or until Ctrl-C."""
    return show(find_target(file=args.file, data=args.data, nats=args.nats), args)


def show(target: Target, args: argparse.Namespace) -> int:
    """Print the lines of *target* that *args* choose."""
    printer = Printer(args.grep, args.lines, raw=args.raw)
    wanted = Filter(args.pod_namespace, args.pod)
    since_ns = moment_ns("--since", args.since) if args.since else None
    host = check_host(args.host) if args.host else None
    asyncio.run(tail(target, host, since_ns, wanted, event_rules(args), printer))
    return EXIT_OK


async def tail(
    target: Target,
    host: str | None,
    since_ns: int | None,
    wanted: Filter,
    rules: Sequence[Rules],
    printer: Printer,
) -> None:
    """Have *printer* print the events of *host*, or of all hosts, from *since_ns* on, until there
    were enough.
    """
    pipeline = target.pipeline
    subjects = pipeline.subjects

    def show(events: FollowedEvents, messages: list[StoredMessage]) -> None:
        for message in messages:
            if printer.enough.is_set():
                return
            for line in wanted.lines_of(message, subjects):
                printer.print(events.add(line))
        printer.print(events.looked())
        # A reader behind a pipe, too, gets lines as they pass.
        sys.stdout.flush()

    async with connected(target, "tail") as js, asyncio.TaskGroup() as tasks:
        following = [
            tasks.create_task(follower.follow(partial(show, FollowedEvents(rules))))
            for follower in followers(js, pipeline, host, since_ns)
        ]
        await printer.enough.wait()
        for each in following:
            each.cancel()


class Printer:
    """Prints the events that match, and sets *enough* with the last one that is wanted."""

    def __init__(self, pattern: re.Pattern[bytes] | None, left: int | None, *, raw: bool) -> None:
        self.enough = asyncio.Event()
        self._pattern = pattern
        self.left = left
        self._raw = raw

    def print(self, events: Iterable[Sequence[Line]]) -> None:
        """Print those of *events* that match."""
        for event in events:
            if self.enough.is_set() or not self._wants(event):
                continue
            for line in event:
                write_line(line.text if self._raw else _prefixed(line), raw=self._raw)
            if self.left is not None:
                self.left -= 1
                if self.left <= 0:
                    self.enough.set()

    def _wants(self, event: Sequence[Line]) -> bool:
        if event[0].is_damaged:
            return not self._raw
        text = b"\n".join(line.text for line in event)
        return self._pattern is None or self._pattern.search(text) is not None


def _prefixed(line: Line) -> bytes:
    if line.is_damaged:
        return line.text
    label = f"{line.label} " if line.label else ""
    return f"{line.host} {label}| ".encode("utf-8", "backslashreplace") + line.text
