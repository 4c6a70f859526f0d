"""What fields of a table say of each other."""

from __future__ import annotations

from typing import Any

from logpipeline.spec.crossrule import CrossRule
from logpipeline.spec.model import LogPipelineSpec

_TABLE = "self.spec.table"
_IS_BUCKET = f"(has({_TABLE}.path) && {_TABLE}.path.startsWith('s3://'))"
_VOLUME = f"{_TABLE}.persistence"


def _is_bucket(spec: Any) -> bool:
    return (spec.table.path or "").startswith("s3://")


def _is_shared(spec: Any) -> bool:
    volume = spec.table.persistence
    return _is_bucket(spec) or (volume is not None and volume.existing_claim is not None)


TABLE_RULES = (
    CrossRule(
        "table-executors-somewhere",
        LogPipelineSpec,
        "table.executors.instances",
        f"{_TABLE}.runner != 'embedded' || {_TABLE}.executors.instances == 0",
        "needs runner native or sparkApplication: an embedded Spark is one pod",
        lambda spec: spec.table.runner != "embedded" or spec.table.executors.instances == 0,
    ),
    CrossRule(
        "table-application-executors",
        LogPipelineSpec,
        "table.executors.instances",
        f"{_TABLE}.runner != 'sparkApplication' || {_TABLE}.executors.instances > 0",
        "must be 1 or more with runner sparkApplication: its driver has executors do the work",
        lambda spec: spec.table.runner != "sparkApplication" or spec.table.executors.instances > 0,
    ),
    CrossRule(
        "table-executors-reach-it",
        LogPipelineSpec,
        "table.path",
        f"{_TABLE}.executors.instances == 0 || {_IS_BUCKET} || "
        f"(has({_VOLUME}) && has({_VOLUME}.existingClaim))",
        "must be s3://…, or persistence an existingClaim that all can mount: executors write it",
        lambda spec: spec.table.executors.instances == 0 or _is_shared(spec),
    ),
    CrossRule(
        "table-one-kind-of-volume",
        LogPipelineSpec,
        "table.persistence",
        f"!has({_VOLUME}) || !(has({_VOLUME}.existingClaim) && has({_VOLUME}.emptyDir))",
        "set at most one of existingClaim, emptyDir",
        lambda spec: (
            spec.table.persistence is None
            or spec.table.persistence.existing_claim is None
            or spec.table.persistence.empty_dir is None
        ),
    ),
    CrossRule(
        "table-catalog",
        LogPipelineSpec,
        "table.catalog",
        f"{_TABLE}.format != 'iceberg' || (has({_TABLE}.catalog) && 'table' in {_TABLE}.catalog)",
        "needs `table`, such as logs.prod, and the properties of its catalog",
        lambda spec: spec.table.format != "iceberg" or "table" in spec.table.catalog,
    ),
    CrossRule(
        "table-needs-direct",
        LogPipelineSpec,
        "stream.allowDirect",
        f"!has({_TABLE}.enabled) || !{_TABLE}.enabled || self.spec.stream.allowDirect",
        "must stay on: the table's job reads by direct get",
        lambda spec: not spec.table.enabled or spec.stream.allow_direct,
    ),
)
