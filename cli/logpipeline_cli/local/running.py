"""A pipeline that runs here, from start to drain: folder, server, plan, parts."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

import yaml

from logpipeline.credentials import nats_options
from logpipeline.embedded import EmbeddedServer, ServerFailed, ServerOptions
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.plan.trim import trim_forever
from logpipeline.spec import LogPipeline, dump, expand_local
from logpipeline_cli.errors import CliError
from logpipeline_cli.local.layout import Layout
from logpipeline_cli.local.parts import BACKOFF_FIRST_S, BACKOFF_MAX_S
from logpipeline_cli.local.supervisor import Supervisor
from logpipeline_cli.planning import apply_for, explain_report
from logpipeline_spark.needs import missing

log = logging.getLogger(__name__)

PATIENCE_S = 10.0


@asynccontextmanager
async def running(
    pipeline: LogPipeline,
    layout: Layout,
    *,
    nats: str | None = None,
    allow_data_loss: bool = False,
    on_line: Callable[[str, str], None] = lambda name, line: None,
) -> AsyncIterator[Supervisor]:
    """Start *pipeline* in the folders of *layout*; drain in the end.

    Raises:
        CliError: it runs already, or JetStream cannot be made as it says.
        ConnectFailed: the given server cannot be reached.
    """
    layout.data.mkdir(parents=True, exist_ok=True)
    pipeline = without_what_is_missing(pipeline)
    with _only_one(layout):
        async with (
            _server(pipeline, layout, nats) as (options, server),
            _connection(options) as js,
        ):
            await apply_here(js, pipeline, allow_data_loss=allow_data_loss)
            write_applied(pipeline, layout)
            token = str(options.token_file) if options.token_file == layout.token else ""
            url = ",".join(options.servers)
            supervisor = Supervisor(layout, js, url, token, pipeline, on_line, server)
            helpers = [asyncio.create_task(trim_forever(js, lambda: supervisor.pipeline))]
            if server is not None:
                helpers.append(asyncio.create_task(_keep_running(server, supervisor.write_record)))
            try:
                await supervisor.start()
                yield supervisor
            finally:
                await supervisor.drain()
                for helper in helpers:
                    helper.cancel()
                await asyncio.gather(*helpers, return_exceptions=True)


def without_what_is_missing(pipeline: LogPipeline) -> LogPipeline:
    """Return *pipeline* without a table, and say so, where this machine has no Spark.

    Trimming would wait for a table that nobody writes, until the streams are full.
    """
    if not pipeline.spec.archive.enabled or not (sentence := missing()):
        return pipeline
    log.warning("no table is kept: %s", sentence)
    archive = replace(pipeline.spec.archive, enabled=False)
    return replace(pipeline, spec=replace(pipeline.spec, archive=archive))


async def apply_here(js: JetStream, pipeline: LogPipeline, *, allow_data_loss: bool) -> None:
    """Make JetStream as *pipeline* says.

    Raises:
        CliError: not all of it could be done; the message says what, and why.
    """
    report = await apply_for(js, pipeline, allow_data_loss=allow_data_loss)
    if not report.is_complete:
        name = f"{pipeline.namespace}/{pipeline.name}"
        raise CliError(f"JetStream is not as {name} says:\n{explain_report(report)}")


def write_applied(pipeline: LogPipeline, layout: Layout) -> None:
    """Keep *pipeline* as the parts read it: with the folder for ``${DATA}``."""
    resource = dump(expand_local(pipeline, layout.data.resolve()))
    temporary = layout.pipeline.with_suffix(".tmp")
    temporary.write_text(yaml.safe_dump(resource, sort_keys=False, allow_unicode=True))
    temporary.replace(layout.pipeline)


@contextmanager
def _only_one(layout: Layout) -> Iterator[None]:
    with (layout.data / "run.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CliError(
                f"a pipeline already runs in {layout.data}; stop it (Ctrl-C there), or give this "
                "one another folder with --data DIR"
            ) from None
        yield


@asynccontextmanager
async def _server(
    pipeline: LogPipeline, layout: Layout, nats: str | None
) -> AsyncIterator[tuple[NatsOptions, EmbeddedServer | None]]:
    """Yield how to reach the given server, the resource's, or one that is started here, and that
    one.
    """
    servers = tuple(nats.split(",")) if nats else tuple(pipeline.spec.nats.servers)
    if servers:
        yield nats_options(pipeline, servers=servers), None
        return
    options = ServerOptions(server_name=pipeline.name, token=_token(layout))
    async with EmbeddedServer(layout.server, options) as server:
        yield nats_options(pipeline, servers=(server.url,), token_file=layout.token), server


async def _keep_running(server: EmbeddedServer, started: Callable[[], None]) -> None:
    """Start *server* again whenever it ends, and call *started* then."""
    backoff_s = BACKOFF_FIRST_S
    while True:
        code = await server.wait() if server.is_running else None
        # Gives the store up: the process is gone, and its lock is ours still.
        server.kill()
        log.warning("nats-server ended, starting it again", extra={"code": code})
        try:
            await server.start()
        except (ServerFailed, OSError) as error:
            log.error("nats-server does not start", extra={"why": str(error), "wait_s": backoff_s})
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)
            continue
        backoff_s = BACKOFF_FIRST_S
        started()


@asynccontextmanager
async def _connection(options: NatsOptions) -> AsyncIterator[JetStream]:
    connection = Connection(options.named("logpipeline supervisor"))
    await connection.start(patience_s=PATIENCE_S)
    try:
        yield JetStream(connection)
    finally:
        await connection.close()


def _token(layout: Layout) -> str:
    """Return the embedded server's token, made at the first start."""
    if not layout.token.exists():
        # Half a token must not be found after a crash: an empty one would let everybody in.
        temporary = layout.token.with_suffix(".tmp")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(24))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(layout.token)
    return layout.token.read_text().strip()
