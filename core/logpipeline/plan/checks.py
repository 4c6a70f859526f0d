"""Problems that applying would run into, found before anything is changed, each with its remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator

from logpipeline.plan.model import (
    PARTITIONS_KEY,
    Desired,
    DesiredStream,
    FoundStream,
    Observed,
    Problem,
    owner_of,
)
from logpipeline.plan.server_defaults import normal_stream
from logpipeline.server_binary import VERSION_MIN
from logpipeline.subjects import is_advisory

# Subject, reply subject and the batch's headers: max_payload holds them all.
MESSAGE_OVERHEAD_BYTES = 8 * 1024
# Above this many replicated streams and consumers a server spends its time on Raft.
REPLICATED_ASSETS_WARN = 1000


def check_external(desired: Desired, observed: Observed) -> Iterator[Problem]:
    """Yield the problems that keep existing streams from being used as they are."""
    missing = [wanted.name for wanted in desired.streams if wanted.name not in observed.streams]
    if missing:
        more = f" and {len(missing) - 1} more are" if len(missing) > 1 else " is"
        yield Problem(
            "stream-missing",
            f"stream {missing[0]}{more} not there, and external streams are made by their owner: "
            "set spec.stream.name, spec.partitions and spec.nats as the owner has them, or wait "
            "for it",
        )
    for wanted in desired.streams:
        found = observed.streams.get(wanted.name)
        subjects = _of_senders(found) if found is not None else None
        # How many foreign partitions are stored is its owner's business.
        if subjects is not None and wanted.config["subjects"][0] not in subjects:
            yield Problem(
                "stream-differs",
                f"stream {wanted.name} stores {', '.join(subjects) or 'nothing'}, and not "
                f"{wanted.config['subjects'][0]}: set spec.subject as its owner has it",
            )
            break
    if observed.neighbours and not missing:
        yield Problem(
            "stream-differs",
            f"stream {observed.neighbours[0].name} stores lines of spec.subject as well: set "
            "spec.partitions as the owner of the streams has it",
        )


def _of_senders(found: FoundStream) -> list[str]:
    # What its owner's readers gave up is kept or not, as the owner's own consumers ask for.
    subjects = found.config.get("subjects") or ()
    return [subject for subject in subjects if not is_advisory(subject)]


def check(desired: Desired, observed: Observed) -> tuple[Problem, ...]:
    """Return everything that stands against making *observed* into what is *desired*."""
    checks = _EXTERNAL if desired.is_external else _OWN
    return tuple(problem for each in checks for problem in each(desired, observed))


def _version(desired: Desired, observed: Observed) -> Iterator[Problem]:
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", observed.server_version)
    version = tuple(int(number) for number in found.groups()) if found else ()
    if version < VERSION_MIN:
        least = ".".join(map(str, VERSION_MIN))
        yield Problem(
            "server-too-old",
            f"nats-server {observed.server_version or '(of unknown version)'} is too old: update "
            f"it to {least} or newer, since older ones have known security holes",
        )


def _partitions(desired: Desired, observed: Observed) -> Iterator[Problem]:
    if observed.partitions in (0, desired.partitions):
        return
    yield Problem(
        "partitions-changed",
        f"spec.partitions cannot change from {observed.partitions} to {desired.partitions}: hosts "
        "would move between streams, and what is not read of the old ones would stay there; set "
        f"it to {observed.partitions} again, or make a new LogPipeline under another name",
    )


def _payload(desired: Desired, observed: Observed) -> Iterator[Problem]:
    room = observed.max_payload_bytes - MESSAGE_OVERHEAD_BYTES
    if desired.payload_bytes > room:
        yield Problem(
            "payload-too-small",
            f"the server takes messages of {observed.max_payload_bytes} bytes (max_payload), and "
            f"a batch may have {desired.payload_bytes} and headers: set spec.batch.maxBytes (and "
            f"maxLineBytes) to {max(room, 0)} or less, or raise max_payload",
        )


def _replicas(desired: Desired, observed: Observed) -> Iterator[Problem]:
    most = max(int(stream.config.get("num_replicas", 1)) for stream in desired.streams)
    if observed.servers and most > observed.servers:
        yield Problem(
            "too-few-servers",
            f"{most} replicas need a cluster of {most} nats-servers, and there "
            f"{'is 1' if observed.servers == 1 else f'are {observed.servers}'}: set "
            f"spec.stream.replicas to {observed.servers}, or add servers",
        )


def _overlaps(desired: Desired, observed: Observed) -> Iterator[Problem]:
    for stream in observed.neighbours:
        if owner_of(stream.config) == desired.pipeline:
            continue
        subjects = ", ".join(stream.config.get("subjects") or ())
        yield Problem(
            "subjects-overlap",
            f"stream {stream.name}, which is not this pipeline's, already stores {subjects}: "
            "choose another spec.subject, or remove that stream",
        )


def _account(desired: Desired, observed: Observed) -> Iterator[Problem]:
    for replicas, streams in sorted(_by_replicas(desired).items()):
        account = observed.account.tier(replicas)
        new = [stream for stream in streams if stream.name not in observed.streams]
        most = account.limits.streams
        if most >= 0 and account.streams + len(new) > most:
            yield Problem(
                "too-many-streams",
                f"the account may hold {most} streams and has {account.streams}; {len(new)} more "
                "are needed: set spec.partitions lower, or raise the account's max_streams",
            )
        for storage in ("file", "memory"):
            yield from _storage(streams, storage, replicas, observed)


def _storage(
    streams: list[DesiredStream], storage: str, replicas: int, observed: Observed
) -> Iterator[Problem]:
    account = observed.account.tier(replicas)
    is_file = storage == "file"
    most = account.limits.storage_bytes if is_file else account.limits.memory_bytes
    if most < 0:
        return
    reserved = account.reserved_storage_bytes if is_file else account.reserved_memory_bytes
    # A tier's figures are for one replica; an account without tiers counts each replica.
    factor = 1 if observed.account.tiers else replicas
    more = 0
    for stream in streams:
        if stream.config.get("storage", "file") == storage:
            found = observed.streams.get(stream.name)
            had = max(found.config.get("max_bytes", -1), 0) if found is not None else 0
            more += (max(int(stream.config.get("max_bytes", -1)), 0) - had) * factor
    if more > 0 and reserved + more > most:
        yield Problem(
            "too-little-storage",
            f"the account may reserve {most} bytes of {storage} storage and has reserved "
            f"{reserved}; {more} more are needed: set spec.stream.maxBytes lower, or raise the "
            "account's limit",
        )


def _streams_fit(desired: Desired, observed: Observed) -> Iterator[Problem]:
    seen: set[str] = set()
    for stream in desired.streams:
        full = normal_stream(stream.config)
        limits = observed.account.tier(full["num_replicas"]).limits
        is_file = full["storage"] == "file"
        most = limits.storage_stream_bytes if is_file else limits.memory_stream_bytes
        needed = len(stream.consumers) + stream.readers
        problems = []
        if most > 0 and not 0 < full["max_bytes"] <= most:
            problems.append(
                Problem(
                    "stream-too-large",
                    f"the account allows {most} bytes a stream, and {stream.name} would have "
                    f"{full['max_bytes']}: set spec.stream.maxBytes to {most} or less",
                )
            )
        elif limits.is_max_bytes_required and full["max_bytes"] <= 0:
            problems.append(
                Problem(
                    "max-bytes-required",
                    f"the account demands a size limit for {stream.name}: set spec.stream.maxBytes",
                )
            )
        allowed = min(
            (limit for limit in (limits.consumers, full["max_consumers"]) if limit >= 0),
            default=needed,
        )
        if needed > allowed:
            problems.append(
                Problem(
                    "too-many-consumers",
                    f"{stream.name} needs {needed} consumers and may have {allowed}: remove some "
                    "of spec.consumers, or raise the account's max_consumers and "
                    "spec.stream.maxConsumers",
                )
            )
        # One partition's streams are alike: the first one speaks for all.
        yield from (problem for problem in problems if problem.id not in seen)
        seen.update(problem.id for problem in problems)


def _raft(desired: Desired, observed: Observed) -> Iterator[Problem]:
    assets = sum(
        1 + sum(1 for consumer in stream.consumers if consumer.get("num_replicas") != 1)
        for stream in desired.streams
        if stream.config.get("num_replicas", 1) > 1
    )
    if assets >= REPLICATED_ASSETS_WARN:
        yield Problem(
            "many-replicated-assets",
            f"{assets} replicated streams and consumers: servers get slow from about "
            f"{REPLICATED_ASSETS_WARN} on; use fewer partitions, or fewer spec.consumers",
            is_blocking=False,
        )


def _single(desired: Desired, observed: Observed) -> Iterator[Problem]:
    log = desired.single
    if log is not None and log.name not in observed.streams:
        # Measured with sync_interval always and messages of 2 and 100 KB, on two processors.
        yield Problem(
            "one-stream-is-slower",
            f"the server syncs what {log.name} stores one message after the other: one stream took "
            "a fifth to two fifths of what eight took; with spec.stream.layout partitions, each "
            "partition has a stream of its own, and this cannot be changed later",
            is_blocking=False,
        )


def _single_stays(desired: Desired, observed: Observed) -> Iterator[Problem]:
    """Yield what would keep collectors from messages of the one stream, which each of them reads by
    the subjects of its partitions.
    """
    wanted = desired.single
    found = observed.streams.get(wanted.name) if wanted is not None else None
    if wanted is None or found is None:
        return
    count = wanted.config["metadata"][PARTITIONS_KEY]
    theirs = (found.config.get("metadata") or {}).get(PARTITIONS_KEY, "")
    is_alike = sorted(_of_senders(found)) == wanted.config["subjects"]
    if desired.is_external and not (is_alike and theirs == count):
        yield Problem(
            "stream-differs",
            f"stream {wanted.name} holds {theirs or 'an unknown number of'} partitions, and stores "
            "other subjects than this resource reads, or as many: set spec.partitions and "
            "spec.stream.foreignPartitions as its owner has them",
        )
    elif theirs and not is_alike:
        yield Problem(
            "subjects-stay",
            f"stream {wanted.name} stores other subjects than spec.stream.foreignPartitions says, "
            "which cannot change with layout single: set it as it was, or create a new LogPipeline",
        )
    elif observed.strays:
        yield Problem(
            "messages-in-no-partition",
            f"stream {wanted.name} holds {observed.strays} messages whose subjects are in no "
            "partition of spec.partitions and spec.stream.foreignPartitions, so that collectors "
            "would not read them: raise these numbers, or read and purge those messages first",
        )


def _retention(desired: Desired, observed: Observed) -> Iterator[Problem]:
    unsafe = {str(s.config.get("retention", "limits")) for s in desired.streams} - {"limits"}
    for retention in sorted(unsafe):
        yield Problem(
            "retention-loses-lines",
            f"with retention {retention} lines are deleted that no collector has collected, or "
            "collectors cannot read at all: set spec.stream.retention to limits",
            is_blocking=False,
        )


def _by_replicas(desired: Desired) -> dict[int, list[DesiredStream]]:
    tiers: dict[int, list[DesiredStream]] = {}
    for stream in desired.streams:
        tiers.setdefault(int(stream.config.get("num_replicas", 1)), []).append(stream)
    return tiers


_OWN = (
    *(_version, _partitions, _payload, _replicas, _overlaps, _account, _streams_fit, _raft),
    *(_retention, _single, _single_stays),
)

_EXTERNAL = (_version, _partitions, _payload, check_external, _single_stays)
