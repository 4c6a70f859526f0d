"""Gathers a pipeline's status again and again, once for all who look, and only while one looks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

from logpipeline.layout import NoPipeline, RunRecord
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline_cli.commands.status import gather
from logpipeline_cli.target import Target, connected
from logpipeline_cli.watching.rows import View
from logpipeline_cli.watching.watch import Status, Watch

EVERY_S = 1.0
# Limits of what looking costs a large pipeline. It takes at most this share of the time, and asks
# for so many rows of sources a second: 1.75 MB of answers.
BUSY_SHARE_MAX = 0.25
SOURCE_ROWS_A_SECOND_MAX = 5000
PAUSE_S_MAX = 60.0


def pause_s(status: Status, took_s: float) -> float:
    """Return how long to wait after a *status* that it took *took_s* seconds to gather."""
    rows = sum(len(each.get("sources", [])) for each in status["shippers"])
    idle_s = took_s * (1.0 / BUSY_SHARE_MAX - 1.0)
    wanted_s = max(EVERY_S - took_s, idle_s, rows / SOURCE_ROWS_A_SECOND_MAX)
    return min(max(wanted_s, 0.0), PAUSE_S_MAX)


class Views:
    """The newest view of a pipeline, for all who look."""

    def __init__(self, first: View) -> None:
        self._view = first
        self._number = 0
        self._changed = asyncio.Condition()
        self._watchers = 0
        self._is_watched = asyncio.Event()

    @property
    def newest(self) -> View:
        """The newest view; before the first one, a view of nothing at 0.0."""
        return self._view

    @property
    def watchers(self) -> int:
        """How many look now."""
        return self._watchers

    async def publish(self, view: View) -> None:
        """Give *view* to all who look."""
        async with self._changed:
            self._view = view
            self._number += 1
            self._changed.notify_all()

    async def wanted(self) -> None:
        """Return once a person looks."""
        await self._is_watched.wait()

    async def follow(self) -> AsyncGenerator[View, None]:
        """Yield each new view, the newest for one who is slower; the first one at once, if there is
        one.
        """
        seen = 0
        with self._watched():
            while True:
                async with self._changed:
                    while self._number == seen:
                        await self._changed.wait()
                    seen, view = self._number, self._view
                yield view

    @contextmanager
    def _watched(self) -> Iterator[None]:
        self._watchers += 1
        self._is_watched.set()
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._is_watched.clear()


class Gathering:
    """The successive views of one pipeline. While the server does not answer, the last one is
    published again, with the trouble. Nothing is asked while no person looks.
    """

    def __init__(self, target: Target, js: JetStream) -> None:
        self.target = target
        self.js = js
        pipeline = target.pipeline
        nothing = View(
            name=pipeline.name, namespace=pipeline.namespace, server="", at_s=0.0, every_s=EVERY_S
        )
        self.views = Views(nothing)
        self._watch = Watch()

    async def run(self) -> None:
        """Gather until cancelled."""
        while True:
            await self.views.wanted()
            await asyncio.sleep(await self._look())

    async def _look(self) -> float:
        """Gather once, and return how long to wait after it."""
        began_s = time.monotonic()
        try:
            self.target = _as_it_runs(self.target)
            status = await gather(self.js, self.target)
        except (NotSent, OutcomeUnknown, ApiError) as error:
            # A person wants to see when the server is back.
            trouble = f"the server does not answer: {error}"
            await self.views.publish(replace(self.views.newest, trouble=trouble))
            return EVERY_S
        took_s = time.monotonic() - began_s
        wait_s = pause_s(status, took_s)
        await self.views.publish(self._watch.observe(status, time.time(), every_s=took_s + wait_s))
        return wait_s


def _as_it_runs(target: Target) -> Target:
    """Return *target* with what its `up` says of itself now; the last known where it ended."""
    if target.run is None:
        return target
    try:
        run = RunRecord.read(target.layout)
    except (NoPipeline, OSError):
        return target
    return target if run is None else replace(target, run=run)


@asynccontextmanager
async def gathering(target: Target, name: str) -> AsyncIterator[Gathering]:
    """Connect to the target's server as *name*, and gather in the background.

    Raises:
        ConnectFailed: the server cannot be reached, or refuses us; the message says why.
    """
    async with connected(target, name) as js, asyncio.TaskGroup() as tasks:
        made = Gathering(target, js)
        task = tasks.create_task(made.run())
        try:
            yield made
        finally:
            task.cancel()
