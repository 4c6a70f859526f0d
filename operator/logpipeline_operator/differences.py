"""Decides the changes to a pipeline's children by comparing manifests, so that a pipeline without
changes causes no write.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from logpipeline.spec.api import GROUP, PIPELINE_LABEL
from logpipeline_operator.children.model import MANAGED_BY, MANAGED_BY_LABEL, Desired, Manifest
from logpipeline_operator.cluster.objects import (
    annotations_of,
    has_controller,
    is_ending,
    is_owned_by,
    labels_of,
)
from logpipeline_operator.foreign_fields import ForeignField, foreign_fields, managers
from logpipeline_operator.queue import Key

Place = tuple[str, str]

# The hash of the manifest as it was applied last. It shows that a field is no longer wanted, which
# the object still has.
APPLIED_ANNOTATION = f"{GROUP}/applied"
# Fields that identify the items of a list, to which Kubernetes or admission may add more items.
_ITEM_KEYS = ("name", "mountPath", "containerPort", "port", "type", "key")
# Kubernetes refuses to change anything else of a StatefulSet's specification.
_MUTABLE = {
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
    "revisionHistoryLimit",
}
DRIFT_PATHS_MAX = 8

# The fields that name an account in pods and in SparkApplications.
_KEYS = ("serviceAccountName", "serviceAccount")

# A field that was corrected this often within the time is left as it is for a while.
CORRECTIONS_MAX = 5
WITHIN_S = 600.0
LEFT_FOR_S = 3600.0

Field = tuple[Key, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A child to be applied. *drift* has the paths of fields that other managers changed, and
    *managers* their names by these paths; *foreign_fields* are those that others added.
    """

    manifest: Manifest
    is_new: bool = False
    drift: tuple[str, ...] = ()
    foreign_fields: tuple[ForeignField, ...] = ()
    managers: Mapping[str, str] = field(default_factory=dict)
    # The manifest is unchanged: only changes of other managers are corrected.
    is_as_applied: bool = False
    # It must be deleted and made again, since a field cannot be changed; its pods stay.
    replaces_uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """All changes; *foreign* children belong to other owners and are left alone."""

    apply: tuple[Wanted, ...] = ()
    delete: tuple[Manifest, ...] = ()
    foreign: tuple[str, ...] = ()


def place(manifest: Mapping[str, Any]) -> Place:
    """Return the key of a child among its siblings: its kind and name."""
    return str(manifest["kind"]), str(manifest["metadata"]["name"])


def title(manifest: Mapping[str, Any]) -> str:
    """Return the name of a child in messages."""
    return "{} {}".format(*place(manifest))


def changes(
    desired: Desired,
    live: Iterable[Manifest],
    *,
    owner_uid: str,
    pipeline: str,
    may_adopt: bool,
) -> Changes:
    """Return the changes that make the *live* children of *pipeline* as *desired*. A child is
    deleted only if it is known that it is not wanted.
    """
    found = {place(manifest): manifest for manifest in live}
    apply: list[Wanted] = []
    foreign: list[str] = []
    for manifest in desired.manifests:
        there = found.pop(place(manifest), None)
        if there is not None and not _is_ours(there, owner_uid, pipeline, may_adopt=may_adopt):
            foreign.append(title(manifest))
            continue
        wanted = _change(manifest, there)
        if wanted is not None:
            apply.append(wanted)
    unwanted = [
        there
        for there in found.values()
        if _is_ours(there, owner_uid, pipeline, may_adopt=False)
        and not is_ending(there)
        and not desired.may_include(there)
    ]
    return Changes(apply=tuple(apply), delete=tuple(unwanted), foreign=tuple(foreign))


def corrections_of(wanted: Wanted) -> list[str]:
    """Return each field of a child that others changed, with its manager and why it matters."""
    said = {
        each.path: f"{each.path}, set by {each.manager}: it changes {each.why}"
        for each in wanted.foreign_fields
    }
    for path in wanted.drift:
        manager = wanted.managers.get(path)
        said.setdefault(path, f"{path}, changed by {manager}" if manager else path)
    return list(said.values())[:DRIFT_PATHS_MAX]


def stamped(manifest: Manifest) -> Manifest:
    """Return *manifest* with its hash, as it is applied."""
    metadata = dict(manifest["metadata"])
    metadata["annotations"] = {
        **metadata.get("annotations", {}), APPLIED_ANNOTATION: _hash(manifest),
    }  # fmt: skip
    return {**manifest, "metadata": metadata}


def differing(wanted: Any, there: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of fields of *wanted* that *there* lacks or has otherwise. Further fields of
    *there* are compared by `foreign_fields`.
    """
    if isinstance(wanted, Mapping):
        if not isinstance(there, Mapping):
            if wanted:
                yield path
            return
        for key, value in wanted.items():
            yield from differing(value, there.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(wanted, list):
        yield from _differing_items(wanted, there if isinstance(there, list) else [], path)
    elif wanted != there and not (there is None and wanted in ("", 0, False)):
        yield path


def _differing_items(wanted: list[Any], there: list[Any], path: str) -> Iterator[str]:
    key = _item_key(wanted)
    if key is None:
        if len(wanted) != len(there):
            yield path
            return
        for number, (item, other) in enumerate(zip(wanted, there, strict=True)):
            yield from differing(item, other, f"{path}[{number}]")
        return
    others = {item.get(key): item for item in there if isinstance(item, Mapping)}
    for item in wanted:
        yield from differing(item, others.get(item[key]), f"{path}[{item[key]}]")


def _item_key(items: list[Any]) -> str | None:
    for key in _ITEM_KEYS:
        if items and all(isinstance(item, Mapping) and key in item for item in items):
            values = [item[key] for item in items]
            if len(set(map(str, values))) == len(values):
                return key
    return None


def _change(manifest: Manifest, there: Manifest | None) -> Wanted | None:
    if there is None:
        return Wanted(manifest=stamped(manifest), is_new=True)
    is_as_applied = annotations_of(there).get(APPLIED_ANNOTATION) == _hash(manifest)
    paths = tuple(_limited(differing(manifest, there)))
    added = foreign_fields(manifest, there)
    if is_as_applied and not paths and not added:
        return None
    replaces = ""
    if _is_immutable(str(manifest["kind"]), paths):
        replaces = str(there["metadata"]["uid"])
    drift = paths if is_as_applied else ()
    return Wanted(
        manifest=stamped(manifest),
        drift=drift,
        foreign_fields=added,
        managers=managers(there, drift),
        is_as_applied=is_as_applied,
        replaces_uid=replaces,
    )


def _is_immutable(kind: str, paths: Iterable[str]) -> bool:
    """Return whether Kubernetes refuses to change one of *paths* in place."""
    for path in paths:
        parts = path.split("[")[0].split(".")
        if kind in ("ClusterRoleBinding", "RoleBinding") and parts[0] == "roleRef":
            return True
        is_fixed = parts[0] == "spec" and len(parts) > 1 and parts[1] not in _MUTABLE
        if kind == "StatefulSet" and is_fixed:
            return True
    return False


def _is_ours(there: Manifest, owner_uid: str, pipeline: str, *, may_adopt: bool) -> bool:
    if is_owned_by(there, owner_uid):
        return True
    if has_controller(there):
        return False
    given = labels_of(there)
    # An earlier pipeline of the same name left it behind on purpose (--cascade=orphan).
    is_left = given.get(MANAGED_BY_LABEL) == MANAGED_BY and given.get(PIPELINE_LABEL) == pipeline
    return is_left or may_adopt


def _limited(paths: Iterator[str]) -> Iterator[str]:
    for number, path in enumerate(paths):
        if number == DRIFT_PATHS_MAX:
            return
        yield path


def _hash(manifest: Manifest) -> str:
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def without_strangers(changes: Changes, foreign: Sequence[str]) -> Changes:
    """Return *changes* without children that would run as, or give rights to, a foreign account:
    one with a name that the pipeline's own should have. *foreign* names all foreign children.
    """
    kept = [each for each in changes.apply if not uses_stranger(each.manifest, foreign)]
    return replace(changes, apply=tuple(kept))


def uses_stranger(manifest: Manifest, foreign: Sequence[str]) -> bool:
    """Return whether *manifest* runs as, or gives rights to, an account that is among *foreign*,
    the titles of all foreign children.
    """
    return any(f"ServiceAccount {name}" in foreign for name in _accounts(manifest))


def _accounts(manifest: Manifest) -> Iterator[str]:
    """Yield the accounts that *manifest* gives rights to, or that its pods run as."""
    yield from (str(subject["name"]) for subject in manifest.get("subjects") or ())
    yield from _named(manifest)


def _named(value: Any) -> Iterator[str]:
    """Yield the accounts that templates of pods name, anywhere in *value*."""
    if isinstance(value, Mapping):
        yield from (str(name) for key, name in value.items() if key in _KEYS)
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _named(item)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldConflict:
    """A field of a child that *manager* sets again and again."""

    child: str
    path: str
    manager: str


@dataclass(slots=True)
class FieldConflicts:
    """The fields that were corrected lately; *clock* is monotonic, in seconds."""

    clock: Callable[[], float] = time.monotonic
    _corrected: dict[Field, list[float]] = field(default_factory=dict)

    def settle(self, key: Key, changes: Changes) -> tuple[Changes, list[FieldConflict]]:
        """Return *changes* to the children of the pipeline *key* without the fields that another
        manager sets again and again, and these fields. The others count as corrected now.
        """
        self._forget_old()
        apply: list[Wanted] = []
        contests: list[FieldConflict] = []
        for wanted in changes.apply:
            paths = _managers(wanted)
            lost = [path for path in paths if self._is_lost((key, *place(wanted.manifest), path))]
            contests += [
                FieldConflict(child=title(wanted.manifest), path=path, manager=paths[path])
                for path in lost
            ]
            kept = _without(wanted, set(lost))
            if kept is None:
                continue
            for path in set(paths) - set(lost):
                self._note((key, *place(wanted.manifest), path))
            apply.append(kept)
        return replace(changes, apply=tuple(apply)), contests

    def forget(self, key: Key) -> None:
        """Forget a pipeline that is gone."""
        for each in [each for each in self._corrected if each[0] == key]:
            del self._corrected[each]

    def _is_lost(self, each: Field) -> bool:
        times = self._corrected.get(each, [])
        return len(times) >= CORRECTIONS_MAX

    def _note(self, each: Field) -> None:
        self._corrected.setdefault(each, []).append(self.clock())

    def _forget_old(self) -> None:
        now = self.clock()
        for each, times in list(self._corrected.items()):
            is_full = len(times) >= CORRECTIONS_MAX
            recent = [at for at in times if now - at < (LEFT_FOR_S if is_full else WITHIN_S)]
            # A full list expires as a whole: else the field would be corrected again as each entry
            # expires.
            if is_full and len(recent) < len(times):
                recent = []
            if recent:
                self._corrected[each] = recent
            else:
                del self._corrected[each]


def _managers(wanted: Wanted) -> dict[str, str]:
    """Return the managers of the fields to correct, by path; own changes are not among them."""
    if not wanted.is_as_applied:
        return {each.path: each.manager for each in wanted.foreign_fields}
    drift = {path: wanted.managers.get(path, "another manager") for path in wanted.drift}
    return drift | {each.path: each.manager for each in wanted.foreign_fields}


def _without(wanted: Wanted, lost: set[str]) -> Wanted | None:
    """Return *wanted* without the paths *lost*; None if nothing is left to do."""
    if not lost:
        return wanted
    kept = replace(
        wanted,
        drift=tuple(path for path in wanted.drift if path not in lost),
        foreign_fields=tuple(each for each in wanted.foreign_fields if each.path not in lost),
    )
    return kept if kept.drift or kept.foreign_fields or not wanted.is_as_applied else None
