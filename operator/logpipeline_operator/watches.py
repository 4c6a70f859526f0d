"""Watches objects with kopf, in a thread with its own event loop.

kopf handles the process's signals, and when it ends, even because one kind was uninstalled, it
cancels every task of its loop. In the main loop these would be reconciliations and connections to
NATS.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import kopf

from logpipeline.spec.api import CLASS_PLURAL, GROUP, PIPELINE_LABEL, PLURAL, VERSION
from logpipeline_operator.queue import Key
from logpipeline_operator.settings import Settings

# Secrets are not watched: the right to list them would give access to all of them.
CHILDREN = (
    ("v1", "configmaps"),
    ("v1", "pods"),
    ("v1", "serviceaccounts"),
    ("v1", "services"),
    ("apps/v1", "daemonsets"),
    ("apps/v1", "statefulsets"),
    # Kubernetes makes them for Services, with the Services' labels.
    ("discovery.k8s.io/v1", "endpointslices"),
    ("networking.k8s.io/v1", "networkpolicies"),
    ("policy/v1", "poddisruptionbudgets"),
)

log = logging.getLogger(__name__)

RETRY_S = 5.0


# kopf's create and update handlers react to edges, and keep their progress in the object; a kill
# between two of their writes would leave a pipeline half done for ever.
def registry_for(
    add: Callable[[Key], None], add_all: Callable[[], None], *, sees_namespaces: bool
) -> kopf.OperatorRegistry:
    """Return handlers that call *add* with each changed pipeline, and *add_all* when a class
    changed, or the labels of a namespace, if the operator *sees_namespaces*.
    """
    registry = kopf.OperatorRegistry()

    # Called again whenever the server says 401: tokens of service accounts last an hour.
    @kopf.on.login(registry=registry)
    async def log_in(**arguments: Any) -> kopf.ConnectionInfo | None:
        in_pod = kopf.login_with_service_account(**arguments)
        return in_pod or kopf.login_with_kubeconfig(**arguments)

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def pipeline_changed(namespace: str | None, name: str | None, **_: Any) -> None:
        if namespace and name:
            add(Key(namespace, name))

    @kopf.on.event(GROUP, VERSION, CLASS_PLURAL, registry=registry)
    async def class_changed(**_: Any) -> None:
        add_all()

    async def child_changed(namespace: str | None, labels: kopf.Labels, **_: Any) -> None:
        pipeline = labels.get(PIPELINE_LABEL)
        if namespace and pipeline:
            add(Key(namespace, pipeline))

    for group_version, plural in CHILDREN:
        kopf.on.event(group_version, plural, registry=registry)(child_changed)
    if sees_namespaces:
        kopf.on.event("v1", "namespaces", registry=registry)(_on_labels(add_all))
    return registry


def _on_labels(add_all: Callable[[], None]) -> Callable[..., Awaitable[None]]:
    """Return a handler that calls *add_all* when the labels of a namespace change."""
    known: dict[str, dict[str, str]] = {}

    async def namespace_changed(name: str | None, labels: kopf.Labels, **about: Any) -> None:
        is_gone = about["type"] == "DELETED"
        before, now = known.get(str(name)), None if is_gone else dict(labels)
        if now is None:
            known.pop(str(name), None)
        else:
            known[str(name)] = now
        # The first list is not a change: each reconciliation lists namespaces itself.
        is_first = before is None and about["type"] is None
        if before != now and not is_first:
            add_all()

    return namespace_changed


def kopf_settings() -> kopf.OperatorSettings:
    """Return settings with which kopf watches, and writes nothing."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    # Scanning for definitions and namespaces would need the right to list them.
    settings.scanning.disabled = True
    for group_version, plural in CHILDREN:
        group, _, version = group_version.rpartition("/")
        settings.watching.label_selectors[group, version, plural] = PIPELINE_LABEL
    return settings


async def watch(
    settings: Settings, add: Callable[[Key], None], add_all: Callable[[], None]
) -> None:
    """Call *add* with each changed pipeline, and *add_all* when a class changed, for ever: kopf is
    restarted whenever it ends.
    """
    ours = asyncio.get_running_loop()

    def add_from_there(key: Key) -> None:
        ours.call_soon_threadsafe(add, key)

    def add_all_from_there() -> None:
        ours.call_soon_threadsafe(add_all)

    while True:
        try:
            await _in_thread(partial(_kopf, settings, add_from_there, add_all_from_there))
        except Exception as error:  # noqa: BLE001 - kopf raises any error that ended one of its tasks
            log.warning("kopf ended, restarting it", extra={"why": repr(error)})
        await asyncio.sleep(RETRY_S)


async def _kopf(
    settings: Settings, add: Callable[[Key], None], add_all: Callable[[], None]
) -> None:
    where: dict[str, Any] = {"clusterwide": True}
    if settings.namespaces:
        where = {"namespaces": settings.namespaces}
    await kopf.operator(
        registry=registry_for(add, add_all, sees_namespaces=not settings.namespaces),
        settings=kopf_settings(),
        # By default it asks for the user's name, and a pod's user has none.
        identity=settings.identity,  # type: ignore[arg-type]  # kopf does not export the type
        **where,
    )


async def _in_thread(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run *work* in another thread's event loop; a cancellation of this cancels it there."""
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
