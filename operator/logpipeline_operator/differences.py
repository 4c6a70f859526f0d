"""What has to be done with a pipeline's children: decided from manifests alone, so that an idle
pipeline causes no request that writes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logpipeline_operator.children.labels import MANAGED_BY, MANAGED_BY_LABEL, PIPELINE_LABEL
from logpipeline_operator.children.model import Manifest
from logpipeline_operator.intrusions import Intrusion, intrusions, managers

Place = tuple[str, str]

# A field that we set once and no longer want is still there: only this tells.
APPLIED_ANNOTATION = "logpipeline.dev/applied"
# Fields that tell items of a list apart, where Kubernetes or an admission may add more items.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A child to be applied; *drift* names what somebody else had changed in it, *intrusions* what
    somebody else added that changes its meaning, and *managers* who, by the paths of the drift.
    """

    manifest: Manifest
    is_new: bool = False
    drift: tuple[str, ...] = ()
    intrusions: tuple[Intrusion, ...] = ()
    managers: Mapping[str, str] = field(default_factory=dict)
    # Nothing of ours has changed: only others' changes are put right.
    is_as_applied: bool = False
    # Its pods go on while it is made anew with what cannot be changed in place.
    replaces_uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """All that is to be done; *foreign* children belong to somebody else and are left alone."""

    apply: tuple[Wanted, ...] = ()
    delete: tuple[Manifest, ...] = ()
    foreign: tuple[str, ...] = ()


def place(manifest: Mapping[str, Any]) -> Place:
    """Return what tells a child from its siblings: its kind and name."""
    return str(manifest["kind"]), str(manifest["metadata"]["name"])


def title(manifest: Mapping[str, Any]) -> str:
    """Return how messages call a child."""
    return "{} {}".format(*place(manifest))


def changes(
    desired: Sequence[Manifest],
    live: Iterable[Manifest],
    *,
    owner_uid: str,
    pipeline: str,
    may_adopt: bool,
) -> Changes:
    """Return what makes the *live* children of *pipeline*, and their namesakes, as *desired*."""
    found = {place(manifest): manifest for manifest in live}
    apply: list[Wanted] = []
    foreign: list[str] = []
    for manifest in desired:
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
        and "deletionTimestamp" not in there["metadata"]
    ]
    return Changes(apply=tuple(apply), delete=tuple(unwanted), foreign=tuple(foreign))


def words_of(wanted: Wanted) -> list[str]:
    """Return what others did to a child: each field, who did it, and why that matters."""
    said = {
        each.path: f"{each.path}, set by {each.manager}: it changes {each.why}"
        for each in wanted.intrusions
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
    """Yield the paths of what *wanted* says and *there* does not; of more in *there* that matters,
    `intrusions` knows.
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
    annotations = there["metadata"].get("annotations") or {}
    is_as_applied = annotations.get(APPLIED_ANNOTATION) == _hash(manifest)
    paths = tuple(_limited(differing(manifest, there)))
    added = intrusions(manifest, there)
    if is_as_applied and not paths and not added:
        return None
    replaces = ""
    if _is_immutable(str(manifest["kind"]), paths):
        replaces = str(there["metadata"]["uid"])
    drift = paths if is_as_applied else ()
    return Wanted(
        manifest=stamped(manifest),
        drift=drift,
        intrusions=added,
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
    owners = there["metadata"].get("ownerReferences") or []
    if any(owner.get("uid") == owner_uid for owner in owners):
        return True
    if any(owner.get("controller") for owner in owners):
        return False
    labels = there["metadata"].get("labels") or {}
    # What an earlier pipeline of the name left behind on purpose (--cascade=orphan).
    is_left = labels.get(MANAGED_BY_LABEL) == MANAGED_BY and labels.get(PIPELINE_LABEL) == pipeline
    return is_left or may_adopt


def _limited(paths: Iterator[str]) -> Iterator[str]:
    for number, path in enumerate(paths):
        if number == DRIFT_PATHS_MAX:
            return
        yield path


def _hash(manifest: Manifest) -> str:
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
