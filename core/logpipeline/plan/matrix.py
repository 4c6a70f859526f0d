"""What nats-server does with a changed field: takes it, refuses it, or deletes messages.

Each rule was tried on nats-server 2.15.1, and the live tests try each of them again. The class of
a change does not depend on how full the stream is, since it may fill before the plan is applied;
what would be lost now is told beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logpipeline.plan.model import Kind

Verdict = tuple[Kind, str]
Full = dict[str, Any]

IN_PLACE: Verdict = (Kind.IN_PLACE, "")

_ANEW = "remove the field's change, or give the pipeline another stream name"

_STREAM_FIXED = {
    "storage": "the storage of a stream is fixed",
    "mirror": "whether a stream is a mirror is fixed",
    "persist_mode": "the persist mode of a stream is fixed",
    "allow_msg_counter": "whether a stream counts is fixed",
}
# Once true, they stay true.
_STREAM_LATCHES = ("deny_delete", "deny_purge", "allow_msg_ttl", "allow_msg_schedules")

_CONSUMER_FIXED = (
    "deliver_policy",
    "opt_start_seq",
    "opt_start_time",
    "ack_policy",
    "replay_policy",
    "max_waiting",
    "mem_storage",
    "idle_heartbeat",
    "flow_control",
)


def judge_stream(field: str, found: Full, wanted: Full, *, servers: int) -> Verdict:
    """Return what the server does when *field* of a stream goes from *found* to *wanted*, both
    normalised, in a cluster of *servers* (0: not known).
    """
    if found["sealed"]:
        return Kind.REFUSED, f"the stream is sealed for good; {_ANEW}"
    if field in _STREAM_FIXED:
        return Kind.REFUSED, f"{_STREAM_FIXED[field]}; {_ANEW}"
    if field in _STREAM_LATCHES and found[field]:
        return Kind.REFUSED, f"what was true stays true; {_ANEW}"
    if field in _RULES:
        return _RULES[field](found, wanted)
    if field == "num_replicas":
        return _replicas(wanted, servers)
    return IN_PLACE


def judge_consumer(field: str, found: Full, wanted: Full, *, servers: int) -> Verdict:
    """Return what the server does when *field* of a consumer goes from *found* to *wanted*."""
    if field in _CONSUMER_FIXED:
        return Kind.REFUSED, "fixed for this consumer: give the new one another name"
    if field == "deliver_subject" and bool(found[field]) != bool(wanted[field]):
        return Kind.REFUSED, "pull or push is fixed: give the new one another name"
    if field == "num_replicas":
        return _replicas(wanted, servers)
    if field in ("filter_subject", "filter_subjects"):
        return Kind.IN_PLACE, "older messages that a wider filter matches are not delivered"
    return IN_PLACE


def is_lowered(found: int, wanted: int) -> bool:
    """Return whether the limit *wanted* is below *found*; zero and less are no limit."""
    return wanted > 0 and (found <= 0 or wanted < found)


def _replicas(wanted: Full, servers: int) -> Verdict:
    count = wanted["num_replicas"]
    if servers and count > max(servers, 1):
        return Kind.REFUSED, f"{count} replicas need {count} servers, and there are {servers}"
    return IN_PLACE


def _retention(found: Full, wanted: Full) -> Verdict:
    if "workqueue" in (found["retention"], wanted["retention"]):
        return Kind.REFUSED, f"retention cannot go to or from workqueue; {_ANEW}"
    if wanted["retention"] == "interest":
        return Kind.DELETES_DATA, "what no consumer waits for is deleted at once"
    return IN_PLACE


def _discard(found: Full, wanted: Full) -> Verdict:
    if wanted["discard"] == "old":
        # A stream that discards new messages may hold more than its limits, if they were lowered.
        return Kind.DELETES_DATA, "a full stream then deletes its oldest messages for new ones"
    return Kind.IN_PLACE, "a full stream then refuses new messages"


def _max_size(field: str) -> Callable[[Full, Full], Verdict]:
    def judge(found: Full, wanted: Full) -> Verdict:
        if not is_lowered(found[field], wanted[field]):
            return IN_PLACE
        if wanted["discard"] == "new":
            return Kind.IN_PLACE, "nothing is deleted; new messages are refused until it is below"
        return Kind.DELETES_DATA, "the oldest messages beyond the limit are deleted at once"

    return judge


def _max_age(found: Full, wanted: Full) -> Verdict:
    if 0 < wanted["max_age"] < wanted["duplicate_window"]:
        return Kind.REFUSED, "max_age must not be below duplicate_window: change both"
    if is_lowered(found["max_age"], wanted["max_age"]):
        return Kind.DELETES_DATA, "older messages are deleted at once"
    return IN_PLACE


def _duplicate_window(found: Full, wanted: Full) -> Verdict:
    if 0 < wanted["max_age"] < wanted["duplicate_window"]:
        return Kind.REFUSED, "duplicate_window must not exceed max_age: change both"
    return IN_PLACE


def _per_subject(found: Full, wanted: Full) -> Verdict:
    if is_lowered(found["max_msgs_per_subject"], wanted["max_msgs_per_subject"]):
        return Kind.DELETES_DATA, "the oldest messages of each subject are deleted at once"
    return IN_PLACE


def _subjects(found: Full, wanted: Full) -> Verdict:
    if set(found["subjects"]) - set(wanted["subjects"]):
        return Kind.IN_PLACE, "stored messages stay; nobody answers publishers of what is removed"
    return IN_PLACE


_RULES: dict[str, Callable[[Full, Full], Verdict]] = {
    "retention": _retention,
    "discard": _discard,
    "max_msgs": _max_size("max_msgs"),
    "max_bytes": _max_size("max_bytes"),
    "max_age": _max_age,
    "duplicate_window": _duplicate_window,
    "max_msgs_per_subject": _per_subject,
    "subjects": _subjects,
}
