"""ServiceAccounts of a pipeline's pods that are not the pipeline's: somebody's account may have
rights, and who names a pipeline cleverly must not get them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from logpipeline_operator.children.model import Manifest
from logpipeline_operator.differences import Changes

# As pods name their account, and as operators for Spark do.
_KEYS = ("serviceAccountName", "serviceAccount")


def without_strangers(changes: Changes, foreign: Sequence[str]) -> Changes:
    """Return *changes* without what would run as, or give rights to, an account that is to be made
    for the pipeline, and is there as somebody else's. *foreign* names such children.
    """
    strangers = {name.partition(" ")[2] for name in foreign if name.startswith("ServiceAccount ")}
    kept = [each for each in changes.apply if not strangers & set(_accounts(each.manifest))]
    return replace(changes, apply=tuple(kept))


def _accounts(manifest: Manifest) -> Iterator[str]:
    """Yield the accounts that *manifest* gives rights to, or has pods run as."""
    yield from (str(subject["name"]) for subject in manifest.get("subjects") or ())
    yield from _named(manifest)


def _named(value: Any) -> Iterator[str]:
    """Yield the accounts that a template of pods names, wherever in *value* it stands."""
    if isinstance(value, Mapping):
        yield from (str(name) for key, name in value.items() if key in _KEYS)
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _named(item)
