"""Which containers are shipped, decided from a log's path and, where Kubernetes is asked, its pod.

With it comes what is waited for when their lines are sent: the nearest word wins, the pod's
annotation before the entry that took it, and that before the pipeline's.

Decided before a file is opened. Where the pod is not known yet, "unknown" is an answer of its own:
nothing is dropped for it, and nothing is read before there was a chance to hear of an exclusion.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import get_args

from logpipeline.spec.components import Match, PodSelector
from logpipeline.spec.streams import Acknowledge
from logpipeline.wire import LABELS_MAX
from logpipeline_shipper.files.sources import SourceId

# What a user puts on a pod or a namespace whose logs stay where they are.
EXCLUDE_ANNOTATION = "logpipeline.dev/exclude"
# What a user puts on a pod whose lines matter more, or less, than others.
ACK_ANNOTATION = "logpipeline.dev/ack"
# The strictest first.
ACKS: tuple[Acknowledge, ...] = get_args(Acknowledge)
# What the operator puts on the pods of a pipeline.
PIPELINE_LABEL = "logpipeline.dev/pipeline"
# The container that `logpipeline inject` adds to a pod.
SIDECAR_CONTAINER = "logpipeline-shipper"
# Why a container is left that a change of the namespaces may bring back.
OTHER_NAMESPACE = "other-namespace"
COMPONENTS = ("collector", "shipper", "nats")

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container as its log's path names it: ``<namespace>_<pod>_<uid>/<container>``."""

    namespace: str
    pod: str
    uid: str
    name: str

    @staticmethod
    def of(id: SourceId) -> Container:
        """Return the container whose log *id* is."""
        uid = id.source.split("/", 3)[2]
        return Container(namespace=id.namespace, pod=id.pod, uid=uid, name=id.container)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What Kubernetes says of a container's pod; *is_excluded*: it or its namespace says so; *ack*
    is the text of its annotation.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    is_excluded: bool = False
    ack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the resource says. *namespace* and *pipeline* are its own: its pods are left out; so are
    those of namespaces that are not in *only*, where that is given. *ack* is what is waited for
    where nothing nearer says it.
    """

    namespace: str = ""
    pipeline: str = ""
    only: frozenset[str] | None = None
    matches: tuple[Match, ...] = ()
    labels: tuple[str, ...] = ()
    ack: Acknowledge = "batch"

    @property
    def needs_labels(self) -> bool:
        """Return whether a decision, or what a line carries, may depend on a pod's labels."""
        selectors = (match.select or match.exclude for match in self.matches)
        return bool(self.labels) or any(each.labels for each in selectors if each is not None)


@dataclass(frozen=True, slots=True)
class Take:
    """Ship it as *ack* says; its lines carry *labels*. *refused* is an annotation's text that is
    no such word.
    """

    labels: Labels = ()
    ack: Acknowledge = "batch"
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """Do not open it; *reason* is one token."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """It depends on what Kubernetes says."""


Decision = Take | Leave | Unknown


def decide(container: Container, metadata: Metadata | None, rules: Rules) -> Decision:
    """Return what becomes of *container*; without *metadata* only what no metadata can change."""
    if rules.only is not None and container.namespace not in rules.only:
        return Leave(OTHER_NAMESPACE)
    if _is_ours(container, metadata, rules):
        return Leave("own-component")
    if metadata is None:
        # Any pod may turn out to be excluded by its annotation.
        return Unknown() if any(_verdicts(container, None, rules)) else Leave("not-selected")
    if metadata.is_excluded:
        return Leave("excluded-by-annotation")
    ack = next(_verdicts(container, metadata.labels, rules))
    if ack is None:
        return Leave("not-selected")
    taken = Take(_carried(metadata.labels, rules), ack)
    return taken if metadata.ack is None else _annotated(taken, metadata.ack)


def decide_by_path(container: Container, rules: Rules) -> Take | Leave:
    """Return what becomes of *container* where its pod stays unknown: a line too many is better
    than a line lost, so what labels might exclude is taken, as the strictest entry says that its
    labels might fit.
    """
    decision = decide(container, None, rules)
    if not isinstance(decision, Unknown):
        return decision
    possible = [ack for ack in _verdicts(container, None, rules) if ack is not None]
    return Take(ack=min(possible, key=ACKS.index))


def _annotated(taken: Take, text: str) -> Take:
    if text in ACKS:
        return replace(taken, ack=text)
    # Who annotates a pod cares for its lines: a word that is misspelt must not let them be lost.
    return replace(taken, ack=min(taken.ack, "batch", key=ACKS.index), refused=text)


def _is_ours(container: Container, metadata: Metadata | None, rules: Rules) -> bool:
    if container.name == SIDECAR_CONTAINER:
        return True
    if container.namespace != rules.namespace or not rules.pipeline:
        return False
    if metadata is not None:
        return metadata.labels.get(PIPELINE_LABEL) == rules.pipeline
    prefixes = tuple(f"{rules.pipeline}-{component}-" for component in COMPONENTS)
    return container.pod.startswith(prefixes)


def _verdicts(
    container: Container, labels: Mapping[str, str] | None, rules: Rules
) -> Iterator[Acknowledge | None]:
    """Yield each verdict that is possible: how to take it, or None for leaving it; just one where
    *labels* are known.
    """
    for match in rules.matches:
        selector = match.select or match.exclude
        assert selector is not None
        if _fits_path(selector, container):
            fits = _fits_labels(selector, labels)
            if fits is not False:
                yield None if match.select is None else match.ack or rules.ack
            if fits:
                return
    # Nothing fits: who lists what to take wants nothing else, who lists exceptions all the rest.
    yield rules.ack if all(match.select is None for match in rules.matches) else None


def _fits_path(selector: PodSelector, container: Container) -> bool:
    in_namespace = not selector.namespaces or container.namespace in selector.namespaces
    names = selector.container_names
    return in_namespace and (not names or container.name in names)


def _fits_labels(selector: PodSelector, labels: Mapping[str, str] | None) -> bool | None:
    if not selector.labels:
        return True
    if labels is None:
        return None
    return all(labels.get(name) == value for name, value in selector.labels.items())


def _carried(labels: Mapping[str, str], rules: Rules) -> Labels:
    carried = [(name, labels[name]) for name in rules.labels if name in labels]
    return tuple(carried[:LABELS_MAX])
