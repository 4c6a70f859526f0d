"""The volume claims of StatefulSets: they are made once, grow one by one, and their labels show how
the server began that wrote to them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from logpipeline.quantity import QuantityError, parse_bytes
from logpipeline.spec import LogPipeline
from logpipeline.spec.api import COMPONENT_LABEL
from logpipeline_operator.children.model import ACCOUNTS_LABEL, TLS_LABEL, Component, Manifest
from logpipeline_operator.cluster.objects import labels_of


@dataclass(frozen=True, slots=True)
class Growth:
    """The claim *name* should request *storage*, as Kubernetes writes it."""

    name: str
    storage: str


def to_grow(desired: Iterable[Manifest], claims: Iterable[Manifest]) -> list[Growth]:
    """Return the *claims* of *desired* StatefulSets that request less than these want. None is made
    smaller: no storage can shrink.
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


def may_have_accounts(
    pipeline: LogPipeline, server: Manifest | None, claims: Iterable[Manifest]
) -> bool:
    """Return whether the managed server *server* and all of its *claims* began with accounts, or
    may begin with them. Only how it began counts: its streams are found in no other account.
    """
    if pipeline.spec.nats.servers:
        return False
    made = _of_servers(server, claims)
    if made:
        return all(ACCOUNTS_LABEL in labels_of(claim) for claim in made)
    # Requests to JetStream under a domain do not pass from one account to another.
    return not pipeline.spec.nats.js_domain


def began_with_tls(server: Manifest | None, claims: Iterable[Manifest]) -> bool:
    """Return whether the managed server *server* and all of its *claims* were made by a version
    with TLS, or are not made yet.
    """
    return all(TLS_LABEL in labels_of(claim) for claim in _of_servers(server, claims))


def of_servers_bytes(claims: Iterable[Manifest]) -> int:
    """Return the size that the smallest volume of the managed server among *claims* has at least; 0
    if that is not known.
    """
    sizes = []
    for claim in _of_servers(None, claims):
        # The operator does not write quantities in another way, so a user did.
        with contextlib.suppress(QuantityError):
            sizes.append(parse_bytes(_storage(claim)))
    return min(sizes, default=0)


def _of_servers(server: Manifest | None, claims: Iterable[Manifest]) -> list[Manifest]:
    made = [claim for claim in claims if labels_of(claim).get(COMPONENT_LABEL) == Component.NATS]
    made += (server or {}).get("spec", {}).get("volumeClaimTemplates", [])
    return made


def _is_less(there: str, wanted: str) -> bool:
    try:
        return parse_bytes(there) < parse_bytes(wanted)
    except QuantityError:
        # The operator does not write quantities in this way, so a user did: it stays.
        return False


def _storage(claim: Manifest) -> str:
    return str(claim["spec"]["resources"]["requests"]["storage"])
