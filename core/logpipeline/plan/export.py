"""An existing stream as a LogPipeline resource, for people who bring their streams along."""

from __future__ import annotations

import re
from typing import Any

from logpipeline.plan.model import OWNER_KEY, Config
from logpipeline.plan.normal import STREAM_DEFAULTS, normal_stream
from logpipeline.quantity import format_bytes, format_duration

_NAME = re.compile(r"(?P<base>.+)_(?P<partition>\d+)")
_SUBJECT = re.compile(r"(?P<root>.+)\.p(?P<partition>\d+)\.>")
# What a LogPipeline can say of a stream, and how it is called there.
_PLAIN = {
    "storage": "storage",
    "retention": "retention",
    "discard": "discard",
    "num_replicas": "replicas",
    "max_msgs": "maxMsgs",
    "max_msg_size": "maxMsgSize",
    "max_consumers": "maxConsumers",
    "compression": "compression",
    "deny_delete": "denyDelete",
    "deny_purge": "denyPurge",
    "allow_direct": "allowDirect",
}
_ELSEWHERE = ("subjects", "max_age", "duplicate_window", "max_bytes", "max_msgs_per_subject")
_EXPRESSED = {*_PLAIN, *_ELSEWHERE, "placement", "metadata", "description"}


class NotExportable(ValueError):
    """A stream that no LogPipeline would make; the text says why, and what to do."""


def export_stream(config: Config, *, partitions: int | None = None) -> dict[str, Any]:
    """Return the resource whose stream of one partition has *config*; it adopts the stream.

    Without *partitions* there are as many as the stream's own number needs.

    Raises:
        NotExportable: its name, subjects or other fields fit no LogPipeline.
    """
    full = normal_stream(config)
    base, root, partition = _place(str(config["name"]), full["subjects"])
    strange = sorted(
        field
        for field, default in STREAM_DEFAULTS.items()
        if field not in _EXPRESSED and full[field] != default
    )
    if strange:
        raise NotExportable(
            f"stream {config['name']} has {', '.join(strange)} set, which a LogPipeline cannot "
            "say: take them back first, or leave the stream as it is"
        )
    namespace, name = _identity(full["metadata"], base)
    return {
        "apiVersion": "logpipeline.dev/v1alpha1",
        "kind": "LogPipeline",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "subject": root,
            "partitions": partition + 1 if partitions is None else partitions,
            "stream": {"name": base, **_stream(full), "adopt": True},
        },
    }


def _place(stream: str, subjects: list[str]) -> tuple[str, str, int]:
    name = _NAME.fullmatch(stream)
    if name is None:
        raise NotExportable(
            f"stream {stream} is not called <base>_<partition>, as a LogPipeline's streams are: "
            "make a pipeline of a new name, and copy the messages if you need them there"
        )
    subject = _SUBJECT.fullmatch(subjects[0]) if len(subjects) == 1 else None
    if subject is None or subject["partition"] != name["partition"]:
        raise NotExportable(
            f"stream {stream} stores {', '.join(subjects) or 'no subjects'}, and a LogPipeline's "
            f"would store <subject>.p{name['partition']}.> alone: change its subjects first"
        )
    return name["base"], subject["root"], int(name["partition"])


def _identity(metadata: dict[str, str], base: str) -> tuple[str, str]:
    namespace, _, name = metadata.get(OWNER_KEY, "").partition("/")
    if namespace and name:
        return namespace, name
    # A Kubernetes name has lower-case letters, digits and dashes only.
    return "default", re.sub(r"[^a-z0-9]+", "-", base.lower()).strip("-") or "logs"


def _stream(full: dict[str, Any]) -> dict[str, Any]:
    stream = {name: full[field] for field, name in _PLAIN.items()}
    stream["maxAge"] = format_duration(full["max_age"])
    stream["duplicateWindow"] = format_duration(full["duplicate_window"])
    stream["maxMsgsPerSubject"] = max(full["max_msgs_per_subject"], 0)
    if full["max_bytes"] > 0:
        stream["maxBytes"] = format_bytes(full["max_bytes"])
    if full["placement"]:
        stream["placement"] = full["placement"]
    metadata = {k: v for k, v in full["metadata"].items() if not k.startswith("logpipeline.dev/")}
    if metadata:
        stream["metadata"] = metadata
    return stream
