"""Existing consumers as templates of a LogPipeline: one entry for those of a name that differ in
nothing but their partition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from logpipeline.partition import partition_of
from logpipeline.plan.consumers import POLICIES
from logpipeline.plan.model import Config
from logpipeline.plan.normal import CONSUMER_DEFAULTS, normal_consumer
from logpipeline.plan.selection import selection_of
from logpipeline.quantity import format_bytes, format_duration

_POLICY_NAMES = {theirs: ours for ours, theirs in POLICIES.items()}


class UntranslatableConsumer(ValueError):
    """A consumer that no template would make; the text says why."""


def _as_it_is(value: Any) -> Any:
    return value


def _durations(values: Iterable[int]) -> list[str]:
    return [format_duration(value) for value in values]


# What a template says in other words, with how a value is written there.
_FIELDS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "deliver_policy": ("deliverPolicy", _POLICY_NAMES.__getitem__),
    "opt_start_time": ("optStartTime", _as_it_is),
    "opt_start_seq": ("optStartSeq", _as_it_is),
    "ack_policy": ("ackPolicy", _as_it_is),
    "ack_wait": ("ackWait", format_duration),
    "max_deliver": ("maxDeliver", _as_it_is),
    "max_ack_pending": ("maxAckPending", _as_it_is),
    "max_waiting": ("maxWaiting", _as_it_is),
    "backoff": ("backoff", _durations),
    "replay_policy": ("replayPolicy", _as_it_is),
    "headers_only": ("headersOnly", _as_it_is),
    "deliver_group": ("deliverGroup", _as_it_is),
    "inactive_threshold": ("inactiveThreshold", format_duration),
    "mem_storage": ("memStorage", _as_it_is),
    "num_replicas": ("replicas", _as_it_is),
    "max_batch": ("maxRequestBatch", _as_it_is),
    "max_expires": ("maxRequestExpires", format_duration),
    "max_bytes": ("maxRequestMaxBytes", format_bytes),
    "flow_control": ("flowControl", _as_it_is),
    "idle_heartbeat": ("idleHeartbeat", format_duration),
    "rate_limit_bps": ("rateLimitBps", _as_it_is),
}
_ELSEWHERE = ("durable_name", "filter_subject", "deliver_subject", "metadata")
_KIND = ("durable_name", "deliver_subject", "ack_policy")
_UNSAID: Mapping[str, Any] = {"ack_policy": "", "backoff": []}


def export_consumers(
    found: Mapping[int, Iterable[Config]], *, root: str, partitions: int
) -> list[dict[str, Any]]:
    """Return the templates that would make the consumers *found* in each partition of the subject
    *root*, by their names.

    Raises:
        UntranslatableConsumer: one has what a template cannot say, or two of a name differ.
    """
    templates: dict[str, dict[str, Any]] = {}
    places: dict[str, list[int]] = {}
    for partition, configs in sorted(found.items()):
        for config in configs:
            template = _template(config, root=root, partition=partition, partitions=partitions)
            name = template["name"]
            former = templates.setdefault(name, template)
            if former != template:
                raise UntranslatableConsumer(
                    f"the consumers {name} of the partitions {places[name][0]} and {partition} "
                    f"differ in {', '.join(_differing(former, template))}: make them alike first"
                )
            places.setdefault(name, []).append(partition)
    for name, template in templates.items():
        # A host's messages are in one partition, and its consumer is made in no other.
        if len(places[name]) < len(found) and "filterHost" not in template:
            template["partitions"] = selection_of(places[name])
    return [templates[name] for name in sorted(templates)]


def _template(config: Config, *, root: str, partition: int, partitions: int) -> dict[str, Any]:
    full = normal_consumer(config)
    name = str(config.get("durable_name") or config.get("name"))
    strange = sorted(
        field
        for field, default in CONSUMER_DEFAULTS.items()
        if field not in _FIELDS and field not in _ELSEWHERE and full[field] not in (default, None)
    )
    if strange:
        raise UntranslatableConsumer(
            f"consumer {name} has {', '.join(strange)} set, which a template cannot say"
        )
    template: dict[str, Any] = {"name": name}
    if not full["durable_name"]:
        template["durable"] = False
    host = _host(full["filter_subject"], name, root, partition, partitions)
    if host is not None:
        template["filterHost"] = host
    if full["deliver_subject"]:
        template |= {"type": "push", "deliverSubject": _target(full, name, partition)}
    # What the server makes of one of this kind where nothing more is said.
    usual = normal_consumer({field: full[field] for field in (*_KIND, "backoff")})
    for field, (word, written) in _FIELDS.items():
        # A template's own default of ack_policy is not the server's.
        if full[field] != {**usual, **_UNSAID}[field]:
            template[word] = written(full[field])
    metadata = _without_ours(full["metadata"])
    return template | ({"metadata": metadata} if metadata else {})


def _host(subject: str, name: str, root: str, partition: int, partitions: int) -> str | None:
    """Return the host whose messages alone pass the filter *subject*; None where all do."""
    if subject in ("", ">", f"{root}.>", f"{root}.p{partition}.>"):
        return None
    found = re.fullmatch(re.escape(f"{root}.p{partition}.") + r"([^*>]+)", subject)
    if found is None or partition_of(found[1], partitions) != partition:
        raise UntranslatableConsumer(
            f"consumer {name} reads {subject}: a template reads a partition, or one host of it"
        )
    return found[1]


def _target(full: Mapping[str, Any], name: str, partition: int) -> str:
    target, end = str(full["deliver_subject"]), f".p{partition}"
    if not target.endswith(end):
        raise UntranslatableConsumer(
            f"consumer {name} pushes to {target}: a template's would end in {end}"
        )
    return target.removesuffix(end)


def _without_ours(metadata: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in metadata.items() if not key.startswith("logpipeline.dev/")}


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return sorted(word for word in one.keys() | other.keys() if one.get(word) != other.get(word))
