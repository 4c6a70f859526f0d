"""The pods of this node and the excluded namespaces, as the API server last told: a small map."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from logpipeline_shipper.files.selection import (
    ACK_ANNOTATION,
    EXCLUDE_ANNOTATION,
    Container,
    Metadata,
)

# A node runs 110 pods by default, a few hundred at most.
PODS_MAX = 5_000
# Pods that are gone, whose last files may still be found.
GONE_PODS_MAX = 1_000
EXCLUDED_NAMESPACES_MAX = 50_000
# Of an annotation of 256 KiB, so much is kept and shown.
ANNOTATION_CHARS_MAX = 64
# kubelet names the folder of a static pod after the hash of its file, which it writes here.
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"


@dataclass(frozen=True, slots=True)
class Pod:
    """What is kept of a pod."""

    labels: Mapping[str, str] = field(default_factory=dict)
    is_excluded: bool = False
    ack: str | None = None
    namespace: str = ""


@dataclass(slots=True)
class Listeners:
    """Who is told of changes: the uid of a pod; a namespace, or None for all of them."""

    pod: Callable[[str], None] = lambda _: None
    namespace: Callable[[str | None], None] = lambda _: None


class Directory:
    """See the module; filled by two watches, asked by the gate."""

    def __init__(self) -> None:
        self.listeners = Listeners()
        self.pods: dict[str, Pod] = {}
        self.excluded: set[str] = set()
        self.are_namespaces_known = False
        self._gone: OrderedDict[str, Pod] = OrderedDict()

    def find(self, container: Container, *, is_last: bool) -> Metadata | None:
        """Return what is known of the container's pod, None where that may not be all; with
        *is_last*, also a part of it.
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
        """Take in all pods of the node, or those of *namespace*."""
        listed = dict(map(_pod_of, objects))
        for uid in self.pods.keys() - listed.keys():
            if namespace in ("", self.pods[uid].namespace):
                self._let_go(uid)
        for uid, pod in listed.items():
            self._put(uid, pod)

    def put_pod(self, object: Any) -> None:
        """Take in a pod that is new or has changed."""
        self._put(*_pod_of(object))

    def remove_pod(self, object: Any) -> None:
        """Note that a pod is gone; what is known of it stays for its last files."""
        self._let_go(_pod_of(object)[0])

    def replace_namespaces(self, objects: Iterable[Any]) -> None:
        """Take in all namespaces."""
        found = map(_namespace_of, objects)
        self.excluded = {name for name, is_excluded in found if is_excluded}
        self.are_namespaces_known = True
        self.listeners.namespace(None)

    def put_namespace(self, object: Any) -> None:
        """Take in a namespace that is new or has changed."""
        name, is_excluded = _namespace_of(object)
        if is_excluded == (name in self.excluded):
            return
        if not is_excluded:
            self.excluded.discard(name)
        elif len(self.excluded) < EXCLUDED_NAMESPACES_MAX:
            self.excluded.add(name)
        self.listeners.namespace(name)

    def do_without_namespaces(self) -> None:
        """Note that namespaces may not be asked for: only pods are excluded."""
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
