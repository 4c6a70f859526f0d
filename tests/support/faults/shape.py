"""How a pipeline under test looks: its size, its speed, and the resource that says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logpipeline.embedded import ServerOptions
from specs import KEEPS_ALL, merged

PARTITIONS = 4
# Small, so that every file rotates while a test runs; none is removed unless a test does it.
ROTATE_BYTES = 48 * 1024
HOSTS_PER_SHIPPER = 5
TAKEOVER_AFTER_S = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How the pipeline under test looks; *spec* is merged over its resource's spec. With
    *has_banners* all plain files begin with the same line.
    """

    seed: int
    shippers: int = 1
    collectors: int = 2
    partitions: int = PARTITIONS
    hosts_per_shipper: int = HOSTS_PER_SHIPPER
    lines_per_second: float = 1200
    rotate_bytes: int = ROTATE_BYTES
    has_banners: bool = False
    server: ServerOptions = field(default_factory=ServerOptions)
    spec: dict[str, Any] = field(default_factory=dict)


def resource_of(shape: Shape, roots: Mapping[str, Path]) -> dict[str, Any]:
    """Return the LogPipeline of *shape*, whose shippers read the hosts below *roots*."""
    spec: dict[str, Any] = {
        "subject": "logs",
        "partitions": shape.partitions,
        "stream": {"maxBytes": "256Mi"},
        "collectors": {
            "replicas": max(shape.collectors, 1),
            "takeoverAfter": f"{TAKEOVER_AFTER_S}s",
            "snapshotEvery": "1s",
            # So small that rotation and compression happen while things die.
            "rotation": {"maxBytes": "64Ki"},
        },
        "shippers": {"rescan": "500ms"},
        "local": {
            "shippers": [{"name": name, "hostsBelow": str(root)} for name, root in roots.items()]
        },
    }
    return {
        "apiVersion": "logpipeline.dev/v1alpha1",
        "kind": "LogPipeline",
        "metadata": {"name": "faults", "namespace": "test"},
        "spec": merged(merged(KEEPS_ALL, spec), shape.spec),
    }
