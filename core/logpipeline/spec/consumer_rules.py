"""Combinations of a consumer's settings that JetStream refuses, or would silently ignore."""

from __future__ import annotations

from typing import Any

from logpipeline.spec.crossrule import CrossRule
from logpipeline.spec.fields import yaml_name
from logpipeline.spec.selection import is_rising, rising_cel
from logpipeline.spec.streams import ConsumerTemplate

_YAML_NAMES = {
    name: yaml_name(field) for name, field in ConsumerTemplate.__dataclass_fields__.items()
}
_UNSET = {
    "flow_control": "!self.{name}",
    "backoff_ns": "!has(self.{name}) || self.{name}.size() == 0",
}


def _is_set(value: Any) -> bool:
    # Zero is set, and is what the user wrote.
    return bool(value) if isinstance(value, bool | tuple) else value is not None


def _goes_with(field: str, other: str, values: tuple[str, ...]) -> CrossRule:
    """Return the rule that *field* may only be set where *other* has one of *values*."""
    name, other_name = _YAML_NAMES[field], _YAML_NAMES[other]
    unset = _UNSET.get(field, "!has(self.{name})").format(name=name)
    choices = ", ".join(f"'{value}'" for value in values)

    def holds(consumer: Any) -> bool:
        return not _is_set(getattr(consumer, field)) or getattr(consumer, other) in values

    return CrossRule(
        f"consumer-{name}-{other_name}",
        ConsumerTemplate,
        name,
        f"{unset} || self.{other_name} in [{choices}]",
        f"goes only with {other_name} {' or '.join(values)}",
        holds,
    )


_PUSH_ONLY = (
    "deliver_subject", "deliver_group", "flow_control", "idle_heartbeat_ns", "rate_limit_bps",
)  # fmt: skip
_PULL_ONLY = (
    "max_waiting", "max_request_batch", "max_request_expires_ns", "max_request_max_bytes",
)  # fmt: skip
_ACK_ONLY = ("ack_wait_ns", "max_ack_pending", "backoff_ns")

CONSUMER_RULES = (
    *(_goes_with(field, "type", ("push",)) for field in _PUSH_ONLY),
    *(_goes_with(field, "type", ("pull",)) for field in _PULL_ONLY),
    *(_goes_with(field, "ack_policy", ("all", "explicit")) for field in _ACK_ONLY),
    _goes_with("opt_start_seq", "deliver_policy", ("byStartSequence",)),
    _goes_with("opt_start_time", "deliver_policy", ("byStartTime",)),
    CrossRule(
        "consumer-needs-start-sequence",
        ConsumerTemplate,
        "optStartSeq",
        "self.deliverPolicy != 'byStartSequence' || has(self.optStartSeq)",
        "is missing: deliverPolicy byStartSequence needs the sequence to begin at",
        lambda consumer: (
            consumer.deliver_policy != "byStartSequence" or consumer.opt_start_seq is not None
        ),
    ),
    CrossRule(
        "consumer-needs-start-time",
        ConsumerTemplate,
        "optStartTime",
        "self.deliverPolicy != 'byStartTime' || has(self.optStartTime)",
        "is missing: deliverPolicy byStartTime needs the time to begin at, such as "
        "2026-01-31T12:00:00Z",
        lambda consumer: (
            consumer.deliver_policy != "byStartTime" or consumer.opt_start_time is not None
        ),
    ),
    CrossRule(
        "consumer-needs-heartbeat",
        ConsumerTemplate,
        "idleHeartbeat",
        "!self.flowControl || has(self.idleHeartbeat)",
        "is missing: flowControl needs it, such as 5s",
        lambda consumer: not consumer.flow_control or consumer.idle_heartbeat_ns is not None,
    ),
    CrossRule(
        "consumer-backoff-or-wait",
        ConsumerTemplate,
        "ackWait",
        "!has(self.ackWait) || !has(self.backoff) || self.backoff.size() == 0",
        "goes not with backoff, whose first entry replaces it; set one of the two",
        lambda consumer: consumer.ack_wait_ns is None or not consumer.backoff_ns,
    ),
    CrossRule(
        "consumer-backoff-fits",
        ConsumerTemplate,
        "backoff",
        "!has(self.backoff) || self.maxDeliver <= 0 || self.backoff.size() <= self.maxDeliver",
        "has more entries than maxDeliver allows deliveries",
        lambda consumer: (
            consumer.max_deliver <= 0 or len(consumer.backoff_ns) <= consumer.max_deliver
        ),
    ),
    CrossRule(
        "consumer-partitions-rise",
        ConsumerTemplate,
        "partitions",
        f"!has(self.partitions) || {rising_cel('self.partitions')}",
        "has a range that ends before it begins; write 0-3, not 3-0",
        lambda consumer: consumer.partitions is None or is_rising(consumer.partitions),
    ),
)
