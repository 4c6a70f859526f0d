"""Configurations with the server's defaults filled in, so that two of them can be compared field by
field. The defaults were read from nats-server 2.15.1.
"""

from __future__ import annotations

from copy import copy
from datetime import UTC, datetime
from typing import Any

from logpipeline.nats.jetstream import time_ns_of
from logpipeline.plan.model import Config

SECOND_NS = 1_000_000_000
DUPLICATE_WINDOW_NS = 120 * SECOND_NS
ACK_WAIT_NS = 30 * SECOND_NS
EPHEMERAL_INACTIVE_NS = 5 * SECOND_NS
ACK_PENDING = 1000
PULLS_WAITING = 512

# Fields with a default of their own in the functions below are there with None.
STREAM_DEFAULTS: Config = {
    "subjects": None,
    "description": "",
    "retention": "limits",
    "storage": "file",
    "discard": "old",
    "discard_new_per_subject": False,
    "num_replicas": 1,
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 0,
    "max_msgs_per_subject": -1,
    "max_msg_size": -1,
    "duplicate_window": None,
    "compression": "none",
    "no_ack": False,
    "placement": {},
    "mirror": {},
    "sources": [],
    "subject_transform": {},
    "republish": {},
    "consumer_limits": {},
    "sealed": False,
    "deny_delete": False,
    "deny_purge": False,
    "allow_direct": False,
    "mirror_direct": False,
    "allow_rollup_hdrs": False,
    "allow_msg_ttl": False,
    "subject_delete_marker_ttl": 0,
    "allow_msg_counter": False,
    "allow_msg_schedules": False,
    "allow_atomic": False,
    "allow_batched": False,
    "persist_mode": "default",
    "metadata": {},
}
# Zero or less means no limit.
_UNLIMITED = ("max_consumers", "max_msgs", "max_bytes", "max_msgs_per_subject", "max_msg_size")

CONSUMER_DEFAULTS: Config = {
    "durable_name": "",
    "description": "",
    "deliver_policy": "all",
    "opt_start_seq": 0,
    "opt_start_time": "",
    "ack_policy": "none",
    "ack_wait": None,
    "max_deliver": -1,
    "max_ack_pending": None,
    "backoff": [],
    "filter_subject": "",
    "filter_subjects": [],
    "replay_policy": "instant",
    "rate_limit_bps": 0,
    "sample_freq": "",
    "max_waiting": None,
    "max_batch": 0,
    "max_expires": 0,
    "max_bytes": 0,
    "headers_only": False,
    "deliver_subject": "",
    "deliver_group": "",
    "flow_control": False,
    "idle_heartbeat": 0,
    "inactive_threshold": None,
    "num_replicas": 0,
    "mem_storage": False,
    "priority_policy": "none",
    "priority_groups": [],
    "priority_timeout": 0,
    "metadata": {},
}


def normal_stream(config: Config) -> dict[str, Any]:
    """Return the known fields of a stream's *config*, each with its value."""
    full = _filled(config, STREAM_DEFAULTS)
    for field in _UNLIMITED:
        full[field] = full[field] if full[field] > 0 else -1
    if full["subjects"] is None:
        full["subjects"] = [] if full["mirror"] else [config["name"]]
    full["subjects"] = sorted(full["subjects"])
    full["num_replicas"] = full["num_replicas"] or 1
    full["allow_rollup_hdrs"] = full["allow_rollup_hdrs"] or full["allow_msg_schedules"]
    if not full["duplicate_window"]:
        longest = full["max_age"] or DUPLICATE_WINDOW_NS
        full["duplicate_window"] = min(DUPLICATE_WINDOW_NS, longest)
    return full


def normal_consumer(config: Config) -> dict[str, Any]:
    """Return the known fields of a consumer's *config*, each with its value."""
    full = _filled(config, CONSUMER_DEFAULTS)
    is_acked = full["ack_policy"] != "none"
    if full["backoff"]:
        full["ack_wait"] = full["backoff"][0]
    full["ack_wait"] = full["ack_wait"] or (ACK_WAIT_NS if is_acked else 0)
    full["max_ack_pending"] = full["max_ack_pending"] or (ACK_PENDING if is_acked else 0)
    full["max_waiting"] = full["max_waiting"] or (0 if full["deliver_subject"] else PULLS_WAITING)
    full["max_deliver"] = full["max_deliver"] or -1
    if not full["inactive_threshold"]:
        full["inactive_threshold"] = 0 if full["durable_name"] else EPHEMERAL_INACTIVE_NS
    if len(full["filter_subjects"]) == 1:
        full["filter_subject"] = full["filter_subjects"].pop()
    full["filter_subjects"] = sorted(full["filter_subjects"])
    if full["opt_start_time"]:
        full["opt_start_time"] = _canonical_time(full["opt_start_time"])
    return full


def without_defaults(full: Config, defaults: Config) -> dict[str, Any]:
    """Return the fields to send so that the server comes to the normalised configuration *full*."""
    return {field: value for field, value in full.items() if value and value != defaults.get(field)}


def unknown_fields(config: Config, defaults: Config) -> dict[str, Any]:
    """Return the fields of a found *config* that we do not know: a newer server's. They stay."""
    return {field: value for field, value in config.items() if field not in defaults}


def _filled(config: Config, defaults: Config) -> dict[str, Any]:
    full: dict[str, Any] = {}
    for field, default in defaults.items():
        value = config.get(field)
        # A copy, so that nothing done to the result reaches the defaults or the caller's.
        full[field] = copy(default if value is None else value)
    full["metadata"] = {
        key: value for key, value in full["metadata"].items() if not key.startswith("_nats.")
    }
    return full


def _canonical_time(text: str) -> str:
    seconds, nanoseconds = divmod(time_ns_of(text), SECOND_NS)
    whole = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    digits = f".{nanoseconds:09d}".rstrip("0").rstrip(".")
    return f"{whole}{digits}Z"
