"""Why a pipeline keeps no table on this machine, and what to do for one."""

from __future__ import annotations

from logpipeline.spec import LogPipeline
from logpipeline_spark.requirements import missing


def why_no_table(pipeline: LogPipeline) -> str:
    """Return it as a sentence; empty where *pipeline* keeps a table, or would."""
    asked = pipeline.spec.table.enabled
    if asked is False:
        return "spec.table.enabled is false"
    if asked is None and not pipeline.spec.stream.allow_direct:
        return "spec.stream.allowDirect is false, and a table is read by direct get"
    return missing()
