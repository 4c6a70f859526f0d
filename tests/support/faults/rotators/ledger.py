"""Keeps the lines that were written to a rotated log, and counts how those that arrived differ.

Lines are numbered and of unequal lengths. Each file begins with the same two lines, as those of
many programs do: only what stands behind them tells one file from another.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from components.shipping import batch_of
from logpipeline import wire
from logpipeline.nats.jetstream import JetStream, StoredMessage

HEADER = (b"# log of an application\n", b"# number text\n")
# Lengths repeat late, so that files of equal length are rare.
FILL_BYTES_MAX = 113
FILL_STEP = 37
# Where it depends on the moment.
ANY = "any"


@dataclass
class Ledger:
    """The lines of one log, in the order in which they were written."""

    lines: list[bytes] = field(default_factory=list)
    count: int = 0

    def header(self) -> tuple[bytes, ...]:
        """Note that a file begins, and return what it begins with."""
        self.lines += HEADER
        return HEADER

    def line(self) -> bytes:
        """Note the next line, and return it."""
        fill = b"x" * (self.count * FILL_STEP % FILL_BYTES_MAX)
        made = b"%06d %s\n" % (self.count, fill)
        self.lines.append(made)
        self.count += 1
        return made


@dataclass
class Writing:
    """Writes the lines of *ledger* by *write*."""

    write: Callable[[bytes], object]
    ledger: Ledger = field(default_factory=Ledger)
    # Whether lines are to be written while the rotator is at work, where it can bear that.
    is_busy: bool = False

    def begin(self) -> None:
        """Write what each file begins with."""
        for line in self.ledger.header():
            self.write(line)

    def line(self) -> None:
        """Write one more line."""
        self.write(self.ledger.line())


@dataclass(frozen=True, slots=True)
class Counted:
    """How many lines were *lost* and came *twice*, how many are out of order within their source
    (*late*), and how many were never written so (*alien*). *named_bytes* are those that the shipper
    names as lost, *lost_bytes* those that are, *unseen* the files that it never saw.
    """

    lost: int
    twice: int
    late: int
    alien: int
    lost_bytes: int
    named_bytes: int
    unseen: int
    sources: int

    def cell(self, like: str) -> str:
        """Return it as the table of docs/guarantees.md has it, in the form of the cell *like*."""
        unseen = f" +{self.unseen} files" if self.unseen else ""
        found = (str(self.lost), str(self.twice), f"{self.named_bytes}{unseen}")
        wanted = like.split("/")
        return "/".join(
            ANY if want == ANY else got for got, want in zip(found, wanted, strict=True)
        )


class Arrivals:
    """What a stream holds, fetched as it comes."""

    def __init__(self, js: JetStream, stream: str) -> None:
        self._js = js
        self._stream = stream
        self.messages: list[StoredMessage] = []

    async def fetch(self) -> None:
        """Read the messages that were stored since the last call."""
        info = await self._js.stream_info(self._stream)
        assert info is not None
        for sequence in range(len(self.messages) + 1, info["state"]["last_seq"] + 1):
            message = await self._js.message(self._stream, sequence)
            assert message is not None
            self.messages.append(message)

    async def has(self, ledger: Ledger, *, last: bool = False) -> bool:
        """Return whether all that was written is there, how often ever; or, where some of it may be
        lost, whether the *last* line is.
        """
        await self.fetch()
        found = Counter(line for data in read(self.messages).values() for line in data)
        return ledger.lines[-1] in found if last else not Counter(ledger.lines) - found


def read(messages: Iterable[StoredMessage]) -> dict[str, list[bytes]]:
    """Return the lines of each source as a collector keeps them: it cuts what it has."""
    reached: dict[tuple[str, str], int] = {}
    content: dict[str, list[bytes]] = defaultdict(list)
    for message in messages:
        batch = batch_of(message)
        if batch.lost:
            continue
        key = (batch.source, batch.generation)
        at = reached.get(key, 0)
        if batch.end > at:
            data = wire.decode_payload(batch, message.data)
            content[batch.source].append(data[max(0, at - batch.start) :])
            reached[key] = batch.end
    return {source: b"".join(parts).splitlines(True) for source, parts in content.items()}


def named_bytes(messages: Iterable[StoredMessage]) -> int:
    """Return how many bytes the shipper names as lost."""
    ranges = {
        (batch.source, batch.generation, batch.start, batch.end)
        for batch in map(batch_of, messages)
        if batch.lost
    }
    return sum(end - start for _, _, start, end in ranges)


def count(ledger: Ledger, messages: Iterable[StoredMessage], unseen: int) -> Counted:
    """Compare the lines of *messages* with those of *ledger*."""
    messages = list(messages)
    sources = read(messages)
    written = Counter(ledger.lines)
    found = Counter(line for lines in sources.values() for line in lines)
    lost, more = written - found, found - written
    place = {line: number for number, line in enumerate(ledger.lines)}
    late = sum(
        _late([place.get(line, 0) for line in lines]) for lines in map(_numbered, sources.values())
    )
    if len(sources) == 1 and not lost and not more and not late:
        (lines,) = sources.values()
        late = sum(one != other for one, other in zip(lines, ledger.lines, strict=True))
    return Counted(
        lost=lost.total(),
        twice=sum(number for line, number in more.items() if line in written),
        late=late,
        alien=sum(number for line, number in more.items() if line not in written),
        lost_bytes=sum(len(line) * number for line, number in lost.items()),
        named_bytes=named_bytes(messages),
        unseen=unseen,
        sources=len(sources),
    )


def _numbered(lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if line not in HEADER]


def _late(places: list[int]) -> int:
    """Return how many stand behind one that was written later; those that come again are not."""
    highest, seen, late = -1, set[int](), 0
    for place in places:
        late += place < highest and place not in seen
        seen.add(place)
        highest = max(highest, place)
    return late
