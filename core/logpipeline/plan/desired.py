"""The streams and consumers that a pipeline wants, from its resource and its account's limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logpipeline.nats.bucket import bucket_stream_config
from logpipeline.plan.model import (
    INSTALLATION_KEY,
    OWNER_KEY,
    PARTITIONS_KEY,
    Account,
    Config,
    Desired,
    DesiredStream,
)
from logpipeline.records import assignment_key
from logpipeline.spec import LogPipeline
from logpipeline.spec.partition_list import selects
from logpipeline.spec.streams import ConsumerTemplate, StreamOverride
from logpipeline.subjects import Subjects, advisory_subjects

MIB = 1024 * 1024
GIB = 1024 * MIB
# The rest, some tenth, is for indexes and for what is deleted but not yet given back.
LOG_PERCENT = 80
SNAPSHOT_DIVISOR = 16
DEAD_LETTER_DIVISOR = 32
STATE_DIVISOR = 64
# A thousand partitions of some groups, with history, need a tenth of it.
STATE_BYTES_MAX = 64 * MIB
SNAPSHOT_BYTES_MAX = GIB
DEAD_LETTER_BYTES_MAX = GIB
# What streams in memory share, whatever the disk has.
MEMORY_BYTES_MAX = GIB
BLOCK_BYTES = 4096

# An ephemeral consumer is removed when it was not read for so long; the server's default, five
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

# A server's own default is 1,000 as well, today; our readers must not depend on it.
CONSUMERS_MAX = 1000
# What collectors add to a partition's stream: for each of some groups a reader, and while it is
# handed over one more.
READERS = 8
# Each letter has a subject of its own, which a server keeps in memory: some 100 bytes.
DEAD_LETTERS_MAX = 500_000
# Of one consumer on one stream, while no collector runs to make letters of them. What a consumer
# gives up in a flood must not push the letters of others out.
ADVISORIES_MAX = 10_000


# Everything that JetStream keeps for the pipeline has a limit, so that the disk never fills: a
# server with a full disk does not recover by itself.
@dataclass(frozen=True, slots=True)
class Shares:
    """Sizes of each log stream, and of the three streams beside them."""

    log_bytes: int
    state_bytes: int
    snapshot_bytes: int
    dead_letter_bytes: int


def shares_of(pipeline: LogPipeline, account: Account | None, storage_bytes: int | None) -> Shares:
    """Return the shares of what there is: the resource's storage, or less if *storage_bytes* or the
    *account* have less.
    """
    wanted = pipeline.spec.stream
    disk = pipeline.spec.nats.managed.storage
    if storage_bytes is not None:
        disk = min(disk, storage_bytes)
    disk = _allowed(disk, account, wanted.replicas, is_file=True)
    lines = disk
    if wanted.storage == "memory":
        memory = min(disk, MEMORY_BYTES_MAX)
        lines = _allowed(memory, account, wanted.replicas, is_file=False)
    each = lines * LOG_PERCENT // 100 // pipeline.stream_count
    return Shares(
        log_bytes=_most_of_a_stream(each, account, wanted.replicas, wanted.storage == "file"),
        state_bytes=_blocks(min(STATE_BYTES_MAX, disk // STATE_DIVISOR)),
        snapshot_bytes=_blocks(min(SNAPSHOT_BYTES_MAX, disk // SNAPSHOT_DIVISOR)),
        dead_letter_bytes=_blocks(min(DEAD_LETTER_BYTES_MAX, disk // DEAD_LETTER_DIVISOR)),
    )


def _allowed(size: int, account: Account | None, replicas: int, *, is_file: bool) -> int:
    if account is None:
        return size
    limits = account.tier(replicas).limits
    most = limits.storage_bytes if is_file else limits.memory_bytes
    # Only a tier's limit is for one copy.
    copies = 1 if account.tiers else replicas
    return min(size, most // copies) if most > 0 else size


def _most_of_a_stream(size: int, account: Account | None, replicas: int, is_file: bool) -> int:
    if account is None:
        return _blocks(size)
    limits = account.tier(replicas).limits
    most = limits.storage_stream_bytes if is_file else limits.memory_stream_bytes
    return _blocks(min(size, most) if most > 0 else size)


def _blocks(size: int) -> int:
    return max(size // BLOCK_BYTES, 1) * BLOCK_BYTES


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
    return host is None or pipeline.stream_number_of(host) == partition


def _config(
    template: ConsumerTemplate, pipeline: LogPipeline, partition: int, mark: dict[str, str]
) -> Config:
    subjects = pipeline.subjects
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


def desired(
    pipeline: LogPipeline,
    *,
    account: Account | None = None,
    storage_bytes: int | None = None,
    installation: str = "",
) -> Desired:
    """Return the streams and consumers that *pipeline* wants.

    Sizes that the resource does not give are shares of its storage, or of *storage_bytes* where
    less is there, or of what the *account* may hold. *installation* distinguishes pipelines of
    the same name that share a server; a caller that does not know it leaves it empty.
    """
    mark = mark_of(pipeline, installation)
    shares = shares_of(pipeline, account, storage_bytes)
    logs = [
        _log_stream(pipeline, partition, shares, account, mark)
        for partition in range(pipeline.stream_count)
    ]
    batch = pipeline.spec.batch
    # Streams of another pipeline are as their owner has made them.
    advisories = [] if pipeline.spec.stream.external else _advisories(logs)
    return Desired(
        pipeline=mark[OWNER_KEY],
        root=f"{pipeline.names.subject}.>",
        streams=(*_side_streams(pipeline, shares, mark, advisories), *logs),
        payload_bytes=max(batch.max_bytes, batch.max_line_bytes or 0),
        adopt=pipeline.spec.stream.adopt,
        is_external=pipeline.spec.stream.external,
        partitions=pipeline.spec.partitions,
        is_single=pipeline.is_single_stream,
        state_bucket=pipeline.names.state_bucket,
        assignment=assignment_key(pipeline.spec.collectors.group),
    )


def mark_of(pipeline: LogPipeline, installation: str) -> dict[str, str]:
    """Return the metadata that marks streams and consumers of *pipeline*."""
    mark = {OWNER_KEY: f"{pipeline.namespace}/{pipeline.name}"}
    if installation:
        mark[INSTALLATION_KEY] = installation
    return mark


def _log_stream(
    pipeline: LogPipeline,
    partition: int,
    shares: Shares,
    account: Account | None,
    mark: dict[str, str],
) -> DesiredStream:
    wanted, names = pipeline.spec.stream, pipeline.names
    subjects, foreign = pipeline.subjects, wanted.foreign_partitions
    config: dict[str, Any] = {
        "name": names.stream(partition),
        "subjects": subjects.of_single_stream(foreign=foreign)
        if pipeline.is_single_stream
        else subjects.of_stream(partition, foreign=foreign),
        "storage": wanted.storage,
        "retention": wanted.retention,
        "discard": wanted.discard,
        "num_replicas": wanted.replicas,
        "max_age": wanted.max_age_ns,
        "max_bytes": shares.log_bytes if wanted.max_bytes is None else wanted.max_bytes,
        "max_msgs": wanted.max_msgs,
        "max_msg_size": wanted.max_msg_size,
        "max_msgs_per_subject": wanted.max_msgs_per_subject or -1,
        "max_consumers": _consumers_max(wanted.max_consumers, wanted.replicas, account),
        "compression": wanted.compression,
        "allow_direct": wanted.allow_direct,
        "deny_delete": wanted.deny_delete,
        "deny_purge": wanted.deny_purge,
        "metadata": {**wanted.metadata, **mark},
    }
    if pipeline.is_single_stream:
        config["metadata"][PARTITIONS_KEY] = str(max(pipeline.spec.partitions, 1))
    if wanted.placement is not None:
        config["placement"] = _placement(wanted.placement.cluster, wanted.placement.tags)
    for override in wanted.overrides:
        if selects(override.partitions, partition):
            config |= _overridden(override)
    if config["max_age"] > 0:
        config["duplicate_window"] = min(wanted.duplicate_window_ns, config["max_age"])
    else:
        config["duplicate_window"] = wanted.duplicate_window_ns
    return DesiredStream(
        config=config,
        consumers=consumers_for(pipeline, partition, mark),
        # Each partition of a single stream has readers of its own.
        readers=READERS * (max(pipeline.spec.partitions, 1) if pipeline.is_single_stream else 1),
    )


def _overridden(override: StreamOverride) -> dict[str, Any]:
    values = {
        "max_bytes": override.max_bytes,
        "max_age": override.max_age_ns,
        "max_msgs": override.max_msgs,
    }
    return {field: value for field, value in values.items() if value is not None}


def _consumers_max(wanted: int, replicas: int, account: Account | None) -> int:
    allowed = account.tier(replicas).limits.consumers if account is not None else -1
    most = wanted if wanted > 0 else CONSUMERS_MAX
    return min(most, allowed) if allowed > 0 else most


def _advisories(logs: list[DesiredStream]) -> list[str]:
    """Return the subjects on which the server says what readers gave up: it says so once, and only
    a stream listens always.
    """
    return [
        subject
        for stream in logs
        if any(config["ack_policy"] != "none" for config in stream.consumers)
        for subject in advisory_subjects(stream.name)
    ]


def _side_streams(
    pipeline: LogPipeline, shares: Shares, mark: dict[str, str], advisories: list[str]
) -> tuple[DesiredStream, ...]:
    names, replicas = pipeline.names, pipeline.spec.stream.replicas
    # State survives restarts also where the lines themselves are kept in memory only.
    common = {"storage": "file", "num_replicas": replicas, "allow_direct": True, "metadata": mark}
    state = {
        **bucket_stream_config(
            names.state_bucket, replicas=replicas, storage="file", max_bytes=shares.state_bytes
        ),
        "metadata": mark,
    }
    # A snapshot is needed for as long as its partition is idle: so there is no age, and a full
    # stream refuses the next one instead of dropping one of another partition.
    snapshots: Config = {
        **common,
        "name": names.snapshot_stream,
        "subjects": [f"{names.snapshot_subject}.>"],
        "discard": "new",
        "max_bytes": shares.snapshot_bytes,
    }
    # There is no age, and a full stream refuses: what a letter keeps is perhaps nowhere else, and a
    # collector logs what it could not keep. Only a consumer's own advisories replace one another.
    dead: Config = {
        **common,
        "name": names.dead_letter_stream,
        "subjects": [f"{names.dead_letter_subject}.>", *advisories],
        "discard": "new",
        "max_bytes": shares.dead_letter_bytes,
        "max_msgs": DEAD_LETTERS_MAX,
        "max_msgs_per_subject": ADVISORIES_MAX,
    }
    return tuple(DesiredStream(config=config) for config in (state, snapshots, dead))


def _placement(cluster: str, tags: tuple[str, ...]) -> dict[str, Any]:
    placement: dict[str, Any] = {}
    if cluster:
        placement["cluster"] = cluster
    if tags:
        placement["tags"] = list(tags)
    return placement
