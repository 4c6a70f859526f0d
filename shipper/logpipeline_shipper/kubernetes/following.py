"""Keeps the directory level with the API server: list once, then watch, for ever."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterable, Set
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from logpipeline_shipper.kubernetes.client import Access, Away, Gone, Refused, list_all, watch
from logpipeline_shipper.kubernetes.directory import Directory

log = logging.getLogger(__name__)

# Nodes that lose the API server together must not come back together.
BACKOFF_FIRST_S = 1.0
BACKOFF_MAX_S = 30.0
# The API server ends a watch after so long, and the next one goes on from the same version.
WATCH_S = 300
# From the API server's cache: what is a moment old is as good, and spares its store.
FROM_CACHE = "0"
# Whoever ends watches sooner than this (a proxy, a server that is stopping) is not asked at once.
WATCH_S_MIN = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """What is followed, and who takes it in. *denied* is called where it may not be read."""

    name: str
    path: str
    query: dict[str, str]
    replace: Callable[[Iterable[Any]], None]
    put: Callable[[Any], None]
    remove: Callable[[Any], None]
    denied: Callable[[], None]


def collections_of(node: str, directory: Directory, namespace: str = "") -> tuple[Collection, ...]:
    """Return the pods of *node*, and the namespaces; the pods alone where only those of *namespace*
    are read: a right to see namespaces shows all of them.
    """
    of_namespace = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    pods = Collection(
        name="pods",
        path=f"/api/v1{of_namespace}/pods",
        query={"fieldSelector": f"spec.nodeName={node}"},
        replace=partial(directory.replace_pods, namespace=namespace),
        put=directory.put_pod,
        remove=directory.remove_pod,
        denied=lambda: None,
    )
    if namespace:
        directory.do_without_namespaces()
        return (pods,)
    return (
        pods,
        Collection(
            name="namespaces",
            path="/api/v1/namespaces",
            query={},
            replace=directory.replace_namespaces,
            put=directory.put_namespace,
            # Its last lines are as excluded as those before.
            remove=lambda _: None,
            denied=directory.do_without_namespaces,
        ),
    )


@dataclass(slots=True)
class ChosenNamespaces:
    """Follows the pods of some namespaces, each by itself: a right to see them is given in each."""

    access: Access
    node: str
    directory: Directory
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    _running: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def choose(self, namespaces: Set[str]) -> None:
        """Follow *namespaces* from now on, and no others."""
        for name in self._running.keys() - namespaces:
            self._running.pop(name).cancel()
            self.directory.replace_pods((), name)
        for name in sorted(namespaces - self._running.keys()):
            [pods] = collections_of(self.node, self.directory, name)
            self._running[name] = self.spawn(Follower(self.access, pods).run())


class Follower:
    """Follows one collection; *problem* says why it is not level, None while it is."""

    def __init__(self, access: Access, collection: Collection) -> None:
        self.problem: str | None = None
        self.lists = 0
        self.events = 0
        self._access = access
        self._of = collection
        self._version: str | None = None
        self._list_from = FROM_CACHE
        self._waiting_s = BACKOFF_FIRST_S

    async def run(self) -> None:
        """Follow, until cancelled: whatever happens, lines flow and this goes on."""
        while True:
            try:
                if self._version is None:
                    await self._list()
                started_s = asyncio.get_running_loop().time()
                await self._watch()
                if asyncio.get_running_loop().time() - started_s >= WATCH_S_MIN:
                    continue
            except Gone as error:
                # The cache may be as old as what was asked for: the store knows.
                self._version, self._list_from = None, ""
                self._waiting_s = BACKOFF_FIRST_S  # somebody answers
                self._note(f"the version is gone: {error}")
            except Refused as error:
                if error.status == HTTPStatus.FORBIDDEN:
                    self._of.denied()
                self._note(str(error))
            except Away as error:
                self._note(str(error))
            await asyncio.sleep(self._waiting_s * random.uniform(0.5, 1.0))
            self._waiting_s = min(2 * self._waiting_s, BACKOFF_MAX_S)

    async def _list(self) -> None:
        query = {**self._of.query}
        if self._list_from:
            query["resourceVersion"] = self._list_from
        objects, version = await list_all(self._access, self._of.path, query)
        self._take(self._of.replace, objects)
        self._version = version
        self._list_from = FROM_CACHE
        self.lists += 1
        self._note_level()

    async def _watch(self) -> None:
        assert self._version is not None
        query = {
            **self._of.query,
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(WATCH_S * random.uniform(0.8, 1.2))),
        }
        async with aclosing(watch(self._access, self._of.path, query)) as events:
            async for event in events:
                self._take(self._heed, event)
                self.events += 1
                self._note_level()

    def _heed(self, event: Any) -> None:
        match event["type"]:
            case "ADDED" | "MODIFIED":
                self._of.put(event["object"])
            case "DELETED":
                self._of.remove(event["object"])
        self._version = str(event["object"]["metadata"]["resourceVersion"])

    def _take(self, what: Callable[[Any], None], found: Any) -> None:
        try:
            what(found)
        except (KeyError, TypeError, AttributeError) as error:
            raise Away(f"an object without {error}") from error

    def _note(self, problem: str) -> None:
        if self.problem is None:
            log.warning(
                "Kubernetes cannot be asked; lines flow on, new pods are decided on by their path",
                extra={"what": self._of.name, "reason": problem},
            )
        self.problem = problem

    def _note_level(self) -> None:
        self._waiting_s = BACKOFF_FIRST_S
        if self.problem is not None:
            self.problem = None
            log.info("Kubernetes is followed again", extra={"what": self._of.name})
