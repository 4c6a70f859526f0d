"""What the lines of the small busy application say: plain talk of a shop, and now and then the
bytes that break log pipelines.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

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


@dataclass(frozen=True, slots=True)
class Payload:
    """What one line says, and how a container runtime would write it down."""

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
