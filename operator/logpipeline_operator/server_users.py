"""Keeps the Secrets of a managed server's users. Their passwords are the source; the files for the
server and its clients are derived from them. So a password that a user writes there is used from
then on, and a value that is deleted or invalid is made again.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from logpipeline.spec import LogPipeline
from logpipeline_operator import secret_files
from logpipeline_operator.callout.claims import Issuer, new_seed
from logpipeline_operator.children import credentials, names
from logpipeline_operator.children.model import MANAGED_BY, MANAGED_BY_LABEL, Manifest
from logpipeline_operator.cluster.client import Cluster, ClusterError
from logpipeline_operator.cluster.kinds import kind
from logpipeline_operator.cluster.objects import labels_of

PASSWORD_BYTES = 24
SEED_BYTES = 32
# The hash only shows that the Secret has changed.
HASH_CHARS = 32


def is_ours(secret: Manifest) -> bool:
    """Return whether the operator made *secret*."""
    return labels_of(secret).get(MANAGED_BY_LABEL) == MANAGED_BY


def decoded(secret: Manifest | None) -> dict[str, bytes]:
    """Return the values of *secret*, none if it does not exist; values that are not base64 are left
    out.
    """
    found = {}
    for key, value in ((secret or {}).get("data") or {}).items():
        try:
            found[key] = base64.b64decode(value, validate=True)
        except (TypeError, ValueError, binascii.Error):
            continue
    return found


async def change(cluster: Cluster, there: Manifest, content: Mapping[str, Any]) -> Manifest:
    """Return the Secret *there* with the fields of *content*.

    Raises:
        ClusterError, ClusterAway: it could not be changed, or has changed since it was read.
    """
    metadata = there["metadata"]
    version = {"metadata": {"resourceVersion": metadata["resourceVersion"]}}
    return await cluster.merge(
        kind("Secret"), metadata["namespace"], metadata["name"], {**version, **content}
    )


class Kept(NamedTuple):
    """A Secret as it is now, None if there is none yet, and the values that were corrected."""

    secret: Manifest | None
    put_right: str = ""

    @property
    def hash(self) -> str:
        """A hash that changes with the values of the Secret; empty without a Secret."""
        if self.secret is None:
            return ""
        data = self.secret.get("data") or {}
        texts = {key: str(value).encode() for key, value in data.items()}
        return secret_files.fingerprint(texts)[:HASH_CHARS]


# Returns the wanted Secret, given the values that exist.
Wanted = Callable[[Mapping[str, str]], Manifest]


async def of_roles(cluster: Cluster, pipeline: LogPipeline, *, may_write: bool) -> Kept:
    """Return the Secret of the operator, collectors, shippers and servers.

    Raises:
        ClusterError, ClusterAway: it could not be read or written.
    """

    def wanted(held: Mapping[str, str]) -> Manifest:
        kept = {role: credentials.password_in(held, role) for role in credentials.ROLES}
        return credentials.users_secret(
            pipeline, {role: kept[role] or _password() for role in kept}
        )

    name = names.nats_auth(pipeline)
    return await _kept(cluster, pipeline, name, wanted, may_write=may_write)


async def of_table(cluster: Cluster, pipeline: LogPipeline, *, may_write: bool) -> Kept:
    """Return the Secret of the table's user. It is made before the server that reads it, and before
    the table that logs in with it.

    Raises:
        ClusterError, ClusterAway: it could not be read or written.
    """

    def wanted(held: Mapping[str, str]) -> Manifest:
        kept = credentials.password_in(held, credentials.TABLE)
        return credentials.table_secret(pipeline, kept or _password())

    name = credentials.secret_of(pipeline, credentials.TABLE)
    return await _kept(cluster, pipeline, name, wanted, may_write=may_write)


async def of_callout(cluster: Cluster, pipeline: LogPipeline, *, may_write: bool) -> Kept:
    """Return the Secret of the callout's user, with the callout's signing key.

    Raises:
        ClusterError, ClusterAway: it could not be read or written.
    """

    def wanted(held: Mapping[str, str]) -> Manifest:
        kept = credentials.password_in(held, credentials.CALLOUT)
        seed = _seed(held.get(credentials.ISSUER_SEED, ""))
        return credentials.callout_secret(
            pipeline, kept or _password(), seed, Issuer(seed).public_key
        )

    name = credentials.secret_of(pipeline, credentials.CALLOUT)
    return await _kept(cluster, pipeline, name, wanted, may_write=may_write)


async def _kept(
    cluster: Cluster, pipeline: LogPipeline, name: str, wanted: Wanted, *, may_write: bool
) -> Kept:
    """Return the Secret *name* as it is *wanted*; one that the operator did not make stays."""
    there = await cluster.get(kind("Secret"), pipeline.namespace, name)
    if not may_write or (there is not None and not is_ours(there)):
        return Kept(there)
    # A value that is not ASCII differs from every wanted one, and is replaced.
    contents = decoded(there).items()
    held = {key: content.decode("ascii", "replace") for key, content in contents}
    manifest = wanted(held)
    if there is None:
        try:
            return Kept(await cluster.create(manifest))
        except ClusterError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            return Kept(await cluster.get(kind("Secret"), pipeline.namespace, name))
    changed = {key: text for key, text in manifest["stringData"].items() if held.get(key) != text}
    if not changed:
        return Kept(there)
    put_right = f"Secret {name} ({', '.join(sorted(changed))})"
    # Refused if it has changed since it was read: the next reconciliation decides again.
    return Kept(await change(cluster, there, {"stringData": changed}), put_right)


def _seed(held: str) -> str:
    """Return the seed *held*; a new one if it is not a valid seed."""
    try:
        Issuer(held)
    except ValueError:
        return new_seed(secrets.token_bytes(SEED_BYTES))
    return held


def _password() -> str:
    return secrets.token_urlsafe(PASSWORD_BYTES)
