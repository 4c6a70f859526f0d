"""Runs a pipeline on this machine, from start to drain: folder, server, plan, parts, repairs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import yaml

from logpipeline.authority import OPERATOR, STREAMS_ACCOUNT
from logpipeline.credentials import nats_options
from logpipeline.embedded import EmbeddedServer, ServerOptions
from logpipeline.layout import Layout, RunRecord
from logpipeline.nats.connection import Connection, NatsOptions, NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.plan.apply import Report, Result, apply, plan_pipeline, report_of_held
from logpipeline.plan.desired import desired
from logpipeline.plan.diff import make_plan
from logpipeline.plan.model import Kind
from logpipeline.plan.observe import JetStreamOff, account_of, observe
from logpipeline.plan.trim import trim_forever
from logpipeline.spec import LogPipeline, SpecError, check_update, dump, expand_local, load
from logpipeline_cli.commands.plan import explain_report
from logpipeline_cli.errors import CliError
from logpipeline_cli.local import users
from logpipeline_cli.local.data_folder import check_usable, make, only_one
from logpipeline_cli.local.keeper import Keeper
from logpipeline_cli.local.parts import Part
from logpipeline_cli.local.supervisor import Supervisor
from logpipeline_cli.tables.status import why_no_table

log = logging.getLogger(__name__)

AGAIN_AFTER_S = 5.0

PROBE_EVERY_S = 2.0
ANSWER_DEADLINE_S = 5.0
# Far more than the delay of an answer on a loaded machine.
SILENT_S_MAX = 30.0
# A process that never answered may still be reading the positions of very many files.
STARTING_S_MAX = 300.0

# A check costs some requests for each stream; lines wait in their files meanwhile.
LOOK_EVERY_S = 5.0

PATIENCE_S = 10.0
PUT_BACK_EVERY_S = 1.0


async def lasting(what: str, run: Callable[[], Awaitable[None]]) -> None:
    """Await *run*, and start it again after a pause whenever it fails, until cancelled; *what*
    names the task that stands still meanwhile.
    """
    while True:
        try:
            return await run()
        except Exception:
            log.exception(
                "a task of `up` failed, and is started again",
                extra={"what": what, "wait_s": AGAIN_AFTER_S},
            )
        await asyncio.sleep(AGAIN_AFTER_S)


@dataclass(slots=True)
class Prober:
    """Probes the processes that *parts* returns, each with its address, and kills one that does not
    answer.
    """

    parts: Callable[[], Iterable[tuple[Part, str]]]
    # By process id: the time of the last answer; and for processes that never answered, the time at
    # which they were first seen.
    _answered: dict[int, float] = field(default_factory=dict)
    _starting: dict[int, float] = field(default_factory=dict)

    async def run(self) -> None:
        """Probe, until cancelled."""
        while True:
            await asyncio.sleep(PROBE_EVERY_S)
            asked = [(part, part.pid, http) for part, http in self.parts() if part.pid]
            answers = await asyncio.gather(*(_answers(http) for _, _, http in asked))
            now = asyncio.get_running_loop().time()
            known = {pid: self._answered[pid] for _, pid, _ in asked if pid in self._answered}
            known |= {
                pid: now for (_, pid, _), is_there in zip(asked, answers, strict=True) if is_there
            }
            for part, pid, _ in asked:
                if pid in known and pid not in self._answered:
                    log.info("a part answers", extra={"part": part.name})
            self._answered = known
            self._starting = {
                pid: self._starting.get(pid, now) for _, pid, _ in asked if pid not in known
            }
            for part, pid, _ in asked:
                if self._is_dead(pid, now) and part.pid == pid:
                    log.warning("a part does not answer, killing it", extra={"part": part.name})
                    part.kill()

    def _is_dead(self, pid: int, now: float) -> bool:
        if pid in self._answered:
            return now - self._answered[pid] > SILENT_S_MAX
        return now - self._starting[pid] > STARTING_S_MAX


async def _answers(http: str) -> bool:
    """Return whether a process answers at *http*, with any answer."""
    host, _, port = http.rpartition(":")
    try:
        async with asyncio.timeout(ANSWER_DEADLINE_S):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(b"GET /livez HTTP/1.0\r\n\r\n")
                return bool(await reader.readline())
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError, ValueError):
        return False


@dataclass(slots=True)
class Reconciler:
    """Compares JetStream with the pipeline again and again, and repairs it. It holds *applying*
    while it does. *found* is called with the names of the existing streams on disk, and *noted*
    with a sentence on what it cannot repair, whenever that changes.
    """

    js: JetStream
    pipeline: Callable[[], LogPipeline]
    applying: asyncio.Lock
    found: Callable[[Collection[str]], None] = lambda names: None
    noted: Callable[[str], None] = lambda trouble: None
    repairs: int = 0
    trouble: str = ""

    async def run(self) -> None:
        """Compare and repair, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                async with self.applying:
                    self._note(await self._look())
            except (NotSent, OutcomeUnknown, ApiError, JetStreamOff) as error:
                log.debug("could not look at JetStream", extra={"why": str(error)})

    async def _look(self) -> Report | None:
        wanted = desired(self.pipeline(), account=await account_of(self.js))
        observed = await observe(self.js, wanted)
        self.found(
            [
                name
                for name, stream in observed.streams.items()
                if stream.config.get("storage", "file") == "file"
            ]
        )
        plan = make_plan(wanted, observed)
        if not plan.steps and not plan.blocking:
            return None
        return await apply(self.js, plan, allow_data_loss=False)

    def _note(self, report: Report | None) -> None:
        if report is None:
            self._tell("")
            return
        done = [outcome.step for outcome in report.outcomes if outcome.result is Result.DONE]
        if done:
            self.repairs += len(done)
            names = ", ".join(sorted({step.asset for step in done}))
            log.warning(
                "repaired streams or consumers that were missing or changed", extra={"of": names}
            )
        trouble = "" if report.is_complete else explain_report(report)
        if trouble and trouble != self.trouble:
            log.error("JetStream does not match the resource", extra={"why": trouble})
        self._tell(trouble)

    def _tell(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            self.noted(trouble)


@asynccontextmanager
async def running(
    pipeline: LogPipeline,
    layout: Layout,
    *,
    nats: str | None = None,
    allow_data_loss: bool = False,
    on_line: Callable[[str, str], None] = lambda name, line: None,
) -> AsyncIterator[Supervisor]:
    """Start *pipeline* in the folders of *layout*; drain it at the end.

    Raises:
        CliError: it runs already, the folder has files of others, or JetStream cannot be changed to
            match it.
        ConnectFailed: the given server cannot be reached.
    """
    check_usable(layout, pipeline)
    make(layout)
    with only_one(layout):
        pipeline, refused = _after_former(pipeline, layout)
        # Of a run that ended without a drain: what it says of addresses is no longer true.
        RunRecord.remove(layout)
        async with (
            _server(pipeline, layout, nats) as (options, server),
            _connection(options) as js,
        ):
            pipeline, held = await begin_with(js, pipeline, layout, allow_data_loss=allow_data_loss)
            held = "\n".join(filter(None, (refused, held)))
            write_applied(pipeline, layout)
            url = ",".join(options.servers)
            supervisor = Supervisor(layout, js, url, pipeline, on_line, server, held=held)
            helpers = _helpers(supervisor, server)
            try:
                # The server was started with the users of the given resource.
                await supervisor.update_users()
                await supervisor.start()
                yield supervisor
            finally:
                await supervisor.drain()
                for helper in helpers:
                    helper.cancel()
                await asyncio.gather(*helpers, return_exceptions=True)


def _helpers(supervisor: Supervisor, server: EmbeddedServer | None) -> list[asyncio.Task[None]]:
    """Start the tasks that trim the streams, and repair the server, JetStream, the parts and our
    own files.
    """
    reconciler = Reconciler(
        supervisor.js,
        lambda: supervisor.pipeline,
        supervisor.applying,
        noted=supervisor.note_mismatch,
    )
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
    """Return *pipeline* with a table, unless its resource wants none; if none can be written here,
    return it without one, and log why.

    Trimming waits for an enabled table: if no job wrote it, the streams would become nearly full.
    """
    table = pipeline.spec.table
    if table.enabled is False:
        return pipeline
    if sentence := why_no_table(pipeline):
        is_asked_for = table.enabled is not None
        level = logging.WARNING if is_asked_for else logging.INFO
        log.log(level, "no table is written: %s", sentence)
    # With None, `status` and `query` show what is missing; False would mean that the resource wants
    # none.
    table = replace(table, enabled=None if sentence else True)
    return replace(pipeline, spec=replace(pipeline.spec, table=table))


def _after_former(pipeline: LogPipeline, layout: Layout) -> tuple[LogPipeline, str]:
    """Return what may run after what was applied last in *layout*: *pipeline*, or the former one if
    something changed that cannot change while there are lines; and why it is not *pipeline*.

    Lines must not wait until a person decides about the change.
    """
    former = _last_applied(pipeline, layout)
    mistakes = check_update(former, pipeline) if former is not None else []
    if former is None or not mistakes:
        return with_table_if_possible(pipeline), ""
    return former, f"the changed file is not applied: {'; '.join(map(str, mistakes))}"


async def begin_with(
    js: JetStream, pipeline: LogPipeline, layout: Layout, *, allow_data_loss: bool
) -> tuple[LogPipeline, str]:
    """Change JetStream for a start, and return the resource to run, and what is held back of the
    given *pipeline*; empty if nothing is.

    While a part of its change is held back, the pipeline runs as it was last applied in *layout*:
    lines must not wait until a person decides about the change.

    Raises:
        CliError: a change failed; the message says which, and why.
    """
    plan = await plan_pipeline(js, pipeline)
    held_back = report_of_held(plan, allow_data_loss=allow_data_loss)
    if held_back is None:
        report = await apply(js, plan, allow_data_loss=allow_data_loss)
        _raise_if_failed(pipeline, report)
        return pipeline, "" if report.is_complete else _mismatch(pipeline, report)
    held = _mismatch(pipeline, held_back)
    former = _last_applied(pipeline, layout)
    if former is not None:
        plan = await plan_pipeline(js, former)
    report = await apply(js, plan, allow_data_loss=False)
    _raise_if_failed(former or pipeline, report)
    return former or pipeline, held


def _last_applied(pipeline: LogPipeline, layout: Layout) -> LogPipeline | None:
    """Return what last ran in *layout* under the name of *pipeline*, None if that is not known."""
    try:
        former = load(layout.pipeline)
    except (OSError, SpecError):
        return None
    is_same = (former.namespace, former.name) == (pipeline.namespace, pipeline.name)
    return with_table_if_possible(former) if is_same else None


async def apply_here(js: JetStream, pipeline: LogPipeline) -> str:
    """Change JetStream so that it matches *pipeline*, or change nothing if a part of the change
    must be held back. Return what is kept all the same, such as a consumer with its position;
    empty if nothing is.

    Raises:
        CliError: a change failed or was held back; the message says which, and why.
    """
    plan = await plan_pipeline(js, pipeline)
    held_back = report_of_held(plan, allow_data_loss=False)
    if held_back is not None:
        raise CliError(_mismatch(pipeline, held_back))
    report = await apply(js, plan, allow_data_loss=False)
    _raise_if_failed(pipeline, report)
    return "" if report.is_complete else _mismatch(pipeline, report)


def _raise_if_failed(pipeline: LogPipeline, report: Report) -> None:
    # Streams of others are not for us to write to; what else is held back leaves ours as they are.
    is_failed = any(
        outcome.result not in (Result.DONE, Result.HELD_BACK)
        or outcome.step.kind is Kind.ADOPT_NEEDED
        for outcome in report.outcomes
    )
    if is_failed or any(problem.is_blocking for problem in report.problems):
        raise CliError(_mismatch(pipeline, report))


def _mismatch(pipeline: LogPipeline, report: Report) -> str:
    name = f"{pipeline.namespace}/{pipeline.name}"
    return f"JetStream does not match {name}:\n{explain_report(report)}"


def write_applied(pipeline: LogPipeline, layout: Layout) -> None:
    """Write *pipeline* for its parts, with the data folder in place of ``${DATA}``.

    For its owner alone: addresses of servers may hold a password.
    """
    resource = dump(expand_local(pipeline, layout.data.resolve()))
    users.private(layout.pipeline, yaml.safe_dump(resource, sort_keys=False, allow_unicode=True))


@asynccontextmanager
async def _server(
    pipeline: LogPipeline, layout: Layout, nats: str | None
) -> AsyncIterator[tuple[NatsOptions, EmbeddedServer | None]]:
    """Yield the connection options of the given server, of the resource's, or of one that is
    started here; and the latter.
    """
    servers = tuple(nats.split(",")) if nats else tuple(pipeline.spec.nats.servers)
    if servers:
        yield nats_options(pipeline, servers=servers), None
        return
    options = ServerOptions(
        port=pipeline.spec.local.nats.port or 0,
        server_name=pipeline.name,
        accounts=users.accounts(pipeline, layout),
        streams_account=STREAMS_ACCOUNT,
    )
    async with EmbeddedServer(layout.server, options) as server:
        yield nats_options(pipeline, servers=(server.url,), login=layout.login(OPERATOR)), server


async def _put_back_forever(supervisor: Supervisor, server: EmbeddedServer | None) -> None:
    """Restore our own files when others remove or change them, until cancelled."""
    layout = supervisor.layout
    while True:
        await asyncio.sleep(PUT_BACK_EVERY_S)
        try:
            if server is not None and users.put_back(server.options.accounts, layout):
                log.warning(
                    "restored credential files of the server", extra={"at": str(layout.logins)}
                )
            if not layout.pipeline.is_file():
                write_applied(supervisor.pipeline, layout)
            # Before its parts are started, an empty record would mislead commands that wait for
            # them.
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
