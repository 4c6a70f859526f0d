"""Lets through the sources that are to be shipped, and takes back those that are excluded later.

A container whose pod is not known yet waits for a few seconds, alone: every other source goes on.
After that its path decides, and what Kubernetes says later is heeded when it says it.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from logpipeline.spec.streams import Acknowledge
from logpipeline_shipper.files.patterns import Patterns
from logpipeline_shipper.files.selection import (
    ACK_ANNOTATION,
    ACKS,
    OTHER_NAMESPACE,
    Container,
    Decision,
    Leave,
    Metadata,
    Rules,
    Take,
    Unknown,
    decide,
    decide_by_path,
)
from logpipeline_shipper.files.sources import HostSources, Listing, SourceId

log = logging.getLogger(__name__)

# kubelet has a pod from the API server before it makes the pod's folder: whoever is not heard of
# for so long, is not heard of because nobody answers.
METADATA_WAIT_S = 5.0

OnTake = Callable[[Listing, Take], None]
OnLeave = Callable[[SourceId], None]


class PodDirectory(Protocol):
    """Knows pods."""

    def find(self, container: Container, *, is_last: bool) -> Metadata | None:
        """Return what is known of the container's pod, None where that may not be all; with
        *is_last*, also a part of it.
        """


@dataclass(slots=True)
class _Seen:
    """A container's log: its files, since when it is known, what was decided."""

    listing: Listing
    since_s: float
    decision: Decision


@dataclass(frozen=True, slots=True)
class _Mode:
    """What is waited for where one entry's files are sent."""

    ack: Acknowledge | None
    include: Patterns
    exclude: Patterns

    @staticmethod
    def of(files: HostSources) -> _Mode:
        return _Mode(files.ack, Patterns.of(files.include), Patterns.of(files.exclude))

    def fits(self, listing: Listing) -> bool:
        # A pattern may name the rotated files alone; they are of one source with the live one.
        paths = {Path(listing.id.source), *(file.path for file in listing.files)}
        return any(
            self.include.match_path(path) and not self.exclude.match_path(path) for path in paths
        )


class Gate:
    """See the module. Without a *directory* the path alone decides. *files* say what is waited for
    when lines of plain files are sent, the first one that fits.
    """

    def __init__(
        self,
        rules: Rules,
        directory: PodDirectory | None,
        *,
        files: tuple[HostSources, ...] = (),
        on_take: OnTake,
        on_leave: OnLeave,
        clock: Callable[[], float],
    ) -> None:
        self.by_path_alone = 0
        self.vanished_undecided = 0
        self.refused_acks = 0
        self.left_out: Counter[str] = Counter()
        self._rules = rules
        self._directory = directory
        self._modes = tuple(map(_Mode.of, files)) if any(each.ack for each in files) else ()
        self._on_take = on_take
        self._on_leave = on_leave
        self._clock = clock
        self._seen: dict[SourceId, _Seen] = {}
        self._of_pod: defaultdict[str, set[SourceId]] = defaultdict(set)
        self._waiting: dict[SourceId, None] = {}

    def take(self, listing: Listing) -> None:
        """Take in what discovery saw of one source."""
        id = listing.id
        if id.format != "cri":
            self._on_take(listing, Take(ack=self._ack_of(listing)))
            return
        seen = self._seen.get(id)
        if seen is None:
            if not listing.files:
                return
            container = Container.of(id)
            seen = self._seen[id] = _Seen(listing, self._clock(), Unknown())
            self._of_pod[container.uid].add(id)
            self._decide(seen)
            return
        seen.listing = listing
        if isinstance(seen.decision, Take):
            self._on_take(listing, seen.decision)
        if not listing.files:
            self._forget(id)

    def changed(self, uid: str) -> None:
        """Decide again on the containers of a pod of which something else is known now."""
        for id in list(self._of_pod.get(uid, ())):
            self._decide(self._seen[id])

    def changed_namespace(self, namespace: str | None) -> None:
        """Decide again on the containers of *namespace*, or of all."""
        for id in [id for id in self._seen if namespace in (None, id.namespace)]:
            self._decide(self._seen[id])

    def read_only(self, namespaces: frozenset[str]) -> None:
        """Read the pods of these *namespaces* from now on, and of no others."""
        self._rules = replace(self._rules, only=namespaces)
        for seen in list(self._seen.values()):
            is_back = seen.decision == Leave(OTHER_NAMESPACE)
            if is_back and seen.listing.id.namespace in namespaces:
                # Nothing was asked about its pod: it waits like one that is new.
                self._count(seen.decision, -1)
                seen.decision, seen.since_s = Unknown(), self._clock()
            self._decide(seen)

    def namespaces(self) -> set[str]:
        """Return the namespaces whose pods are read, as far as there are logs of them."""
        return {
            id.namespace
            for id, seen in self._seen.items()
            if seen.decision != Leave(OTHER_NAMESPACE)
        }

    def tick(self) -> None:
        """Decide where the wait is over; called about once a second."""
        for id in list(self._waiting):
            self._decide(self._seen[id])

    def waiting(self) -> int:
        """Return how many sources wait to be decided on."""
        return len(self._waiting)

    def _decide(self, seen: _Seen) -> None:
        id, was = seen.listing.id, seen.decision
        seen.decision = decision = self._decision(Container.of(id), seen)
        if isinstance(decision, Unknown):
            self._waiting[id] = None
            return
        self._waiting.pop(id, None)
        if decision == was:
            return
        self._count(was, -1)
        self._count(decision, 1)
        if isinstance(decision, Take):
            self._note_refused(seen.listing.id, decision, was)
            self._on_take(seen.listing, decision)
        elif isinstance(was, Take):
            self._on_leave(id)

    def _note_refused(self, id: SourceId, decision: Take, was: Decision) -> None:
        before = was.refused if isinstance(was, Take) else None
        if decision.refused is None or decision.refused == before:
            return
        self.refused_acks += 1
        log.warning(
            "the annotation %s of a pod is none of %s; it is left aside",
            ACK_ANNOTATION,
            ", ".join(ACKS),
            extra={
                "namespace": id.namespace,
                "pod": id.pod,
                "container": id.container,
                "found": decision.refused,
                "taken": decision.ack,
            },
        )

    def _ack_of(self, listing: Listing) -> Acknowledge:
        fitting = (mode for mode in self._modes if mode.fits(listing))
        first = next(fitting, None)
        return (first.ack if first is not None else None) or self._rules.ack

    def _count(self, decision: Decision, change: int) -> None:
        if isinstance(decision, Leave):
            self.left_out[decision.reason] += change

    def _decision(self, container: Container, seen: _Seen) -> Decision:
        if self._directory is None:
            return decide_by_path(container, self._rules)
        known = self._directory.find(container, is_last=False)
        decision = decide(container, known, self._rules)
        if not isinstance(decision, Unknown):
            return decision
        if not isinstance(seen.decision, Unknown):
            return seen.decision  # what was decided once stands until something is known
        if self._clock() - seen.since_s < METADATA_WAIT_S:
            return decision
        self.by_path_alone += 1
        partly = self._directory.find(container, is_last=True)
        if partly is not None and not isinstance(
            decision := decide(container, partly, self._rules), Unknown
        ):
            return decision
        return decide_by_path(container, self._rules)

    def _forget(self, id: SourceId) -> None:
        decision = self._seen.pop(id).decision
        self._count(decision, -1)
        self._waiting.pop(id, None)
        self.vanished_undecided += isinstance(decision, Unknown)
        uid = Container.of(id).uid
        self._of_pod[uid].discard(id)
        if not self._of_pod[uid]:
            del self._of_pod[uid]
