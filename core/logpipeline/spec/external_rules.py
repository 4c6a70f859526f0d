"""What a resource must say of streams that belong to another one."""

from __future__ import annotations

from logpipeline.spec.components import Collectors
from logpipeline.spec.crossrule import CrossRule
from logpipeline.spec.model import LogPipelineSpec

_IS_OWN = "!self.spec.stream.external"
_USUAL_GROUP = Collectors().group

EXTERNAL_RULES = (
    CrossRule(
        "external-names",
        LogPipelineSpec,
        "stream.external",
        f"{_IS_OWN} || (has(self.spec.subject) && has(self.spec.stream.name))",
        "needs spec.subject and spec.stream.name, as the owner of the streams has them",
        lambda spec: (
            not spec.stream.external or (spec.subject is not None and spec.stream.name is not None)
        ),
    ),
    CrossRule(
        "external-group",
        LogPipelineSpec,
        "collectors.group",
        f"{_IS_OWN} || self.spec.collectors.replicas == 0 || "
        f"self.spec.collectors.group != '{_USUAL_GROUP}'",
        f"must be a group of its own on external streams: {_USUAL_GROUP} is the owner's",
        lambda spec: (
            not spec.stream.external
            or spec.collectors.replicas == 0
            or spec.collectors.group != _USUAL_GROUP
        ),
    ),
)
