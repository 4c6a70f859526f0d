"""Has kopf watch, in a thread and an event loop of its own.

kopf takes the process's signals for itself, and when it ends, be it for one kind that was taken
away, it cancels every task of its loop: in ours, looks that are under way and connections to NATS.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import kopf
from kopf._core.engines.peering import Identity

from logpipeline_operator import handlers
from logpipeline_operator.queue import Key
from logpipeline_operator.settings import Settings

log = logging.getLogger(__name__)

RETRY_S = 5.0


async def watch(
    settings: Settings, add: Callable[[Key], None], add_all: Callable[[], None]
) -> None:
    """Call *add* with each pipeline that something happened to, and *add_all* when a class changed,
    for ever: kopf is started again whenever it ends.
    """
    ours = asyncio.get_running_loop()

    def add_from_there(key: Key) -> None:
        ours.call_soon_threadsafe(add, key)

    def add_all_from_there() -> None:
        ours.call_soon_threadsafe(add_all)

    while True:
        try:
            await _in_thread(partial(_kopf, settings, add_from_there, add_all_from_there))
        except Exception as error:  # noqa: BLE001 - kopf raises whatever ended one of its tasks
            log.warning("kopf ended, starting it again", extra={"why": repr(error)})
        await asyncio.sleep(RETRY_S)


async def _kopf(
    settings: Settings, add: Callable[[Key], None], add_all: Callable[[], None]
) -> None:
    where: dict[str, Any] = {"clusterwide": True}
    if settings.namespaces:
        where = {"namespaces": settings.namespaces}
    await kopf.operator(
        registry=handlers.registry_for(add, add_all, sees_namespaces=not settings.namespaces),
        settings=handlers.kopf_settings(),
        # By default it asks for the user's name, and a pod's user has none.
        identity=Identity(settings.identity),
        **where,
    )


async def _in_thread(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do *work* in another thread's event loop; whoever cancels this cancels it there."""
    ours = asyncio.get_running_loop()
    started: asyncio.Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]]
    started = ours.create_future()

    async def begin() -> None:
        working = asyncio.ensure_future(work())
        ours.call_soon_threadsafe(started.set_result, (asyncio.get_running_loop(), working))
        await working

    running = asyncio.ensure_future(asyncio.to_thread(lambda: asyncio.run(begin())))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        there, working = await started
        # A loop that is closed has ended its work.
        with contextlib.suppress(RuntimeError):
            there.call_soon_threadsafe(working.cancel)
        await asyncio.gather(running, return_exceptions=True)
        raise
