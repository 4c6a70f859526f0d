"""The options of a reader of streams, and which of them contradict each other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from logpipeline.consuming.records import position_of
from logpipeline.event_times import EventTimes
from logpipeline.moments import moment_ns, span_ns
from logpipeline.nats.jetstream import rfc3339_of
from logpipeline.quantity import QuantityError, parse_duration
from logpipeline.records import BadRecord
from logpipeline.spec import LogPipeline
from logpipeline.spec.partition_list import PARTITIONS, is_rising, is_within, ranges, selects
from logpipeline.spec.table import ZONE, TimeFormat, TimeRule
from logpipeline.spec.table_rules import is_zone, why_no_pattern

Mode = Literal["each", "spaced", "all", "none"]
OnError = Literal["stop", "retry", "dead-letter"]
Deliver = Literal["all", "new", "last"]
DeliverPolicy = Literal["all", "new", "last", "byStartTime", "byStartSequence"]

# As spec.consumers[].name, which a consumer of ours may be made from.
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
NAME_KINDS = "letters, digits, '-' and '_', 64 at most"
# The state that is kept in the pipeline's own key-value bucket.
KV = "kv"
BATCH_DEFAULT = 100
BATCH_MAX = 10_000
SECOND_NS = 10**9
# A batch may hold so many bytes of stored messages, over all partitions.
BYTES_MAX = 64 * 2**20


class ConsumeError(Exception):
    """The reader cannot go on; nothing is lost: what was not processed is still to be read."""


class ReaderBusy(ConsumeError):
    """Another reader has the consumer, or the state file."""


class StateForeign(ConsumeError):
    """The state is of another consumer, or of a stream that is no longer the one it was."""


class ConsumerGone(ConsumeError):
    """The consumer does not exist (any more), or does not have the settings that reading needs."""


class Stopped(ConsumeError):
    """A message could not be processed, and the option on_error says stop."""


class BadOption(ValueError):
    """Options that have no meaning, or contradict each other; the message says what to give."""


@dataclass(frozen=True, slots=True)
class Acks:
    """When messages that were processed are acknowledged: each at once (*each*), after so many or
    after some time (*spaced*; 0 means not by this), a whole batch by its last (*all*), or when
    they are taken (*none*).
    """

    mode: Mode
    every: int = 0
    interval_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    """The way in which the streams are read as consumer *name*.

    *batch* is how many messages are handed out at once, 0 for what the acknowledgements suggest.
    *state* is a file's path or ``kv``. With *group*, several members share the work; *member*
    names this one. *tries_max* ends retries, 0: never. *max_age_s* is the age of the oldest
    message that is not skipped, 0: any. *positions* are for users that keep them with their
    results: the last `Batch.position` of each stream; other streams begin as without positions.
    *event_time* and *zone* are the rules of `event_times_of`; None: those of the resource's table.
    Reading ends behind the batch that reaches *count* messages (0: never), and with
    *until_caught_up* when none is left. A message counts when it is processed or a dead letter; a
    batch that failed is done with before the end.
    """

    name: str
    acks: Acks = Acks("each")
    batch: int = 0
    state: str | None = None
    on_error: OnError = "stop"
    tries_max: int = 0
    max_age_s: float = 0.0
    group: bool = False
    member: str = ""
    in_order: bool = False
    deliver_policy: DeliverPolicy = "all"
    opt_start_time: str | None = None
    opt_start_seq: int | None = None
    ephemeral: bool = False
    partitions: str | None = None
    positions: Mapping[str, str] | None = None
    event_time: tuple[TimeRule, ...] | None = None
    zone: str | None = None
    count: int = 0
    until_caught_up: bool = False

    @property
    def batch_max(self) -> int:
        """Messages that are handed out at once, at most."""
        if self.in_order or self.acks.mode == "each":
            return self.batch or 1
        return self.batch or self.acks.every or BATCH_DEFAULT

    @property
    def is_shared(self) -> bool:
        """Whether any member may be given any message: then there is no order, and no position."""
        keeps_order = self.in_order or self.state is not None or self.acks.mode in ("spaced", "all")
        return self.group and not keeps_order


def checked(options: ConsumeOptions) -> ConsumeOptions:
    """Return *options* if they do not contradict each other.

    Raises:
        BadOption: they do not.
    """
    if not NAME.fullmatch(options.name):
        raise BadOption(f"{options.name[:80]!r} is not a name of a consumer: {NAME_KINDS}")
    if options.member and not NAME.fullmatch(options.member):
        raise BadOption(f"{options.member[:80]!r} is not a name of a member: {NAME_KINDS}")
    for what, number in (("tries", options.tries_max), ("count", options.count)):
        if number < 0:
            raise BadOption(f"{what}: give a number from 1 on, or 0 for no limit, not {number}")
    check_word("on_error", options.on_error, OnError)
    if not 0 <= options.batch <= BATCH_MAX:
        raise BadOption(f"a batch has 1 to {BATCH_MAX} messages, not {options.batch}")
    if options.in_order and options.batch > 1:
        raise BadOption("in order means one message at a time: leave the batch out")
    if options.group and options.state not in (None, KV):
        raise BadOption(
            "a state file is for one reader: members of a group keep their state in the "
            "key-value bucket (state kv)"
        )
    if options.in_order and options.acks.mode not in ("each", "none"):
        raise BadOption("in order means one message in flight: acknowledge each")
    if options.ephemeral and (options.state is not None or options.group):
        raise BadOption("an ephemeral consumer goes with its reader: no state and no group")
    _check_start(options)
    if options.partitions is not None and not (
        re.fullmatch(PARTITIONS, options.partitions) and is_rising(options.partitions)
    ):
        raise BadOption(f"{options.partitions!r} is not a list of partitions, such as 0-3,7")
    _check_positions(options)
    zone = options.zone
    if zone is not None and not (re.fullmatch(ZONE, zone) and is_zone(zone)):
        raise BadOption(f"zone {zone!r}: give a time zone such as Europe/Berlin or +01:00")
    return options


def partitions_of(options: ConsumeOptions, count: int) -> list[int]:
    """Return the partitions, of *count*, that *options* select.

    Raises:
        BadOption: one of them is not there.
    """
    there = range(max(count, 1))
    if options.partitions is None:
        return list(there)
    if not is_within(options.partitions, count):
        last = max(last for _, last in ranges(options.partitions))
        raise BadOption(f"there is no partition {last}: they are 0 to {len(there) - 1}")
    return [number for number in there if selects(options.partitions, number)]


def start_of(
    deliver: Deliver, since: str | datetime | timedelta | None, from_seq: int | None
) -> dict[str, Any]:
    """Return the fields of `ConsumeOptions` that say where a new consumer begins: as *deliver*
    says, at a time or a span before now (*since*), or at a sequence.

    Raises:
        BadOption: more than one of them is given, or one has no meaning.
    """
    check_word("deliver", deliver, Deliver)
    given = {"deliver": deliver != "all", "since": since is not None, "from_seq": bool(from_seq)}
    names = [name for name, is_given in given.items() if is_given]
    if len(names) > 1:
        raise BadOption(f"{' and '.join(names)} both set the beginning: give one of them")
    if since is not None:
        try:
            start = rfc3339_of(moment_ns(since))
        except QuantityError as error:
            raise BadOption(f"since {error}") from None
        return {"deliver_policy": "byStartTime", "opt_start_time": start}
    if from_seq is not None:
        if from_seq < 1:
            raise BadOption(f"from_seq: sequences begin with 1, not {from_seq}")
        return {"deliver_policy": "byStartSequence", "opt_start_seq": from_seq}
    return {"deliver_policy": deliver}


def time_rules(given: str | Sequence[str]) -> tuple[TimeRule, ...]:
    """Return the rules that option event_time is *given*: each a format of `spec.table.time`, or a
    pattern of strptime.

    Raises:
        BadOption: one is neither.
    """
    return tuple(map(_time_rule, [given] if isinstance(given, str) else given))


def _time_rule(word: str) -> TimeRule:
    if "%" not in word:
        formats: tuple[TimeFormat, ...] = get_args(TimeFormat)
        for format in formats:
            if word == format:
                return TimeRule(format=format)
        raise BadOption(
            f"event_time {word!r}: choose from {', '.join(formats)}, or give a pattern of strptime "
            "such as '%d.%m.%Y %H:%M:%S'"
        )
    if reason := why_no_pattern(word):
        raise BadOption(f"event_time {word!r} {reason}")
    return TimeRule(pattern=word)


def event_times_of(pipeline: LogPipeline, options: ConsumeOptions) -> EventTimes:
    """Return how a reader finds the event times of lines: as *options* say, else as the table of
    *pipeline* does.
    """
    table = EventTimes.of(pipeline.spec.table)
    rules = table.rules if options.event_time is None else options.event_time
    return replace(table, rules=rules, zone=options.zone or table.zone)


def span_s(name: str, given: str | timedelta) -> float:
    """Return the span of time that option *name* is *given*, in seconds.

    Raises:
        BadOption: it is none.
    """
    try:
        return span_ns(given) / SECOND_NS
    except QuantityError as error:
        raise BadOption(f"{name}: {error}") from None


def check_word(name: str, word: str, words: Any) -> None:
    """Check that *word*, the value of option *name*, is one of the literal type *words*.

    Raises:
        BadOption: it is not.
    """
    if word not in get_args(words):
        raise BadOption(f"{name} {word!r}: choose from {', '.join(get_args(words))}")


def _check_start(options: ConsumeOptions) -> None:
    for policy, value, name in (
        ("byStartTime", options.opt_start_time, "a start time"),
        ("byStartSequence", options.opt_start_seq, "a start sequence"),
    ):
        if (options.deliver_policy == policy) != (value is not None):
            raise BadOption(f"deliver policy {policy} and {name} belong together: give both")


def _check_positions(options: ConsumeOptions) -> None:
    if options.positions is None:
        return
    if options.state is not None or options.group:
        raise BadOption(
            "positions of your own are the state of one reader: leave state and group out"
        )
    for stream, text in options.positions.items():
        try:
            position_of(text)
        except BadRecord as error:
            raise BadOption(f"positions: {stream}: {error}; give what batch.position was") from None


def parse_acks(text: str) -> Acks:
    """Return the mode that *text* names: ``each``, ``all``, ``none``, ``every=100``,
    ``interval=30s``, or the last two with a comma between them.

    Raises:
        BadOption: none of these.
    """
    if text in ("each", "all", "none"):
        return Acks("each" if text == "each" else "all" if text == "all" else "none")
    every, interval_s = 0, 0.0
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name == "every" and value.isdecimal() and 1 <= int(value) <= BATCH_MAX and not every:
            every = int(value)
        elif name == "interval" and not interval_s:
            interval_s = _interval_s(value)
        else:
            raise BadOption(
                f"{text!r} is not an acknowledgement mode: give each, all, none, every=100 (up to "
                f"{BATCH_MAX}), interval=30s, or every=100,interval=30s"
            )
    return Acks("spaced", every, interval_s)


def _interval_s(text: str) -> float:
    try:
        span_ns = parse_duration(text)
    except QuantityError as error:
        raise BadOption(f"interval: {error}") from error
    if span_ns <= 0:
        raise BadOption("interval must be longer than 0, such as 30s")
    return span_ns / SECOND_NS
