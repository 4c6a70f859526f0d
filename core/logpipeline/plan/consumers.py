"""A pipeline's extra consumers: each template of the resource, once per partition, in JetStream's
terms.
"""

from __future__ import annotations

from typing import Any

from logpipeline.partition import partition_of
from logpipeline.plan.model import Config
from logpipeline.plan.selection import selects
from logpipeline.spec import LogPipeline
from logpipeline.spec.streams import ConsumerTemplate
from logpipeline.subjects import Subjects

# A consumer that is no durable goes when nobody reads for so long; the server's default, five
# seconds, is less than a reader's restart.
EPHEMERAL_INACTIVE_NS = 3600 * 1_000_000_000

POLICIES = {
    "all": "all",
    "new": "new",
    "last": "last",
    "lastPerSubject": "last_per_subject",
    "byStartTime": "by_start_time",
    "byStartSequence": "by_start_sequence",
}


def consumers_for(
    pipeline: LogPipeline, partition: int, mark: dict[str, str]
) -> tuple[Config, ...]:
    """Return the consumers that *pipeline* wants on the stream of *partition*."""
    return tuple(
        _config(template, pipeline, partition, mark)
        for template in pipeline.spec.consumers
        if _is_wanted(template, pipeline, partition)
    )


def _is_wanted(template: ConsumerTemplate, pipeline: LogPipeline, partition: int) -> bool:
    if template.partitions is not None and not selects(template.partitions, partition):
        return False
    host = template.filter_host
    # Its messages are all in one partition; elsewhere it would wait for nothing.
    return host is None or partition_of(host, pipeline.spec.partitions) == partition


def _config(
    template: ConsumerTemplate, pipeline: LogPipeline, partition: int, mark: dict[str, str]
) -> Config:
    subjects = Subjects(pipeline.names.subject, pipeline.spec.partitions)
    values: dict[str, Any] = {
        "name": template.name,
        "durable_name": template.name if template.durable else None,
        "deliver_policy": POLICIES[template.deliver_policy],
        "opt_start_time": template.opt_start_time,
        "opt_start_seq": template.opt_start_seq,
        "ack_policy": template.ack_policy,
        "max_deliver": template.max_deliver,
        "replay_policy": template.replay_policy,
        "headers_only": template.headers_only,
        "filter_subject": _filter(template, subjects),
        "inactive_threshold": _inactive(template),
        "mem_storage": template.mem_storage,
        "num_replicas": template.replicas,
        "metadata": {**template.metadata, **mark},
    }
    if template.ack_policy != "none":
        values["ack_wait"] = template.ack_wait_ns
        values["backoff"] = list(template.backoff_ns)
        values["max_ack_pending"] = template.max_ack_pending
    values |= _push(template, pipeline, partition) if template.type == "push" else _pull(template)
    return {field: value for field, value in values.items() if value not in (None, False, [])}


def _filter(template: ConsumerTemplate, subjects: Subjects) -> str | None:
    if template.filter_host is not None:
        return subjects.of_host(template.filter_host)
    # The server demands one for this policy only.
    is_needed = template.deliver_policy == "lastPerSubject"
    return subjects.of_all() if is_needed else None


def _inactive(template: ConsumerTemplate) -> int | None:
    if template.inactive_threshold_ns is not None or template.durable:
        return template.inactive_threshold_ns
    return EPHEMERAL_INACTIVE_NS


def _pull(template: ConsumerTemplate) -> dict[str, Any]:
    return {
        "max_waiting": template.max_waiting,
        "max_batch": template.max_request_batch,
        "max_expires": template.max_request_expires_ns,
        "max_bytes": template.max_request_max_bytes,
    }


def _push(template: ConsumerTemplate, pipeline: LogPipeline, partition: int) -> dict[str, Any]:
    root = template.deliver_subject or f"out.{pipeline.names.subject}"
    return {
        "deliver_subject": f"{root}.p{partition}",
        "deliver_group": template.deliver_group,
        "flow_control": template.flow_control,
        "idle_heartbeat": template.idle_heartbeat_ns,
        "rate_limit_bps": template.rate_limit_bps,
    }
