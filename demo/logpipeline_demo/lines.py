"""Each line as a pure function of seed, host, source and number.

So the oracle knows every expected byte without reading what was written: the files of the
generator may be rotated away long before anybody checks.
"""

from __future__ import annotations

import random
import time
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

Kind = Literal["cri", "plain"]

# Lines repeat their payload, never their number, after this many: a prime, so that sources which
# start at different places stay different. Bounds the memory of the tables, about 1 MB each.
PERIOD = 4093
# containerd cuts a line into fragments of this size.
FRAGMENT_BYTES = 16 * 1024
LONG_LINE_BYTES = (20_000, 70_000)
BLANK_ONE_IN = 400
HOSTILE_ONE_IN = 50
FRAGMENTED_ONE_IN = 80

_MESSAGES = (
    'level=info msg="order {n} accepted" items={m} took={k}ms',
    'level=info msg="GET /api/orders/{n} 200" bytes={m}{k} took={k}ms',
    'level=debug msg="cache hit" key=cart:{n} age={k}s',
    'level=info msg="payment {n} captured" amount={m}.{k} currency=EUR',
    'level=warn msg="slow query" table=orders rows={n} took={m}{k}ms',
    'level=error msg="upstream timed out" upstream=stock-{m} attempt={k} order={n}',
    '{{"level":"info","event":"stock.reserved","sku":"{n}","count":{m},"shelf":{k}}}',
)
_HOSTILE = (
    b"a NUL \x00 inside",
    b"invalid UTF-8 \xff\xfe\xc3( here",
    b"a carriage return \r in the middle",
    b"a Windows line\r",
    b"\x1b[31mred\x1b[0m \x1b]0;title\x07 and \x1b[2J",
    b"\xef\xbb\xbfa byte order mark",
    b"line\xe2\x80\xa8separator and bidi \xe2\x80\xae txt.exe",
    b"2026-11-21T10:00:00.000000001Z stdout P not a fragment",
    b"  spaces at both ends  ",
    b"\ttabs\t\x0b\x0c\x1c\x85",
    b'{"unbalanced": "quotes',
)

# A line of a call is this much later than the one before it, as if it had taken time to write.
LINE_STEP_NS = 1_000
_FILLER = b"all work and no play makes a long line. "


@dataclass(frozen=True, slots=True)
class Payload:
    """The content of one line, and its form in a container runtime's log."""

    text: bytes | None  # None: an empty line, which cannot even carry its number
    stream: bytes = b"stdout"
    pieces: int = 1


@lru_cache(maxsize=8)
def payloads(seed: int, kind: Kind) -> tuple[Payload, ...]:
    """Return the `PERIOD` payloads of *kind*, the same ones for the same *seed*."""
    rng = random.Random(f"{seed}/{kind}")
    table = [_payload(rng, kind) for _ in range(PERIOD)]
    for size in LONG_LINE_BYTES:
        text = _message(rng).encode() + b" " + b"0123456789abcdef" * (size // 16)
        table[rng.randrange(PERIOD)] = Payload(text, pieces=-(-size // FRAGMENT_BYTES))
    place = rng.randrange(PERIOD - 2)
    if kind == "plain":
        table[place : place + 2] = [Payload(None), Payload(None)]
    else:
        # Two runs that a runtime interleaves: each stream's fragments belong together.
        table[place] = Payload(b"first half, and the rest of stdout", pieces=3)
        table[place + 1] = Payload(b"stderr speaks meanwhile, as it does", b"stderr", 2)
    return tuple(table)


def _payload(rng: random.Random, kind: Kind) -> Payload:
    if kind == "plain" and rng.randrange(BLANK_ONE_IN) == 0:
        return Payload(None)
    text = _message(rng).encode()
    if rng.randrange(HOSTILE_ONE_IN) == 0:
        text = rng.choice(_HOSTILE)
    stream = b"stderr" if b"level=error" in text else b"stdout"
    pieces = rng.randrange(2, 5) if rng.randrange(FRAGMENTED_ONE_IN) == 0 else 1
    return Payload(text, stream, pieces)


def _message(rng: random.Random) -> str:
    return rng.choice(_MESSAGES).format(
        n=rng.randrange(100_000), m=rng.randrange(1, 10), k=rng.randrange(100)
    )


class SourceKey(NamedTuple):
    """The origin in a line: the *host*, and a *name* that is unique there."""

    host: str
    name: str

    def __str__(self) -> str:
        return f"{self.host} {self.name}"


class LineMaker:
    """The lines of one source: ``host name number crc32 payload``, without their newline."""

    def __init__(self, seed: int, key: SourceKey, kind: Kind) -> None:
        self.key = key
        self.kind = kind
        self.head = f"{key.host} {key.name} ".encode()
        # The seed is part of the checksum: a line of another run does not match.
        self._crc = zlib.crc32(self.head, seed & 0xFFFFFFFF)
        self._salt = zlib.crc32(f"{seed}/{key.host}/{key.name}".encode()) % PERIOD
        self._payloads = payloads(seed, kind)
        self._texts = tuple(payload.text for payload in self._payloads)

    def line(self, seq: int) -> bytes:
        """Return line *seq*; an empty one cannot carry its number."""
        text = self._texts[(seq + self._salt) % PERIOD]
        return b"" if text is None else self._signed(seq, text)

    def long_line(self, seq: int, payload_bytes: int) -> bytes:
        """Return line *seq* with a payload of *payload_bytes*, in place of its usual one."""
        text = _FILLER * (payload_bytes // len(_FILLER) + 1)
        return self._signed(seq, text[:payload_bytes])

    def is_blank(self, seq: int) -> bool:
        """Return whether line *seq* is empty."""
        return self._texts[(seq + self._salt) % PERIOD] is None

    def lines(self, first: int, count: int) -> bytes:
        """Return *count* lines from *first*, each with its newline: the oracle's hot path."""
        head, texts, head_crc, crc32 = self.head, self._texts, self._crc, zlib.crc32
        made = []
        place = (first + self._salt) % PERIOD
        for seq in range(first, first + count):
            text = texts[place]
            place = place + 1 if place + 1 < PERIOD else 0
            if text is None:
                made.append(b"\n")
                continue
            crc = crc32(text, crc32(b"%d " % seq, head_crc))
            made.append(b"%b%d %08x %b\n" % (head, seq, crc, text))
        return b"".join(made)

    def fragments(self, seq: int, time_ns: int) -> list[bytes]:
        """Return line *seq* as a container runtime writes it, in one piece or several."""
        payload = self._payloads[(seq + self._salt) % PERIOD]
        text = self.line(seq)
        size = -(-len(text) // payload.pieces)
        pieces = [text[start : start + size] for start in range(0, len(text), size)] or [b""]
        return cri_lines(payload.stream, pieces, time_ns)

    def stream(self, seq: int) -> bytes:
        """Return the stream on which line *seq* is written."""
        return self._payloads[(seq + self._salt) % PERIOD].stream

    def written(self, first: int, count: int, time_ns: int) -> bytes:
        """Return *count* lines from *first* as they are in the source's file."""
        if self.kind == "plain":
            return self.lines(first, count)
        return b"".join(self._interleaved(first, count, time_ns))

    def _interleaved(self, first: int, count: int, time_ns: int) -> list[bytes]:
        """Return the physical lines, with runs on both streams mixed; they end in their order."""
        written: list[bytes] = []
        waiting: list[bytes] = []
        waiting_stream = b""
        for seq in range(first, first + count):
            run = self.fragments(seq, time_ns + (seq - first) * LINE_STEP_NS)
            stream = self.stream(seq)
            if waiting and (len(run) == 1 or stream == waiting_stream):
                written += waiting
                waiting = []
            if waiting:
                written += [waiting[0], *run[:-1], *waiting[1:], run[-1]]
                waiting = []
            elif len(run) > 1:
                waiting, waiting_stream = run, stream
            else:
                written += run
        return written + waiting

    def _signed(self, seq: int, text: bytes) -> bytes:
        crc = zlib.crc32(text, zlib.crc32(b"%d " % seq, self._crc))
        return b"%b%d %08x %b" % (self.head, seq, crc, text)


def cri_lines(stream: bytes, pieces: list[bytes], time_ns: int) -> list[bytes]:
    """Return the *pieces* of one line as lines of a container's log."""
    lines = []
    for index, piece in enumerate(pieces):
        tag = b"P" if index + 1 < len(pieces) else b"F"
        lines.append(b"%b %b %b %b\n" % (cri_time(time_ns + index), stream, tag, piece))
    return lines


def cri_time(time_ns: int) -> bytes:
    """Return *time_ns* as the time at the head of a container's log line."""
    seconds, rest = divmod(time_ns, 1_000_000_000)
    return _second(seconds) + b".%09dZ" % rest


@lru_cache(maxsize=16)
def _second(seconds: int) -> bytes:
    """Return the date and time of *seconds*; neighbouring lines mostly have the same one."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)).encode()
