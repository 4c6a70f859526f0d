"""``logpipeline up``: run the whole pipeline on this machine, until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from logpipeline.layout import Layout, default_data
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.observe import logs
from logpipeline.spec import LogPipeline, check_update, load
from logpipeline_cli.commands.components import http_address
from logpipeline_cli.errors import EXIT_OK, CliError, explain
from logpipeline_cli.local.console import keep_console
from logpipeline_cli.local.data_folder import check_outside
from logpipeline_cli.local.running import (
    apply_here,
    running,
    with_table_if_possible,
    write_applied,
)
from logpipeline_cli.local.supervisor import Supervisor

log = logging.getLogger(__name__)

WATCH_EVERY_S = 1.0
# A changed file that could not be applied is tried again after so long: a full disk may have room.
AGAIN_AFTER_S = 30.0
# What the parts write holds lines of logs: it is for this user, and for those of its group.
OTHERS = 0o027
# Packages that the page needs and a plain installation lacks.
CONSOLE_PACKAGES = ("starlette", "uvicorn")


def run(args: argparse.Namespace) -> int:
    """Run the resource until SIGINT or SIGTERM, then drain."""
    file = Path(args.file)
    console = _console_address(args.console)
    # Read first, so that an edit made while the pipeline starts is seen as a change.
    seen = _digest(file)
    pipeline = load(file)
    layout = Layout(
        Path(args.data).absolute() if args.data else default_data(pipeline.namespace, pipeline.name)
    )
    check_outside(file, layout)
    logs.setup("up", format="text")
    # Inherited by all parts; one that is stricter stays.
    os.umask(os.umask(OTHERS) | OTHERS)
    asyncio.run(_up(Read(file, seen, pipeline), layout, args, console))
    return EXIT_OK


@dataclass(frozen=True, slots=True)
class Read:
    """A resource with the *file* that it was read from, and the digest of what stood there."""

    file: Path
    digest: bytes | None
    pipeline: LogPipeline


def _console_address(given: str | None) -> tuple[str, int] | None:
    """Return where the page is to be served; None where it is not wanted.

    Raises:
        CliError: *given* is no address, or the packages of the page are not installed.
    """
    if given is None:
        return None
    for package in CONSOLE_PACKAGES:
        if find_spec(package) is None:
            raise CliError(
                f"--console: {package} is not installed: pip install 'logpipeline[console]'"
            )
    return http_address(given, "--console")


async def _up(
    read: Read,
    layout: Layout,
    args: argparse.Namespace,
    console: tuple[str, int] | None,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with running(
        read.pipeline,
        layout,
        nats=args.nats,
        allow_data_loss=args.allow_data_loss,
        on_line=_shown(),
    ) as supervisor:
        if supervisor.held:
            log.error(
                "a part of the resource waits, and the pipeline runs as before; change the file, "
                "or start again with --allow-data-loss if messages may be deleted for it",
                extra={"why": supervisor.held},
            )
        if not supervisor.pipeline.spec.local.shippers:
            log.warning(
                "no files are shipped: the resource lists no spec.local.shippers; collectors write "
                "what others publish"
            )
        log.info(
            "running; Ctrl-C drains and stops",
            extra={"data": str(layout.data), "files": str(layout.data / "collectors")},
        )
        async with asyncio.TaskGroup() as tasks:
            watcher = tasks.create_task(_watch(read, supervisor))
            if console is not None:
                host, port = console
                tasks.create_task(
                    keep_console(layout, host=host, port=port, name=read.pipeline.name, stop=stop)
                )
            await stop.wait()
            watcher.cancel()
        log.info("stopping; lines that are in the log files are still sent and written")


def _shown() -> Callable[[str, str], None]:
    """Return what prints a line of a part's log: for people on a terminal, else as it is."""
    as_text = logs.text_of if sys.stderr.isatty() else logs.printable

    def show(name: str, line: str) -> None:
        print(f"{name}: {as_text(line)}", file=sys.stderr)

    return show


async def _watch(read: Read, supervisor: Supervisor) -> None:
    """Apply the file when it holds something else than was *read*; a file with mistakes changes
    nothing. What keeps it from being applied stands in the record until it is.
    """
    file, seen, problem, again_at = read.file, read.digest, "", 0.0
    while True:
        await asyncio.sleep(WATCH_EVERY_S)
        now, time_s = _digest(file), asyncio.get_running_loop().time()
        if now is None or (now == seen and not (problem and time_s >= again_at)):
            continue
        try:
            await _change(file, supervisor)
        except Exception as error:
            why = explain(error)
            if why is None:
                raise
            if why != problem:
                log.error("the changed file was not applied", extra={"why": why})
            problem, again_at = why, time_s + AGAIN_AFTER_S
            supervisor.hold(f"the changed file is not applied: {why}")
            if isinstance(error, NotSent | OutcomeUnknown):
                # The file is right, but the server does not answer: try again.
                continue
        else:
            problem = ""
        seen = now


async def _change(file: Path, supervisor: Supervisor) -> None:
    pipeline = load(file)
    old = supervisor.pipeline
    if (pipeline.namespace, pipeline.name) != (old.namespace, old.name):
        raise CliError(
            "namespace and name cannot change while the pipeline runs; stop it, and start it again"
        )
    if mistakes := check_update(old, pipeline):
        raise CliError("; ".join(map(str, mistakes)))
    if pipeline.spec.nats != old.spec.nats or pipeline.spec.local.nats != old.spec.local.nats:
        raise CliError(
            "spec.nats and spec.local.nats cannot change while the pipeline runs; stop it, and "
            "start it again"
        )
    pipeline = with_table_if_possible(pipeline)
    async with supervisor.applying:
        # A permission to delete was given for the file as it was at the start.
        held = await apply_here(supervisor.js, pipeline)
        write_applied(pipeline, supervisor.layout)
        await supervisor.change(pipeline, held=held)
    log.info("applied the changed file")
    if held:
        log.warning("a part of it waits for a start with --allow-data-loss", extra={"why": held})


def _digest(file: Path) -> bytes | None:
    try:
        return hashlib.sha256(file.read_bytes()).digest()
    except OSError:
        # An editor is just replacing it.
        return None
