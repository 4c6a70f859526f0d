"""Volumes that shall be larger: a StatefulSet's claims are made once, and grow only one by one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from logpipeline.quantity import QuantityError, parse_bytes
from logpipeline_operator.children.model import Manifest


@dataclass(frozen=True, slots=True)
class Growth:
    """The claim *name* shall ask for *storage*, as Kubernetes writes it."""

    name: str
    storage: str


def to_grow(desired: Iterable[Manifest], claims: Iterable[Manifest]) -> list[Growth]:
    """Return the *claims* of *desired* StatefulSets that ask for less than these want; none is
    ever made smaller, since no storage does that.
    """
    wanted = {
        f"{template['metadata']['name']}-{manifest['metadata']['name']}-": _storage(template)
        for manifest in desired
        if manifest["kind"] == "StatefulSet"
        for template in manifest["spec"].get("volumeClaimTemplates", [])
    }
    found = []
    for claim in claims:
        name = str(claim["metadata"]["name"])
        prefix = name.rstrip("0123456789")
        storage = wanted.get(prefix)
        if storage and prefix != name and _is_less(_storage(claim), storage):
            found.append(Growth(name, storage))
    return sorted(found, key=lambda growth: growth.name)


def _is_less(there: str, wanted: str) -> bool:
    try:
        return parse_bytes(there) < parse_bytes(wanted)
    except QuantityError:
        # Somebody wrote it in a way that we do not: it is theirs.
        return False


def _storage(claim: Manifest) -> str:
    return str(claim["spec"]["resources"]["requests"]["storage"])
