"""What fields of an archive say of each other."""

from __future__ import annotations

from typing import Any

from logpipeline.spec.crossrule import CrossRule
from logpipeline.spec.model import LogPipelineSpec

_ARCHIVE = "self.spec.archive"
_IS_BUCKET = f"(has({_ARCHIVE}.path) && {_ARCHIVE}.path.startsWith('s3://'))"
_VOLUME = f"{_ARCHIVE}.persistence"


def _is_bucket(spec: Any) -> bool:
    return (spec.archive.path or "").startswith("s3://")


def _is_shared(spec: Any) -> bool:
    volume = spec.archive.persistence
    return _is_bucket(spec) or (volume is not None and volume.existing_claim is not None)


ARCHIVE_RULES = (
    CrossRule(
        "archive-executors-somewhere",
        LogPipelineSpec,
        "archive.executors.instances",
        f"{_ARCHIVE}.runner != 'embedded' || {_ARCHIVE}.executors.instances == 0",
        "needs runner native or sparkApplication: an embedded Spark is one pod",
        lambda spec: spec.archive.runner != "embedded" or spec.archive.executors.instances == 0,
    ),
    CrossRule(
        "archive-application-executors",
        LogPipelineSpec,
        "archive.executors.instances",
        f"{_ARCHIVE}.runner != 'sparkApplication' || {_ARCHIVE}.executors.instances > 0",
        "must be 1 or more with runner sparkApplication: its driver has executors do the work",
        lambda spec: (
            spec.archive.runner != "sparkApplication" or spec.archive.executors.instances > 0
        ),
    ),
    CrossRule(
        "archive-executors-reach-it",
        LogPipelineSpec,
        "archive.path",
        f"{_ARCHIVE}.executors.instances == 0 || {_IS_BUCKET} || "
        f"(has({_VOLUME}) && has({_VOLUME}.existingClaim))",
        "must be s3://…, or persistence an existingClaim that all can mount: executors write it",
        lambda spec: spec.archive.executors.instances == 0 or _is_shared(spec),
    ),
    CrossRule(
        "archive-one-kind-of-volume",
        LogPipelineSpec,
        "archive.persistence",
        f"!has({_VOLUME}) || !(has({_VOLUME}.existingClaim) && has({_VOLUME}.emptyDir))",
        "set at most one of existingClaim, emptyDir",
        lambda spec: (
            spec.archive.persistence is None
            or spec.archive.persistence.existing_claim is None
            or spec.archive.persistence.empty_dir is None
        ),
    ),
    CrossRule(
        "archive-catalog",
        LogPipelineSpec,
        "archive.catalog",
        f"{_ARCHIVE}.format != 'iceberg' || (has({_ARCHIVE}.catalog) && "
        f"'table' in {_ARCHIVE}.catalog)",
        "needs `table`, such as logs.prod, and the properties of its catalog",
        lambda spec: spec.archive.format != "iceberg" or "table" in spec.archive.catalog,
    ),
    CrossRule(
        "archive-needs-direct",
        LogPipelineSpec,
        "stream.allowDirect",
        f"!{_ARCHIVE}.enabled || self.spec.stream.allowDirect",
        "must stay on: the archive reads by direct get",
        lambda spec: not spec.archive.enabled or spec.stream.allow_direct,
    ),
)
