"""What JetStream keeps: streams, messages, consumers. No network, no clock of its own.

A model of nats-server 2.15, as far as logpipeline asks it; `tests/simulation/test_model.py` puts
the same questions to both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from logpipeline.nats.jetstream import rfc3339_of

Now = Callable[[], int]

# What the server adds to a message in its accounts, beside subject, headers and payload.
OVERHEAD_BYTES = 22


class Refused(Exception):
    """An error of JetStream's API, by its own codes."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(description)
        self.code = code
        self.err_code = err_code
        self.description = description

    def answer(self) -> dict[str, Any]:
        """Return it as the API says it."""
        error = {"code": self.code, "err_code": self.err_code, "description": self.description}
        return {"error": error}


def matches(pattern: str, subject: str) -> bool:
    """Return whether *subject* is one that *pattern* means."""
    return compiled(pattern)(subject)


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> Callable[[str], bool]:
    """Return what tells which subjects *pattern* means."""
    *above, last = pattern.split(".")
    prefix = ".".join(above) + "." if above else ""
    if "*" in above:
        return lambda subject: _matches_each(pattern, subject)
    match last:
        case ">":
            return lambda subject: subject.startswith(prefix) and len(subject) > len(prefix)
        case "*":
            return lambda subject: subject.startswith(prefix) and "." not in subject[len(prefix) :]
    return lambda subject: subject == pattern


def _matches_each(pattern: str, subject: str) -> bool:
    wanted, tokens = pattern.split("."), subject.split(".")
    for index, token in enumerate(wanted):
        if token == ">":
            return len(tokens) > index
        if index >= len(tokens) or token not in ("*", tokens[index]):
            return False
    return len(wanted) == len(tokens)


def block(headers: Mapping[str, str] | None) -> bytes:
    """Return *headers* as they go over the wire, empty where there are none."""
    if not headers:
        return b""
    lines = (f"{name}: {value}\r\n" for name, value in headers.items())
    return b"NATS/1.0\r\n" + "".join(lines).encode("utf-8", "surrogateescape") + b"\r\n"


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it is stored."""

    subject: str
    headers: bytes
    data: bytes
    time_ns: int

    @property
    def size(self) -> int:
        """What it counts for in the limits of a stream, in bytes."""
        size = OVERHEAD_BYTES + len(self.subject) + len(self.data)
        return size + (len(self.headers) + 4 if self.headers else 0)


@dataclass(slots=True, eq=False)
class Pull:
    """A request of a consumer's reader for so many messages and bytes."""

    reply: str
    batch: int
    max_bytes: int
    until_s: float
    heartbeat_s: float
    is_served: bool = False


@dataclass(slots=True, eq=False)
class Consumer:
    """A consumer without acknowledgements, which is all that collectors and scans make."""

    name: str
    config: dict[str, Any]
    next: int
    delivered: int = 0
    pulls: list[Pull] = field(default_factory=list)
    # Gives nothing though there is something, as consumers were seen to be after changes of leader.
    is_stuck: bool = False
    # After so many deliveries it is; 0 for never.
    stuck_after: int = 0

    def wants(self, message: Message) -> bool:
        """Return whether *message* is one of those that it filters for."""
        filters = self.filters
        return not filters or any(matches(each, message.subject) for each in filters)

    @property
    def filters(self) -> list[str]:
        """What it filters for, nothing for all."""
        one = self.config.get("filter_subject")
        return [one] if one is not None else self.config.get("filter_subjects", [])


class Stream:
    """One stream."""

    def __init__(self, config: dict[str, Any], now: Now) -> None:
        self.config = config
        self.created = rfc3339_of(now())
        # In the order of their sequences, which only rise.
        self.messages: dict[int, Message] = {}
        self.consumers: dict[str, Consumer] = {}
        self.last = 0
        self.last_ns = 0
        self.bytes = 0
        # Refuses all messages, as one that is full.
        self.is_full = False
        # Each consumer that is made from now on gives so many messages, and is stuck then.
        self.stuck_after = 0
        # Direct gets are answered by a replica that does not have what came after this.
        self.replica_ns: int | None = None
        # Who was its leader until a moment ago looks up single messages, and serves consumers: it
        # does not have what came after this.
        self.former_ns: int | None = None
        self._now = now
        self._newest: dict[str, int] = {}
        self._ids: dict[str, tuple[int, int]] = {}

    # -- messages

    def store(self, subject: str, headers: Mapping[str, str] | None, data: bytes) -> dict[str, Any]:
        """Store a message, and return the acknowledgement.

        Raises:
            Refused: it is not stored.
        """
        headers = headers or {}
        if self.is_full:
            raise Refused(503, 10077, "maximum bytes exceeded")
        if (known := self._known_as(headers.get("Nats-Msg-Id"))) is not None:
            return {"stream": self.name, "seq": known, "duplicate": True}
        expected = headers.get("Nats-Expected-Last-Subject-Sequence")
        if expected is not None and int(expected) != self._newest.get(subject, 0):
            newest = self._newest.get(subject, 0)
            raise Refused(400, 10071, f"wrong last sequence: {newest}")
        message = Message(subject, block(headers), data, self._now())
        self._make_room(message)
        self.last += 1
        self.last_ns = message.time_ns
        self.messages[self.last] = message
        self.bytes += message.size
        former, self._newest[subject] = self._newest.get(subject), self.last
        if self.config.get("max_msgs_per_subject", -1) == 1 and former is not None:
            self.remove(former)
        if identifier := headers.get("Nats-Msg-Id"):
            self._ids[identifier] = (self.last, message.time_ns)
        return {"stream": self.name, "seq": self.last}

    def remove(self, sequence: int) -> bool:
        """Remove the message at *sequence*; return whether there was one."""
        message = self.messages.pop(sequence, None)
        if message is None:
            return False
        self.bytes -= message.size
        if self._newest.get(message.subject) == sequence:
            self._newest.pop(message.subject)
            if self.config.get("max_msgs_per_subject", -1) != 1:
                former = (n for n in reversed(self.messages) if self._is_of(n, message.subject))
                if (other := next(former, None)) is not None:
                    self._newest[message.subject] = other
        return True

    def _is_of(self, sequence: int, subject: str) -> bool:
        return self.messages[sequence].subject == subject

    def purge(self, *, below: int | None, filter: str | None) -> int:
        """Remove what *filter* means, from the first to before *below*; return how many."""
        gone = [
            sequence
            for sequence, message in self.messages.items()
            if (below is None or sequence < below)
            and (filter is None or matches(filter, message.subject))
        ]
        for sequence in gone:
            self.remove(sequence)
        return len(gone)

    def expire(self) -> None:
        """Remove what is older than `max_age`."""
        age_ns = int(self.config.get("max_age", 0))
        if not age_ns:
            return
        border_ns = self._now() - age_ns
        while self.messages and self.messages[next(iter(self.messages))].time_ns < border_ns:
            self.remove(next(iter(self.messages)))

    def lose_tail(self, count: int) -> None:
        """Lose the last *count* messages, as a server does that had not written them to its disk
        when the power went; it hands out their sequences again, and its consumers are gone.
        """
        for sequence in range(self.last - count + 1, self.last + 1):
            self.remove(sequence)
        self.last = max(0, self.last - count)
        self._ids = {name: at for name, at in self._ids.items() if at[0] <= self.last}
        self.consumers.clear()

    # -- questions

    @property
    def name(self) -> str:
        """The stream's name."""
        return str(self.config["name"])

    def info(self) -> dict[str, Any]:
        """Return what `STREAM.INFO` answers."""
        self.expire()
        first = next(iter(self.messages), self.last + 1)
        state = {
            "messages": len(self.messages),
            "bytes": self.bytes,
            "first_seq": first if self.last else 0,
            "first_ts": _time(self.messages.get(first)),
            "last_seq": self.last,
            "last_ts": rfc3339_of(self.last_ns) if self.last_ns else "0001-01-01T00:00:00Z",
            "consumer_count": len(self.consumers),
        }
        now = rfc3339_of(self._now())
        return {"created": self.created, "config": self.config, "state": state, "ts": now}

    def at(self, sequence: int) -> tuple[int, Message] | None:
        """Return the message at *sequence*."""
        found = self.messages.get(sequence)
        return None if found is None else (sequence, found)

    def is_on_replica(self, message: Message) -> bool:
        """Return whether a replica that lags has *message*."""
        return self.replica_ns is None or message.time_ns <= self.replica_ns

    def is_at_leader(self, message: Message) -> bool:
        """Return whether who takes itself for the leader has *message*."""
        return self.former_ns is None or message.time_ns <= self.former_ns

    def newest(self, subject: str) -> tuple[int, Message] | None:
        """Return the last message of *subject*."""
        sequence = self._newest.get(subject, 0)
        return self.at(sequence)

    def following(self, sequence: int, subject: str) -> Iterator[tuple[int, Message]]:
        """Yield the messages from *sequence* on that *subject* means."""
        for number in list(self.messages):
            if number >= sequence and matches(subject, self.messages[number].subject):
                yield number, self.messages[number]

    def since(self, time_ns: int) -> int:
        """Return the first sequence that was stored at *time_ns* or later."""
        stored = (n for n in self.messages if self.messages[n].time_ns >= time_ns)
        return next(stored, self.last + 1)

    # -- consumers

    def make(self, name: str, config: dict[str, Any]) -> Consumer:
        """Make a consumer.

        Raises:
            Refused: there is one of that name.
        """
        if name in self.consumers:
            raise Refused(400, 10148, "consumer already exists")
        match config.get("deliver_policy"):
            case "by_start_sequence":
                begin = int(config["opt_start_seq"])
            case "new":
                begin = self.last + 1
            case _:
                begin = 1
        made = Consumer(name, config, begin, stuck_after=self.stuck_after)
        self.consumers[name] = made
        return made

    def pending(self, consumer: Consumer) -> int:
        """Return how many messages *consumer* has still to deliver."""
        is_filtered = bool(consumer.filters)
        count = 0
        # From the end: few are pending, and many stand before them.
        for number in reversed(self.messages):
            if number < consumer.next:
                break
            message = self.messages[number]
            count += self.is_at_leader(message) and (not is_filtered or consumer.wants(message))
        return count

    def due(self, consumer: Consumer) -> tuple[int, Message] | None:
        """Return the next message for *consumer*, which stays the next one."""
        while consumer.next <= self.last:
            message = self.messages.get(consumer.next)
            if message is not None and not self.is_at_leader(message):
                return None
            if message is not None and consumer.wants(message):
                return consumer.next, message
            consumer.next += 1
        return None

    def _known_as(self, identifier: str | None) -> int | None:
        if identifier is None or identifier not in self._ids:
            return None
        sequence, at_ns = self._ids[identifier]
        window_ns = int(self.config.get("duplicate_window", 120 * 10**9))
        return sequence if self._now() - at_ns < window_ns else None

    def _make_room(self, message: Message) -> None:
        self.expire()
        bytes_max = int(self.config.get("max_bytes", -1))
        msgs_max = int(self.config.get("max_msgs", -1))
        while self._is_over(message, bytes_max, msgs_max):
            if self.config.get("discard", "old") == "new":
                what = "bytes" if 0 <= bytes_max < self.bytes + message.size else "messages"
                raise Refused(503, 10077, f"maximum {what} exceeded")
            self.remove(next(iter(self.messages)))

    def _is_over(self, message: Message, bytes_max: int, msgs_max: int) -> bool:
        if not self.messages:
            return False
        is_replaced = self.config.get("max_msgs_per_subject", -1) == 1
        former = self.messages.get(self._newest.get(message.subject, 0)) if is_replaced else None
        freed = former.size if former is not None else 0
        return (0 <= bytes_max < self.bytes + message.size - freed) or (
            0 <= msgs_max < len(self.messages) + 1 - (former is not None)
        )


def _time(message: Message | None) -> str:
    return "0001-01-01T00:00:00Z" if message is None else rfc3339_of(message.time_ns)
