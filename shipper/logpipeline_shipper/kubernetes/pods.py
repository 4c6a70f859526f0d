"""A cache of this node's pods and of the excluded namespaces, filled from the API server."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Set
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from logpipeline import json_text
from logpipeline.spec.api import ACK_ANNOTATION, EXCLUDE_ANNOTATION
from logpipeline_shipper.files.source_filter import Container, Metadata
from logpipeline_shipper.kubernetes.client import (
    Access,
    Gone,
    Refused,
    Unreachable,
    list_all,
    watch,
)

# A node runs 110 pods by default, a few hundred at most.
PODS_MAX = 5_000
# Deleted pods that are kept, since their last files may still be found.
GONE_PODS_MAX = 1_000
EXCLUDED_NAMESPACES_MAX = 50_000
# So much of an annotation, which may have 256 KiB, is kept and shown.
ANNOTATION_CHARS_MAX = 64
# kubelet names the folder of a static pod by the hash of its file, which is in this annotation.
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"

log = logging.getLogger(__name__)

# Nodes that lose the API server together must not come back together.
BACKOFF_FIRST_S = 1.0
BACKOFF_MAX_S = 30.0
# The API server ends a watch after so long, and the next watch continues at the same version.
WATCH_S = 300
# From the API server's cache: data that is a moment old is good enough, and spares etcd.
FROM_CACHE = "0"
# If a watch ends sooner than this (by a proxy, or a server that stops), the next one is delayed.
WATCH_S_MIN = 5.0

# The largest size of a ConfigMap.
FILE_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Pod:
    """The metadata of a pod, as far as it is kept."""

    labels: Mapping[str, str] = field(default_factory=dict)
    is_excluded: bool = False
    ack: str | None = None
    namespace: str = ""


@dataclass(slots=True)
class Listeners:
    """Called at changes, with the uid of a pod, or with a namespace: None for all of them."""

    pod: Callable[[str], None] = lambda _: None
    namespace: Callable[[str | None], None] = lambda _: None


class PodCache:
    """See the module; filled by two watches, read by the source filter."""

    def __init__(self) -> None:
        self.listeners = Listeners()
        self.pods: dict[str, Pod] = {}
        self.excluded: set[str] = set()
        self.are_namespaces_known = False
        self._gone: OrderedDict[str, Pod] = OrderedDict()

    def find(self, container: Container, *, is_last: bool) -> Metadata | None:
        """Return the metadata of the container's pod, None if it may be incomplete; with *is_last*,
        also an incomplete one.
        """
        pod = self.pods.get(container.uid) or self._gone.get(container.uid)
        namespace_is_excluded = container.namespace in self.excluded
        if pod is None:
            return Metadata(is_excluded=True) if namespace_is_excluded else None
        if pod.is_excluded or namespace_is_excluded:
            return Metadata(labels=pod.labels, is_excluded=True)
        if self.are_namespaces_known or is_last:
            return Metadata(labels=pod.labels, ack=pod.ack)
        return None

    def replace_pods(self, objects: Iterable[Any], namespace: str = "") -> None:
        """Replace all pods of the node, or those of *namespace*."""
        listed = dict(map(_pod_of, objects))
        for uid in self.pods.keys() - listed.keys():
            if namespace in ("", self.pods[uid].namespace):
                self._let_go(uid)
        for uid, pod in listed.items():
            self._put(uid, pod)

    def put_pod(self, object: Any) -> None:
        """Store a pod that is new or has changed."""
        self._put(*_pod_of(object))

    def remove_pod(self, object: Any) -> None:
        """Note that a pod was deleted; its metadata is kept for its last files."""
        self._let_go(_pod_of(object)[0])

    def replace_namespaces(self, objects: Iterable[Any]) -> None:
        """Replace all namespaces."""
        found = map(_namespace_of, objects)
        self.excluded = {name for name, is_excluded in found if is_excluded}
        self.are_namespaces_known = True
        self.listeners.namespace(None)

    def put_namespace(self, object: Any) -> None:
        """Store a namespace that is new or has changed."""
        name, is_excluded = _namespace_of(object)
        if is_excluded == (name in self.excluded):
            return
        if not is_excluded:
            self.excluded.discard(name)
        elif len(self.excluded) < EXCLUDED_NAMESPACES_MAX:
            self.excluded.add(name)
        self.listeners.namespace(name)

    def do_without_namespaces(self) -> None:
        """Note that namespaces may not be read: only pods can be excluded."""
        self.are_namespaces_known = True
        self.listeners.namespace(None)

    def _put(self, uid: str, pod: Pod) -> None:
        if self.pods.get(uid) == pod or (uid not in self.pods and len(self.pods) >= PODS_MAX):
            return
        self._gone.pop(uid, None)
        self.pods[uid] = pod
        self.listeners.pod(uid)

    def _let_go(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._gone[uid] = pod
            if len(self._gone) > GONE_PODS_MAX:
                self._gone.popitem(last=False)


def _pod_of(object: Any) -> tuple[str, Pod]:
    metadata = object["metadata"]
    annotations = metadata.get("annotations") or {}
    uid = annotations.get(MIRROR_ANNOTATION) or metadata["uid"]
    return str(uid), Pod(
        labels=dict(metadata.get("labels") or {}),
        is_excluded=_is_excluding(annotations),
        ack=_text_of(annotations.get(ACK_ANNOTATION)),
        namespace=str(metadata.get("namespace", "")),
    )


def _namespace_of(object: Any) -> tuple[str, bool]:
    metadata = object["metadata"]
    return str(metadata["name"]), _is_excluding(metadata.get("annotations") or {})


def _text_of(annotation: Any) -> str | None:
    return None if annotation is None else str(annotation)[:ANNOTATION_CHARS_MAX]


def _is_excluding(annotations: Mapping[str, Any]) -> bool:
    return annotations.get(EXCLUDE_ANNOTATION) == "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """A watched collection and its callbacks; *denied* is called if it may not be read."""

    name: str
    path: str
    query: dict[str, str]
    replace: Callable[[Iterable[Any]], None]
    put: Callable[[Any], None]
    remove: Callable[[Any], None]
    denied: Callable[[], None]


def collections_of(node: str, pods: PodCache, namespace: str = "") -> tuple[Collection, ...]:
    """Return the pods of *node*, and the namespaces; with *namespace* only its pods: a right to
    read namespaces would show all of them.
    """
    of_namespace = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    of_pods = Collection(
        name="pods",
        path=f"/api/v1{of_namespace}/pods",
        query={"fieldSelector": f"spec.nodeName={node}"},
        replace=partial(pods.replace_pods, namespace=namespace),
        put=pods.put_pod,
        remove=pods.remove_pod,
        denied=lambda: None,
    )
    if namespace:
        pods.do_without_namespaces()
        return (of_pods,)
    return (
        of_pods,
        Collection(
            name="namespaces",
            path="/api/v1/namespaces",
            query={},
            replace=pods.replace_namespaces,
            put=pods.put_namespace,
            # The last lines of a deleted namespace are excluded if the lines before were.
            remove=lambda _: None,
            denied=pods.do_without_namespaces,
        ),
    )


@dataclass(slots=True)
class ChosenNamespaces:
    """Watches the pods of some namespaces, each separately, since rights are given in each."""

    access: Access
    node: str
    pods: PodCache
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    _running: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def choose(self, namespaces: Set[str]) -> None:
        """Watch *namespaces* from now on, and no others."""
        for name in self._running.keys() - namespaces:
            self._running.pop(name).cancel()
            self.pods.replace_pods((), name)
        for name in sorted(namespaces - self._running.keys()):
            [pods] = collections_of(self.node, self.pods, name)
            self._running[name] = self.spawn(Reflector(self.access, pods).run())


class Reflector:
    """Lists and watches one collection; *problem* is why it is not up to date, or None."""

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
        """List and watch until cancelled; no failure ends this, or stops lines."""
        while True:
            try:
                if self._version is None:
                    await self._list()
                started_s = asyncio.get_running_loop().time()
                await self._watch()
                if asyncio.get_running_loop().time() - started_s >= WATCH_S_MIN:
                    continue
            except Gone as error:
                # The cache may be as old as the version that was asked for: ask etcd.
                self._version, self._list_from = None, ""
                self._waiting_s = BACKOFF_FIRST_S  # the server answers
                self._note(f"the version is gone: {error}")
            except Refused as error:
                if error.status == HTTPStatus.FORBIDDEN:
                    self._of.denied()
                self._note(str(error))
            except Unreachable as error:
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
                self._take(self._apply, event)
                self.events += 1
                self._note_level()

    def _apply(self, event: Any) -> None:
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
            raise Unreachable(f"an object without {error}") from error

    def _note(self, problem: str) -> None:
        if self.problem is None:
            log.warning(
                "the API server does not answer; new pods are decided on by their paths",
                extra={"what": self._of.name, "reason": problem},
            )
        self.problem = problem

    def _note_level(self) -> None:
        self._waiting_s = BACKOFF_FIRST_S
        if self.problem is not None:
            self.problem = None
            log.info("the API server answers again", extra={"what": self._of.name})


class NamespacesFile:
    """The namespaces in the file *path*; *changed* is called with them, and at each change."""

    def __init__(self, path: Path, changed: Callable[[frozenset[str]], None]) -> None:
        self._path = path
        self._changed = changed
        self._text: bytes | None = None
        self._problem = ""

    def look(self) -> None:
        """Read the file and report changes. If it cannot be read, its last content stays valid."""
        try:
            with self._path.open("rb") as file:
                text = file.read(FILE_BYTES_MAX)
            if text == self._text:
                return
            found = _names(text)
        except (OSError, ValueError) as error:
            self._note(str(error))
            return
        self._text, self._problem = text, ""
        log.info("the file with the namespaces was read", extra={"namespaces": len(found)})
        self._changed(found)

    def _note(self, problem: str) -> None:
        if problem != self._problem:
            log.warning(
                "the file with the namespaces cannot be read; its last content stays valid",
                extra={"file": str(self._path), "reason": problem},
            )
        self._problem = problem


def _names(text: bytes) -> frozenset[str]:
    found = json_text.parse(text)
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ValueError("expected a list of names")
    return frozenset(found)
