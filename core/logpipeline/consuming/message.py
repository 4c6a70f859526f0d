"""Messages as a reader hands them out: in batches, with the lines in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from logpipeline import cri, json_text
from logpipeline.consuming.records import position_text
from logpipeline.dead_letters import RETRY_FOR
from logpipeline.event_times import NONE, EventTimes
from logpipeline.line_fields import names_of
from logpipeline.messages import Read, read_message
from logpipeline.nats.pull import Delivered
from logpipeline.origin import Origin, origin_of
from logpipeline.records import StreamPosition
from logpipeline.subjects import Subjects
from logpipeline.wire import decode_payload

# An outcome: no reader can decode the message.
UNREADABLE = "unreadable"

US_NS = 1000


@dataclass(frozen=True, slots=True)
class Line:
    """One line as the program wrote it, without its newline.

    *time_ns* is the runtime's time, or that of the message for a plain file's line, in nanoseconds
    since 1970; *stream* is ``stdout``, ``stderr`` or empty. *is_whole* is False for a piece of a
    line that was too long for one message. With *has_time*, *time_ns* is the line's own time.
    """

    text: bytes
    time_ns: int
    stream: str
    is_whole: bool
    message: Message
    has_time: bool = False

    @property
    def time(self) -> datetime | None:
        """When the program wrote it, as the container runtime noted it; None in a plain file."""
        return moment_of(self.time_ns) if self.has_time else None

    @property
    def event_time(self) -> datetime | None:
        """When what it says happened: the time that it names, if the rules of the option event_time
        find one that is plausible; else `time`. A table has the same in its column `event_ts`.
        """
        message = self.message
        if not message.event_times.rules:
            return self.time
        names = names_of(self.host, message.read.batch) if self.is_whole else None
        found_us = message.event_times.find_us(self.text, message.time_ns // US_NS, names)
        return self.time if found_us is None else moment_of(found_us * US_NS)

    @property
    def time_stored(self) -> datetime:
        """When the server stored its message."""
        return moment_of(self.message.time_ns)

    @property
    def host(self) -> str:
        """The host that sent it."""
        return self.message.host

    @property
    def namespace(self) -> str:
        """The namespace of its pod; empty outside of Kubernetes."""
        return self.message.origin.namespace

    @property
    def pod(self) -> str:
        """The name of its pod; empty outside of Kubernetes."""
        return self.message.origin.pod

    @property
    def container(self) -> str:
        """The name of its container; empty outside of Kubernetes."""
        return self.message.origin.container

    @property
    def fields(self) -> Mapping[str, Any] | None:
        """The line as a JSON object; None if it is none."""
        if not self.text.lstrip().startswith(b"{"):
            return None
        try:
            found = json_text.parse(self.text)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    @property
    def source(self) -> str:
        """The path of its file, or the name of its container's log; empty without our headers."""
        return self.message.origin.path


def moment_of(time_ns: int) -> datetime:
    """Return nanoseconds since 1970 as a time in UTC, to the microsecond."""
    seconds, rest_ns = divmod(time_ns, 10**9)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest_ns // US_NS)


class Message:
    """A stored message. *time_ns* is when the server stored it, in nanoseconds since 1970;
    *delivery* counts how often the server has handed it out; *payload* is as it was sent.
    """

    stream: str
    partition: int
    sequence: int
    time_ns: int
    delivery: int
    subject: str
    headers: bytes
    payload: bytes

    def __init__(
        self,
        subjects: Subjects,
        stream: str,
        partition: int,
        delivered: Delivered,
        event_times: EventTimes = NONE,
    ) -> None:
        self.stream = stream
        self.partition = partition
        self.sequence = delivered.sequence
        self.time_ns = delivered.time_ns
        self.delivery = delivered.deliveries
        self.subject = delivered.message.subject.decode("utf-8", "surrogateescape")
        self.headers = delivered.message.headers
        self.payload = delivered.message.data
        self.delivered = delivered
        # The offsets in the source that are new; None: all.
        self.parts: list[tuple[int, int]] | None = None
        self.event_times = event_times
        self._subjects = subjects

    @cached_property
    def read(self) -> Read:
        """Host and headers.

        Raises:
            BadMessage: they are not valid.
        """
        return read_message(self._subjects, self.partition, self.delivered)

    @property
    def host(self) -> str:
        """The host that sent it.

        Raises:
            BadMessage: its subject names none.
        """
        return self.read.host

    @cached_property
    def origin(self) -> Origin:
        """Host, pod and file that its lines are from.

        Raises:
            BadMessage: its subject or headers are not valid.
        """
        return origin_of(self.host, self.read.batch)

    @property
    def start(self) -> int | None:
        """The offset of `data` in its file, in bytes; None without our headers.

        Raises:
            BadMessage: its headers are not valid.
        """
        if self.parts:
            return self.parts[0][0]
        return self.read.batch.start if self.read.batch is not None else None

    @cached_property
    def data(self) -> bytes:
        """The bytes of the source, unpacked, without what the stream held before; of a message
        without our headers its lines, with the newline that its sender left out.

        Raises:
            BadMessage: the payload is not what the headers say.
        """
        batch = self.read.batch
        if batch is None:
            return self.payload + b"\n"
        data = decode_payload(batch, self.payload)
        if self.parts is None:
            return data
        return b"".join(data[start - batch.start : end - batch.start] for start, end in self.parts)

    @cached_property
    def lines(self) -> Sequence[Line]:
        """The lines, fragments joined.

        Raises:
            BadMessage: it cannot be decoded.
        """
        batch = self.read.batch
        lines = list(self._cri() if batch is not None and batch.format == "cri" else self._plain())
        if batch is not None and lines:
            if batch.starts_inside_line:
                lines[0] = replace(lines[0], is_whole=False)
            if batch.ends_inside_line:
                lines[-1] = replace(lines[-1], is_whole=False)
        return lines

    def _cri(self) -> Iterator[Line]:
        for line in cri.join(self.data):
            own_ns = cri.time_ns(line.time)
            time_ns, stream = own_ns or self.time_ns, line.stream.decode()
            yield Line(line.text, time_ns, stream, line.whole, self, has_time=own_ns // US_NS != 0)

    def _plain(self) -> Iterator[Line]:
        # The last line of a file may lack its newline.
        *texts, rest = self.data.split(b"\n")
        for text in [*texts, rest] if rest else texts:
            yield Line(text, self.time_ns, "", True, self)


class Batch:
    """Messages of one partition, in the order of their stream, to be processed together.

    *may_repeat*: a former reader ended during it, and may have processed it. The batch counts as
    processed when the next one is asked for, unless it was marked. *tries* counts former tries, and
    *created* is when the stream was made.
    """

    messages: Sequence[Message]
    created: str
    may_repeat: bool
    tries: int

    def __init__(
        self, messages: Sequence[Message], *, created: str, may_repeat: bool, tries: int
    ) -> None:
        self.messages = messages
        self.created = created
        self.may_repeat = may_repeat
        self.tries = tries
        self.outcome: Outcome | None = None

    @property
    def deliveries(self) -> list[Delivered]:
        """The messages as they were delivered."""
        return [each.delivered for each in self.messages]

    @property
    def stream(self) -> str:
        """The stream that the messages are from."""
        return self.messages[0].stream

    @property
    def partition(self) -> int:
        """The partition that the messages are from."""
        return self.messages[0].partition

    @property
    def first(self) -> int:
        """The first message's sequence."""
        return self.messages[0].sequence

    @property
    def last(self) -> int:
        """The last message's sequence."""
        return self.messages[-1].sequence

    @property
    def id(self) -> str:
        """The batch's name. With a state, it stays the same when the batch is handed out again."""
        return f"{self.stream}-{self.first}-{self.last}"

    @property
    def position(self) -> str:
        """The stream's position behind it, for users that keep positions."""
        last = self.messages[-1]
        return position_text(StreamPosition(self.created, last.sequence, last.time_ns))

    @property
    def lines(self) -> Iterator[Line]:
        """The lines of all messages; a reader hands out no message that cannot be decoded, unless
        its consumer gets headers only.
        """
        for message in self.messages:
            yield from message.lines

    def processed(self) -> None:
        """Mark it as processed; asking for the next batch does the same."""
        self.outcome = PROCESSED

    def retry(self, reason: str = "") -> None:
        """Mark it to be handed out again, after a while; in a group that keeps no order, maybe to
        another member.
        """
        self.outcome = Outcome("retry", reason)

    def reject(self, reason: str) -> None:
        """Mark it as impossible to process; the option on_error decides what follows."""
        self.outcome = Outcome("reject", reason)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a batch, ``processed``, ``retry``, ``reject`` or ``unreadable``, and why."""

    kind: str
    reason: str = ""


PROCESSED = Outcome("processed")


def is_for_another(delivered: Delivered, consumer: str) -> bool:
    """Return whether the message is one that another consumer had given up, and only it gets."""
    if RETRY_FOR.encode() not in delivered.message.headers:
        return False
    fields = [line.partition(b":") for line in delivered.message.headers.split(b"\r\n")]
    names = [value.strip() for name, _, value in fields if name == RETRY_FOR.encode()]
    return bool(names) and consumer.encode() not in names
