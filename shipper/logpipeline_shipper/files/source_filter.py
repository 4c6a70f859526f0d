"""Decides which sources are shipped: by patterns of paths, and by pods and their labels."""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import translate
from functools import lru_cache
from pathlib import Path
from typing import Protocol, get_args

from logpipeline.spec.api import ACK_ANNOTATION, PIPELINE_LABEL
from logpipeline.spec.components import Match, PodSelector
from logpipeline.spec.streams import Acknowledge
from logpipeline.wire import LABELS_MAX
from logpipeline_shipper.files.listing import HostSources, Listing, SourceId

_WILD = re.compile(r"[*?\[]")
_ANY_FOLDERS = "**"

State = tuple[int, int]

# The strictest first.
ACKS: tuple[Acknowledge, ...] = get_args(Acknowledge)
# The container that `logpipeline inject` adds to a pod.
SIDECAR_CONTAINER = "logpipeline-shipper"
# The reason for skipping a container that a change of the namespaces may bring back.
OTHER_NAMESPACE = "other-namespace"
COMPONENTS = ("collector", "shipper", "nats")

Labels = tuple[tuple[str, str], ...]

log = logging.getLogger(__name__)

# kubelet gets a pod from the API server before it makes the pod's folder: if a pod is unknown for
# so long, the API server does not answer.
METADATA_WAIT_S = 5.0
OnSkip = Callable[[SourceId], None]


class BadPattern(ValueError):
    """A pattern that cannot match files."""


@dataclass(frozen=True, slots=True)
class Patterns:
    """Patterns of absolute paths. A state is a (pattern, part) that has to be matched next; a
    folder has a set of states.
    """

    parts: tuple[tuple[str, ...], ...]

    @staticmethod
    def of(patterns: tuple[str, ...]) -> Patterns:
        """Return *patterns*, split into their parts.

        Raises:
            BadPattern: one is not absolute, or ends with a slash.
        """
        parts = []
        for pattern in patterns:
            if not pattern.startswith("/") or pattern.endswith("/"):
                raise BadPattern(
                    f"{pattern!r}: a pattern is the absolute path of files, as /var/log/**/*.log"
                )
            words = [part for part in pattern.split("/") if part not in ("", ".")]
            if ".." in words:
                raise BadPattern(f"{pattern!r}: a pattern does not contain '..'")
            parts.append((*words, "*") if words[-1] == _ANY_FOLDERS else tuple(words))
        return Patterns(tuple(parts))

    def roots(self) -> dict[Path, frozenset[State]]:
        """Return the top folders, none of them below another, with their states."""
        bases = {index: self._base(words) for index, words in enumerate(self.parts)}
        tops = [
            base
            for base in set(bases.values())
            if not any(base[: len(other)] == other for other in bases.values() if other != base)
        ]
        return {
            Path("/", *top): frozenset(
                self._closed(
                    {(i, len(top)) for i, base in bases.items() if base[: len(top)] == top}
                )
            )
            for top in tops
        }

    def below(self, states: frozenset[State], name: str) -> frozenset[State]:
        """Return the states of the folder *name* in a folder with *states*; none: skip it."""
        following: set[State] = set()
        for index, part in states:
            words = self.parts[index]
            if words[part] == _ANY_FOLDERS:
                if not name.startswith("."):
                    following.add((index, part))
            elif part + 1 < len(words) and _matches(words[part], name):
                following.add((index, part + 1))
        return frozenset(self._closed(following))

    def match(self, states: frozenset[State], name: str) -> bool:
        """Return whether a file *name* in a folder with *states* matches."""
        return any(
            part + 1 == len(self.parts[index]) and _matches(self.parts[index][part], name)
            for index, part in states
        )

    def match_path(self, path: Path) -> bool:
        """Return whether *path*, or a folder above it, matches: for exclusions."""
        states = frozenset(self._closed({(index, 0) for index in range(len(self.parts))}))
        for name in path.parts[1:]:
            if self.match(states, name):
                return True
            states = self.below(states, name)
        return False

    def _closed(self, states: set[State]) -> set[State]:
        """Add the states that follow because `**` also stands for no folder."""
        closed = set(states)
        for index, part in states:
            words = self.parts[index]
            while words[part] == _ANY_FOLDERS:
                part += 1
                closed.add((index, part))
        return closed

    def _base(self, words: tuple[str, ...]) -> tuple[str, ...]:
        wild = next((i for i, word in enumerate(words) if _WILD.search(word)), len(words) - 1)
        return words[: min(wild, len(words) - 1)]


def _matches(pattern: str, name: str) -> bool:
    # As in a shell, a hidden file matches only a pattern that begins with a dot.
    if name.startswith(".") and not pattern.startswith("."):
        return False
    return _compiled(pattern).match(name) is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


# The decision includes the acknowledgement to wait for when lines are sent: the pod's annotation
# comes before the entry that matches, and that before the pipeline's default.
#
# It is made before a file is opened. If the pod is not known yet, the decision is `Unknown`:
# nothing is dropped, and nothing is read before an exclusion can have been received.
@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container as its log's path names it: ``<namespace>_<pod>_<uid>/<container>``."""

    namespace: str
    pod: str
    uid: str
    name: str

    @staticmethod
    def of(id: SourceId) -> Container:
        """Return the container of the log *id*."""
        uid = id.source.split("/", 3)[2]
        return Container(namespace=id.namespace, pod=id.pod, uid=uid, name=id.container)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The metadata of a container's pod in Kubernetes. *is_excluded*: an annotation of the pod or
    of its namespace excludes it; *ack* is the text of its annotation.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    is_excluded: bool = False
    ack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of the resource. *namespace* and *pipeline* are its own: its pods are skipped, and
    also those of namespaces that are not in *only*, if that is given. *ack* is the default of the
    acknowledgement to wait for.
    """

    namespace: str = ""
    pipeline: str = ""
    only: frozenset[str] | None = None
    matches: tuple[Match, ...] = ()
    labels: tuple[str, ...] = ()
    ack: Acknowledge = "batch"

    @property
    def needs_labels(self) -> bool:
        """Return whether a decision, or the labels of a line, may depend on a pod's labels."""
        selectors = (match.select or match.exclude for match in self.matches)
        return bool(self.labels) or any(each.labels for each in selectors if each is not None)


@dataclass(frozen=True, slots=True)
class Ship:
    """Ship the source with the acknowledgement *ack* and *labels*. *refused* is the text of an
    annotation that names no acknowledgement.
    """

    labels: Labels = ()
    ack: Acknowledge = "batch"
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Skip:
    """Do not open the file; *reason* is one token."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """The decision needs metadata that is not known yet."""


Decision = Ship | Skip | Unknown


def decide(container: Container, metadata: Metadata | None, rules: Rules) -> Decision:
    """Decide on *container*; without *metadata*, decide only what no metadata can change."""
    if rules.only is not None and container.namespace not in rules.only:
        return Skip(OTHER_NAMESPACE)
    if _is_ours(container, metadata, rules):
        return Skip("own-component")
    if metadata is None:
        # Any pod may turn out to be excluded by its annotation.
        return Unknown() if any(_outcomes(container, None, rules)) else Skip("not-selected")
    if metadata.is_excluded:
        return Skip("excluded-by-annotation")
    ack = next(_outcomes(container, metadata.labels, rules))
    if ack is None:
        return Skip("not-selected")
    taken = Ship(_carried(metadata.labels, rules), ack)
    return taken if metadata.ack is None else _annotated(taken, metadata.ack)


def decide_by_path(container: Container, rules: Rules) -> Ship | Skip:
    """Decide on *container* if its pod remains unknown. A superfluous line is better than a lost
    one: a container that labels might exclude is shipped, with the strictest acknowledgement of all
    entries that may match.
    """
    decision = decide(container, None, rules)
    if not isinstance(decision, Unknown):
        return decision
    possible = [ack for ack in _outcomes(container, None, rules) if ack is not None]
    return Ship(ack=min(possible, key=ACKS.index))


def _annotated(taken: Ship, text: str) -> Ship:
    if text in ACKS:
        return replace(taken, ack=text)
    # A misspelt annotation must not cause lost lines: at least batches are acknowledged.
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


def _outcomes(
    container: Container, labels: Mapping[str, str] | None, rules: Rules
) -> Iterator[Acknowledge | None]:
    """Yield each possible decision: the acknowledgement to ship with, or None to skip. Only one, if
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
    # No entry matches: a list of exceptions means all others, a list with selections nothing else.
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


OnShip = Callable[[Listing, Ship], None]


# A container whose pod is not known yet waits for a few seconds; all other sources go on. After
# that its path decides. When the metadata comes later, it is decided on again.
class PodLookup(Protocol):
    """Finds the metadata of pods."""

    def find(self, container: Container, *, is_last: bool) -> Metadata | None:
        """Return the metadata of the container's pod, None if it may be incomplete; with *is_last*,
        also an incomplete one.
        """


@dataclass(slots=True)
class _Seen:
    """A container's log: its files, the time when it was found, and the decision."""

    listing: Listing
    since_s: float
    decision: Decision


@dataclass(frozen=True, slots=True)
class _Mode:
    """The acknowledgement to wait for when files of one entry are sent."""

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


class SourceFilter:
    """See the module. Without *pods* only the path decides. The first of *files* that matches gives
    the acknowledgement to wait for when lines of a plain file are sent.
    """

    def __init__(
        self,
        rules: Rules,
        pods: PodLookup | None,
        *,
        files: tuple[HostSources, ...] = (),
        on_ship: OnShip,
        on_skip: OnSkip,
        clock: Callable[[], float],
    ) -> None:
        self.by_path_alone = 0
        self.vanished_undecided = 0
        self.refused_acks = 0
        self.left_out: Counter[str] = Counter()
        self._rules = rules
        self._pods = pods
        self._modes = tuple(map(_Mode.of, files)) if any(each.ack for each in files) else ()
        self._on_ship = on_ship
        self._on_skip = on_skip
        self._clock = clock
        self._seen: dict[SourceId, _Seen] = {}
        self._of_pod: defaultdict[str, set[SourceId]] = defaultdict(set)
        self._waiting: dict[SourceId, None] = {}

    def update(self, listing: Listing) -> None:
        """Take the files of one source, as discovery found them."""
        id = listing.id
        if id.format != "cri":
            self._on_ship(listing, Ship(ack=self._ack_of(listing)))
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
        if isinstance(seen.decision, Ship):
            self._on_ship(listing, seen.decision)
        if not listing.files:
            self._forget(id)

    def changed(self, uid: str) -> None:
        """Decide again on the containers of the pod *uid*, whose metadata changed."""
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
            is_back = seen.decision == Skip(OTHER_NAMESPACE)
            if is_back and seen.listing.id.namespace in namespaces:
                # Its pod was not asked for: it waits like a new one.
                self._count(seen.decision, -1)
                seen.decision, seen.since_s = Unknown(), self._clock()
            self._decide(seen)

    def namespaces(self) -> set[str]:
        """Return the namespaces whose pods are read, and of which there are logs."""
        return {
            id.namespace
            for id, seen in self._seen.items()
            if seen.decision != Skip(OTHER_NAMESPACE)
        }

    def tick(self) -> None:
        """Decide on containers whose wait is over; called about once a second."""
        for id in list(self._waiting):
            self._decide(self._seen[id])

    def is_skipped(self, id: SourceId) -> bool:
        """Return whether it was decided not to ship the container *id*."""
        seen = self._seen.get(id)
        return seen is not None and isinstance(seen.decision, Skip)

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
        if isinstance(decision, Ship):
            self._note_refused(seen.listing.id, decision, was)
            self._on_ship(seen.listing, decision)
        elif isinstance(was, Ship):
            self._on_skip(id)

    def _note_refused(self, id: SourceId, decision: Ship, was: Decision) -> None:
        before = was.refused if isinstance(was, Ship) else None
        if decision.refused is None or decision.refused == before:
            return
        self.refused_acks += 1
        log.warning(
            "the annotation %s of a pod is none of %s; it is ignored",
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
        if isinstance(decision, Skip):
            self.left_out[decision.reason] += change

    def _decision(self, container: Container, seen: _Seen) -> Decision:
        if self._pods is None:
            return decide_by_path(container, self._rules)
        known = self._pods.find(container, is_last=False)
        decision = decide(container, known, self._rules)
        if not isinstance(decision, Unknown):
            return decision
        if not isinstance(seen.decision, Unknown):
            return seen.decision  # a decision stands until there is metadata
        if self._clock() - seen.since_s < METADATA_WAIT_S:
            return decision
        self.by_path_alone += 1
        partly = self._pods.find(container, is_last=True)
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
