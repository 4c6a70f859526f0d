"""Which folders of a node can be mounted into a shipper, and which volumes a collector can have."""

from __future__ import annotations

from typing import Any

from logpipeline.spec.components import VOLUME_KINDS
from logpipeline.spec.crossrule import CrossRule
from logpipeline.spec.fields import matches
from logpipeline.spec.model import LogPipelineSpec

# A glob's folder is mounted where it is on the node, and would hide what the container has there:
# its programs, its settings, what the kernel shows, our own folders.
_TAKEN = "bin|dev|etc|lib|lib64|opt|proc|run|sbin|sys|tmp|usr|usr/bin|usr/lib|usr/local|var|var/lib"
_OURS = "etc/logpipeline|opt/logpipeline|var/lib/logpipeline"
_HIDING = (
    r"(^/[^/]*$)|(^/[^/]*[*?\[])|(//)|(/\.\.?(/|$))|(^/(proc|sys|dev)/)|"
    rf"(^/({_TAKEN}|{_OURS})/([^/]*$|[^/]*[*?\[]))"
)
_PERSISTENCE = "self.spec.collectors.persistence"


def _reads_something(spec: Any) -> bool:
    shippers = spec.shippers
    is_needless = not shippers.enabled or shippers.mode == "sidecar" or bool(spec.local.shippers)
    return is_needless or shippers.container_logs or bool(shippers.host_files)


def _volume_kinds(spec: Any) -> int:
    volume = spec.collectors.persistence
    kinds = [volume.existing_claim, volume.host_path, volume.empty_dir] if volume else []
    return sum(kind is not None for kind in kinds)


VOLUME_RULES = (
    CrossRule(
        "one-kind-of-volume",
        LogPipelineSpec,
        "collectors.persistence",
        f"!has({_PERSISTENCE}) || "
        f"[{', '.join(f'has({_PERSISTENCE}.{kind})' for kind in VOLUME_KINDS)}]"
        ".filter(x, x).size() <= 1",
        f"set at most one of {', '.join(VOLUME_KINDS)}",
        lambda spec: _volume_kinds(spec) <= 1,
    ),
    CrossRule(
        "host-files-mountable",
        LogPipelineSpec,
        "shippers.hostFiles",
        "!has(self.spec.shippers.hostFiles) || self.spec.shippers.hostFiles.all(entry, "
        f"entry.include.all(path, !path.matches(r'{_HIDING}')))",
        "must name a folder before the first wildcard that the container does not need itself, "
        "such as /var/log, /srv/app or /opt/app, without . and ..",
        lambda spec: (
            not any(
                matches(_HIDING, path)
                for entry in spec.shippers.host_files
                for path in entry.include
            )
        ),
    ),
    CrossRule(
        "shippers-read-something",
        LogPipelineSpec,
        "shippers",
        "self.spec.shippers.containerLogs || !self.spec.shippers.enabled || "
        "self.spec.shippers.mode == 'sidecar' || "
        "(has(self.spec.shippers.hostFiles) && self.spec.shippers.hostFiles.size() > 0) || "
        "(has(self.spec.local.shippers) && self.spec.local.shippers.size() > 0)",
        "read nothing; leave containerLogs on, list hostFiles, or set enabled to false",
        _reads_something,
    ),
)
