"""Existing streams as a LogPipeline resource, for users that have streams already."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from logpipeline.partition import partition_of
from logpipeline.plan.desired import POLICIES, desired
from logpipeline.plan.model import COLLECTOR_GROUP_KEY, OWNER_KEY, Config
from logpipeline.plan.server_defaults import (
    CONSUMER_DEFAULTS,
    STREAM_DEFAULTS,
    normal_consumer,
    normal_stream,
)
from logpipeline.quantity import format_bytes, format_duration
from logpipeline.spec import parse
from logpipeline.spec.api import API_VERSION, GROUP
from logpipeline.spec.partition_list import selection_of

_POLICY_NAMES = {theirs: ours for ours, theirs in POLICIES.items()}

_NAME = re.compile(r"(?P<base>.+)_(?P<partition>\d+)")
_ALL = re.compile(r"(?P<root>[^*>]+)\.>")
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
# Limits that a partition may have of its own, with how they are written.
_LIMITS: Mapping[str, tuple[str, Callable[[int], Any]]] = {
    "max_bytes": ("maxBytes", format_bytes),
    "max_age": ("maxAge", format_duration),
    "max_msgs": ("maxMsgs", int),
}
_ELSEWHERE = ("subjects", "max_age", "duplicate_window", "max_bytes", "max_msgs_per_subject")
_EXPRESSED = {*_PLAIN, *_ELSEWHERE, "placement", "metadata", "description"}


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

_CONSUMER_ELSEWHERE = ("durable_name", "filter_subject", "deliver_subject", "metadata")

_KIND = ("durable_name", "deliver_subject", "ack_policy")

_UNSAID: Mapping[str, Any] = {"ack_policy": "", "backoff": []}


def export_consumers(
    found: Mapping[int, Iterable[Config]], *, root: str, partitions: int, is_single: bool = False
) -> list[dict[str, Any]]:
    """Return the templates that would make the consumers *found* in each partition of the subject
    *root*, by their names; where the pipeline *is_single*, those of its one stream, 0.

    Raises:
        UntranslatableConsumer: one has what a template cannot say, or two of a name differ.
    """
    templates: dict[str, dict[str, Any]] = {}
    places: dict[str, list[int]] = {}
    for partition, configs in sorted(found.items()):
        for config in configs:
            host_of = partial(_host, root=root, partitions=partitions)
            template = _template(
                config, partition, partial(host_of, None if is_single else partition)
            )
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


def _template(
    config: Config, partition: int, host_of: Callable[[str, str], str | None]
) -> dict[str, Any]:
    full = normal_consumer(config)
    name = str(config.get("durable_name") or config.get("name"))
    strange = sorted(
        field
        for field, default in CONSUMER_DEFAULTS.items()
        if field not in (*_FIELDS, *_CONSUMER_ELSEWHERE) and full[field] not in (default, None)
    )
    if strange:
        raise UntranslatableConsumer(
            f"consumer {name} has {', '.join(strange)} set, which a template cannot say"
        )
    template: dict[str, Any] = {"name": name}
    if not full["durable_name"]:
        template["durable"] = False
    host = host_of(full["filter_subject"], name)
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


def _host(
    partition: int | None, subject: str, name: str, *, root: str, partitions: int
) -> str | None:
    """Return the host whose messages alone pass the filter *subject*; None where all of the stream
    do, which is that of *partition*, or None for all.
    """
    if subject in ("", ">", f"{root}.>") or subject == f"{root}.p{partition}.>":
        return None
    where = r"(\d+)" if partition is None else f"({partition})"
    found = re.fullmatch(re.escape(f"{root}.p") + where + r"\.([^*>]+)", subject)
    if found is None or partition_of(found[2], partitions) != int(found[1]):
        raise UntranslatableConsumer(
            f"consumer {name} reads {subject}: a template reads a whole stream, or one host of it"
        )
    return found[2]


def _target(full: Mapping[str, Any], name: str, partition: int) -> str:
    target, end = str(full["deliver_subject"]), f".p{partition}"
    if not target.endswith(end):
        raise UntranslatableConsumer(
            f"consumer {name} pushes to {target}: a template's would end in {end}"
        )
    return target.removesuffix(end)


def _without_ours(metadata: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in metadata.items() if not key.startswith(f"{GROUP}/")}


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return sorted(word for word in one.keys() | other.keys() if one.get(word) != other.get(word))


class NotExportable(ValueError):
    """A stream that no LogPipeline would make; the text says why, and what to do."""


def export_streams(
    streams: Sequence[Config],
    consumers: Mapping[str, Iterable[Config]] | None = None,
    *,
    partitions: int | None = None,
) -> dict[str, Any]:
    """Return the resource whose streams have these configurations, one a partition or one for all,
    and the *consumers* of each stream's name; it adopts them.

    Without *partitions* there are as many as the highest number needs; one stream for all does not
    say how many.

    Raises:
        NotExportable: names, subjects or other fields fit no LogPipeline, or not the same one.
    """
    single_root = _single_root(streams[0]) if len(streams) == 1 else None
    if single_root is not None:
        return _single(streams[0], consumers or {}, single_root, partitions)
    by_partition = _by_partition(streams)
    full = {number: normal_stream(config) for number, config in by_partition.items()}
    first = by_partition[min(by_partition)]
    base, root, _ = _place(str(first["name"]), full[min(full)]["subjects"])
    usual = _most_common(full.values())
    count = max(by_partition) + 1 if partitions is None else partitions
    spec: dict[str, Any] = {
        "subject": root,
        "partitions": count,
        "stream": {
            "name": base,
            **_stream(usual),
            "foreignPartitions": _foreign(full.values(), max(count, 1)),
            "adopt": True,
        },
    }
    if overrides := _overrides(full, usual):
        spec["stream"]["overrides"] = overrides
    if templates := _templates(by_partition, consumers or {}, root, count):
        spec["consumers"] = templates
    return _checked(spec, _identity(usual["metadata"], base), by_partition)


def _checked(
    spec: dict[str, Any],
    identity: tuple[str, str],
    by_partition: Mapping[int, Config],
    *,
    holds_all: bool = False,
) -> dict[str, Any]:
    """Return the resource with *spec*, of the namespace and name *identity*.

    Raises:
        NotExportable: see `_check`.
    """
    namespace, name = identity
    resource = {
        "apiVersion": API_VERSION,
        "kind": "LogPipeline",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
    _check(resource, by_partition, holds_all=holds_all)
    return resource


def _single_root(config: Config) -> str | None:
    """Return the root of the subjects of a stream that holds all partitions, None for another."""
    subjects = normal_stream(config)["subjects"]
    if len(subjects) == 1 and (all_of := _ALL.fullmatch(subjects[0])):
        return None if _SUBJECT.fullmatch(subjects[0]) else all_of["root"]
    found = [_SUBJECT.fullmatch(subject) for subject in subjects]
    numbers = sorted(int(each["partition"]) for each in found if each)
    roots = {each["root"] if each else None for each in found}
    is_whole = len(roots) == 1 and numbers == [*range(len(subjects))]
    is_of_one = _NAME.fullmatch(str(config["name"])) is not None and len(subjects) == 1
    return roots.pop() if is_whole and not is_of_one else None


def _single(
    config: Config,
    consumers: Mapping[str, Iterable[Config]],
    root: str,
    partitions: int | None,
) -> dict[str, Any]:
    """Return the resource whose one stream has this configuration."""
    stream = str(config["name"])
    if partitions is None:
        raise NotExportable(
            f"stream {stream} holds all partitions, and does not say how many its shippers count: "
            "give --partitions"
        )
    _check_fields(config)
    full = normal_stream(config)
    _check_limit(full, f"stream {stream}")
    stored = len(full["subjects"])
    # What it stores of other counts, if it says so.
    foreign = {} if stored == 1 else {"foreignPartitions": stored if stored > partitions else 0}
    spec: dict[str, Any] = {
        "subject": root,
        "partitions": partitions,
        "stream": {
            "layout": "single",
            "name": stream,
            **_stream(full),
            **foreign,
            "adopt": True,
        },
    }
    if templates := _templates({0: config}, consumers, root, partitions, is_single=True):
        spec["consumers"] = templates
    return _checked(spec, _identity(full["metadata"], stream), {0: config}, holds_all=stored == 1)


def _by_partition(streams: Sequence[Config]) -> dict[int, Config]:
    found: dict[int, Config] = {}
    places: set[tuple[str, str]] = set()
    for config in streams:
        full = normal_stream(config)
        base, root, partition = _place(str(config["name"]), full["subjects"])
        _check_fields(config)
        places.add((base, root))
        found[partition] = config
    if len(places) != 1:
        names = ", ".join(sorted(f"{base}_… of {root}" for base, root in places)) or "none"
        raise NotExportable(
            f"these streams are not those of one pipeline ({names}): name the ones of one base"
        )
    return found


def _check_fields(config: Config) -> None:
    full = normal_stream(config)
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


def _check_limit(full: Mapping[str, Any], what: str) -> None:
    if full["max_bytes"] <= 0:
        raise NotExportable(
            f"{what} has no limit in max_bytes, and each of a LogPipeline's has one: give it one "
            "first (`nats stream edit --max-bytes`)"
        )


def _most_common(configs: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the one whose limits most of *configs* have."""
    return max(_groups(configs).values(), key=len)[0]


def _groups(configs: Iterable[dict[str, Any]]) -> dict[tuple[int, ...], list[dict[str, Any]]]:
    groups: dict[tuple[int, ...], list[dict[str, Any]]] = {}
    for full in configs:
        groups.setdefault(tuple(full[field] for field in _LIMITS), []).append(full)
    return groups


def _overrides(full: Mapping[int, dict[str, Any]], usual: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the limits of those partitions that have others than the *usual* ones."""
    others: dict[str, tuple[list[int], dict[str, Any]]] = {}
    for partition, found in sorted(full.items()):
        _check_limit(found, f"the stream of partition {partition}")
        limits = {
            word: written(found[field])
            for field, (word, written) in _LIMITS.items()
            if found[field] != usual[field]
        }
        if limits:
            others.setdefault(str(limits), ([], limits))[0].append(partition)
    return [{"partitions": selection_of(each), **limits} for each, limits in others.values()]


def _templates(
    by_partition: Mapping[int, Config],
    consumers: Mapping[str, Iterable[Config]],
    root: str,
    partitions: int,
    *,
    is_single: bool = False,
) -> list[dict[str, Any]]:
    found = {
        partition: [each for each in consumers.get(str(config["name"]), ()) if not _is_ours(each)]
        for partition, config in by_partition.items()
    }
    try:
        return export_consumers(found, root=root, partitions=partitions, is_single=is_single)
    except UntranslatableConsumer as error:
        raise NotExportable(
            f"{error}; or leave consumers out, they stay as they are (--no-consumers)"
        ) from None


def _is_ours(consumer: Config) -> bool:
    """Return whether a collector made it for itself."""
    return COLLECTOR_GROUP_KEY in (consumer.get("metadata") or {})


def _check(
    resource: dict[str, Any], by_partition: Mapping[int, Config], *, holds_all: bool
) -> None:
    """See that the resource wants exactly what was found: what it could not say would be changed
    when it is adopted. A stream that *holds_all* subjects stores those of the partitions from then
    on.

    Raises:
        NotExportable: it wants something else.
    """
    wanted = {stream.name: stream.config for stream in desired(parse(resource)).streams}
    for config in by_partition.values():
        theirs, ours = (normal_stream(each) for each in (config, wanted[str(config["name"])]))
        if theirs["max_consumers"] == -1:
            # The server's own limit then; ours is written, and removes no consumer.
            ours["max_consumers"] = -1
        if holds_all:
            ours["subjects"] = theirs["subjects"]
        differing = sorted(
            field for field in theirs if field != "metadata" and theirs[field] != ours[field]
        )
        if differing:
            raise NotExportable(
                f"a LogPipeline cannot say what stream {config['name']} has in "
                f"{', '.join(differing)}: give all streams of the pipeline the same there"
            )


def _place(stream: str, subjects: list[str]) -> tuple[str, str, int]:
    name = _NAME.fullmatch(stream)
    if name is None:
        raise NotExportable(
            f"stream {stream} is not called <base>_<partition>, as a LogPipeline's streams are: "
            "make a pipeline of a new name, and copy the messages if you need them there"
        )
    found = [_SUBJECT.fullmatch(subject) for subject in subjects]
    own = next((each for each in found if each and each["partition"] == name["partition"]), None)
    if own is None or any(each is None or each["root"] != own["root"] for each in found):
        raise NotExportable(
            f"stream {stream} stores {', '.join(subjects) or 'no subjects'}, and a LogPipeline's "
            f"would store <subject>.p{name['partition']}.> and subjects like it: change its "
            "subjects first"
        )
    return name["base"], own["root"], int(name["partition"])


def _foreign(streams: Iterable[dict[str, Any]], count: int) -> int:
    """Return up to which number the *streams* store partitions beyond the *count* of ours, 0 where
    they store none.
    """
    subjects = (_SUBJECT.fullmatch(subject) for full in streams for subject in full["subjects"])
    end = 1 + max((int(each["partition"]) for each in subjects if each), default=-1)
    return end if end > count else 0


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
    metadata = {k: v for k, v in full["metadata"].items() if not k.startswith(f"{GROUP}/")}
    if metadata:
        stream["metadata"] = metadata
    return stream
