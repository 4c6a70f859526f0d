"""The wire contract: what a shipper writes is what every reader reads, and what cannot be is
refused.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from logpipeline import wire, zstd
from logpipeline.checksum import NOTHING, Checksum, extend
from logpipeline.wire import BadMessage, Batch, Checksums, Previous

GENERATION = "0123456789abcdef"
PLAIN = Batch(
    source="/var/log/app.log", generation=GENERATION, start=0, end=6, lines=2, format="plain"
)

FULL = replace(
    PLAIN,
    checksums=Checksums(NOTHING, Checksum(1)),
    previous=Previous(GENERATION, 7),
    cluster="c1",
    namespace="shop",
    pod="web-1",
    container="app",
    labels=(("app", "web"),),
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
PATHS = st.binary(min_size=1, max_size=60).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
CHECKSUMS = st.integers(0, (1 << 64) - 1).map(Checksum)


def raw_headers(fields: dict[str, str]) -> bytes:
    """Return *fields* as the server hands them on."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def read_back(batch: Batch) -> Batch | None:
    """Write and read the headers of *batch*."""
    return wire.decode_headers(wire.parse_headers(raw_headers(wire.encode_headers(batch, "id"))))


@given(
    source=PATHS,
    start=st.integers(0, 1 << 40),
    size=st.integers(3, wire.BATCH_BYTES_MAX),
    previous=st.none() | st.builds(Previous, st.just(GENERATION), st.none() | st.integers(0, 99)),
    checksums=st.none() | st.builds(Checksums, CHECKSUMS, CHECKSUMS),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()),
    texts=st.tuples(TEXTS, TEXTS, TEXTS, TEXTS),
    labels=st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=3),
)
def test_headers_read_back_as_they_were_written(
    source: str,
    start: int,
    size: int,
    previous: Previous | None,
    checksums: Checksums | None,
    flags: tuple[bool, bool, bool, bool],
    texts: tuple[str, str, str, str],
    labels: dict[str, str],
) -> None:
    """Any path, in any bytes, any label and any range."""
    batch = Batch(
        source=source, generation=GENERATION, start=start, end=start + size, lines=3, format="cri",
        first_time_ns=1, last_time_ns=2, previous=previous, checksums=checksums, resend=flags[0],
        unsure=flags[0] and flags[1],
        starts_inside_line=flags[1], ends_inside_line=flags[2], compressed=flags[3],
        begins=flags[3], cluster=texts[0], namespace=texts[1], pod=texts[2], container=texts[3],
        labels=tuple(labels.items()),
    )  # fmt: skip

    assert read_back(batch) == batch


def test_a_header_block_is_exactly_this() -> None:
    """A vector for writers in other languages."""
    batch = replace(
        PLAIN,
        previous=Previous("f" * 16, 120),
        checksums=Checksums(NOTHING, extend(NOTHING, b"123456789")),
        resend=True,
        ends_inside_line=True,
        compressed=True,
    )

    assert wire.encode_headers(batch, wire.message_id("k" * 32, batch)) == {
        "Nats-Msg-Id": f"{'k' * 32}.{GENERATION}.0-6",
        "Log-Version": "1",
        "Log-Source": "/var/log/app.log",
        "Log-Generation": GENERATION,
        "Log-Range": "0-6",
        "Log-Lines": "2",
        "Log-Format": "plain",
        "Log-Previous": "ffffffffffffffff-120",
        "Log-Checksum": "0000000000000000-995dc9bbdf1939fa",
        "Log-Resend": "1",
        "Log-Partial": "end",
        "Content-Encoding": "zstd",
    }


def test_a_source_is_named_by_installation_host_and_path() -> None:
    """Two hosts' equal paths must not swallow each other, nor parts that join to the same text."""
    assert wire.source_key("i", "host", "/x") == "e6f19849ff25a8f90a5ea258f829a3e8"
    assert wire.source_key("i", "a", "b/x") != wire.source_key("i", "ab", "/x")
    assert wire.source_key("i", "a", "/x") != wire.source_key("i", "b", "/x")


def test_a_longer_batch_has_another_id_than_a_shorter_one() -> None:
    """The server would drop the longer one as a duplicate."""
    longer = replace(PLAIN, end=9)

    assert wire.message_id("k", PLAIN) != wire.message_id("k", longer)
    assert wire.message_id("k", PLAIN) != wire.message_id("k", PLAIN, attempt="h1")


def test_a_message_without_our_headers_is_somebody_elses() -> None:
    """fshipper writes none at all."""
    assert wire.decode_headers({}) is None
    assert wire.decode_headers({"Nats-Msg-Id": "x", "Other": "y"}) is None


BAD_FIELDS = [
    ("Log-Version", "2", "bad-version"),
    ("Log-Range", "6-0", "bad-range"),
    ("Log-Range", "0-0", "bad-range"),
    ("Log-Range", "0", "bad-range"),
    ("Log-Range", "-1-5", "bad-number"),
    ("Log-Range", "0-99999999999999999999", "bad-number"),
    ("Log-Range", f"0-{wire.BATCH_BYTES_MAX + 1}", "bad-range"),
    ("Log-Range", "\u0660-\u0669", "bad-number"),
    ("Log-Source", "", "bad-source"),
    ("Log-Source", "x" * 5000, "bad-source"),
    ("Log-Source", "\N{ROCKET}" * 1025, "bad-source"),
    ("Log-Generation", "xyz", "bad-generation"),
    ("Log-Generation", "../../../../etc/", "bad-generation"),
    ("Log-Format", "xml", "bad-format"),
    ("Log-Lines", "many", "bad-number"),
    ("Log-Previous", "nothing", "bad-generation"),
    ("Log-Checksum", "995dc9bbdf1939fa", "bad-checksum"),
    ("Log-Lost", "My dog ate it", "bad-cause"),
    ("Log-Lost", "x" * 200, "bad-cause"),
    ("Log-Checksum", "995dc9bbdf1939fa-995DC9BBDF1939FA", "bad-checksum"),
    ("Content-Encoding", "gzip", "bad-encoding"),
]


@pytest.mark.parametrize(("name", "value", "reason"), BAD_FIELDS)
def test_headers_that_cannot_be_are_refused_with_a_reason(
    name: str, value: str, reason: str
) -> None:
    """The reason is a token of the dead letter's subject."""
    fields = {**wire.encode_headers(PLAIN, "id"), name: value}

    with pytest.raises(BadMessage) as caught:
        wire.decode_headers(fields)
    assert caught.value.reason == reason


def test_a_batch_has_no_more_lines_than_bytes() -> None:
    """A stranger's number would end up in sums, which then no reader accepts."""
    fields = {**wire.encode_headers(PLAIN, "id"), "Log-Lines": str(wire.OFFSET_MAX)}
    batch = wire.decode_headers(fields)

    assert batch is not None
    assert batch.lines == batch.end - batch.start


@given(st.binary(max_size=300))
def test_any_header_bytes_are_read_or_refused(raw: bytes) -> None:
    """Nothing else than our own error comes out of a stranger's headers."""
    with contextlib.suppress(BadMessage):
        wire.decode_headers(wire.parse_headers(b"NATS/1.0\r\nLog-Range: 0-1\r\n" + raw))


@given(st.sampled_from([*wire.encode_headers(FULL, "id")]), st.binary(max_size=20), st.booleans())
def test_any_bytes_in_one_header_of_ours_are_read_or_refused(
    name: str, raw: bytes, is_name: bool
) -> None:
    """All else is as it should be, so that what reads the others comes to this one."""
    lines = [f"{key}: {value}" for key, value in wire.encode_headers(FULL, "id").items()]
    block = "\r\n".join(["NATS/1.0", *lines, "", ""]).encode()
    at = block.index(f"{name}: ".encode()) + len(name) + (0 if is_name else 2)

    with contextlib.suppress(BadMessage):
        wire.decode_headers(wire.parse_headers(block[:at] + raw + block[at:]))


def test_a_block_of_headers_has_a_limit() -> None:
    """A stranger may not make us parse a megabyte."""
    with pytest.raises(BadMessage, match="headers-too-large"):
        wire.parse_headers(b"NATS/1.0\r\n" + b"a: b\r\n" * 10_000)


PAYLOADS = {
    "an empty line": b"\n",
    "two empty lines": b"\n\n",
    "CR LF": b"one\r\ntwo\r\n",
    "no newline at the end": b"one\ntwo",
    "NUL and invalid UTF-8": b"\x00\xff\xfe\n",
}


@pytest.mark.parametrize("compressor", [None, zstd.Compressor(1)])
@pytest.mark.parametrize("data", [*PAYLOADS.values(), b"x" * 100_000], ids=[*PAYLOADS, "long"])
def test_payloads_arrive_byte_for_byte(data: bytes, compressor: zstd.Compressor | None) -> None:
    """Compressed where that makes them smaller."""
    payload, compressed = wire.encode_payload(data, compressor)
    batch = replace(PLAIN, end=len(data), compressed=compressed)

    assert wire.decode_payload(batch, payload) == data
    assert len(payload) <= len(data)


def test_a_loss_of_any_size_is_named_without_a_payload() -> None:
    """A file of gigabytes that is gone is one message."""
    loss = replace(PLAIN, end=1 << 40, lines=0, lost="rotated")

    assert read_back(loss) == loss
    assert wire.decode_payload(loss, b"") == b""
    with pytest.raises(BadMessage, match="bad-length"):
        wire.decode_payload(loss, b"a\n")


def test_a_payload_that_was_altered_is_refused() -> None:
    """Its checksum goes on from the bytes before it, so that those must be the right ones too."""
    before = extend(NOTHING, b"what was sent before\n")
    batch = replace(
        PLAIN, start=21, end=27, checksums=Checksums(before, extend(before, b"a\nb\nc\n"))
    )

    assert wire.decode_payload(batch, b"a\nb\nc\n") == b"a\nb\nc\n"
    with pytest.raises(BadMessage, match="bad-checksum"):
        wire.decode_payload(batch, b"a\nb\nd\n")


def test_a_bomb_is_not_unpacked() -> None:
    """A frame of a few KiB that would unpack to 256 MiB says so, and is refused."""
    bomb = zstandard.ZstdCompressor(level=1).compress(bytes(256 * 1024 * 1024))

    with pytest.raises(BadMessage, match="bad-length"):
        wire.decode_payload(replace(PLAIN, compressed=True), bomb)


def test_a_bomb_that_hides_its_size_is_not_unpacked() -> None:
    """A frame without a content size is none of ours."""
    writer = zstandard.ZstdCompressor(level=1, write_content_size=False)

    with pytest.raises(BadMessage, match="bad-length"):
        wire.decode_payload(replace(PLAIN, compressed=True), writer.compress(bytes(1 << 20)))


@given(st.binary(max_size=100), st.booleans())
def test_any_payload_bytes_are_the_range_or_refused(payload: bytes, compressed: bool) -> None:
    """Wrong lengths and garbage frames are named."""
    with contextlib.suppress(BadMessage):
        assert len(wire.decode_payload(replace(PLAIN, compressed=compressed), payload)) == 6
