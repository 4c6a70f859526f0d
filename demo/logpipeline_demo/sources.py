"""Which hosts and sources the small busy application has, and where their lines are written and
archived.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from logpipeline.partition import partition_of
from logpipeline_demo.lines import SourceKey
from logpipeline_demo.payloads import Kind

# What a LogPipeline has unless it says otherwise: the hosts are chosen so that none is idle.
PARTITIONS_DEFAULT = 10
FILE_NAME = "app.log"
SECOND_POD_EVERY = 3
_APPLICATIONS = ("cart", "orders", "payment", "search", "stock", "web")
_NAMESPACES = ("shop", "shop-backend", "shop-data")
_SUFFIXES = ("", ".example.net", ".eu-west-1.compute.internal")


@dataclass(frozen=True, slots=True)
class LogSource:
    """One log of one host: a container's, or a plain file."""

    host: str
    kind: Kind
    pod: str = ""
    pod_uid: str = ""
    namespace: str = ""
    container: str = ""
    file: str = FILE_NAME

    @property
    def key(self) -> SourceKey:
        """What the lines say of their origin."""
        if self.kind == "plain":
            return SourceKey(self.host, f"files/{self.file}")
        return SourceKey(self.host, f"{self.namespace}/{self.pod}/{self.container}")

    def live_path(self, root: Path) -> Path:
        """Return the file below *root* that is written now."""
        if self.kind == "plain":
            return root / self.host / "files" / self.file
        pod = f"{self.namespace}_{self.pod}_{self.pod_uid}"
        return root / self.host / "pods" / pod / self.container / "0.log"


def is_place_of(key: SourceKey, place: str) -> bool:
    """Tell whether the lines of *key* belong into the archive's file *place*, by its default
    paths.

    A plain file keeps its own path below ``_files``, and only the end of that is known here.
    """
    if not key.name.startswith("files/"):
        return place == f"{key.host}/{key.name}.log"
    name = key.name.removeprefix("files/")
    return place.startswith(f"{key.host}/_files/") and place.endswith(f"/{name}")


def host_names(count: int, *, seed: int, partitions: int = PARTITIONS_DEFAULT) -> list[str]:
    """Return *count* names of nodes that keep all *partitions* as equally busy as can be."""
    rng = random.Random(f"{seed}/hosts")
    names: list[str] = []
    load = [0] * max(partitions, 1)
    while len(names) < count:
        suffix = _SUFFIXES[len(names) % len(_SUFFIXES)]
        name = f"node-{rng.randrange(16**6):06x}{suffix}"
        partition = partition_of(name, partitions)
        if load[partition] == min(load) and name not in names:
            load[partition] += 1
            names.append(name)
    return names


def sources_of(hosts: Sequence[str], *, seed: int) -> list[LogSource]:
    """Return the sources of *hosts*: a plain file each, a container, and now and then two."""
    rng = random.Random(f"{seed}/sources")
    sources = []
    for index, host in enumerate(hosts):
        sources.append(LogSource(host, "plain"))
        for _ in range(2 if index % SECOND_POD_EVERY == 0 else 1):
            sources.append(_container(rng, host))
    return sources


def _container(rng: random.Random, host: str) -> LogSource:
    application = rng.choice(_APPLICATIONS)
    uid = f"{rng.getrandbits(128):032x}"
    return LogSource(
        host,
        "cri",
        pod=f"{application}-{rng.getrandbits(32):08x}-{rng.getrandbits(20):05x}",
        pod_uid="-".join((uid[:8], uid[8:12], uid[12:16], uid[16:20], uid[20:])),
        namespace=rng.choice(_NAMESPACES),
        container=application,
    )
