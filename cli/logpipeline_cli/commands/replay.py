"""``logpipeline replay``: write stored messages again, as collectors do, to another place."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from logpipeline.nats.jetstream import JetStream
from logpipeline.nats.scan import StreamChanged
from logpipeline.spec.model import LogPipeline
from logpipeline.spec.partition_list import selects
from logpipeline.subjects import check_host
from logpipeline_cli.errors import EXIT_OK, CliError, UsageError
from logpipeline_cli.replaying.reading import Pace, Question, Reader, SinkOf, Span, span_of
from logpipeline_cli.replaying.sinks import Folder, FolderSink, Page, PageSink, config_of
from logpipeline_cli.target import Target, connected, find_target
from logpipeline_cli.time_arguments import moment_ns
from logpipeline_collector.config import from_pipeline
from logpipeline_collector.files.partition import FileStorage
from logpipeline_collector.files.render import Output

# Streams that are read at the same time, unless all must be; limits the bytes in flight.
STREAMS_AT_ONCE = 16
PULL_BUDGET_BYTES = 64 * 1024 * 1024
# The limit where all streams must be read at the same time: with a pace, and with --follow.
STREAMS_MAX = 64
# The arguments that identify a replay: with other values it is another one.
IDENTITY = (
    "output", "since", "until", "from_seq", "to_seq", "partition", "host", "pod_namespace", "pod",
    "container", "follow",
)  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Write the messages that were asked for."""
    if args.speed is not None and (args.original_speed or args.speed <= 0):
        raise CliError("give --speed a number above 0, or --original-speed (the same as --speed 1)")
    question = Question(
        since_ns=moment_ns("--since", args.since) if args.since else None,
        until_ns=moment_ns("--until", args.until) if args.until else None,
        from_seq=args.from_seq,
        to_seq=args.to_seq,
        host=check_host(args.host) if args.host else None,
        namespace=args.pod_namespace,
        pod=args.pod,
        container=args.container,
        follow=args.follow,
        partial=args.partial,
    )
    target = find_target(file=args.file, data=args.data, nats=args.nats)
    try:
        asyncio.run(_replay(target, question, args))
    except* StreamChanged as group:
        raise CliError(
            f"{group.exceptions[0]}: what was written is correct, but not complete"
        ) from None
    return EXIT_OK


async def _replay(target: Target, question: Question, args: argparse.Namespace) -> None:
    folder = None
    if args.into != "-":
        check_paths(target.pipeline)
        asked = {name: getattr(args, name) for name in IDENTITY}
        folder = Folder(Path(args.into), {"pipeline": target.pipeline.name, **asked})
    spans = folder.spans() if folder is not None else None
    numbers = _partitions(target, question, args.partition)
    speed = 1.0 if args.original_speed else args.speed
    if (speed is not None or question.follow) and len(numbers) > STREAMS_MAX:
        raise CliError(f"{len(numbers)} partitions are too many at once: choose with --partition")
    async with connected(target, "replay") as js:
        if spans is None:
            spans = {number: await _span(js, target, question, number) for number in numbers}
            if folder is not None:
                folder.begin(spans)
        sink_of = _sinks(target, folder, args.output)
        pace = Pace(spans, speed) if speed is not None else None
        together = len(spans) if pace or question.follow else min(STREAMS_AT_ONCE, len(spans))
        reader = Reader(
            js,
            target.pipeline.stream_subjects,
            target.pipeline.filter_of_host(question.host) if question.host else None,
            question,
            sink_of,
            PULL_BUDGET_BYTES // together,
            pace,
        )
        await _all(reader, spans, together)
    if folder is not None:
        folder.end(spans)
    _print_counts(reader)


async def _all(reader: Reader, spans: dict[int, Span], together: int) -> None:
    room = asyncio.Semaphore(together)

    async def one(partition: int, span: Span) -> None:
        async with room:
            await reader.read(partition, span)

    async with asyncio.TaskGroup() as tasks:
        for partition, span in spans.items():
            tasks.create_task(one(partition, span))


def check_paths(pipeline: LogPipeline) -> None:
    """Check that each file of a replay can be named as collectors name it.

    Raises:
        CliError: it cannot.
    """
    collectors = pipeline.spec.collectors
    if pipeline.is_single_stream and "{partition}" in f"{collectors.path} {collectors.file_path}":
        raise CliError(
            "a path of spec.collectors has {partition}, and a replay reads one stream of all "
            "partitions: give a resource (-f) with {host} in its place, or `--out -`"
        )


def _partitions(target: Target, question: Question, chosen: str | None) -> list[int]:
    if chosen is not None and target.pipeline.is_single_stream:
        raise UsageError("--partition: one stream holds all partitions; choose with --host")
    numbers = list(range(target.pipeline.stream_count))
    if chosen is not None:
        try:
            numbers = [number for number in numbers if selects(chosen, number)]
        except ValueError:
            raise UsageError(f"--partition {chosen!r}: give numbers such as 0,2-4") from None
    if question.host is not None:
        of_host = target.pipeline.stream_number_of(question.host)
        numbers = [number for number in numbers if number == of_host]
    if not numbers:
        raise UsageError(f"--partition {chosen!r} names no partition of this pipeline or host")
    if question.has_sequences and len(numbers) > 1:
        raise CliError(
            "--from-seq and --to-seq are sequences of one stream: give --partition N, too"
        )
    return numbers


async def _span(js: JetStream, target: Target, question: Question, number: int) -> Span:
    stream = target.pipeline.names.stream(number)
    info = await js.stream_info(stream)
    if info is None:
        raise CliError(
            f"there is no stream {stream}; was the pipeline applied (`logpipeline apply`), and to "
            "this server?"
        )
    return span_of(question, info)


def _sinks(target: Target, folder: Folder | None, output: Output | None) -> SinkOf:
    form = output or target.pipeline.spec.collectors.output
    if folder is None:
        page = Page(form)
        return lambda number, span: PageSink(page)
    collectors = from_pipeline(
        target.pipeline, member="replay", data=folder.path, nats=target.nats
    ).files
    storage = FileStorage(config_of(collectors, folder.path, form))
    return lambda number, span: FolderSink(storage, number, span)


def _print_counts(reader: Reader) -> None:
    print(f"{reader.lines} lines of {reader.messages} messages", file=sys.stderr)
    if reader.unreadable:
        print(
            f"{reader.unreadable} messages could not be read: see `logpipeline dlq ls`",
            file=sys.stderr,
        )
