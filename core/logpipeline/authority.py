"""Permissions of each role on the pipeline's own server. They list what is allowed, never what is
denied: servers have had holes in the latter.

Nodes have an account of their own, in which nothing is stored, and so have readers. The server
answers a message at whatever subject its sender names, and checks no permission for that: in the
account of the streams a node could have its acknowledgements stored as another host's lines, or
over a key of the state. Only what is named here crosses from one account to another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from logpipeline.records import assignment_key, epoch_key, member_key
from logpipeline.spec import LogPipeline
from logpipeline.subjects import ControlSubjects, Subjects, key_value_subject
from logpipeline.tables.progress import table_key

OPERATOR = "operator"
COLLECTOR = "collector"
SHIPPER = "shipper"
TABLE = "table"
CALLOUT = "callout"
READER = "reader"

# The accounts: of streams, buckets and the components that work on them; of nodes; of readers.
STREAMS_ACCOUNT = "LOGS"
NODES_ACCOUNT = "NODES"
READERS_ACCOUNT = "READERS"
# In every account the server itself answers at $JS.API: readers reach that of the streams' account
# as that of a domain.
READERS_DOMAIN = "READERS"

# A collector answers a question about a host with all of its sources, in pages.
ANSWERS_MAX = 1000
ANSWERS_FOR = "1m"

# Subjects on which a server asks for a client's identity, and wants the answer.
ASKS_WHO = "$SYS.REQ.USER.AUTH"
ASKS_WHO_INBOX = "$SYS._INBOX."

# Also of a server with a domain, which maps its own prefix to this one before it looks here.
_API = "$JS.API"

# The prefix of a user's inboxes has 64 characters at most (`LocalNats.inbox_prefix`).
_NAME_CHARS_MAX = 40

Permissions = dict[str, Any]


def inbox_prefix(user: str) -> str:
    """Return where *user* gets its answers: no other user may listen there."""
    return f"_INBOX_{user}"


def shipper_user(name: str) -> str:
    """Return the user of the shipper *name*, which a part on one machine is called as well."""
    return f"{SHIPPER}-{name}"


def user_of_host(host: str) -> str:
    """Return the user of the shipper of *host*, which differs from that of each other host."""
    # The prefix of its inboxes is one token: a dot becomes "_d", an underscore "__".
    name = host.replace("_", "__").replace(".", "_d")
    if len(name) > _NAME_CHARS_MAX:
        name = hashlib.blake2b(host.encode(), digest_size=_NAME_CHARS_MAX // 2).hexdigest()
    return shipper_user(name)


def user_of_reader(token: str) -> str:
    """Return the user of a reader that logs in with *token*. Each token has a user of its own, so
    that readers cannot hear each other's answers.
    """
    digest = hashlib.blake2b(token.encode(), digest_size=_NAME_CHARS_MAX // 2).hexdigest()
    return f"{READER}-{digest}"


def permissions(
    pipeline: LogPipeline,
    role: str,
    *,
    user: str = "",
    hosts: Sequence[str] | None = None,
    may_look: bool = False,
) -> Permissions:
    """Return what *user* (by default called as its *role*) may publish and subscribe to; a shipper
    speaks for *hosts* alone, or, where they are not known, for every host, and sees the last
    message of each if it *may_look*.
    """
    inbox = f"{inbox_prefix(user or role)}.>"
    if role == OPERATOR:
        return _operator(pipeline, inbox)
    if role == TABLE:
        return _table(pipeline, inbox)
    if role == READER:
        return _reader(pipeline, inbox)
    if role == CALLOUT:
        return _callout(pipeline, inbox)
    if role == COLLECTOR:
        return _collector(pipeline, inbox)
    # The resource has to choose such a server; without this right no loss would be noticed.
    may_look = may_look or pipeline.spec.nats.managed.sync_interval != "always"
    return _shipper(pipeline, inbox, hosts, may_look=may_look)


def crossings(
    pipeline: LogPipeline,
    *,
    streams: str = STREAMS_ACCOUNT,
    nodes: str = NODES_ACCOUNT,
    readers: str = "",
) -> dict[str, dict[str, Any]]:
    """Return for each of the accounts *streams* and *nodes*, and *readers* where there is one, what
    it exports to the others, and imports from them, in the server's own terms.
    """
    names = pipeline.names
    control = ControlSubjects(names.control_subject)
    asked = [
        f"{names.subject}.*.>",
        control.asks(),
        f"{_API}.DIRECT.GET.*.{names.subject}.>",
    ]
    progress = control.committed_anywhere()
    status = control.status("shipper")
    # Several answers may come to one question: pages, or those of many shippers.
    answered = {"response_type": "stream"}
    looked_at = _looked_at(pipeline) if readers else []
    crossing: dict[str, dict[str, Any]] = {
        streams: {
            "exports": [
                *({"service": each, "accounts": [nodes], **answered} for each in asked),
                {"stream": progress, "accounts": [nodes]},
                *({"service": each, "accounts": [readers], **answered} for each in looked_at),
            ],
            "imports": [{"service": {"account": nodes, "subject": status}}],
        },
        nodes: {
            "exports": [
                {
                    "service": status,
                    "accounts": [streams, *([readers] if readers else [])],
                    **answered,
                }
            ],
            "imports": [
                *({"service": {"account": streams, "subject": each}} for each in asked),
                {"stream": {"account": streams, "subject": progress}},
            ],
        },
    }
    if readers:
        crossing[readers] = {
            "imports": [
                *(
                    {
                        "service": {"account": streams, "subject": each},
                        "to": _of_readers(each).replace("*", "$1"),
                    }
                    for each in looked_at
                ),
                {"service": {"account": nodes, "subject": status}},
            ]
        }
    return crossing


def _operator(pipeline: LogPipeline, inbox: str) -> Permissions:
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
        "subscribe": {"allow": sorted([inbox, "_INBOX.>", *own])},
        # The collectors of a further group log in as the operator as well, and answer shippers.
        "allow_responses": _answers(),
    }


def _collector(pipeline: LogPipeline, inbox: str) -> Permissions:
    """Return what collectors need: to read streams, to keep their state, to report progress.
    No stream is made, changed or deleted, and only snapshots are purged. Single messages go beside
    the dead letters alone: a letter takes the place of what the server said of its message.

    This limits what they publish, not where the server puts its answers: see SECURITY.md.
    """
    names = pipeline.names
    group, bucket = pipeline.spec.collectors.group, names.state_bucket
    state = f"KV_{bucket}"
    keys = (_any(epoch_key(group, 0)), _any(member_key(group, "*")))
    # By it they find out that none of a stream's newest messages is of a partition that is idle.
    looks = [f"{_API}.STREAM.MSG.GET.{names.stream_base}"] if pipeline.is_single_stream else []
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
                    *looks,
                ]
            )
        },
        "subscribe": {
            "allow": sorted(
                [
                    inbox,
                    key_value_subject(bucket, assignment_key(group)),
                    f"{names.control_subject}.ask.>",
                    ControlSubjects(names.control_subject).status("collector"),
                ]
            )
        },
        "allow_responses": _answers(),
    }


def _shipper(
    pipeline: LogPipeline, inbox: str, hosts: Sequence[str] | None, *, may_look: bool
) -> Permissions:
    """Return what shippers need: to send lines, to hear and ask how far they were collected, and to
    see the last message of a host, by which they notice that a server lost what it acknowledged.
    """
    names = pipeline.names
    control = ControlSubjects(names.control_subject)
    if hosts is None:
        publish = [f"{names.subject}.>", control.asks()]
        subscribe = [control.committed_anywhere()]
        if may_look:
            publish.append(f"{_API}.DIRECT.GET.*.{names.subject}.>")
    else:
        subjects = Subjects(names.subject, pipeline.spec.partitions)
        own = [subjects.of_host_anywhere(host) for host in hosts]
        publish = [*own, *(f"{_API}.DIRECT.GET.*.{subject}" for subject in own)]
        publish += [control.asks(host) for host in hosts]
        subscribe = [control.committed_anywhere(host) for host in hosts]
    return {
        "publish": {"allow": sorted(publish)},
        "subscribe": {"allow": sorted([inbox, *subscribe, control.status("shipper")])},
        "allow_responses": _answers(),
    }


def _table(pipeline: LogPipeline, inbox: str) -> Permissions:
    """Return what a table's job needs: to read streams without a consumer, and to write its table's
    progress, at its own key. Where the server puts its answers is not limited: see SECURITY.md.
    """
    key = table_key(pipeline.namespace, pipeline.name)
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
        "subscribe": {"allow": [inbox]},
    }


def _reader(pipeline: LogPipeline, inbox: str) -> Permissions:
    """Return what a reader needs to look at the pipeline. It may make no consumer: the server
    delivers a consumer's messages at whatever subject it names.
    """
    status = ControlSubjects(pipeline.names.control_subject).status(SHIPPER)
    return {
        "publish": {"allow": sorted([*map(_of_readers, _looked_at(pipeline)), status])},
        "subscribe": {"allow": [inbox]},
    }


def _looked_at(pipeline: LogPipeline) -> list[str]:
    """Return what readers ask in the account of the streams: single messages, or some at a time,
    and what `plan` compares with.
    """
    bucket = pipeline.names.state_bucket
    return [
        f"{_API}.INFO",
        f"{_API}.STREAM.LIST",
        f"{_API}.STREAM.INFO.*",
        f"{_API}.CONSUMER.LIST.*",
        f"{_API}.DIRECT.GET.*",
        f"{_API}.DIRECT.GET.KV_{bucket}.{key_value_subject(bucket, '>')}",
        ControlSubjects(pipeline.names.control_subject).status(COLLECTOR),
    ]


def _of_readers(subject: str) -> str:
    """Return where readers ask for what is asked at *subject* in the account of the streams."""
    return subject.replace(_API, f"$JS.{READERS_DOMAIN}.API")


def _callout(pipeline: LogPipeline, inbox: str) -> Permissions:
    """Return what it needs to answer the server who a client is, and the operator whom it refused,
    and nothing else.
    """
    status = ControlSubjects(pipeline.names.control_subject).status(CALLOUT)
    return {
        "publish": {"allow": []},
        "subscribe": {"allow": [inbox, ASKS_WHO, status]},
        "allow_responses": {"max": 1, "expires": ANSWERS_FOR},
    }


def _answers() -> dict[str, Any]:
    return {"max": ANSWERS_MAX, "expires": ANSWERS_FOR}


def _any(key: str) -> str:
    """Return the filter of all keys that differ from *key* in the last token only."""
    return f"{key.rpartition('.')[0]}.*"
