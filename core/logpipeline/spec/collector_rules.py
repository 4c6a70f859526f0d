"""Where a group of collectors begins: what must be said together."""

from __future__ import annotations

from logpipeline.spec.crossrule import CrossRule
from logpipeline.spec.model import LogPipelineSpec

_POLICY = "self.spec.collectors.deliverPolicy"
_HAS_TIME = "has(self.spec.collectors.optStartTime)"

COLLECTOR_RULES = (
    CrossRule(
        "collectors-start-time-policy",
        LogPipelineSpec,
        "collectors.optStartTime",
        f"!{_HAS_TIME} || {_POLICY} == 'byStartTime'",
        "goes only with deliverPolicy byStartTime",
        lambda spec: (
            spec.collectors.opt_start_time is None
            or spec.collectors.deliver_policy == "byStartTime"
        ),
    ),
    CrossRule(
        "collectors-need-start-time",
        LogPipelineSpec,
        "collectors.optStartTime",
        f"{_POLICY} != 'byStartTime' || {_HAS_TIME}",
        "is missing: deliverPolicy byStartTime needs the time to begin at, such as "
        "2026-01-31T12:00:00Z",
        lambda spec: (
            spec.collectors.deliver_policy != "byStartTime"
            or spec.collectors.opt_start_time is not None
        ),
    ),
)
