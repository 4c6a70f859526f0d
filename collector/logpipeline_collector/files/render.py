"""Renders the bytes of a batch for an output file so that lines stay whole: a line that one batch
leaves open is continued by the next batch of its source, and by nothing else.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from json.encoder import encode_basestring
from typing import Literal, NamedTuple

from logpipeline import cri
from logpipeline.origin import Origin
from logpipeline.wire import Batch
from logpipeline_collector.files.naming import Template

Output = Literal["raw", "cri", "json"]

_STREAMS = frozenset({b"stdout", b"stderr"})


# ``message`` is the line as text. Where its bytes are not UTF-8, each bad byte becomes U+FFFD, and
# ``message_base64`` holds the exact bytes: nothing is lost, and any JSON parser can read it.
# ``partial`` is true where the line goes on in the next object of its source and stream.
def render_json(origin: Origin, is_cri: bool, data: bytes, time_ns: int) -> bytes:
    """Return the lines of *data* as objects; *time_ns* is the time of lines that carry none."""
    fields = _fields(origin)
    lines = _cri(data) if is_cri else _plain(data)
    default = rfc3339(time_ns)
    texts = [
        f"{_head(time or default, stream)}{fields},{_message(line)}{more}}}\n"
        for time, stream, line, more in lines
    ]
    return "".join(texts).encode()


def render_event(
    origin: Origin, stream: str, lines: Sequence[bytes], time_ns: int, *, continues: bool
) -> bytes:
    """Return an event of several *lines* as one object, like that of a line, with their number.
    *continues*: it began in an earlier object.
    """
    more = ',"continues":true' if continues else ""
    head = _head(rfc3339(time_ns), stream)
    message = _message(b"\n".join(lines))
    return f'{head}{_fields(origin)},{message},"lines":{len(lines)}{more}}}\n'.encode()


def _head(time: str, stream: str) -> str:
    return f'{{"time":{_json_text(time)},"stream":"{stream}"'


def _fields(origin: Origin) -> str:
    base = {
        "host": origin.host,
        "namespace": origin.namespace,
        "pod": origin.pod,
        "container": origin.container,
        "source": origin.path,
    }
    return "".join(f",{_json_text(name)}:{_json_text(value)}" for name, value in base.items())


def rfc3339(time_ns: int) -> str:
    """Return *time_ns* (since 1970) as CRI writes times, in UTC."""
    moment = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ns % 1_000_000_000:09d}Z"


def _cri(data: bytes) -> Iterator[tuple[str, str, bytes, str]]:
    for line in cri.join(data):
        time = line.time.decode("ascii", "replace")
        yield time, line.stream.decode(), line.text, _partial(is_whole=line.whole)


def _plain(data: bytes) -> Iterator[tuple[str, str, bytes, str]]:
    *lines, rest = data.split(b"\n")
    for line in lines:
        yield "", "", line, ""
    if rest:
        yield "", "", rest, _partial(is_whole=False)


def _partial(*, is_whole: bool) -> str:
    return "" if is_whole else ',"partial":true'


def _message(line: bytes) -> str:
    try:
        return f'"message":{encode_basestring(line.decode())}'
    except UnicodeDecodeError:
        shown = encode_basestring(line.decode("utf-8", "replace"))
        return f'"message":{shown},"message_base64":"{base64.b64encode(line).decode()}"'


def _json_text(value: str) -> str:
    # A source may have bytes that are not UTF-8; not every JSON parser accepts a lone surrogate.
    raw = value.encode("utf-8", "surrogateescape")
    return encode_basestring(raw.decode("utf-8", "backslashreplace"))


class Tail(NamedTuple):
    """The line without an end at the end of a file.

    It is continued by bytes of the same source and generation from *end* on. A run of fragments is
    also continued by the first fragments of the next generation: a runtime that rotates its file
    cuts the line that it is about to write in two. *stream* names the CRI stream whose run
    of fragments it is; *is_cut* says that the source's own line was cut. *goes_on* is False where
    its source has ended: then no rotation waits for it.
    """

    host: str
    source: str
    generation: str
    end: int
    stream: str = ""
    is_cut: bool = True
    goes_on: bool = False


class Piece(NamedTuple):
    """Bytes of one batch that go into one file; *start* is their offset in the source.

    *batch* is None for a message without our headers: its *data* are whole lines.
    """

    origin: Origin
    batch: Batch | None
    data: bytes
    start: int
    time_ns: int

    @property
    def goes_on(self) -> bool:
        """Whether a line or a run of fragments goes on behind these bytes."""
        batch = self.batch
        is_last = batch is not None and self.start + len(self.data) == batch.end
        return batch is not None and is_last and batch.ends_inside_line


def render(output: Output, piece: Piece, tail: Tail | None) -> tuple[bytes, Tail | None]:
    """Return the bytes to append to a file of format *output* that ends with *tail*, and its new
    tail.
    """
    if output == "json":
        batch = piece.batch
        is_cri = batch is not None and batch.format == "cri"
        return render_json(piece.origin, is_cri, piece.data, piece.time_ns), None
    is_continued = tail is not None and _continues(tail, piece)
    if output == "raw" and piece.batch is not None and piece.batch.format == "cri":
        if tail is None and _is_simple(piece.data):
            return _texts(piece.data), None
        return _joined(piece, tail, is_continued=is_continued)
    data = piece.data if tail is None or is_continued else b"\n" + piece.data
    return data, None if data.endswith(b"\n") else _tail(piece)


def pieces(
    template: Template, piece: Piece, *, first_ns: int, last_ns: int
) -> Iterator[tuple[str, Piece]]:
    """Yield the parts of *piece* with their periods: one part, unless the lines span periods."""
    period = template.period(first_ns)
    is_cri = piece.batch is not None and piece.batch.format == "cri"
    if not is_cri or not template.has_time or template.period(last_ns) == period:
        yield period, piece
        return
    data, begun, position = piece.data, 0, 0
    while position < len(data):
        end = data.find(b"\n", position) + 1 or len(data)
        now = template.period(cri.time_ns(data[position : position + 64]) or first_ns)
        # Fragments of one line stay together, in the period of the first of them.
        if now != period and cri.last_cut(data[begun:position]) == position - begun:
            if position > begun:
                yield period, piece._replace(data=data[begun:position], start=piece.start + begun)
            begun, period = position, now
        position = end
    yield period, piece._replace(data=data[begun:], start=piece.start + begun)


def _continues(tail: Tail, piece: Piece) -> bool:
    batch = piece.batch
    if batch is None or (tail.host, tail.source) != (piece.origin.host, batch.source):
        return False
    if batch.generation == tail.generation:
        return piece.start == tail.end
    is_next = batch.previous is not None and batch.previous.generation == tail.generation
    return bool(is_next and piece.start == 0 and tail.stream and batch.starts_inside_line)


def _tail(piece: Piece, stream: str = "", *, is_cut: bool = True) -> Tail | None:
    batch = piece.batch
    if batch is None:
        return None
    end = piece.start + len(piece.data)
    host = piece.origin.host
    return Tail(host, batch.source, batch.generation, end, stream, is_cut, piece.goes_on)


def _is_simple(data: bytes) -> bool:
    return data.endswith(b"\n") and not cri.has_fragments(data)


def _texts(data: bytes) -> bytes:
    """Return the texts of CRI lines without fragments."""
    rows = [line.split(b" ", 3) for line in data.split(b"\n")]
    rows.pop()
    if all([len(row) == 4 and row[1] in _STREAMS for row in rows]):  # noqa: C419  # twice as fast
        texts = [row[3] for row in rows]
    else:
        texts = [_text(row) for row in rows]
    texts.append(b"")
    return b"\n".join(texts)


def _text(row: list[bytes]) -> bytes:
    if len(row) < 3 or row[1] not in _STREAMS:
        return b" ".join(row)
    return row[3] if len(row) == 4 else b""


def _joined(piece: Piece, tail: Tail | None, *, is_continued: bool) -> tuple[bytes, Tail | None]:
    """Return the texts of CRI lines; the first and the last line may be incomplete."""
    data, out = piece.data, []
    stream = tail.stream if tail is not None and is_continued else ""
    is_open = bool(stream)
    if tail is not None and not is_continued:
        out.append(b"\n")
    elif tail is not None and tail.is_cut:
        head, newline, data = data.partition(b"\n")
        out.append(head)
        if not newline:
            return head, _tail(piece, stream)
        if not stream:
            out.append(b"\n")
    for line in cri.join(data):
        if is_open and line.stream.decode() != stream:
            out.append(b"\n")
        out.append(line.text)
        is_open, stream = not line.whole, line.stream.decode()
        if line.whole:
            out.append(b"\n")
    is_cut = piece.goes_on and not piece.data.endswith(b"\n")
    if is_open:
        return b"".join(out), _tail(piece, stream, is_cut=is_cut)
    if is_cut and out:
        out.pop()
        return b"".join(out), _tail(piece)
    return b"".join(out), None
