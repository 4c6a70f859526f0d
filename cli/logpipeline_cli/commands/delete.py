"""``logpipeline delete``: delete what JetStream has of a pipeline, and its data if asked to."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from logpipeline.layout import Layout, RunRecord
from logpipeline.nats.options import without_secret
from logpipeline.plan.observe import found_stream
from logpipeline.plan.removal import remove
from logpipeline.spec import LogPipeline, expand_local
from logpipeline_cli.errors import EXIT_FAILED, EXIT_OK, CliError
from logpipeline_cli.local.data_folder import LOST_AND_FOUND, check_removable, only_one
from logpipeline_cli.output import agreed
from logpipeline_cli.target import Target, connected, find_pipeline, find_target


def run(args: argparse.Namespace) -> int:
    """Ask, delete, and list the deleted streams, consumers and data."""
    pipeline, layout = find_pipeline(file=args.file, data=args.data)
    name = f"{pipeline.namespace}/{pipeline.name}"
    if RunRecord.read(layout) is not None:
        raise CliError(f"{name} runs in {layout.data}: stop it first (Ctrl-C there)")
    if args.with_data and layout.data.is_dir():
        check_removable(layout, pipeline)
    has_own_server = layout.server.is_dir() and not args.nats and not pipeline.spec.nats.servers
    if has_own_server and not args.with_data:
        raise CliError(
            f"the streams of {name} are in its own server's store, {layout.server}: give "
            "--with-data to delete them with its data, or --nats URL for another server"
        )
    target = None if has_own_server else _target(args, pipeline)
    if target is None and not (args.with_data and layout.data.is_dir()):
        raise CliError(f"there is nothing of {name} to delete: it never ran in {layout.data}")
    if not agreed(_question(name, target, layout, with_data=args.with_data), yes=args.yes):
        print("Nothing was deleted.")
        return EXIT_FAILED
    with _stopped(layout):
        deleted = asyncio.run(_remove(target)) if target is not None else []
        if args.with_data and layout.data.is_dir():
            deleted += _remove_data(layout)
    print("\n".join(f"deleted {each}" for each in deleted) or "there was nothing to delete")
    table = expand_local(pipeline, layout.data).spec.table.path
    if args.with_data and table:
        print(f"kept the table in {table}: delete it there if nobody reads it")
    return EXIT_OK


@contextmanager
def _stopped(layout: Layout) -> Iterator[None]:
    """Keep the pipeline of *layout* from being started meanwhile, if it ever ran there."""
    if not layout.lock_file.is_file():
        yield
        return
    with only_one(layout):
        yield


def _target(args: argparse.Namespace, pipeline: LogPipeline) -> Target | None:
    """Return the server that has the streams, None if none is known and only data is meant."""
    if args.with_data and not (
        args.nats or os.environ.get("NATS_URL") or pipeline.spec.nats.servers
    ):
        return None
    return find_target(file=args.file, data=args.data, nats=args.nats)


def _question(name: str, target: Target | None, layout: Layout, *, with_data: bool) -> str:
    parts = []
    if target is not None:
        messages = asyncio.run(_messages(target))
        parts.append(
            f"its streams on {without_secret(target.nats.servers[0])} ({messages} messages)"
        )
    if with_data:
        parts.append(f"all that it wrote in {layout.data}, the collected files among it")
    return f"Delete of {name} {' and '.join(parts)}?"


async def _messages(target: Target) -> int:
    names = target.pipeline.names
    if target.pipeline.spec.stream.external:
        return 0
    total = 0
    async with connected(target, "delete") as js:
        for number in range(target.pipeline.stream_count):
            stream = await found_stream(js, names.stream(number))
            total += int(stream.state["messages"]) if stream is not None else 0
    return total


async def _remove(target: Target) -> list[str]:
    async with connected(target, "delete") as js:
        return await remove(js, target.pipeline)


def _remove_data(layout: Layout) -> list[str]:
    """Delete what the pipeline wrote into its folder, and the folder if nothing else is in it."""
    for path in layout.everything:
        _delete(path)
    # A service's user may not delete a folder of /var/lib.
    with suppress(OSError):
        layout.data.rmdir()
    return [f"the data in {layout.data}"]


def _delete(path: Path) -> None:
    """Delete *path* with all in it; of a mounted disk, its content."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    is_disk = path.is_mount()
    for each in path.iterdir():
        # That of the file system itself.
        if not (is_disk and each.name == LOST_AND_FOUND):
            _delete(each)
    if not is_disk:
        path.rmdir()
