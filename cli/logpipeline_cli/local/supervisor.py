"""The supervisor of a pipeline on this machine: starts, scales, changes and drains its parts, and
keeps its partitions assigned.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from logpipeline.authority import COLLECTOR, OPERATOR, TABLE, shipper_user
from logpipeline.embedded import EmbeddedServer
from logpipeline.group.assignment import GroupTaken, ensure_assigned
from logpipeline.group.membership import LEFT, shows_life
from logpipeline.lag import survey
from logpipeline.layout import SERVER, Component, Layout, RunRecord
from logpipeline.nats.bucket import Bucket, Conflict, Entry
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.ports import LOOPBACK, free_port, is_free
from logpipeline.records import BadRecord, EpochRecord, epoch_key, member_key
from logpipeline.spec import LogPipeline
from logpipeline.statefile import StateBroken
from logpipeline_cli.commands.components import LOGIN_VARIABLE, NATS_VARIABLE
from logpipeline_cli.errors import CliError
from logpipeline_cli.local import users
from logpipeline_cli.local.keeper import Keeper
from logpipeline_cli.local.parts import Part
from logpipeline_cli.target import ask
from logpipeline_collector.folder import known_identity

log = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0

# Programs may never stop writing, and the server may not answer; the next start continues where
# this one ended.
SHIP_DEADLINE_S = 5.0
# A line that was written just before the first look is seen by its shipper before the second.
LOOKS_LEVEL = 2
# A backlog that does not change for so many looks waits for the end of a line, or for a repair.
LOOKS_STILL = 4
RETRY_S = 0.1

# How long a drain waits until the collectors have written all messages of the shippers.
DRAIN_DEADLINE_S = 15.0
# How long a collector that is scaled away may take to release its partitions.
RELEASE_DEADLINE_S = 15.0
POLL_S = 0.1


async def check_alone(
    bucket: Bucket, pipeline: LogPipeline, layout: Layout, members: list[str]
) -> None:
    """Return when no other process works as one of *members*: at once, or, if one may have crashed
    on another machine, after its takeover time without a heartbeat.

    Raises:
        CliError: another process does.
    """
    group = pipeline.spec.collectors.group
    async with asyncio.TaskGroup() as tasks:
        checks = [
            tasks.create_task(_is_alive_elsewhere(bucket, pipeline, layout, member))
            for member in members
        ]
    for member, check in zip(members, checks, strict=True):
        if check.result():
            raise CliError(
                f"{member} of the group {group} runs elsewhere on these streams: stop that "
                f"pipeline, or give this one another name and spec.collectors.group"
            )


async def _is_alive_elsewhere(
    bucket: Bucket, pipeline: LogPipeline, layout: Layout, member: str
) -> bool:
    group = pipeline.spec.collectors.group
    key = member_key(group, member)
    takeover_after_s = pipeline.spec.collectors.takeover_after_ns / 1e9
    try:
        first = await bucket.get(key)
        if first is None or first.value == LEFT or _is_here(layout, group, member, first):
            return False
        return await shows_life(bucket, key, first, takeover_after_s=takeover_after_s)
    except (NotSent, OutcomeUnknown, ApiError):
        # The collector itself looks again, as soon as the server answers.
        return False


def _is_here(layout: Layout, group: str, member: str, entry: Entry) -> bool:
    """Return whether the heartbeat is of an earlier process in our folder; the folder is locked, so
    that none runs now.
    """
    try:
        identity = known_identity(layout.collector(member), group)
    except StateBroken:
        return False
    return identity is not None and entry.value.startswith(f"{identity}-".encode())


async def keep_assigned(
    bucket: Bucket, pipeline: Callable[[], LogPipeline], members: Callable[[], list[str]]
) -> None:
    """Keep the partitions of *pipeline* assigned to *members*, until cancelled; both may change."""
    problem = ""
    while True:
        try:
            await ensure_assigned(bucket, pipeline(), members())
        except GroupTaken as error:
            if str(error) != problem:
                log.error("partitions cannot be assigned", extra={"why": str(error)})
            problem = str(error)
        except (NotSent, OutcomeUnknown, ApiError, Conflict) as error:
            log.debug("could not look at the assignment", extra={"why": str(error)})
        await asyncio.sleep(CHECK_EVERY_S)


async def await_shipped(js: JetStream, control_root: str, *, shippers: int) -> bool:
    """Return whether all *shippers* have sent all lines of their files; False after the deadline,
    or if the backlog does not change.
    """
    looks: list[tuple[int, object]] = []
    try:
        async with asyncio.timeout(SHIP_DEADLINE_S):
            while not _is_over(looks):
                try:
                    answers = (await ask(js.connection, control_root))["shipper"]
                except (NotSent, OutcomeUnknown):
                    answers = []
                    await asyncio.sleep(RETRY_S)
                if len(answers) >= shippers:
                    looks.append(_look(answers))
    except TimeoutError:
        return False
    return looks[-1][0] == 0


def _look(answers: list[dict[str, Any]]) -> tuple[int, object]:
    """Return the backlog in bytes, and the positions, which change when lines are sent."""
    positions = [
        (source.get("host"), source.get("source"), source.get("position"))
        for answer in answers
        for source in answer.get("sources", [])
    ]
    left = sum(answer.get("backlog_bytes", 0) for answer in answers)
    return left, sorted(positions, key=repr)


def _is_over(looks: list[tuple[int, object]]) -> bool:
    level = looks[-LOOKS_LEVEL:]
    still = looks[-LOOKS_STILL:]
    return (len(level) == LOOKS_LEVEL and not any(left for left, _ in level)) or (
        len(still) == LOOKS_STILL and all(look == still[0] for look in still)
    )


@dataclass(slots=True)
class Supervisor:
    """Runs the parts of one pipeline; *url* is the address of its server. With an embedded *server*
    each part has its own user.
    """

    layout: Layout
    js: JetStream
    url: str
    pipeline: LogPipeline
    on_line: Callable[[str, str], None] = lambda name, line: None
    server: EmbeddedServer | None = None
    keeper: Keeper | None = None
    # The part of the given resource that is not applied, and why; empty if all of it is.
    held: str = ""
    # How JetStream differs from the applied resource; empty if it does not.
    mismatch: str = ""
    # Held while JetStream is changed: two changes for different resources would undo each other.
    applying: asyncio.Lock = field(default_factory=asyncio.Lock)
    _parts: dict[str, Part] = field(default_factory=dict)
    _ports: dict[str, int] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _members: list[str] = field(default_factory=list)

    @property
    def parts(self) -> dict[str, Part]:
        """The running parts by name."""
        return self._parts

    def probed(self) -> list[tuple[Part, str]]:
        """Return the running parts, each with the address of its probes."""
        return [(part, self._address(name)) for name, part in self._parts.items()]

    @property
    def bucket(self) -> Bucket:
        """The pipeline's state."""
        return Bucket(self.js, self.pipeline.names.state_bucket)

    async def start(self) -> None:
        """Start all parts and keep the partitions assigned.

        Raises:
            CliError: these collectors run elsewhere.
        """
        members = collector_names(self.pipeline)
        await check_alone(self.bucket, self.pipeline, self.layout, members)
        self._members = members
        self._tasks["assigner"] = asyncio.create_task(self._keep_assigned())
        for member in self._members:
            self._start_collector(member)
        for shipper in self.pipeline.spec.local.shippers:
            self._start_shipper(shipper.name)
        if self.pipeline.spec.table.enabled:
            self._start_table()
        self.write_record()

    async def change(self, pipeline: LogPipeline, *, held: str = "") -> None:
        """Change the parts to match *pipeline*; more or fewer collectors need no restart of
        others. *held* says which part of it is not applied, and why.
        """
        old, self.pipeline = self.pipeline, pipeline
        self.held = held
        await self.update_users()
        if _shipper_settings(old) != _shipper_settings(pipeline):
            await self._restart_shippers()
        if _collector_settings(old) != _collector_settings(pipeline):
            for member in list(self._members):
                await self._stop(member)
                self._start_collector(member)
        if old.spec.table != pipeline.spec.table:
            await self._restart_table()
        await self._scale(collector_names(pipeline))
        self.write_record()

    def hold(self, why: str) -> None:
        """Note for other commands what of the resource is not applied, and *why*."""
        if why != self.held:
            self.held = why
            self.write_record()

    def note_mismatch(self, why: str) -> None:
        """Note for other commands *why* JetStream does not match what is applied; empty if it
        does.
        """
        self.mismatch = why
        # Before the parts are started, an empty record would mislead commands that wait for them.
        if self._parts:
            self.write_record()

    async def update_users(self) -> None:
        """Add the users of the pipeline's parts to the embedded server."""
        if self.server is None:
            return
        wanted = users.accounts(self.pipeline, self.layout)
        if wanted != self.server.options.accounts:
            await self.server.change_accounts(wanted)

    async def drain(self) -> None:
        """Wait until the shippers have sent all lines of their files and the collectors have
        written them, both up to a deadline, and stop all parts.
        """
        shippers = self._shippers
        control = self.pipeline.names.control_subject
        if shippers and not await await_shipped(self.js, control, shippers=len(shippers)):
            log.warning("not all lines were sent before the stop; the next start continues there")
        await asyncio.gather(*(self._stop(name) for name in shippers))
        if self._members:
            await self._await_no_lag()
        await asyncio.gather(*(self._stop(name) for name in list(self._parts)))
        if assigner := self._tasks.pop("assigner", None):
            assigner.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await assigner
        RunRecord.remove(self.layout)

    @property
    def _shippers(self) -> list[str]:
        return [name for name in self._parts if name not in (*self._members, TABLE)]

    def write_record(self) -> None:
        """Write the record for other commands; if the disk is full, only the record is out of
        date.
        """
        parts = [
            Component(name, part.pid, self._address(name)) for name, part in self._parts.items()
        ]
        if self.server is not None:
            pid = self.server.pid if self.server.is_running else 0
            parts.append(Component(SERVER, pid, self.server.monitor_url))
        record = RunRecord(
            name=self.pipeline.name,
            namespace=self.pipeline.namespace,
            pid=os.getpid(),
            nats=self.url,
            login=str(self.layout.login(OPERATOR)) if self.server is not None else "",
            components=parts,
            trouble=self.keeper.trouble if self.keeper is not None else "",
            # What is held back of the resource is most often what does not match, too.
            held=self.held or self.mismatch,
        )
        try:
            record.write(self.layout)
        except OSError as error:
            log.warning("cannot write the record for other commands", extra={"why": str(error)})

    async def _keep_assigned(self) -> None:
        await keep_assigned(self.bucket, lambda: self.pipeline, lambda: self._members)

    async def _scale(self, members: list[str]) -> None:
        gone = [member for member in self._members if member not in members]
        for member in members:
            if member not in self._members:
                self._start_collector(member)
        # From now on the partitions are assigned to the new members.
        self._members = members
        for member in gone:
            await self._await_released(member)
            await self._stop(member)

    async def _restart_shippers(self) -> None:
        for name in self._shippers:
            await self._stop(name)
        for shipper in self.pipeline.spec.local.shippers:
            self._start_shipper(shipper.name)

    def _start_collector(self, member: str) -> None:
        words = ["collect", "--member", member, "--data", str(self.layout.collector(member))]
        self._start(member, words, COLLECTOR)

    def _start_shipper(self, name: str) -> None:
        part = shipper_user(name)
        self._start(part, ["ship", "--name", name, "--data", str(self.layout.shipper(name))], part)

    def _start_table(self) -> None:
        self._start(TABLE, ["table", "run", "--data", str(self.layout.data)], TABLE)

    async def _restart_table(self) -> None:
        if TABLE in self._parts:
            await self._stop(TABLE)
        if self.pipeline.spec.table.enabled:
            self._start_table()

    def _start(self, name: str, words: list[str], user: str) -> None:
        # The address may hold a password, and every user of the machine sees arguments.
        environment = {NATS_VARIABLE: self.url}
        if self.server is not None:
            environment[LOGIN_VARIABLE] = str(self.layout.login(user))
        given = [sys.executable, "-m", "logpipeline_cli", *words, "-f", str(self.layout.pipeline)]

        def command() -> list[str]:
            self._ports[name] = self._port(name)
            return [*given, "--http", self._address(name)]

        self._ports[name] = self._port(name)
        part = Part(
            name, command, self.layout.log(name), self.on_line, self.write_record, environment
        )
        self._parts[name] = part
        self._tasks[name] = asyncio.create_task(part.run(), name=name)

    async def _stop(self, name: str) -> None:
        await self._parts[name].stop()
        await self._tasks.pop(name)
        del self._parts[name], self._ports[name]

    def _address(self, name: str) -> str:
        return f"{LOOPBACK}:{self._ports[name]}"

    def _port(self, name: str) -> int:
        """Return the port for the metrics of the part *name*. It keeps the one that it had. Without
        spec.local.metricsPort, another program may have taken that one: then it is any free one.
        """
        first, known = self.pipeline.spec.local.metrics_port, self._ports.get(name)
        if known is not None and (first is not None or is_free(known)):
            return known
        if first is None:
            return free_port()
        return next(port for port in count(first) if port not in self._ports.values())

    async def _await_no_lag(self) -> None:
        async def no_lag() -> bool:
            return not any(state.lag_messages for state in await survey(self.js, self.pipeline))

        if not await _within(DRAIN_DEADLINE_S, no_lag):
            log.warning(
                "not all messages were written before the stop; the next start continues there"
            )

    async def _await_released(self, member: str) -> None:
        group = self.pipeline.spec.collectors.group

        async def released() -> bool:
            for partition in range(max(self.pipeline.spec.partitions, 1)):
                entry = await self.bucket.get(epoch_key(group, partition))
                if entry is not None and _is_held(entry.value, member):
                    return False
            return True

        if not await _within(RELEASE_DEADLINE_S, released):
            log.warning(
                "a collector did not release its partitions in time, stopping it",
                extra={"member": member},
            )


def collector_names(pipeline: LogPipeline) -> list[str]:
    """Return the names of the pipeline's collectors, in order."""
    return [f"collector-{number}" for number in range(pipeline.spec.collectors.replicas)]


def _is_held(value: bytes, member: str) -> bool:
    try:
        record = EpochRecord.decode(value)
    except BadRecord:
        # The next owner repairs it; the present one cannot read, and so not release it.
        return False
    return record.owner == member and not record.released


async def _within(deadline_s: float, check: Callable[[], object]) -> bool:
    """Return whether *check* became true within *deadline_s*; without an answer of the server it is
    not.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + deadline_s
    while loop.time() < until:
        with contextlib.suppress(NotSent, OutcomeUnknown, ApiError):
            if await check():  # type: ignore[misc]
                return True
        await asyncio.sleep(POLL_S)
    return False


def _shipper_settings(pipeline: LogPipeline) -> object:
    spec = pipeline.spec
    return spec.shippers, spec.batch, spec.redaction, spec.local, spec.cluster


def _collector_settings(pipeline: LogPipeline) -> object:
    return replace(pipeline.spec.collectors, replicas=1), pipeline.spec.cluster
