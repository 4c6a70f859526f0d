"""The driver's decisions: which streams are read, as the server has them now; where a query begins,
where its next batch ends, and which task reads which range. It asks for the state of streams and
for the message at a position, and keeps no payload.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from logpipeline.nats.jetstream import rfc3339_of
from logpipeline.streamstate import StreamState, Verdict, judge
from logpipeline.subjects import Names, Subjects, meet, root_of
from logpipeline_spark.errors import Refused
from logpipeline_spark.source.client import Client, Found
from logpipeline_spark.source.offsets import (
    EARLIEST,
    EARLIEST_NUMBER,
    LATEST_NUMBER,
    Place,
    Position,
    check_streams,
    loss_sentence,
    moved,
)
from logpipeline_spark.source.options import PARTITIONS_MAX, SourceOptions
from logpipeline_spark.source.ranges import OTHER_LIFE, RangeTask

SHOWN_MAX = 10

States = dict[str, StreamState]


def look(client: Client, options: SourceOptions) -> States:
    """Return the present state of each stream of *options*. A pipeline or a pattern includes
    streams that are added later.

    Raises:
        Refused: there is none, or the options do not fit one of them.
    """
    if options.is_fixed:
        seen = {stream: client.state(stream) for stream in options.streams}
    elif options.base:
        seen = _numbered(client, options.base)
    else:
        seen = _matching(client, options.pattern)
    for stream, state in seen.items():
        _root(options, stream, state)
    return seen


def roots(options: SourceOptions, seen: States) -> dict[str, str]:
    """Return the root of each stream's subjects; empty for messages, whose subjects are not parsed.

    Raises:
        Refused: the options name another root, or none where the stream does not say which.
    """
    return {stream: _root(options, stream, state) for stream, state in seen.items()}


def _numbered(client: Client, base: str) -> States:
    names = Names(subject="", stream_base=base)
    seen: States = {}
    for number in range(PARTITIONS_MAX):
        stream = names.stream(number)
        state = client.find(stream)
        if state is None:
            following = names.stream(number + 1)
            if not seen or client.find(following) is None:
                break
            # Both may have been added since the first question, in their order.
            state = client.find(stream)
            if state is None:
                raise Refused(
                    f"stream {stream} does not exist at {client.servers}, and {following} does: "
                    "create it again with `logpipeline apply`; without it, the lines of all later "
                    "streams would be left out"
                )
        seen[stream] = state
    if not seen:
        raise Refused(
            f"stream {names.stream(0)} does not exist at {client.servers}; check the option "
            "'pipeline', or set 'stream' and 'partitions' if the LogPipeline has its own names "
            "for streams: `logpipeline stream options` prints the options"
        )
    return seen


def _matching(client: Client, pattern: str) -> States:
    names = client.names()
    found = [name for name in names if re.fullmatch(pattern, name)]
    # A stream may be deleted between the two requests.
    states = {name: client.find(name) for name in found}
    seen = {name: state for name, state in states.items() if state is not None}
    if not seen:
        raise Refused(
            f"option 'subscribePattern': {pattern!r} matches the whole name of no stream at "
            f"{client.servers}; the streams are {_shown(names) or 'none'}"
        )
    return seen


def _root(options: SourceOptions, stream: str, state: StreamState) -> str:
    if options.format != "lines":
        return ""
    roots = {root_of(subject) for subject in state.subjects}
    if options.subject:
        if state.subjects and not any(
            _is_stored(options.subject, subject) for subject in state.subjects
        ):
            raise Refused(
                f"stream {stream} stores {_shown(state.subjects)}, and no subject that begins with "
                f"the option 'subject', {options.subject!r}; {_instead(roots)}"
            )
        return options.subject
    (root, *more) = roots or {None}
    if root is None or more:
        raise Refused(
            f"stream {stream} stores {_shown(state.subjects) or 'messages of other streams'}, so "
            "the root of its subjects is not known; set the option 'subject' (logs for subjects "
            "like logs.p0.web1), or read with 'format' messages"
        )
    return root


def _is_stored(root: str, subject: str) -> bool:
    """Return whether a stream with the subject *subject* stores messages below *root*."""
    if own := root_of(subject):
        return own == root
    return meet(subject, Subjects(root, 1).of_all())


def _instead(roots: set[str | None]) -> str:
    named = sorted(root for root in roots if root)
    if len(named) == 1:
        return f"write {named[0]!r}, or leave the option out"
    return "write the root of these"


def _shown(names: tuple[str, ...] | list[str]) -> str:
    more = len(names) - SHOWN_MAX
    text = ", ".join(sorted(names)[:SHOWN_MAX])
    return f"{text} and {more} more" if more > 0 else text


# To start a task, and to merge its file later, costs more than to read so much.
TASK_BYTES_MIN = 1024 * 1024
# A larger task takes long to repeat when its executor dies.
TASK_BYTES_MAX = 256 * 1024 * 1024
TASKS_MAX = 10_000

Positions = dict[str, Position]


@dataclass(frozen=True, slots=True)
class Backlog:
    """The sequences from *first* to *last* of a stream; *message_bytes* is the average size of a
    message.
    """

    first: int
    last: int
    message_bytes: int

    @property
    def count(self) -> int:
        """The number of sequences in the range, including those of deleted messages."""
        return max(self.last - self.first + 1, 0)

    @property
    def bytes(self) -> int:
        """The estimated size of the range."""
        return self.count * self.message_bytes


def batch_ends(
    backlogs: Mapping[str, Backlog], bytes_max: int | None, count_max: int | None = None
) -> dict[str, int]:
    """Return the last sequence to read of each stream, so that all together are about *bytes_max*
    and *count_max* messages. Streams get shares in proportion to their backlogs; each that has a
    backlog gets one message at least.
    """
    share = min(
        _share(bytes_max, sum(backlog.bytes for backlog in backlogs.values())),
        _share(count_max, sum(backlog.count for backlog in backlogs.values())),
    )
    return {
        name: b.first - 1 + (b.count if share >= 1 else min(max(int(b.count * share), 1), b.count))
        for name, b in backlogs.items()
    }


def _share(most: int | None, total: int) -> float:
    return 1.0 if most is None or total <= most else most / total


def is_early(backlogs: Mapping[str, Backlog], *, count_min: int, is_overdue: bool) -> bool:
    """Return whether a batch should wait: it has fewer than *count_min* messages, and is not
    overdue.
    """
    return not is_overdue and sum(backlog.count for backlog in backlogs.values()) < count_min


def worth_starting(size_bytes: int, at_once: int) -> int:
    """Return how many of the tasks that can run *at once* should share messages of that size."""
    return max(min(at_once, ceil(size_bytes / TASK_BYTES_MIN)), 1)


def split(
    backlogs: Mapping[str, Backlog],
    *,
    tasks_min: int,
    task_bytes_min: int = 0,
    task_bytes_max: int = TASK_BYTES_MAX,
) -> list[tuple[str, int, int]]:
    """Return (stream, first, last) of each task: contiguous and complete, by size, and at least
    *tasks_min* if there are so many messages, and *task_bytes_min* for each of them.
    """
    waiting = {name: backlog for name, backlog in backlogs.items() if backlog.count}
    total = sum(backlog.bytes for backlog in waiting.values())
    if not total:
        return []
    task_bytes = min(max(total / max(tasks_min, 1), task_bytes_min), task_bytes_max)
    task_bytes = max(task_bytes, total / TASKS_MAX)
    tasks: list[tuple[str, int, int]] = []
    for name, backlog in waiting.items():
        count = min(max(ceil(backlog.bytes / task_bytes - 1e-9), 1), backlog.count)
        edges = [backlog.first + backlog.count * n // count for n in range(count + 1)]
        tasks += [(name, edges[n], edges[n + 1] - 1) for n in range(count)]
    return tasks


def states(client: Client, options: SourceOptions) -> States:
    """Return the present state of each stream of *options*."""
    return {stream: client.state(stream) for stream in options.streams}


def start(client: Client, options: SourceOptions, place: Place, seen: States) -> Positions:
    """Return the positions just before *place*.

    Raises:
        Refused: a stream does not have it.
    """
    _check_place(place, "starting", seen)
    result: Positions = {}
    for stream, state in seen.items():
        sequence = _sequence_before(client, stream, state, place)
        time_ns = client.time_at(stream, state, sequence)
        if time_ns is None:
            time_ns = state.last_time_ns if sequence == state.last else 0
        result[stream] = Position(
            created=state.created,
            rollbacks=0,
            sequence=sequence,
            time_ns=time_ns,
            after=sequence,
            message_bytes=state.message_bytes,
        )
    return result


def lasts(client: Client, options: SourceOptions, seen: States) -> dict[str, int]:
    """Return the last sequence of each stream that a batch query reads."""
    place = options.ending
    if place is None or place.kind == "latest":
        return {stream: state.last for stream, state in seen.items()}
    _check_place(place, "ending", seen)
    if place.kind in ("time", "times"):
        return {name: _sequence_before(client, name, state, place) for name, state in seen.items()}
    given = {stream: place.of(stream) for stream in seen}
    return {
        stream: seen[stream].last if number == LATEST_NUMBER else min(number, seen[stream].last)
        for stream, number in given.items()
    }


def _check_place(place: Place, which: str, seen: States) -> None:
    if why := place.unlike(seen):
        by_time = "ByTimestamp" if place.kind == "times" else ""
        raise Refused(f"option '{which}Offsets{by_time}': {why}")


def _sequence_before(client: Client, stream: str, state: StreamState, place: Place) -> int:
    before_first = max(state.first - 1, 0)
    if (time_ns := place.time_of(stream)) is not None:
        return _before_time(client, stream, state, time_ns)
    number = EARLIEST_NUMBER if place.kind == "earliest" else LATEST_NUMBER
    if place.kind == "sequences":
        number = place.of(stream)
    if number == EARLIEST_NUMBER:
        return before_first
    if number == LATEST_NUMBER:
        return state.last
    if number - 1 > state.last:
        raise Refused(
            f"option 'startingOffsets': stream {stream} ends at {state.last}, before {number}; "
            "name an existing sequence, or latest"
        )
    return max(number - 1, 0)


def _before_time(client: Client, stream: str, state: StreamState, time_ns: int) -> int:
    """Return the sequence before the first message of *time_ns* or later."""
    if not state.messages:
        return state.last
    found = client.first_from(stream, {"start_time": rfc3339_of(time_ns)})
    return state.last if found is None else found.sequence - 1


def known(client: Client, options: SourceOptions, kept: Positions, seen: States) -> Positions:
    """Return the position of each stream by the positions that the checkpoint *kept*; a stream that
    was added since is read from its beginning.

    Raises:
        Refused: a stream is gone, or the options name other streams than before.
    """
    if options.is_fixed:
        check_streams(kept, options.streams)
    if gone := sorted(kept.keys() - seen.keys()):
        if options.fail_on_data_loss:
            raise Refused(
                f"the streams {', '.join(gone)}, which were read, are gone, or the options do not "
                "select them any more; set failOnDataLoss to false to continue without them"
            )
        kept = {stream: position for stream, position in kept.items() if stream in seen}
    added = {stream: state for stream, state in seen.items() if stream not in kept}
    return kept | start(client, options, EARLIEST, added)


def begins(
    client: Client,
    options: SourceOptions,
    known: Mapping[str, Position],
    seen: States,
    *,
    reads_again: bool = False,
) -> Positions:
    """Return where to continue after *known*: there, if a stream is still the one that was read;
    else after the last message that both have. A caller that *reads_again* finds itself which
    messages are new: for it such a stream begins at its first message, and the position says until
    when messages may have been read.

    Raises:
        Refused: a stream lost messages that were not read, and that is not allowed.
    """
    result: Positions = {}
    for stream, state in seen.items():
        position = known[stream]
        found = client.time_at(stream, state, position.sequence) if position.time_ns else None
        verdict = judge(position, state, found, needs_all=True)
        if verdict is not Verdict.GOOD and options.fail_on_data_loss:
            raise Refused(loss_sentence(stream, verdict, position, state))
        if reads_again and verdict in OTHER_LIFE:
            result[stream] = _read_again(position, state, verdict)
        else:
            result[stream] = _resumed(client, stream, position, state, verdict)
    return result


def _read_again(position: Position, state: StreamState, verdict: Verdict) -> Position:
    # Times alone would skip new messages if the clock of the server is behind that of the former
    # leader, or was set back.
    return replace(
        position,
        created=state.created,
        rollbacks=position.rollbacks + 1 if verdict is Verdict.ROLLED_BACK else 0,
        sequence=max(state.first - 1, 0),
        known_until_ns=max(position.time_ns, position.known_until_ns),
    )


def _resumed(
    client: Client, stream: str, position: Position, state: StreamState, verdict: Verdict
) -> Position:
    if verdict is Verdict.GOOD:
        return position
    if verdict is Verdict.PURGED:
        # The time stays that of the last message that was read: earlier messages are not read
        # again.
        return replace(position, sequence=state.first - 1)
    # The server's time rises within a stream, and from one incarnation to the next: messages up to
    # the time of the last one that was read were read.
    sequence = _before_time(client, stream, state, position.time_ns + 1)
    is_same = verdict is Verdict.ROLLED_BACK
    return replace(
        position,
        created=state.created,
        rollbacks=position.rollbacks + 1 if is_same else 0,
        sequence=sequence,
        time_ns=client.time_at(stream, state, sequence) or position.time_ns,
    )


def backlogs(
    begin: Mapping[str, Position], seen: States, lasts: Mapping[str, int]
) -> dict[str, Backlog]:
    """Return the backlog of each stream between *begin* and *lasts*."""
    return {
        stream: Backlog(position.sequence + 1, lasts[stream], seen[stream].message_bytes)
        for stream, position in begin.items()
    }


def ends(
    client: Client,
    begin: Mapping[str, Position],
    seen: States,
    lasts: Mapping[str, int],
    bytes_max: int | None,
    *,
    known: Mapping[str, Position] | None = None,
    count_max: int | None = None,
) -> Positions:
    """Return the end of a batch that begins at *begin*: not after *lasts*, and with about
    *bytes_max* and *count_max* messages.

    A stream without messages in the batch keeps its position in *known*; so does one that became
    another one since it was *seen*, whose messages are left to a later batch.
    """
    chosen = batch_ends(backlogs(begin, seen, lasts), bytes_max, count_max)
    result: Positions = {}
    for stream, position in begin.items():
        state, last = seen[stream], chosen[stream]
        if last > position.sequence:
            found = client.first_from(stream, {"seq": last})
            if _is_same_life(client, stream, position, state, found):
                sequence, time_ns = _end(found, last, lasts[stream], state)
                result[stream] = moved(
                    position,
                    sequence=sequence,
                    time_ns=time_ns,
                    message_bytes=state.message_bytes,
                )
                continue
        is_old = known is not None and known[stream].incarnation == position.incarnation
        is_old = is_old and known is not None and known[stream].sequence == position.sequence
        result[stream] = known[stream] if is_old and known else _empty(position)
    return result


def check_whole(
    begin: Mapping[str, Position], end: Mapping[str, Position], lasts: Mapping[str, int]
) -> None:
    """Check that no stream was left out of a batch that no other one follows.

    Raises:
        Refused: a stream became another one meanwhile.
    """
    for stream, position in begin.items():
        if end[stream].sequence <= position.sequence < lasts[stream]:
            raise Refused(
                f"stream {stream} changed while the query was planned: its messages from "
                f"{position.sequence + 1} on are other ones now; run the query again to read them"
            )


def _is_same_life(
    client: Client, stream: str, begin: Position, state: StreamState, end: Found | None
) -> bool:
    """Return whether *end*, which came last, is of the life of the stream in which *begin* was
    found good. If the server lost its tail in between, a batch from the one to the other would pass
    over what it stored again up to *begin*, and no later one would read that.
    """
    # Where there is no such message, the end has the time of the state, and tasks judge it.
    if end is None or end == (state.last, state.last_time_ns):
        return True
    now = client.find(stream)
    # The first sequence falls if messages are lost of which the older ones were trimmed before.
    if now is None or now.first < state.first:
        return False
    found = client.time_at(stream, now, begin.sequence) if begin.time_ns else None
    return judge(begin, now, found) is Verdict.GOOD


def _empty(position: Position) -> Position:
    return replace(position, after=position.sequence)


def _end(found: Found | None, chosen: int, last: int, state: StreamState) -> tuple[int, int]:
    """Return the end of a batch that should end at *chosen*, and the time of its last message. It
    is the first message from *chosen* on, since a deleted message has no time.
    """
    if found is not None and found.sequence <= last:
        return found.sequence, found.time_ns
    if found is not None:
        return last, found.time_ns - 1
    return last, state.last_time_ns


def report(seen: States, end: Mapping[str, Position]) -> dict[str, Any]:
    """Return the report on each stream of *seen* in a query's progress: its last sequence, and the
    number of messages after the *end* of the planned batch.
    """
    lags = {
        stream: max(state.last - end[stream].sequence, 0) if stream in end else 0
        for stream, state in seen.items()
    }
    streams = {
        stream: {"sequence": state.last, "lag": lags[stream]} for stream, state in seen.items()
    }
    return {"streams": streams, "lag": sum(lags.values())}


def tasks(
    options: SourceOptions,
    batch: Mapping[str, Position],
    tasks_min: int,
    roots: Mapping[str, str] | None = None,
    *,
    task_bytes_min: int = 0,
) -> list[RangeTask]:
    """Return the ranges that the tasks of a batch read, which ends at *batch*; *roots* are the
    roots of the streams' subjects, where the options name none. See `split`.
    """
    roots = roots or {}
    waiting = {
        stream: Backlog(end.after + 1, end.sequence, end.message_bytes)
        for stream, end in batch.items()
    }
    return [
        RangeTask(
            stream=stream, end=batch[stream], first=first, last=last, root=roots.get(stream, "")
        )
        for stream, first, last in split(
            waiting, tasks_min=tasks_min, task_bytes_min=task_bytes_min
        )
    ]
