"""``logpipeline export``: existing streams and consumers as a LogPipeline that adopts them."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
from typing import Any

import yaml

from logpipeline.nats.jetstream import JetStream
from logpipeline.plan.export import NotExportable, export_streams
from logpipeline.plan.model import Config
from logpipeline.plan.observe import consumers_of, stream_names
from logpipeline_cli.errors import CliError
from logpipeline_cli.exits import EXIT_OK
from logpipeline_cli.streams.fshipper import nats_of
from logpipeline_cli.target import reached


def run(args: argparse.Namespace) -> int:
    """Print the resource."""
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
    """Return the streams that the words *wanted* mean: each one, or all of a base."""
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
