"""Keeps the nats-server of this machine working: starts it again when it ends, and also when it
runs in a state from which it does not recover by itself.

After one failed write to its store, a server refuses all writes, even when there is room again. If
its files are removed, it continues to use the removed files. If it is frozen, it keeps connections
open and does not answer. A restart helps in each case and loses nothing: acknowledged messages are
synced, and messages that are gone are sent again from the log files.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from logpipeline.embedded import EmbeddedServer, Health, ServerFailed

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
# A server on a slow disk answers late; one that does not answer for so long is frozen.
SILENT_S_MAX = 20.0
# While a stream is being deleted, the server is unhealthy for a moment.
UNWELL_S_MAX = 2.0
# The wait between two restarts doubles until the server has been healthy for WELL_AFTER_S.
WAIT_FIRST_S = 0.5
WAIT_MAX_S = 60.0
WELL_AFTER_S = 60.0
# With less room than this, a server that is started again would fail again at once.
ROOM_BYTES = 1024 * 1024
PROBE = "room.probe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The observed state of the server, and for how long it has been unhealthy or silent.
    *room_problem* says why its disk accepts no writes; it is empty if it does, or was not tried.
    """

    runs: bool
    health: Health
    unwell_s: float = 0.0
    silent_s: float = 0.0
    store_problem: str = ""
    room_problem: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """*trouble* describes the fault of the server, and is empty for a healthy one; *restart* says
    that a restart helps.
    """

    trouble: str = ""
    restart: bool = False


def decide(seen: Seen) -> Decision:
    """Return what to do about the server."""
    if not seen.runs:
        return Decision("nats-server ended", restart=True)
    if seen.store_problem:
        return Decision(seen.store_problem, restart=True)
    if not seen.health.answers:
        if seen.silent_s < SILENT_S_MAX:
            return Decision("nats-server does not answer")
        return Decision(f"nats-server did not answer for {SILENT_S_MAX:.0f} s", restart=True)
    if seen.health.trouble:
        # It was healthy after its start; so the fault came later, and does not go away.
        if seen.room_problem:
            return Decision(f"nats-server cannot write: {seen.room_problem}")
        what = f"nats-server is not healthy: {seen.health.trouble}"
        return Decision(what, restart=seen.unwell_s >= UNWELL_S_MAX)
    return Decision()


@dataclass(slots=True)
class Keeper:
    """Watches *server* and starts it again; *changed* is called when its process or trouble
    changes.
    """

    server: EmbeddedServer
    changed: Callable[[], None]
    trouble: str = ""
    restarts: int = 0
    _wait_s: float = WAIT_FIRST_S
    _missing: str = ""
    _well_since: float | None = field(default=None)
    _silent_since: float | None = field(default=None)
    _unwell_since: float | None = field(default=None)

    async def run(self) -> None:
        """Check the server and start it again where needed, until cancelled."""
        while True:
            decision = decide(await self._look())
            self._note(decision)
            if decision.restart:
                await self._restart()
            else:
                await self._until_next_look()

    def check_store(self, streams: Iterable[str]) -> None:
        """Check that the files of *streams*, which the server reports, are in its store."""
        gone = sorted(name for name in streams if not self.server.keeps(name))
        self._missing = f"the files of {', '.join(gone)} were removed" if gone else ""

    async def _look(self) -> Seen:
        runs = self.server.is_running
        health = await self.server.health() if runs else Health(answers=False)
        now = asyncio.get_running_loop().time()
        is_silent, is_unwell = runs and not health.answers, bool(health.trouble)
        self._silent_since = (self._silent_since or now) if is_silent else None
        self._unwell_since = (self._unwell_since or now) if is_unwell else None
        return Seen(
            runs=runs,
            health=health,
            unwell_s=now - (self._unwell_since or now),
            silent_s=now - (self._silent_since or now),
            store_problem=(self.server.store_problem() or self._missing) if runs else "",
            room_problem=await asyncio.to_thread(room_problem, self.server.store)
            if health.trouble
            else "",
        )

    def _note(self, decision: Decision) -> None:
        now = asyncio.get_running_loop().time()
        if decision.trouble:
            self._well_since = None
        elif self._well_since is None:
            self._well_since = now
        elif now - self._well_since > WELL_AFTER_S:
            self._wait_s = WAIT_FIRST_S
        if decision.trouble != self.trouble:
            if decision.trouble:
                log.warning("nats-server does not work properly", extra={"why": decision.trouble})
            else:
                log.info("nats-server works again", extra={"restarts": self.restarts})
            self.trouble = decision.trouble
            self.changed()

    async def _restart(self) -> None:
        """End the server if it still runs, and start it again."""
        # Killed, not stopped: what a failed write left in its memory must not reach the disk.
        self.server.kill()
        self._missing = ""
        log.warning("starting nats-server again", extra={"why": self.trouble})
        try:
            await self.server.start()
        except (ServerFailed, OSError) as error:
            self.trouble = f"nats-server does not start: {error}"
            log.error(
                "nats-server does not start", extra={"why": str(error), "wait_s": self._wait_s}
            )
        else:
            self.restarts += 1
            self._silent_since = self._unwell_since = None
        self.changed()
        await asyncio.sleep(self._wait_s)
        self._wait_s = min(self._wait_s * 2, WAIT_MAX_S)

    async def _until_next_look(self) -> None:
        """Wait for the next check, or until the process has ended."""
        try:
            async with asyncio.timeout(LOOK_EVERY_S):
                await self.server.wait()
        except TimeoutError:
            return


def room_problem(store: Path) -> str:
    """Return why nothing can be written into *store* now; empty if it can."""
    probe = store / PROBE
    try:
        with probe.open("wb", buffering=0) as file:
            left = ROOM_BYTES
            while left:
                # A write to an almost full disk may be short; the next one fails.
                left -= file.write(bytes(left))
            os.fsync(file.fileno())
    except OSError as error:
        return f"{store} accepts no writes ({error.strerror}): free some space, or make it writable"
    finally:
        # On a read-only disk there is no probe to remove.
        try:
            probe.unlink(missing_ok=True)
        except OSError as error:
            log.debug("the probe stays", extra={"why": str(error)})
    return ""
