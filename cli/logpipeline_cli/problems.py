"""The problems of a pipeline, found in its status: lost, missing and quarantined lines, and
components that do not work.
"""

from __future__ import annotations

import errno
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from logpipeline_cli.losses import beyond
from logpipeline_cli.output import bytes_text
from logpipeline_cli.tables.status import troubles

Status = Mapping[str, Any]
# A working collector, which commits once a second, confirms everything sooner.
UNCONFIRMED_S_MAX = 600.0
# Beyond this, there may already be no room for a host: letters may not take the whole stream.
LETTERS_PERCENT_MAX = 75
# A pipeline may have hundreds of streams.
UNANSWERED_SAID_MAX = 3
# What a reader missed is a problem for a day; the table of readers goes on counting it.
MISSED_SAID_NS = 24 * 3600 * 10**9


def conflicts(answers: Sequence[Status]) -> list[dict[str, Any]]:
    """Return the sources that more than one shipper reads, with the names of these shippers."""
    readers: dict[tuple[str, str], list[str]] = {}
    for answer in answers:
        for source in answer.get("sources", []):
            readers.setdefault((source["host"], source["source"]), []).append(answer["name"])
    return [
        {"host": host, "source": source, "shippers": names}
        for (host, source), names in sorted(readers.items())
        if len(names) > 1
    ]


def problems(status: Status) -> Iterator[str]:
    """Yield one sentence for each problem of the pipeline."""
    if trouble := status.get("serverTrouble"):
        yield trouble
    if held := status.get("heldBack"):
        yield f"a part of the resource waits: {held}"
    yield from _of_unanswered(status["unanswered"])
    yield from status.get("silent", ())
    for state in status["partitions"]:
        if not state["is_there"]:
            yield f"partition {state['partition']} has no stream: run `logpipeline apply`"
        elif state["is_known"] and (not state["owner"] or state["released"]):
            yield f"no collector owns partition {state['partition']}: start one"
    yield from _of_replicas(status["partitions"])
    for answer in status["collectors"]:
        yield from (f"{name_of(answer, status)}: {each}" for each in _of_collector(answer))
    for answer in status["shippers"]:
        name = answer.get("name", "a shipper")
        yield from (f"{name}: {problem}" for problem in of_shipper(answer))
    for row in status["conflicts"]:
        names = " and ".join(row["shippers"])
        yield f"{names} both ship {row['source']} of {row['host']}: give each host its own name"
    yield from _of_lost(status)
    yield from troubles(status)
    for reader in status["readers"]:
        yield from _of_missed(reader)
    if status["deadLetterRoom"] is not None:
        yield from _of_letters(status["deadLetterRoom"])


def _of_unanswered(reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield the sentences about what no server answers for, of many parts about the first ones."""
    for part, reason in sorted(reasons.items())[:UNANSWERED_SAID_MAX]:
        yield (
            f"no server answers for the {part}, and what it holds is not known ({reason}): if this "
            "lasts, see the logs of the servers that keep it, and restart the one that leads it"
        )
    if (more := len(reasons) - UNANSWERED_SAID_MAX) > 0:
        yield f"nor does one for {more} other streams"


def name_of(collector: Status, status: Status) -> str:
    """Return how a collector is called: those of another group may have the same names."""
    member, group = str(collector.get("member", "")), str(collector.get("group", status["group"]))
    return member if group == status["group"] else f"{member} of group {group}"


def _of_collector(answer: Status) -> Iterator[str]:
    for row in answer.get("partitions", []):
        found = []
        if row["problem"]:
            found.append(row["problem"])
        if taken := row.get("damaged_bytes", 0):
            found.append(
                f"{bytes_text(taken)} of its files were removed or damaged after they were "
                "written; its log says which"
            )
        if why := row.get("snapshot_problem"):
            found.append(why)
        if forgotten := row.get("forgotten_sources", 0):
            found.append(
                f"{forgotten} sources are forgotten, since a host has too many or too long names; "
                "its log says which"
            )
        found += filter(None, map(_of_gone, row.get("gone_folders", [])))
        yield from (f"partition {row['partition']}: {each}" for each in found)
    yield from _of_room(answer)
    for row in answer.get("dead_letters_not_kept", []):
        gone = f"{row['messages']} messages of {row['host'] or 'some hosts'}"
        yield (
            f"{gone} ({bytes_text(row['bytes'])}) could be neither collected nor kept as dead "
            "letters"
        )


def _of_lost(status: Status) -> Iterator[str]:
    """Yield the sentences about bytes that are lost and about those that did not arrive: of the
    sums, which hold also what no list names. What other groups lack beside is said as theirs.
    """
    own = status["group"]
    by_cause: Counter[tuple[str, str]] = Counter()
    for row in status["lost"]:
        if not row["acknowledged"]:
            by_cause[row["group"], row["cause"]] += row["bytes"]
    unlisted, holes = Counter[str](), Counter[str]()
    for row in status["sums"]:
        if row["group"] == own:
            unlisted[own] += row["lost_unlisted"]
            holes[own] += row["missing"]
    for (group, _), sizes in beyond(status).items():
        unlisted[group] += sizes["lost_unlisted"]
        holes[group] += sizes["missing"]
    groups = {group for group, _ in by_cause} | unlisted.keys() | holes.keys()
    for group in sorted(groups, key=lambda each: (each != own, each)):
        whose = "" if group == own else f"group {group}: "
        for (of, cause), size in sorted(by_cause.items()):
            if of == group:
                yield f"{whose}{bytes_text(size)} are lost ({cause}): see `logpipeline losses`"
        if size := unlisted[group]:
            what = "are lost that are not listed here: see `logpipeline losses`"
            yield f"{whose}{bytes_text(size)} {what}"
        if size := holes[group]:
            yield f"{whose}{bytes_text(size)} did not arrive, and may still be sent again"


def _of_replicas(states: Sequence[Status]) -> Iterator[str]:
    behind = Counter(name for state in states for name in state.get("replicas_behind", ()))
    for server, streams in sorted(behind.items()):
        yield (
            f"{server} does not keep up with {streams} of {len(states)} log streams: if that "
            "lasts, make room on its disk and start it again, or see its log"
        )


def _of_gone(row: Status) -> str:
    """Return the sentence about messages of a lost volume that are not read again; empty if all are
    read again.
    """
    had = f"the volume with messages {row['after'] + 1} to {row['end']} is gone"
    if not row["again_from"]:
        return f"{had}, and they are not read again (spec.collectors.onEmptyVolume: Continue)"
    if row["again_from"] == row["after"] + 1:
        return ""
    last = min(row["again_from"] - 1, row["end"])
    return f"{had}; the stream no longer holds those up to {last}, and the others are read again"


def _of_room(answer: Status) -> Iterator[str]:
    """Yield the sentence about files that a collector deleted for room on its disk."""
    size = sum(row.get("removed_for_room_bytes", 0) for row in answer.get("partitions", []))
    if size:
        yield (
            f"{bytes_text(size)} of rotated files were deleted before their age, since less of "
            "the disk was free than retention.minFreePercent: make room on it, or enlarge the "
            "volume"
        )


def _of_missed(reader: Status) -> Iterator[str]:
    """Yield the sentence about messages that were deleted before *reader* read them."""
    ranges = [(row["stream"], gone) for row in reader["streams"] for gone in row["missed"]]
    if not ranges:
        return
    stream, last = max(ranges, key=lambda each: int(each[1]["at_ns"]))
    # Nothing brings them back, so there is no end by which this one would be over.
    if time.time_ns() - int(last["at_ns"]) < MISSED_SAID_NS:
        count = sum(row["missedMessages"] for row in reader["streams"])
        yield (
            f"reader {reader['name']} missed {count} messages, the last of them {last['first']} to "
            f"{last['last']} of {stream}: they were deleted before it read them. Keep messages for "
            "longer than it may be behind (spec.stream.maxAge, spec.stream.maxBytes)"
        )


def _of_letters(room: Status) -> Iterator[str]:
    if room["messages"]:
        yield f"{room['messages']} dead letters: see `logpipeline dlq ls`"
    fullest = max(
        room[name] * 100 // room[f"{name}Max"] if room[f"{name}Max"] else 0
        for name in ("bytes", "messages")
    )
    if fullest >= LETTERS_PERCENT_MAX:
        yield (
            f"{fullest} % of the room for dead letters is used, and a full stream stores no more: "
            "send them again (`logpipeline dlq retry`), or delete them (`logpipeline dlq purge`)"
        )
    for row in room["givenUpFull"]:
        yield (
            f"consumer {row['consumer']} gives up more messages of {row['stream']} than are kept "
            "until a collector makes letters of them, and the oldest are dropped: start a "
            "collector, or make room (`logpipeline dlq purge`)"
        )


def of_shipper(answer: Status) -> Iterator[str]:
    """Yield one sentence for each problem that a shipper reports."""
    if problem := answer.get("live") or answer.get("ready"):
        yield problem
    if unseen := answer.get("unseen_generations"):
        yield (
            f"at least {unseen} files were deleted or rotated away before they were read to the end"
        )
    if count := answer.get("unreadable_total"):
        first = answer["unreadable"][0]
        more = f" and {count - 1} more" if count > 1 else ""
        yield f"cannot read {first['path']} ({_why(first['reason'])}){more}"
    if size := answer.get("unnamed_bytes"):
        yield (
            f"{bytes_text(size)} are lost, and not listed by `logpipeline losses`, since its "
            "messages cannot tell collectors; its log says which"
        )
    if kept := answer.get("quarantined"):
        yield f"{kept} messages were refused, and are kept in its data folder"
    if hosts := answer.get("refused_hosts"):
        yield f"the names of {len(hosts)} hosts are refused, and their lines not shipped"
    if answer.get("unconfirmed_s", 0.0) > UNCONFIRMED_S_MAX:
        size = bytes_text(answer.get("on_the_way_bytes", 0))
        seconds = answer["unconfirmed_s"]
        yield f"no collector has confirmed {size} for {seconds:.0f} s"


def _why(reason: str) -> str:
    """Return *reason* in words if it is the name of an error of the system, or of a limit."""
    if reason in ("EACCES", "EPERM"):
        return "permission denied: let the shipper's user read it"
    if reason == "too-many-folders":
        return "too many folders: new ones below it are not read; remove or exclude some"
    number = getattr(errno, reason, None)
    return os.strerror(number) if isinstance(number, int) else reason
