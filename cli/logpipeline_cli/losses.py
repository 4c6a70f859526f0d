"""What is lost and missing in each partition: the whole sums, the lists of collectors that explain
a part of them, and the record of what a person has acknowledged.

A list may be cut, and a collector may not answer; the sums hold all the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logpipeline import json_text
from logpipeline.nats.bucket import Bucket, Conflict
from logpipeline.nats.connection import Connection, gather
from logpipeline.nats.session import RawMessage
from logpipeline.subjects import ControlSubjects
from logpipeline_cli.component_answers import is_readable
from logpipeline_collector.status_question import LossesAsked

KEY = "losses.acknowledged"
# One takes 30 bytes, so that all fit into one message. The oldest are dropped first.
ACKNOWLEDGED_MAX = 10_000
ID_BYTES = 5
# Partitions whose losses are asked for at once: each answer is a whole message.
ASKED_AT_ONCE = 10
# The owner of each, and a former one that has not noticed.
ANSWERS_MAX = 2 * ASKED_AT_ONCE

Row = Mapping[str, Any]
# A group of collectors, and the number of a partition.
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What a person has acknowledged: when, in seconds since 1970, by the *ids* of losses; and how
    many lost *bytes* of each partition, listed or not.
    """

    ids: Mapping[str, float] = field(default_factory=dict)
    bytes: Mapping[Place, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Bytes of one partition as *group* has it. *lost* are those that shippers named as lost, of
    which *lost_new* are not acknowledged and *lost_unlisted* neither acknowledged nor listed;
    *missing* are those in holes, of which no list names the sources of *missing_unlisted*. Its
    owner's answer *is_heard*, or the sums are those of its last commit.
    """

    group: str
    partition: int
    lost: int
    lost_new: int
    lost_unlisted: int
    missing: int
    missing_unlisted: int
    is_heard: bool


def id_of(row: Row) -> str:
    """Return the id of a loss, by which a person acknowledges it."""
    name = "\0".join(str(row[field]) for field in ("host", "source", "generation", "start", "end"))
    data = name.encode("utf-8", "surrogateescape")
    return hashlib.blake2b(data, digest_size=ID_BYTES).hexdigest()


def owned(answers: Iterable[Row]) -> dict[Place, Row]:
    """Return what the *answers* of collectors say of each partition that is owned: where a former
    owner still answers, the newer one's.
    """
    found: dict[Place, Row] = {}
    for answer in answers:
        for row in answer.get("partitions", ()):
            place = str(answer.get("group", "")), int(row["partition"])
            if "epoch" in row and (place not in found or row["epoch"] >= found[place]["epoch"]):
                found[place] = row
    return found


async def listed_whole(
    connection: Connection, control_root: str, places: Mapping[Place, Row]
) -> dict[Place, Row]:
    """Return *places* with all losses that their owners list when they are asked part by part; of
    `ACKNOWLEDGED_MAX` and more no further ones.

    Raises:
        NotSent: there is no connection.
    """
    found = dict(places)
    open_ones = [place for place, row in found.items() if row.get("losses_left_out")]
    while open_ones and sum(len(row.get("losses", ())) for row in found.values()) < (
        ACKNOWLEDGED_MAX
    ):
        asked, open_ones = open_ones[:ASKED_AT_ONCE], open_ones[ASKED_AT_ONCE:]
        parts = await _ask_for_losses(
            connection,
            control_root,
            {place: len(found[place].get("losses", ())) for place in asked},
        )
        for place in asked:
            listed, part = found[place].get("losses", ()), parts.get(place, {})
            seen = {id_of(each) for each in listed}
            fresh = [each for each in part.get("losses", ()) if id_of(each) not in seen]
            found[place] = {**found[place], "losses": [*listed, *fresh]}
            # A collector of a former version answers with the same losses again.
            if fresh and part.get("losses_left_out"):
                open_ones.append(place)
    return found


async def _ask_for_losses(
    connection: Connection, control_root: str, known: Mapping[Place, int]
) -> dict[Place, Row]:
    """Return what owners answer of the places of which so many losses are *known*."""
    subject = ControlSubjects(control_root).status("collector")
    answers: list[Row] = []

    def keep(message: RawMessage) -> None:
        try:
            answer = json_text.parse(message.data)
        except ValueError:
            return
        if len(answers) < ANSWERS_MAX and is_readable("collector", answer):
            answers.append(answer)

    async with asyncio.TaskGroup() as tasks:
        for (group, partition), count in known.items():
            question = LossesAsked(group, partition, count).encode()
            tasks.create_task(gather(connection, [subject], question, keep))
    return owned(answers)


def lost(places: Mapping[Place, Row], seen: Acknowledged, *, group: str) -> list[dict[str, Any]]:
    """Return the losses that are listed in *places*, the newest first, each once with all *groups*
    that lack it; *group* is the pipeline's own.
    """
    rows: dict[tuple[int, str], dict[str, Any]] = {}
    for (of, partition), answer in _own_first(places, group):
        for listed in answer.get("losses", ()):
            name = id_of(listed)
            row = rows.setdefault(
                (partition, name),
                {
                    **listed,
                    "bytes": listed["end"] - listed["start"],
                    "group": of,
                    "groups": [],
                    "partition": partition,
                    "id": name,
                    "acknowledged": name in seen.ids,
                },
            )
            if of not in row["groups"]:
                row["groups"].append(of)
    return sorted(rows.values(), key=lambda row: -row["time_ns"])


def missing(places: Mapping[Place, Row], *, group: str) -> list[dict[str, Any]]:
    """Return the sources with holes that are listed in *places*, those of *group* first."""
    return [
        {**listed, "toldBy": "collector", "group": of, "partition": partition}
        for (of, partition), answer in _own_first(places, group)
        for listed in answer.get("missing", ())
    ]


def _own_first(places: Mapping[Place, Row], group: str) -> list[tuple[Place, Row]]:
    return sorted(places.items(), key=lambda each: (each[0][0] != group, each[0]))


def sums(
    partitions: Sequence[Row],
    places: Mapping[Place, Row],
    losses: Iterable[Row],
    seen: Acknowledged,
    *,
    group: str,
) -> list[Sums]:
    """Return the sums of each partition of *group*, whether its collector answered or not, and of
    those of other groups that answered; *losses* are those that `lost` returns of *places*.
    """
    # Of each place the acknowledged bytes that are listed, and the others.
    listed: dict[Place, list[int]] = {}
    for row in losses:
        for of in row["groups"]:
            sizes = listed.setdefault((of, row["partition"]), [0, 0])
            sizes[not row["acknowledged"]] += row["bytes"]
    found = []
    for state in partitions:
        place = group, int(state["partition"])
        said = places.get(place)
        # One that was taken over meanwhile knows less than its successor has committed.
        heard = said if said is not None and said["epoch"] >= state.get("epoch", 0) else None
        whole = {**state, **(heard or {})}
        found.append(_sums(place, whole, listed, said, seen, is_heard=heard is not None))
    for place, said in _own_first(places, group):
        if place[0] != group:
            found.append(_sums(place, said, listed, said, seen, is_heard=True))
    return found


def _sums(
    place: Place,
    whole: Row,
    listed: Mapping[Place, Sequence[int]],
    said: Row | None,
    seen: Acknowledged,
    *,
    is_heard: bool,
) -> Sums:
    known, fresh = listed.get(place, (0, 0))
    total = max(whole.get("lost_bytes", 0), known + fresh)
    unlisted = max(0, total - max(seen.bytes.get(place, 0), known) - fresh)
    holes = sum(row["bytes"] for row in (said or {}).get("missing", ()))
    gaps = whole.get("missing_bytes", 0)
    return Sums(
        group=place[0],
        partition=place[1],
        lost=total,
        lost_new=fresh + unlisted,
        lost_unlisted=unlisted,
        missing=gaps,
        missing_unlisted=max(0, gaps - holes),
        is_heard=is_heard,
    )


def beyond(status: Mapping[str, Any]) -> dict[Place, dict[str, int]]:
    """Return what other groups lack that no list shows the pipeline's own group to lack: bytes by
    `missing`, `missing_unlisted` and `lost_unlisted`, of each place that has some. Of a cut list
    not all can be compared: there it is rather too much.
    """
    own = {row["partition"]: row for row in status["sums"] if row["group"] == status["group"]}
    holes: dict[Place, dict[tuple[str, str], int]] = {}
    for row in status["missing"]:
        if row["toldBy"] == "collector":
            place = holes.setdefault((row["group"], row["partition"]), {})
            place[row["host"], row["source"]] = row["bytes"]
    found = {}
    for row in status["sums"]:
        if row["group"] == status["group"]:
            continue
        group, partition = row["group"], row["partition"]
        known = holes.get((status["group"], partition), {})
        listed = sum(
            max(0, size - known.get(source, 0))
            for source, size in holes.get((group, partition), {}).items()
        )
        rest = {
            name: max(0, row[name] - own.get(partition, {}).get(name, 0))
            for name in ("missing_unlisted", "lost_unlisted")
        }
        found[group, partition] = rest | {"missing": listed + rest["missing_unlisted"]}
    return {place: sizes for place, sizes in found.items() if any(sizes.values())}


async def acknowledged(bucket: Bucket) -> Acknowledged:
    """Return what a person has acknowledged.

    Raises:
        NotSent, OutcomeUnknown, ApiError: the bucket could not be read.
    """
    entry = await bucket.get(KEY)
    return _decoded(entry.value) if entry is not None else Acknowledged()


async def acknowledge(
    bucket: Bucket, rows: Sequence[Row], whole: Sequence[Row], *, with_unlisted: bool
) -> None:
    """Record that a person has seen the losses *rows*, as `lost` returns them; and *with_unlisted*
    all that is lost by now in the partitions of which *whole*, as `sums` returns them, was heard.

    Raises:
        NotSent, OutcomeUnknown, ApiError: the bucket could not be written.
    """
    while True:
        entry = await bucket.get(KEY)
        known = _decoded(entry.value) if entry is not None else Acknowledged()
        made = _with(known, rows, whole, with_unlisted=with_unlisted)
        try:
            revision = entry.revision if entry is not None else 0
            await bucket.swap(KEY, _encoded(made), revision=revision)
        except Conflict:
            continue  # another command has written the key since we read it
        return


def _with(
    known: Acknowledged, rows: Sequence[Row], whole: Sequence[Row], *, with_unlisted: bool
) -> Acknowledged:
    now_s = time.time()
    # A loss that is acknowledged a second time keeps the time of the first. The newest losses are
    # the last to be dropped: collectors list them.
    wanted = {row["id"]: now_s for row in sorted(rows, key=lambda row: int(row["time_ns"]))}
    ids = sorted((wanted | dict(known.ids)).items(), key=lambda each: each[1])
    size = dict(known.bytes)
    for each in whole:
        place = str(each["group"]), int(each["partition"])
        if with_unlisted and each["is_heard"]:
            size[place] = each["lost"]
            continue
        fresh = sum(
            row["bytes"]
            for row in rows
            if row["partition"] == place[1]
            and place[0] in row["groups"]
            and row["id"] not in known.ids
        )
        if fresh:
            # What was lost and acknowledged, and was found again, stands for no later loss.
            before = each["lost"] - each["lost_new"]
            size[place] = before + fresh
    return Acknowledged(dict(ids[-ACKNOWLEDGED_MAX:]), size)


def _encoded(known: Acknowledged) -> bytes:
    size = [[*place, count] for place, count in sorted(known.bytes.items())]
    return json.dumps({"ids": known.ids, "bytes": size}, separators=(",", ":")).encode()


def _decoded(value: bytes) -> Acknowledged:
    try:
        data = json_text.parse(value)
        # A former version wrote ids alone.
        ids, size = data.get("ids", data), data.get("bytes", ())
        return Acknowledged(
            {str(name): float(when_s) for name, when_s in ids.items()},
            {(str(group), int(partition)): int(count) for group, partition, count in size},
        )
    except (ValueError, TypeError, AttributeError):
        return Acknowledged()  # not written by this command: treated as no acknowledgement
