"""Headers and payload of a message: the headers that shippers write and readers key everything
by.

With these headers a payload is the exact bytes ``[start, end)`` of one generation of one source. A
message without them comes from fshipper or a stranger and is one or more lines without the final
newline.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote, unquote_to_bytes

from logpipeline import checksum, zstd
from logpipeline.checksum import Checksum

VERSION = "1"
MESSAGE_ID = "Nats-Msg-Id"

# One message, uncompressed: eight times nats-server's default payload, so that a well compressing
# batch still fits.
BATCH_BYTES_MAX = 8 * 1024 * 1024
# Headers of ours are below 2 KiB; a stranger's may not make us parse more.
HEADER_BYTES_MAX = 16 * 1024
# No path of a system is longer. What is known of each source is kept, with its name.
SOURCE_BYTES_MAX = 4096
LABELS_MAX = 32
OFFSET_MAX = 1 << 62
NUMBER_DIGITS_MAX = 19

Format = Literal["cri", "plain"]
# One token, for metrics: `rotated`, `server`, `binary`, …
_CAUSE = re.compile(r"[a-z]{1,20}(-[a-z]{1,20}){0,3}")
_LABEL_PREFIX = "Log-Label-"
_SAFE = "/:=@,+~!*()[]{}<>;'\"#&?|^$ "


class BadMessage(ValueError):
    """A message that cannot be believed; *reason* is one token, for metrics and the dead letter's
    subject.
    """

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        super().__init__(f"{reason}: {detail}")


@dataclass(frozen=True, slots=True)
class Previous:
    """The generation before this one in the source's chain, and its final length in bytes where
    known.
    """

    generation: str
    length: int | None


@dataclass(frozen=True, slots=True)
class Checksums:
    """The generation's running checksum *before* a batch's first byte and *after* its last."""

    before: Checksum
    after: Checksum

    @staticmethod
    def around(data: bytes, before: Checksum) -> Checksums:
        """Return those around *data*, computed once over all of it."""
        return Checksums(before, checksum.extend(before, data))


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The headers of one message. Offsets and lengths are bytes of the uncompressed file, times
    nanoseconds since 1970.

    *resend*: its bytes may have been sent before, so readers check them. It is *unsure* where its
    sender knows of no such sending, and only cannot exclude one.

    Where *lost* names a cause, the message has no payload: it says that the bytes of the range are
    lost, since *first_time_ns*.
    """

    source: str
    generation: str
    start: int
    end: int
    lines: int
    format: Format
    first_time_ns: int = 0
    last_time_ns: int = 0
    previous: Previous | None = None
    checksums: Checksums | None = None
    resend: bool = False
    unsure: bool = False
    starts_inside_line: bool = False
    ends_inside_line: bool = False
    begins: bool = False
    compressed: bool = False
    lost: str = ""
    cluster: str = ""
    namespace: str = ""
    pod: str = ""
    container: str = ""
    labels: tuple[tuple[str, str], ...] = field(default=())


def source_key(installation: str, host: str, source: str) -> str:
    """Return the 128-bit name (32 hex digits) of a source among all hosts and installations."""
    parts = (installation.encode(), host.encode(), source.encode("utf-8", "surrogateescape"))
    framed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hashlib.blake2b(framed, digest_size=16).hexdigest()


def message_id(key: str, batch: Batch, *, attempt: str = "") -> str:
    """Return the ``Nats-Msg-Id``: host, source, generation and range belong into it.

    Without the host two hosts' equal paths swallow each other; without the end a longer batch is
    dropped for a shorter one. *attempt* makes a fresh one for bytes that the server had
    acknowledged and lost.
    """
    name = f"{key}.{batch.generation}.{batch.start}-{batch.end}"
    return f"{name}.{attempt}" if attempt else name


def encode_headers(batch: Batch, identifier: str) -> dict[str, str]:
    """Return the headers of *batch* in the order in which they are written."""
    headers = {
        MESSAGE_ID: identifier,
        "Log-Version": VERSION,
        "Log-Source": _quoted(batch.source),
        "Log-Generation": batch.generation,
        "Log-Range": f"{batch.start}-{batch.end}",
        "Log-Lines": str(batch.lines),
        "Log-Format": batch.format,
    }
    if batch.first_time_ns or batch.last_time_ns:
        headers["Log-Time"] = f"{batch.first_time_ns}-{batch.last_time_ns}"
    if batch.previous is not None:
        length = "" if batch.previous.length is None else str(batch.previous.length)
        headers["Log-Previous"] = f"{batch.previous.generation}-{length}"
    if batch.checksums is not None:
        before, after = map(checksum.encode, (batch.checksums.before, batch.checksums.after))
        headers["Log-Checksum"] = f"{before}-{after}"
    if batch.resend:
        headers["Log-Resend"] = "1"
    if batch.unsure:
        headers["Log-Unsure"] = "1"
    partial = [
        word
        for word, here in (("start", batch.starts_inside_line), ("end", batch.ends_inside_line))
        if here
    ]
    if partial:
        headers["Log-Partial"] = ",".join(partial)
    if batch.begins:
        # What lies before was left out on purpose (`readFrom: end`): it is not missing.
        headers["Log-Begin"] = "1"
    if batch.compressed:
        headers["Content-Encoding"] = "zstd"
    if batch.lost:
        headers["Log-Lost"] = batch.lost
    for name in ("cluster", "namespace", "pod", "container"):
        if value := getattr(batch, name):
            headers[f"Log-{name.capitalize()}"] = _quoted(value)
    for label, value in batch.labels:
        headers[_LABEL_PREFIX + _quoted(label).replace(":", "%3A")] = _quoted(value)
    return headers


def parse_headers(raw: bytes) -> dict[str, str]:
    """Return the fields of a NATS header block; the first of equal names counts.

    Raises:
        BadMessage: the block is too large, or a line of it is not a header.
    """
    if len(raw) > HEADER_BYTES_MAX:
        raise BadMessage(
            "headers-too-large", f"{len(raw)} bytes of headers, {HEADER_BYTES_MAX} at most"
        )
    fields: dict[str, str] = {}
    for line in raw.decode("utf-8", "surrogateescape").split("\r\n")[1:]:
        if not line:
            continue
        name, colon, value = line.partition(":")
        if not colon:
            raise BadMessage("bad-headers", f"no colon in {line[:80]!r}")
        fields.setdefault(name.strip(), value.strip())
    return fields


def decode_headers(fields: dict[str, str]) -> Batch | None:
    """Return the batch that *fields* describe, or None for a message without our headers.

    Raises:
        BadMessage: they are ours, and contradict themselves or a limit.
    """
    if "Log-Range" not in fields and "Log-Source" not in fields:
        return None
    if fields.get("Log-Version") != VERSION:
        raise BadMessage(
            "bad-version",
            f"version {fields.get('Log-Version', 'missing')[:20]!r}; this reader knows {VERSION}",
        )
    start, end = _range("Log-Range", fields.get("Log-Range", ""))
    first, last = _range("Log-Time", fields["Log-Time"]) if "Log-Time" in fields else (0, 0)
    source = _unquoted(fields.get("Log-Source", ""))
    generation = fields.get("Log-Generation", "")
    lost = fields.get("Log-Lost", "")
    if not start < end or (end - start > BATCH_BYTES_MAX and not lost):
        raise BadMessage("bad-range", f"range {start}-{end}")
    if lost and not _CAUSE.fullmatch(lost):
        raise BadMessage("bad-cause", f"Log-Lost {lost[:40]!r}")
    source_bytes = len(source.encode("utf-8", "surrogateescape"))
    if not 0 < source_bytes <= SOURCE_BYTES_MAX:
        raise BadMessage("bad-source", f"a source of {source_bytes} bytes")
    _check_generation(generation)
    partial = fields.get("Log-Partial", "").split(",")
    log_format = fields.get("Log-Format")
    if log_format not in ("cri", "plain"):
        raise BadMessage("bad-format", f"Log-Format {str(log_format)[:20]!r}")
    if fields.get("Content-Encoding", "zstd") != "zstd":
        raise BadMessage("bad-encoding", f"Content-Encoding {fields['Content-Encoding'][:20]!r}")
    labels = [name for name in fields if name.startswith(_LABEL_PREFIX)]
    return Batch(
        source=source,
        generation=generation,
        start=start,
        end=end,
        # Only a count for people; no batch has more lines than bytes, whatever its sender says.
        lines=min(_number("Log-Lines", fields.get("Log-Lines", "0")), end - start),
        format="cri" if log_format == "cri" else "plain",
        first_time_ns=first,
        last_time_ns=last,
        previous=_previous(fields.get("Log-Previous", "")),
        checksums=_checksums(fields.get("Log-Checksum", "")),
        resend=fields.get("Log-Resend") == "1",
        unsure=fields.get("Log-Unsure") == "1",
        starts_inside_line="start" in partial,
        ends_inside_line="end" in partial,
        begins=fields.get("Log-Begin") == "1",
        compressed="Content-Encoding" in fields,
        lost=lost,
        cluster=_unquoted(fields.get("Log-Cluster", "")),
        namespace=_unquoted(fields.get("Log-Namespace", "")),
        pod=_unquoted(fields.get("Log-Pod", "")),
        container=_unquoted(fields.get("Log-Container", "")),
        labels=tuple(
            (_unquoted(name[len(_LABEL_PREFIX) :]), _unquoted(fields[name]))
            for name in labels[:LABELS_MAX]
        ),
    )


def encode_payload(data: bytes, compressor: zstd.Compressor | None) -> tuple[bytes, bool]:
    """Return *data* as it travels, and whether it was compressed (not where that would not make it
    smaller).
    """
    if compressor is None:
        return data, False
    packed = compressor.compress(data)
    return (packed, True) if len(packed) < len(data) else (data, False)


def decode_payload(batch: Batch, payload: bytes) -> bytes:
    """Return the exact bytes ``[start, end)`` of the source.

    Raises:
        BadMessage: the payload is not these bytes; at most the range's length is unpacked.
    """
    expected = 0 if batch.lost else batch.end - batch.start
    data = payload
    if batch.compressed:
        try:
            if zstd.content_size(payload) != expected:
                raise BadMessage(
                    "bad-length", f"the frame does not announce the range's {expected} bytes"
                )
            data = zstd.decompress(payload, expected)
        except zstd.ZstdError as error:
            raise BadMessage("bad-compression", str(error)) from error
    if len(data) != expected:
        raise BadMessage("bad-length", f"{len(data)} bytes for the range {batch.start}-{batch.end}")
    sums = batch.checksums
    if sums is not None and not batch.lost and checksum.extend(sums.before, data) != sums.after:
        raise BadMessage("bad-checksum", f"the range {batch.start}-{batch.end} has other bytes")
    return data


def _quoted(text: str) -> str:
    # Headers end at CR LF and are trimmed, and a path may hold any byte but NUL: the rest is
    # percent-encoded.
    encoded = quote(text, safe=_SAFE, errors="surrogateescape")
    return encoded.replace(" ", "%20") if encoded != encoded.strip(" ") else encoded


def _unquoted(text: str) -> str:
    if "%" not in text:
        return text
    # Any client may write any byte, also such that are not text.
    raw = text.encode("utf-8", "surrogateescape")
    return unquote_to_bytes(raw).decode("utf-8", "surrogateescape")


def whole_number(text: str) -> int | None:
    """Return the number that *text* of another process is, of 19 decimal digits at most; None where
    it is none.
    """
    # `isdigit` alone takes digits that `int` does not, as a raised two.
    is_number = text.isascii() and text.isdigit() and len(text) <= NUMBER_DIGITS_MAX
    return int(text) if is_number else None


def _number(name: str, text: str) -> int:
    number = whole_number(text)
    if number is None or number > OFFSET_MAX:
        raise BadMessage("bad-number", f"{name} {text[:40]!r}")
    return number


def _range(name: str, text: str) -> tuple[int, int]:
    first, dash, second = text.partition("-")
    if not dash:
        raise BadMessage("bad-range", f"{name} {text[:40]!r}")
    return _number(name, first), _number(name, second)


def _previous(text: str) -> Previous | None:
    if not text:
        return None
    generation, _, length = text.partition("-")
    _check_generation(generation)
    return Previous(generation, _number("Log-Previous", length) if length else None)


def _checksums(text: str) -> Checksums | None:
    if not text:
        return None  # shippers of former versions send none
    before, _, after = text.partition("-")
    try:
        return Checksums(checksum.decode(before), checksum.decode(after))
    except ValueError as error:
        raise BadMessage("bad-checksum", str(error)) from error


def _check_generation(name: str) -> None:
    if len(name) != 16 or not all(digit in "0123456789abcdef" for digit in name):
        raise BadMessage("bad-generation", f"generation {name[:40]!r}")
