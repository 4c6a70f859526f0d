"""A pipeline that runs here, from start to drain: folder, server, plan, parts."""

from __future__ import annotations

import asyncio
import fcntl
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

import yaml

from logpipeline.authority import OPERATOR, STREAMS_ACCOUNT
from logpipeline.credentials import nats_options
from logpipeline.embedded import EmbeddedServer, ServerOptions
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.plan.trim import trim_forever
from logpipeline.spec import LogPipeline, dump, expand_local
from logpipeline_cli.errors import CliError
from logpipeline_cli.local import users
from logpipeline_cli.local.keeper import Keeper
from logpipeline_cli.local.lasting import lasting
from logpipeline_cli.local.layout import Layout
from logpipeline_cli.local.prober import Prober
from logpipeline_cli.local.reconciler import Reconciler
from logpipeline_cli.local.supervisor import Supervisor
from logpipeline_cli.planning import apply_for, explain_report
from logpipeline_cli.tables.absence import why_no_table

log = logging.getLogger(__name__)

PATIENCE_S = 10.0
PUT_BACK_EVERY_S = 1.0


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
    pipeline = with_table_if_possible(pipeline)
    with _only_one(layout):
        async with (
            _server(pipeline, layout, nats) as (options, server),
            _connection(options) as js,
        ):
            await apply_here(js, pipeline, allow_data_loss=allow_data_loss)
            write_applied(pipeline, layout)
            url = ",".join(options.servers)
            supervisor = Supervisor(layout, js, url, pipeline, on_line, server)
            helpers = _helpers(supervisor, server)
            try:
                await supervisor.start()
                yield supervisor
            finally:
                await supervisor.drain()
                for helper in helpers:
                    helper.cancel()
                await asyncio.gather(*helpers, return_exceptions=True)


def _helpers(supervisor: Supervisor, server: EmbeddedServer | None) -> list[asyncio.Task[None]]:
    """Start what trims the streams, and looks after the server, JetStream, the parts and our own
    files.
    """
    reconciler = Reconciler(supervisor.js, lambda: supervisor.pipeline, supervisor.applying)
    helpers: dict[str, Callable[[], Awaitable[None]]] = {
        "trimming": lambda: trim_forever(supervisor.js, lambda: supervisor.pipeline),
        "looking after JetStream": reconciler.run,
        "probing the parts": Prober(supervisor.probed).run,
        "putting files back": lambda: _put_back_forever(supervisor, server),
    }
    if server is not None:
        keeper = supervisor.keeper = Keeper(server, changed=supervisor.write_record)
        reconciler.found = keeper.check_store
        helpers["keeping nats-server"] = keeper.run
    return [asyncio.create_task(lasting(what, run)) for what, run in helpers.items()]


def with_table_if_possible(pipeline: LogPipeline) -> LogPipeline:
    """Return *pipeline* with a table, unless it wants none; without one, and say why, where none
    can be kept here.

    A table that is kept on paper alone would hold trimming back until the streams are nearly full.
    """
    table = pipeline.spec.table
    if table.enabled is False:
        return pipeline
    if sentence := why_no_table(pipeline):
        is_asked_for = table.enabled is not None
        log.log(logging.WARNING if is_asked_for else logging.INFO, "no table is kept: %s", sentence)
    # With None, `status` and `query` say what is missing; False is a decision of the resource.
    table = replace(table, enabled=None if sentence else True)
    return replace(pipeline, spec=replace(pipeline.spec, table=table))


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
    options = ServerOptions(
        server_name=pipeline.name,
        accounts=users.accounts(pipeline, layout),
        streams_account=STREAMS_ACCOUNT,
    )
    async with EmbeddedServer(layout.server, options) as server:
        yield nats_options(pipeline, servers=(server.url,), login=layout.login(OPERATOR)), server


async def _put_back_forever(supervisor: Supervisor, server: EmbeddedServer | None) -> None:
    """Write again those of our own files that others removed or changed, for ever."""
    layout = supervisor.layout
    while True:
        await asyncio.sleep(PUT_BACK_EVERY_S)
        try:
            if server is not None and users.put_back(server.options.accounts, layout):
                log.warning("wrote logins of the server again", extra={"at": str(layout.logins)})
            if not layout.pipeline.is_file():
                write_applied(supervisor.pipeline, layout)
            # Before its parts are started it would say that nothing is to be waited for.
            if supervisor.parts and not layout.run_file.is_file():
                supervisor.write_record()
        except OSError as error:
            log.debug("could not put files back", extra={"why": str(error)})


@asynccontextmanager
async def _connection(options: NatsOptions) -> AsyncIterator[JetStream]:
    connection = Connection(options.named("logpipeline supervisor"))
    await connection.start(patience_s=PATIENCE_S)
    try:
        yield JetStream(connection)
    finally:
        await connection.close()
