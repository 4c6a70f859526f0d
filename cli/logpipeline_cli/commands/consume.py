"""``logpipeline consume``: read the streams as a consumer, until asked to stop."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import BinaryIO, Literal

from logpipeline.consuming.events import Event, EventJoiner
from logpipeline.consuming.message import UNREADABLE, Batch, Message, Outcome
from logpipeline.consuming.options import ConsumeOptions, checked, parse_acks, start_of, time_rules
from logpipeline.consuming.reader import Reader
from logpipeline.process import end_with_parent
from logpipeline.quantity import QuantityError, parse_duration
from logpipeline.wire import BadMessage
from logpipeline_cli.batches import counted, json_lines, may_begin, process_batches, stop_by_signal
from logpipeline_cli.errors import EXIT_FAILED, EXIT_OK, UsageError
from logpipeline_cli.events import event_rules
from logpipeline_cli.process_group import SHELL, GroupKeeper, end_group
from logpipeline_cli.target import Target, connected, find_target
from logpipeline_cli.time_arguments import moment_ns
from logpipeline_collector.files.render import render_event

Output = Literal["raw", "cri", "json"]

# How long a command may take to end after SIGTERM.
GRACE_S = 5.0
# Sysexits' EX_TEMPFAIL: "try again later".
EXIT_TRY_AGAIN = 75

log = logging.getLogger(__name__)

NS = 1_000_000_000


def render(batch: Batch, output: Output) -> bytes:
    """Return the lines of *batch*: as the program wrote them, as the runtime did, or as JSON."""
    return b"".join(_render(message, output) for message in batch.messages)


def render_events(batch: Batch, joiner: EventJoiner) -> bytes:
    """Return the events of *batch* as JSON."""
    return b"".join(map(_render_event, joiner.events(batch)))


def _render_event(event: Event) -> bytes:
    first = event.first
    texts = [line.text for line in event.lines]
    origin = first.message.origin
    found = render_event(origin, first.stream, texts, first.time_ns, continues=event.continues)
    return _with_event_time(found[:-1], event.event_time)


def _with_event_time(rendered: bytes, time: datetime | None) -> bytes:
    """Return an object, which is the line *rendered*, with an event time, null if there is none."""
    text = "null"
    if time is not None:
        text = f'"{time.replace(tzinfo=None).isoformat(timespec="microseconds")}Z"'
    return b'%b,"event_time":%b}\n' % (rendered[:-1], text.encode())


def _render(message: Message, output: Output) -> bytes:
    if output == "json":
        lines = zip(json_lines(message), message.lines, strict=True)
        return b"".join(_with_event_time(each, line.event_time) for each, line in lines)
    if output == "cri":
        data = message.data
        return data if not data or data.endswith(b"\n") else data + b"\n"
    return b"".join(line.text + b"\n" for line in message.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A shell command. After *timeout_s* it is ended; the exit codes *retryable* ask for another
    try. With *allow_unread* it may leave input unread. *keeper* ends it with this process, and is
    to be closed.
    """

    text: str
    timeout_s: float
    retryable: frozenset[int] = frozenset({EXIT_TRY_AGAIN})
    allow_unread: bool = False
    keeper: GroupKeeper = field(default_factory=GroupKeeper)

    async def run(self, data: bytes, environment: Mapping[str, str]) -> Outcome:
        """Run the command with *data* as input, and return the outcome for its batch. Where it
        failed, what it has started is ended as well: the same batch may be tried again.
        """
        begin = partial(_begin, self.keeper.descriptor())
        with _file_of(data) as file:
            process = await asyncio.create_subprocess_exec(
                SHELL,
                "-c",
                self.text,
                stdin=file,
                start_new_session=True,
                env={**os.environ, **environment},
                preexec_fn=begin,
            )
            try:
                code = await self._ended(process)
            finally:
                self.keeper.forget()
            # The command shares the file's position with us.
            unread = len(data) - os.lseek(file.fileno(), 0, os.SEEK_CUR)
        return self._meaning(code, unread, len(data))

    async def _ended(self, process: asyncio.subprocess.Process) -> int | None:
        """Return the exit code, negative for a signal, None after the timeout."""
        code: int | None = None
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.timeout_s):
                    code = await process.wait()
        finally:
            if code != 0:
                await end_group(process, GRACE_S)
        return code

    def _meaning(self, code: int | None, unread: int, total: int) -> Outcome:
        if code is None:
            return Outcome(
                "retry",
                f"the command did not end in {self.timeout_s:g} s and was ended (--timeout)",
            )
        if code < 0:
            return Outcome("retry", f"the command was ended by {signal.Signals(-code).name}")
        if code in self.retryable:
            return Outcome("retry", f"the command ended with {code}, which asks for another try")
        if code:
            return Outcome("reject", f"the command ended with {code}")
        if unread and not self.allow_unread:
            return Outcome(
                "reject",
                f"the command succeeded, but left {unread} of {total} bytes of its input unread; "
                "let it read all, or give --allow-unread",
            )
        return Outcome("processed")


def _file_of(data: bytes) -> BinaryIO:
    """Return an unnamed file that holds *data*. A pipe would end when its writer dies, and the
    command would take what it got until then for all.
    """
    file: BinaryIO
    if sys.platform == "linux":
        file = os.fdopen(os.memfd_create("batch"), "w+b")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115  # the caller closes it
    file.write(data)
    file.seek(0)
    return file


def _begin(keeper: int) -> None:
    """Have the new process end with its reader: its successor's command works on the same batch."""
    end_with_parent()
    os.write(keeper, b"%d\n" % os.getpid())


def run(args: argparse.Namespace) -> int:
    """Read until the end that was asked for, a signal, or a message that cannot be processed."""
    options, command, rendered = _options(args), _command(args), _rendering(args)
    target = find_target(file=args.file, data=args.data, nats=args.nats)
    logging.basicConfig(level=logging.WARNING, format="logpipeline: %(message)s", stream=sys.stderr)
    return asyncio.run(_consume(target, options, args, command, rendered))


async def _consume(
    target: Target,
    options: ConsumeOptions,
    args: argparse.Namespace,
    command: Command | None,
    rendered: Callable[[Batch], bytes],
) -> int:
    stop = stop_by_signal()
    async with connected(target, f"consume {options.name}") as js:
        if not await may_begin(js, target, options, args, "consumer"):
            return EXIT_FAILED
        closing = (
            contextlib.nullcontext() if command is None else contextlib.closing(command.keeper)
        )
        with closing:
            async with Reader(js, target.pipeline, options) as reader:
                try:
                    await process_batches(reader, _Printing(command, rendered).process, stop)
                finally:
                    print(f"logpipeline: {counted(reader)}", file=sys.stderr)
    return EXIT_OK


class _Printing:
    """Prints batches as they are *rendered*, or gives them to a *command*."""

    def __init__(self, command: Command | None, rendered: Callable[[Batch], bytes]) -> None:
        self._command = command
        self._rendered = rendered

    async def process(self, batch: Batch, _: asyncio.Task[bool]) -> Outcome:
        """Process *batch*, however soon it is time to stop."""
        try:
            data = self._rendered(batch)
        except BadMessage as error:
            # The consumer gets headers only; the reader hands out no other such message.
            return Outcome(UNREADABLE, f"it cannot be decoded: {error}")
        if self._command is not None:
            return await self._command.run(data, environment_of(batch))
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return Outcome("processed")


def environment_of(batch: Batch) -> dict[str, str]:
    """Return the environment variables by which a command knows its batch."""
    values = {
        "STREAM": batch.stream,
        "PARTITION": str(batch.partition),
        "FIRST": str(batch.first),
        "LAST": str(batch.last),
        "BATCH": batch.id,
        "MAY_REPEAT": "1" if batch.may_repeat else "0",
    }
    return {f"LOGPIPELINE_{name}": value for name, value in values.items()}


def _options(args: argparse.Namespace) -> ConsumeOptions:
    if args.since is not None:
        # So that a mistake is told in the command's own words.
        moment_ns("--since", args.since)
    return checked(
        ConsumeOptions(
            name=args.name,
            acks=parse_acks(args.ack),
            batch=args.batch,
            state=args.state,
            on_error=args.on_error,
            tries_max=args.tries,
            max_age_s=_span_s("--max-age", args.max_age) if args.max_age else 0.0,
            group=args.group,
            member=args.member,
            in_order=args.in_order,
            **start_of(args.deliver, args.since, args.from_seq),
            ephemeral=args.ephemeral,
            partitions=args.partitions,
            event_time=None if args.event_time is None else time_rules(args.event_time),
            zone=args.zone,
            count=args.count or 0,
            until_caught_up=args.until_caught_up,
        )
    )


def _command(args: argparse.Namespace) -> Command | None:
    words = args.retry_on.split(",")
    if not all(word.isdecimal() and int(word) <= 255 for word in words):
        raise UsageError(f"--retry-on {args.retry_on!r}: give exit codes such as 75 or 75,111")
    timeout_s = _span_s("--timeout", args.timeout)
    if args.exec is None:
        return None
    return Command(
        text=args.exec,
        timeout_s=timeout_s,
        retryable=frozenset(map(int, words)),
        allow_unread=args.allow_unread,
    )


def _rendering(args: argparse.Namespace) -> Callable[[Batch], bytes]:
    for option, given in (("--event-time", args.event_time), ("--zone", args.zone)):
        if given is not None and args.output != "json":
            raise UsageError(f"{option}: only JSON has the event time; give -o json as well")
    if not event_rules(args):
        return partial(render, output=args.output)
    if args.output != "json":
        raise UsageError("--multiline: raw lines are the same, joined or not; give -o json as well")
    joiner = EventJoiner(*(args.multiline or ()), begin=args.multiline_begin)
    return partial(render_events, joiner=joiner)


def _span_s(option: str, text: str) -> float:
    try:
        return parse_duration(text) / NS
    except QuantityError as error:
        raise UsageError(f"{option}: {error}") from error
