"""One thing that is not as it should be, with its reason and the part of the pipeline it is in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from logpipeline_operator.children.model import Component
from logpipeline_operator.status.reasons import Reason
from logpipeline_operator.status.text import bounded, clean, listed, sentence


class Part(Enum):
    """Which part of a pipeline a finding is about."""

    PIPELINE = "pipeline"
    STREAMS = "streams"
    # The values of the components whose pods they are.
    NATS = Component.NATS.value
    COLLECTORS = Component.COLLECTOR.value
    SHIPPERS = Component.SHIPPER.value
    TABLE = Component.TABLE.value


_PART_BY_ENDING = {
    "-table": Part.TABLE,
    "-executor": Part.TABLE,
    "-collector": Part.COLLECTORS,
    "-shipper": Part.SHIPPERS,
    "-sidecar": Part.SHIPPERS,
    "-nats": Part.NATS,
    "-nats-headless": Part.NATS,
    "-nats-auth": Part.NATS,
    "-nats-ca": Part.NATS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is wrong: *what* in a sentence, and *advice*, by default that of the *reason*."""

    reason: Reason
    part: Part
    what: str
    advice: str | None = None

    @property
    def message(self) -> str:
        """What a condition says: what is, and what to do."""
        advice = self.reason.value.do if self.advice is None else self.advice
        return bounded(clean(f"{sentence(self.what.strip())} {advice}"))


def first(findings: Iterable[Finding]) -> Finding | None:
    """Return the finding that is nearest to the cause, whatever order they come in."""
    return min(
        findings, key=lambda each: (each.reason.rank, each.part.value, each.what), default=None
    )


def part_of(name: str) -> Part:
    """Return which part the child *name* (``StatefulSet prod-collector``) belongs to."""
    if "RoleBinding logpipeline-shipper:" in name:
        return Part.SHIPPERS
    if name.startswith("SparkApplication "):
        return Part.TABLE
    endings = (part for ending, part in _PART_BY_ENDING.items() if name.endswith(ending))
    return next(endings, Part.PIPELINE)


def grouped(findings: Iterable[Finding]) -> list[Finding]:
    """Return *findings* with those that say the same of many objects told as one.

    What they say begins with the object's name: ``prod-collector-0: …``.
    """
    groups: dict[tuple[Reason, Part, str, str | None], list[str]] = {}
    for each in findings:
        name, colon, text = each.what.partition(": ")
        key = (each.reason, each.part, text if colon else each.what, each.advice)
        groups.setdefault(key, []).append(name if colon else "")
    return [
        Finding(
            reason=reason,
            part=part,
            what=f"{listed(sorted(names))}: {text}" if any(names) else text,
            advice=advice,
        )
        for (reason, part, text, advice), names in groups.items()
    ]
