"""``logpipeline stream``: delete stored messages, or print the options with which Spark reads them;
and ``logpipeline export``: existing streams and consumers as a LogPipeline that adopts them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
from typing import Any

from logpipeline.authority import OPERATOR, TABLE
from logpipeline.credentials import nats_options
from logpipeline.nats.jetstream import STREAM_NOT_FOUND, ApiError, JetStream, StoredMessage
from logpipeline.plan.export import NotExportable, export_streams
from logpipeline.plan.model import Config
from logpipeline.plan.observe import consumers_of, stream_names
from logpipeline.subjects import check_host, names_of
from logpipeline.wire import BadMessage, decode_headers, decode_payload, parse_headers
from logpipeline_cli.errors import EXIT_FAILED, EXIT_OK, CliError
from logpipeline_cli.fshipper import nats_of
from logpipeline_cli.output import agreed, bytes_text, escaped, print_json, table
from logpipeline_cli.target import Target, connected, find_target, reached

SHOWN_BYTES_MAX = 200


def stream(args: argparse.Namespace) -> int:
    """Carry out the action; exit 1 where nothing was deleted."""
    target = find_target(file=args.file, data=args.data, nats=args.nats)
    if args.action == "options":
        return _options(target, as_json=args.output == "json")
    action = _remove if args.action == "rm-msg" else _purge
    return asyncio.run(action(target, args))


def _options(target: Target, *, as_json: bool) -> int:
    """Print the options with which Spark's data source reads the pipeline's streams."""
    from logpipeline_spark.source.options import login_of

    pipeline, nats = target.pipeline, target.nats
    layout = target.layout
    if nats.user_file is not None and nats.user_file.parent == layout.login(OPERATOR):
        # The server that runs here has a user with read access only.
        nats = nats_options(pipeline, servers=nats.servers, login=layout.login(TABLE))
    options = login_of(nats)
    names = pipeline.names
    derived = names_of(pipeline.namespace, pipeline.name, subject=None, stream=None)
    if pipeline.is_single_stream:
        options |= {"stream": names.stream_base, "subject": names.subject}
    elif names.stream_base == derived.stream_base:
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
        print(f"  {escaped(_lines_of(message)[:SHOWN_BYTES_MAX])}")
        if not agreed("Delete it for good?", yes=args.yes):
            print("Nothing was deleted.")
            return EXIT_FAILED
        await _refusable(js, f"STREAM.MSG.DELETE.{stream}", {"seq": args.sequence})
    print(
        "The message is deleted, and its bytes are overwritten. Its lines stay in files and in the "
        "table: see docs/consuming.md, Privacy."
    )
    return EXIT_OK


def _lines_of(message: StoredMessage) -> bytes:
    """Return the lines of *message*, unpacked; if it is damaged, its bytes as they are stored."""
    try:
        batch = decode_headers(parse_headers(message.headers)) if message.headers else None
        return decode_payload(batch, message.data) if batch is not None else message.data
    except BadMessage:
        return message.data


async def _purge(target: Target, args: argparse.Namespace) -> int:
    pipeline = target.pipeline
    host = check_host(args.host) if args.host else None
    if pipeline.is_single_stream and not (host or args.all):
        raise CliError("one stream holds all partitions: give --host or --all")
    numbers = [pipeline.stream_number_of(host)] if host else _numbers(args, pipeline.stream_count)
    body: dict[str, Any] = {"filter": pipeline.filter_of_host(host)} if host else {}
    if args.keep:
        body["keep"] = args.keep
    async with connected(target, "stream") as js:
        streams = [_stream(target, number) for number in numbers]
        for stream in streams:
            state = (await _info(js, stream))["state"]
            print(f"{stream}: {state['messages']} messages, {bytes_text(state['bytes'])}")
        of = f"the messages of {host}" if host else "all of them"
        kept = f", but for the newest {args.keep} of each stream" if args.keep else ""
        if not agreed(
            f"Delete {of}{kept}? Messages that no collector has written are lost.", yes=args.yes
        ):
            print("Nothing was deleted.")
            return EXIT_FAILED
        deleted = 0
        for stream in streams:
            answer = await _refusable(js, f"STREAM.PURGE.{stream}", body)
            deleted += int(answer["purged"])
    print(f"{deleted} messages were deleted.")
    return EXIT_OK


def _numbers(args: argparse.Namespace, streams: int) -> list[int]:
    return list(range(streams)) if args.all else [args.partition]


def _stream(target: Target, partition: int) -> str:
    count = max(target.pipeline.spec.partitions, 1)
    if partition >= count:
        raise CliError(f"there is no partition {partition}; partitions are 0 to {count - 1}")
    return target.pipeline.names.stream(partition)


async def _info(js: JetStream, stream: str) -> dict[str, Any]:
    info = await js.stream_info(stream)
    if info is None:
        raise CliError(f"there is no stream {stream}: see `logpipeline plan`")
    return info


async def _refusable(js: JetStream, request: str, body: dict[str, Any]) -> dict[str, Any]:
    """Request a deletion; where the stream forbids it, raise an error that explains it."""
    try:
        return dict(await js.call(request, body or None))
    except ApiError as error:
        if error.err_code == STREAM_NOT_FOUND:
            raise
        raise CliError(
            f"{error.description}; a stream with denyDelete or denyPurge deletes nothing on "
            "request, and these settings cannot be taken back"
        ) from error


def export(args: argparse.Namespace) -> int:
    """Print the resource."""
    import yaml

    resource = asyncio.run(_exported(args))
    print(yaml.safe_dump(resource, sort_keys=False), end="")
    return EXIT_OK


async def _exported(args: argparse.Namespace) -> dict[str, Any]:
    async with reached(nats_of(os.environ, args.nats), "export") as js:
        names = await _names(js, args.streams)
        streams: list[Config] = []
        consumers: dict[str, list[Config]] = {}
        for name in names:
            info = await js.stream_info(name)
            if info is None:
                raise CliError(f"there is no stream {name} any more: try again")
            streams.append(info["config"])
            if not args.no_consumers:
                consumers[name] = [each["config"] for each in await consumers_of(js, name)]
    try:
        return export_streams(streams, consumers, partitions=args.partitions)
    except NotExportable as error:
        raise CliError(str(error)) from None


async def _names(js: JetStream, wanted: list[str]) -> list[str]:
    """Return the streams that *wanted* names: single ones, or all streams of a base."""
    there = await stream_names(js)
    found: dict[str, None] = {}
    for word in wanted:
        numbered = re.compile(re.escape(word) + r"_\d+")
        meant = [word] if word in there else [name for name in there if numbered.fullmatch(name)]
        if not meant:
            raise CliError(
                f"there is no stream {word}, nor {word}_0 and so on; there are: "
                f"{', '.join(there) or 'none'}"
            )
        found |= dict.fromkeys(meant)
    return list(found)
