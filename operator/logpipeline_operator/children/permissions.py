"""What each role may say to the managed server, and hear from it. Lists of what is allowed, never
of what is denied: servers have had holes in the latter.
"""

from __future__ import annotations

from typing import Any

from logpipeline.archiving import archive_key
from logpipeline.records import assignment_key, epoch_key, member_key
from logpipeline.spec import LogPipeline
from logpipeline.subjects import ControlSubjects, key_value_subject
from logpipeline_operator.children import nats_auth

# A collector answers a question about a host with all of its sources, in pages.
ANSWERS_MAX = 1000
ANSWERS_FOR = "1m"

# Also of a server with a domain, which maps its own prefix to this one before it looks here.
_API = "$JS.API"

Permissions = dict[str, Any]


def inbox_prefix(role: str) -> str:
    """Return where *role* gets its answers: no other role may listen there."""
    return f"_INBOX_{role}"


def permissions(pipeline: LogPipeline, role: str) -> Permissions:
    """Return what *role* may publish and subscribe to."""
    if role == nats_auth.OPERATOR:
        return _operator(pipeline)
    if role == nats_auth.ARCHIVE:
        return _archive(pipeline)
    return _collector(pipeline) if role == nats_auth.COLLECTOR else _shipper(pipeline)


def _operator(pipeline: LogPipeline) -> Permissions:
    names = pipeline.names
    own = [
        f"{names.subject}.>",
        f"{names.control_subject}.>",
        f"{names.dead_letter_subject}.>",
        f"{names.snapshot_subject}.>",
        key_value_subject(names.state_bucket, ">"),
    ]
    return {
        "publish": {"allow": sorted(["$JS.API.>", "$JS.ACK.>", *own])},
        # A person's tools, which log in as the operator, use the usual inbox.
        "subscribe": {"allow": sorted([f"{inbox_prefix(nats_auth.OPERATOR)}.>", "_INBOX.>", *own])},
        # The collectors of a further group log in as the operator as well, and answer shippers.
        "allow_responses": {"max": ANSWERS_MAX, "expires": ANSWERS_FOR},
    }


def _collector(pipeline: LogPipeline) -> Permissions:
    """Return what collectors need: to read streams, to keep their state, to tell how far they are.
    No stream is made, changed or deleted, and only snapshots are purged. Single messages go beside
    the dead letters alone: a letter takes the place of what the server said of its message.
    """
    names = pipeline.names
    group, bucket = pipeline.spec.collectors.group, names.state_bucket
    state = f"KV_{bucket}"
    keys = (_any(epoch_key(group, 0)), _any(member_key(group, "*")))
    return {
        "publish": {
            "allow": sorted(
                [
                    f"{_API}.STREAM.INFO.*",
                    f"{_API}.CONSUMER.NAMES.*",
                    # With a filter there is another token: that form is not allowed.
                    f"{_API}.CONSUMER.CREATE.*.*",
                    f"{_API}.CONSUMER.INFO.*.*",
                    f"{_API}.CONSUMER.DELETE.*.*",
                    f"{_API}.CONSUMER.MSG.NEXT.*.*",
                    f"{_API}.DIRECT.GET.*",
                    f"{_API}.DIRECT.GET.{state}.{key_value_subject(bucket, '>')}",
                    f"{_API}.STREAM.PURGE.{names.snapshot_stream}",
                    f"{_API}.STREAM.MSG.DELETE.{names.dead_letter_stream}",
                    *(key_value_subject(bucket, key) for key in keys),
                    f"{names.snapshot_subject}.{group}.>",
                    f"{names.dead_letter_subject}.>",
                    f"{names.control_subject}.committed.>",
                ]
            )
        },
        "subscribe": {
            "allow": sorted(
                [
                    f"{inbox_prefix(nats_auth.COLLECTOR)}.>",
                    key_value_subject(bucket, assignment_key(group)),
                    f"{names.control_subject}.ask.>",
                    ControlSubjects(names.control_subject).status("collector"),
                ]
            )
        },
        "allow_responses": {"max": ANSWERS_MAX, "expires": ANSWERS_FOR},
    }


def _shipper(pipeline: LogPipeline) -> Permissions:
    """Return what shippers need: to send lines, and to hear and ask how far they were archived.

    A node reads nothing. Only of a server that may lose what it acknowledged, which the resource
    has to choose, it sees each host's last message: without that nobody would notice.
    """
    names = pipeline.names
    publish = [f"{names.subject}.>", f"{names.control_subject}.ask.>"]
    if pipeline.spec.nats.managed.sync_interval != "always":
        publish.append(f"{_API}.DIRECT.GET.*.{names.subject}.>")
    return {
        "publish": {"allow": sorted(publish)},
        "subscribe": {
            "allow": sorted(
                [
                    f"{inbox_prefix(nats_auth.SHIPPER)}.>",
                    f"{names.control_subject}.committed.>",
                    ControlSubjects(names.control_subject).status("shipper"),
                ]
            )
        },
        "allow_responses": {"max": ANSWERS_MAX, "expires": ANSWERS_FOR},
    }


def _archive(pipeline: LogPipeline) -> Permissions:
    """Return what an archive needs: to read streams without a consumer, and to tell how far its
    table is, at its own key.
    """
    key = archive_key(pipeline.namespace, pipeline.name)
    return {
        "publish": {
            "allow": sorted(
                [
                    f"{_API}.STREAM.INFO.*",
                    f"{_API}.DIRECT.GET.*",
                    f"{_API}.STREAM.MSG.GET.*",
                    key_value_subject(pipeline.names.state_bucket, key),
                ]
            )
        },
        "subscribe": {"allow": [f"{inbox_prefix(nats_auth.ARCHIVE)}.>"]},
    }


def _any(key: str) -> str:
    """Return the filter of all keys that differ from *key* in the last token only."""
    return f"{key.rpartition('.')[0]}.*"
