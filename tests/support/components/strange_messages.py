"""Messages as strangers, broken shippers and attackers might publish them, from a seed: what ours
are like, with some of it changed to what no shipper of ours writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import zstandard

from components.raw_nats import Message, block_of
from logpipeline.checksum import NOTHING, Checksum
from logpipeline.wire import MESSAGE_ID, Batch, Checksums, Previous, encode_headers

GENERATIONS = ("f" * 16, "0123456789abcdef")
SOURCES = ("/a.log", "ns/pod/uid/c/0", "/" + "y" * 300, "x", "/a/../b")
STARTS = (0, 0, 100, 1 << 40, 1 << 62)
TIMES = (0, 1, 1 << 62)
CRI = (
    b"2026-11-21T10:00:00.000000001Z stdout F ",
    b"2026-11-21T10:00:00Z stderr P ",
    b"2026-11-21T10:00:00.5+25:00 stdout F:x ",
    b"yesterday stdin  ",
)
# Also of headers that the message has not: its reader may ask for them.
MORE_HEADERS = (
    "Log-Lost", "Log-Time", "Log-Previous", "Log-Partial", "Log-Label-x", "Log-Begin",
    "Log-Checksum", "Log-Pod", "Log-Resend", "Log-Lines", "Nats-Msg-Size",
)  # fmt: skip
VALUES = (
    b"", b" ", b"\t", b"\0", b"0", b"1", b"-1", b"1e9", b"9223372036854775807",
    b"99999999999999999999", b"0-9223372036854775807", "\u0660-\u0669".encode(), "\u00b2".encode(),
    b"%", b"%zz", b"%00", b"%0A", b"..%2F..%2Fetc", b"%2e%2e", b"/", b"//", b".", b"..",
    b"a/b/c/d/0", b"a/b/c/d/e/f", b"a" * 5000, b"\xff", b"\xed\xa0\x80", b"\x1b]0;x\x07",
    "\u202e".encode(), b"start", b"start,end", b"zstd", b"gzip", b"cri", b"plain", b"null",
    b"0123456789abcdef-", b"0123456789abcdef-5", b"0000000000000000-0000000000000000",
)  # fmt: skip
HOSTS = (b"\xff", b"a%2Fb", b"%00", b"%", b"-", b"x" * 200, "\u202e".encode())


def strange_messages(seed: int, count: int, subject: str) -> Iterator[Message]:
    """Yield *count* messages of *subject*, few of them of another host."""
    random = Random(seed)
    for _ in range(count):
        data = _data(random)
        batch = _batch(random, data)
        payload = zstandard.compress(data) if batch.compressed else data
        if random.random() < 0.1:
            payload = payload[: len(payload) // 2]
        yield _subject(random, subject), block_of(_headers(random, batch)), payload


def _data(random: Random) -> bytes:
    if random.random() < 0.1:
        return random.randbytes(random.randrange(1, 200))
    begin = random.choice((b"", *CRI))
    lines = [begin + b"x" * random.randrange(40) + b"\n" for _ in range(random.randrange(1, 5))]
    return b"".join(lines)[: None if random.random() < 0.8 else -1] or b"x"


def _batch(random: Random, data: bytes) -> Batch:
    start = random.choice(STARTS)
    batch = Batch(
        source=random.choice(SOURCES),
        generation=random.choice(GENERATIONS),
        start=start,
        end=start + len(data),
        lines=data.count(b"\n"),
        format=random.choice(("plain", "cri")),
    )
    sums = Checksums(Checksum(random.getrandbits(64)), Checksum(random.getrandbits(64)))
    changes = (
        {"previous": Previous(random.choice(GENERATIONS), random.choice((None, 0, 5, 1 << 60)))},
        {"checksums": random.choice((sums, Checksums.around(data, NOTHING)))},
        {"resend": True, "unsure": random.random() < 0.5},
        {"starts_inside_line": True},
        {"ends_inside_line": True},
        {"lost": "retention"},
        {"begins": True},
        {"compressed": True},
        {"first_time_ns": random.choice(TIMES), "last_time_ns": random.choice(TIMES)},
        {"cluster": "c", "namespace": "n", "pod": "p", "container": "k", "labels": (("a", "b"),)},
    )
    for change in changes:
        if random.random() < 0.25:
            batch = replace(batch, **change)
    return batch


def _headers(random: Random, batch: Batch) -> dict[bytes, bytes]:
    texts = encode_headers(batch, "")
    del texts[MESSAGE_ID]
    fields = {name.encode(): text.encode() for name, text in texts.items()}
    for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
        name = random.choice((*fields, *(each.encode() for each in MORE_HEADERS)))
        own = fields.get(name, b"") if random.random() < 0.3 else b""
        fields[name] = own + random.choice(VALUES)
        if random.random() < 0.1:
            del fields[name]
    return fields


def _subject(random: Random, subject: str) -> bytes:
    root, dot, host = subject.encode().rpartition(b".")
    return root + dot + (random.choice(HOSTS) if random.random() < 0.02 else host)
