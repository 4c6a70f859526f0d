"""The entries of the dead-letter stream: letters, and the server's advisories of which no collector
has made a letter yet.

The stream may hold half a million entries: they are read one after the other, without payloads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import unquote

from logpipeline.dead_letters import (
    Letter,
    NoAdvisory,
    NoLetter,
    decode,
    letter_of,
    parse,
    with_message,
)
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.jetstream import STREAM_NOT_FOUND, ApiError, JetStream, StoredMessage
from logpipeline.nats.pull import Delivered
from logpipeline.nats.replicas import certain_message
from logpipeline.nats.scan import Range, Scan
from logpipeline.nats.unanswered import Unanswered, stream_part
from logpipeline.spec import LogPipeline
from logpipeline.subjects import (
    ADVISORIES,
    BadHost,
    BadSubject,
    Subjects,
    dead_letter_partition,
    dead_letters_of,
    is_advisory,
)
from logpipeline.wire import BadMessage, parse_headers
from logpipeline_cli.errors import CliError

# Messages that are looked up at the same time.
LOOKUPS_AT_ONCE = 64

# One reason in thousands of pods makes as many groups; the rest are counted as one group.
GROUPS_MAX = 10_000
OTHERS = "(others)"


@dataclass(frozen=True, slots=True)
class Entry:
    """A letter with its *number*, stored at *time_ns*. One that *waits* is an advisory of the
    server about a message, of which a collector has not made a letter yet. *is_in_place*: its own
    subject says what the letter does, so that its writer had the right to that.
    """

    number: int
    time_ns: int
    partition: int
    letter: Letter
    waits: bool = False
    is_in_place: bool = True

    @property
    def host(self) -> str:
        """The host of the message, from its subject; the subject itself if it names no host."""
        return self.letter.subject.partition(f".p{self.partition}.")[2] or self.letter.subject

    @property
    def source(self) -> str:
        """The file or container of the message, from its headers; empty if they do not name it."""
        try:
            fields = parse_headers(self.letter.headers) if self.letter.headers else {}
        except BadMessage:
            return ""
        return unquote(fields.get("Log-Source", ""))


class NoEntry(CliError):
    """There is no letter with that number, or not any more."""


class Misplaced(ValueError):
    """A letter that names a message outside of its partition; the text says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The values that entries must have; None means any."""

    reason: str | None = None
    partition: int | None = None
    host: str | None = None
    consumer: str | None = None
    since_ns: int | None = None

    def means(self, entry: Entry) -> bool:
        """Return whether *entry* is chosen."""
        return (
            self.reason in (None, entry.letter.reason)
            and self.partition in (None, entry.partition)
            and self.host in (None, entry.host)
            and self.consumer in (None, entry.letter.consumer)
            and (self.since_ns is None or entry.time_ns >= self.since_ns)
        )


class DeadStream:
    """The dead-letter stream of *pipeline*."""

    def __init__(self, js: JetStream, pipeline: LogPipeline) -> None:
        self.js = js
        self.name = pipeline.names.dead_letter_stream
        self.bucket = Bucket(js, pipeline.names.state_bucket)
        self._root = pipeline.names.dead_letter_subject
        self._partitions = {
            pipeline.names.stream(number): number for number in range(pipeline.stream_count)
        }
        self._stream_of = pipeline.names.stream
        self._subjects = Subjects(pipeline.names.subject, max(pipeline.spec.partitions, 1))
        # Readers read one stream of all partitions as one: their letters are of its first.
        self._is_single = pipeline.is_single_stream
        self._created: dict[str, str] = {}

    async def info(self) -> dict[str, Any]:
        """Return the stream's configuration and state.

        Raises:
            CliError: the stream does not exist.
        """
        info = await self.js.stream_info(self.name)
        if info is None:
            raise CliError(
                f"there is no stream {self.name}; was the pipeline applied (`logpipeline apply`), "
                "and to this server?"
            )
        return info

    async def entries(self, choice: Choice) -> AsyncIterator[Entry]:
        """Yield the present entries that *choice* chooses: first letters, then those that wait,
        each the oldest first. Letters come without their payloads.
        """
        info = await self.info()
        last = int(info["state"]["last_seq"])
        if not last:
            return
        wanted = Range(since_ns=choice.since_ns, last=last)
        letters = dead_letters_of(self._root, choice.partition, choice.reason)
        scan = Scan(self.js, self.name, wanted, subject=letters, headers_only=True)
        async for batch in scan.batches():
            for delivered in batch:
                entry = self._letter(delivered)
                if entry is not None and choice.means(entry):
                    yield entry
        if any(is_advisory(subject) for subject in info["config"]["subjects"]):
            async for entry in self._waiting(wanted):
                if choice.means(entry):
                    yield entry

    async def entry(self, number: int) -> Entry:
        """Return the entry *number*, with its payload.

        Raises:
            NoEntry: there is none.
            CliError: it is not a letter of this pipeline.
        """
        await self.info()
        stored = await self.js.message(self.name, number)
        if stored is None:
            raise NoEntry(f"there is no letter {number}: see `logpipeline dlq ls --all`")
        if is_advisory(stored.subject):
            entry = await self._looked_up(number, stored.time_ns, stored.data)
            if entry is not None:
                return entry
        partition = dead_letter_partition(self._root, stored.subject)
        try:
            letter = decode(stored.headers, stored.data)
        except NoLetter:
            partition = None
        if partition is None:
            raise CliError(
                f"message {number} of {self.name} is not a letter of this pipeline: "
                f"{stored.subject}"
            )
        is_in_place = letter.subject_in(self._root, partition) == stored.subject
        return Entry(number, stored.time_ns, partition, letter, is_in_place=is_in_place)

    def check(self, entry: Entry, letter: Letter) -> None:
        """Check that *letter*, which *entry* holds, names a message of its partition's stream. A
        forged letter may name any subject, and a command has the right to publish to all.

        Raises:
            Misplaced: it is not.
        """
        if not entry.is_in_place:
            raise Misplaced("its own subject names another message than the letter")
        if letter.stream != self._stream_of(entry.partition):
            raise Misplaced(f"it names the stream {letter.stream[:80]!r}, not its partition's")
        try:
            partition, _ = self._subjects.read(letter.subject)
        except (BadHost, BadSubject) as error:
            raise Misplaced(f"no shipper publishes there: {error}") from error
        if entry.partition == 0 and self._is_single:
            return
        if entry.partition not in (partition, partition % self._subjects.partitions):
            raise Misplaced(f"its subject {letter.subject[:80]!r} is of another partition")

    async def is_there(self, entry: Entry) -> bool:
        """Return whether *entry* still exists; the stream's leader is asked."""
        found = await self.js.next_from_leader(self.name, entry.number)
        if found is not None and found.sequence == entry.number:
            return True
        return entry.waits and await self._letter_instead(entry) is not None

    async def remove(self, entry: Entry) -> None:
        """Delete *entry*; if it waited, also the letter that a collector has made of it."""
        await self.js.message_delete(self.name, entry.number)
        if entry.waits and (made := await self._letter_instead(entry)) is not None:
            await self.js.message_delete(self.name, made.sequence)

    async def _letter_instead(self, entry: Entry) -> StoredMessage | None:
        subject = entry.letter.subject_in(self._root, entry.partition)
        return await self.js.next_from_leader(self.name, 1, subject)

    async def purge(self, choice: Choice, last: int) -> int:
        """Delete the letters that *choice* chooses, up to the number *last*, in one request, if the
        server can choose by these values; return how many. Otherwise delete none.
        """
        if choice != Choice(reason=choice.reason, partition=choice.partition):
            return 0
        letters = dead_letters_of(self._root, choice.partition, choice.reason)
        body = {"filter": letters, "seq": last + 1}
        return int((await self.js.call(f"STREAM.PURGE.{self.name}", body))["purged"])

    def _letter(self, delivered: Delivered) -> Entry | None:
        subject = delivered.message.subject.decode("utf-8", "replace")
        partition = dead_letter_partition(self._root, subject)
        try:
            letter = decode(delivered.message.headers, b"")
        except NoLetter:
            return None
        if partition is None:
            return None
        return Entry(delivered.sequence, delivered.time_ns, partition, letter)

    async def _waiting(self, wanted: Range) -> AsyncIterator[Entry]:
        scan = Scan(self.js, self.name, wanted, subject=ADVISORIES)
        async with aclosing(scan.batches()) as batches:
            async for batch in batches:
                for part in _parts(batch):
                    found = await asyncio.gather(
                        *(self._looked_up(d.sequence, d.time_ns, d.message.data) for d in part)
                    )
                    for entry in found:
                        if entry is not None:
                            yield entry

    async def _looked_up(self, number: int, time_ns: int, payload: bytes) -> Entry | None:
        try:
            advisory = parse(payload)
        except NoAdvisory:
            return None
        partition = self._partitions.get(advisory.stream)
        if partition is None:
            return None
        created = await self._created_of(advisory.stream)
        letter = await letter_of(self.js, advisory, created=created)
        return Entry(number, time_ns, partition, letter, waits=True)

    async def _created_of(self, stream: str) -> str:
        if stream not in self._created:
            info = await self.js.stream_info(stream)
            self._created[stream] = info["created"] if info is not None else ""
        return self._created[stream]


def _parts(batch: Iterable[Delivered]) -> Iterable[list[Delivered]]:
    left = iter(batch)
    while part := list(islice(left, LOOKUPS_AT_ONCE)):
        yield part


async def whole(js: JetStream, letter: Letter) -> Letter | None:
    """Return *letter* with its complete message: as its stream has it, else the letter's own copy.
    None if the stream has let it go, and the copy is cut.
    """
    kept = letter if letter.is_whole else None
    info = await js.stream_info(letter.stream)
    # A collector that has just started may not know the stream's time of creation.
    if letter.is_gone or info is None or letter.created not in ("", info["created"]):
        return kept
    message = await certain_message(js, letter.stream, letter.sequence)
    if message is None or message.time_ns != letter.time_ns:
        return kept
    return with_message(letter, message)


class Group(NamedTuple):
    """The values that the entries of a group have in common."""

    reason: str
    partition: int | None
    host: str
    source: str
    consumer: str


@dataclass(slots=True)
class Count:
    """The number of entries, their first and last time in nanoseconds since 1970, and how many are
    *waiting*: no collector has made letters of them yet.
    """

    count: int = 0
    waiting: int = 0
    first_ns: int = 0
    last_ns: int = 0

    def add(self, entry: Entry) -> None:
        """Count one more."""
        self.first_ns = min(self.first_ns, entry.time_ns) if self.count else entry.time_ns
        self.last_ns = max(self.last_ns, entry.time_ns)
        self.count += 1
        self.waiting += entry.waits


class Groups:
    """The counts of all groups."""

    def __init__(self) -> None:
        self._counts: dict[Group, Count] = {}

    def add(self, entry: Entry) -> None:
        """Count *entry* in its group."""
        group = Group(
            entry.letter.reason, entry.partition, entry.host, entry.source, entry.letter.consumer
        )
        if group not in self._counts and len(self._counts) >= GROUPS_MAX:
            group = Group(OTHERS, None, "", "", "")
        self._counts.setdefault(group, Count()).add(entry)

    def sorted(self) -> list[tuple[Group, Count]]:
        """Return the groups, the largest first."""
        return sorted(self._counts.items(), key=lambda row: (-row[1].count, str(row[0])))


async def room_of(js: JetStream, stream: str, unanswered: Unanswered) -> dict[str, Any] | None:
    """Return the room in the dead-letter *stream*, as it is printed in JSON: how much is used, the
    limits (0: no limit), and the consumers whose advisories reached the limit: for these, each
    further advisory drops the oldest one. Return None if no server answers for the stream, which
    *unanswered* notes then.
    """

    async def room() -> dict[str, Any]:
        try:
            info = await js.call(f"STREAM.INFO.{stream}", {"subjects_filter": ADVISORIES})
        except ApiError as error:
            if error.err_code != STREAM_NOT_FOUND:
                raise
            return _room({}, {})
        return _room(info["config"], info["state"])

    return await unanswered.ask(stream_part(stream), room, None)


def _room(config: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    most = config.get("max_msgs_per_subject", -1)
    advisories: dict[str, int] = state.get("subjects") or {}
    return {
        "messages": state.get("messages", 0),
        "messagesMax": max(config.get("max_msgs", 0), 0),
        "bytes": state.get("bytes", 0),
        "bytesMax": max(config.get("max_bytes", 0), 0),
        "givenUpFull": [
            {"stream": subject.split(".")[-2], "consumer": subject.split(".")[-1]}
            for subject, count in sorted(advisories.items())
            if 0 < most <= count
        ],
    }
