"""``logpipeline stream``: deletes stored messages by hand, after it was asked, and prints the
options with which Spark reads them.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from logpipeline.authority import OPERATOR, TABLE
from logpipeline.credentials import nats_options
from logpipeline.nats.jetstream import STREAM_NOT_FOUND, ApiError, JetStream
from logpipeline.partition import partition_of
from logpipeline.subjects import Subjects, check_host, names_of
from logpipeline_cli.errors import CliError
from logpipeline_cli.exits import EXIT_FAILED, EXIT_OK
from logpipeline_cli.output import agreed, bytes_text, escaped, print_json, table
from logpipeline_cli.target import Target, connected, find_target
from logpipeline_spark.source.options import login_of

SHOWN_BYTES_MAX = 200


def run(args: argparse.Namespace) -> int:
    """Do the action; exit 1 where nothing was done."""
    target = find_target(file=args.file, data=args.data, nats=args.nats)
    if args.action == "options":
        return _options(target, as_json=args.output == "json")
    action = _remove if args.action == "rm-msg" else _purge
    return asyncio.run(action(target, args))


def _options(target: Target, *, as_json: bool) -> int:
    """Print with which options Spark's data source reads the pipeline's streams."""
    pipeline, nats = target.pipeline, target.nats
    layout = target.layout
    if nats.user_file is not None and nats.user_file.parent == layout.login(OPERATOR):
        # The server that runs here has a user that may only read.
        nats = nats_options(pipeline, servers=nats.servers, login=layout.login(TABLE))
    options = login_of(nats)
    names = pipeline.names
    derived = names_of(pipeline.namespace, pipeline.name, subject=None, stream=None)
    if names.stream_base == derived.stream_base:
        options["pipeline"] = f"{pipeline.namespace}/{pipeline.name}"
    else:
        count = str(pipeline.spec.partitions)
        options |= {"stream": names.stream_base, "partitions": count, "subject": names.subject}
    if as_json:
        print_json(options)
    else:
        print(table(("OPTION", "VALUE"), list(options.items())))
    return EXIT_OK


async def _remove(target: Target, args: argparse.Namespace) -> int:
    stream = _stream(target, args.partition)
    async with connected(target, "stream") as js:
        await _info(js, stream)
        message = await js.message(stream, args.sequence)
        if message is None:
            raise CliError(f"stream {stream} has no message {args.sequence}")
        print(f"{stream} {args.sequence}: {message.subject}, {bytes_text(len(message.data))}")
        print(f"  {escaped(message.data[:SHOWN_BYTES_MAX])}")
        if not agreed("Delete it for good?", yes=args.yes):
            print("Nothing was deleted.")
            return EXIT_FAILED
        await _refusable(js, f"STREAM.MSG.DELETE.{stream}", {"seq": args.sequence})
    print(
        "It is deleted, and its bytes are overwritten. Its lines stay in files and in the table: "
        "see docs/consuming.md, Privacy."
    )
    return EXIT_OK


async def _purge(target: Target, args: argparse.Namespace) -> int:
    partitions = target.pipeline.spec.partitions
    host = check_host(args.host) if args.host else None
    numbers = [partition_of(host, partitions)] if host else _numbers(args, partitions)
    subjects = Subjects(target.pipeline.names.subject, partitions)
    body: dict[str, Any] = {"filter": subjects.of_host(host)} if host else {}
    if args.keep:
        body["keep"] = args.keep
    async with connected(target, "stream") as js:
        streams = [_stream(target, number) for number in numbers]
        for stream in streams:
            state = (await _info(js, stream))["state"]
            print(f"{stream}: {state['messages']} messages, {bytes_text(state['bytes'])}")
        of = f"the messages of {host}" if host else "all of them"
        kept = f", but for the newest {args.keep} of each stream" if args.keep else ""
        if not agreed(f"Delete {of}{kept}? What no collector has is lost.", yes=args.yes):
            print("Nothing was deleted.")
            return EXIT_FAILED
        deleted = 0
        for stream in streams:
            answer = await _refusable(js, f"STREAM.PURGE.{stream}", body)
            deleted += int(answer["purged"])
    print(f"{deleted} messages are deleted.")
    return EXIT_OK


def _numbers(args: argparse.Namespace, partitions: int) -> list[int]:
    return list(range(max(partitions, 1))) if args.all else [args.partition]


def _stream(target: Target, partition: int) -> str:
    count = max(target.pipeline.spec.partitions, 1)
    if partition >= count:
        raise CliError(f"there is no partition {partition}: they are 0 to {count - 1}")
    return target.pipeline.names.stream(partition)


async def _info(js: JetStream, stream: str) -> dict[str, Any]:
    info = await js.stream_info(stream)
    if info is None:
        raise CliError(f"there is no stream {stream}: see `logpipeline plan`")
    return info


async def _refusable(js: JetStream, request: str, body: dict[str, Any]) -> dict[str, Any]:
    """Ask for a deletion, and say what to do where the stream forbids it."""
    try:
        return dict(await js.call(request, body or None))
    except ApiError as error:
        if error.err_code == STREAM_NOT_FOUND:
            raise
        raise CliError(
            f"{error.description}; streams with denyDelete or denyPurge give nothing away: "
            "that cannot be taken back"
        ) from error
