"""Secrets that the operator makes, and keeps as they are to be."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from logpipeline_operator.children.labels import MANAGED_BY, MANAGED_BY_LABEL
from logpipeline_operator.children.model import Manifest
from logpipeline_operator.cluster.client import Cluster
from logpipeline_operator.cluster.kinds import kind


def is_ours(secret: Manifest) -> bool:
    """Return whether the operator made *secret*."""
    labels = secret["metadata"].get("labels") or {}
    return bool(labels.get(MANAGED_BY_LABEL) == MANAGED_BY)


def decoded(secret: Manifest | None) -> dict[str, bytes]:
    """Return what *secret* holds, nothing of one that is not there; a value that is no base64 is
    left out.
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
