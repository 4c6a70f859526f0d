"""Output as JSON, one object a line, for programs that read archived files.

``message`` is the line as text. Where its bytes are no UTF-8, each bad byte shows as U+FFFD there,
and ``message_base64`` holds the exact bytes: nothing is lost, and any JSON parser can read it.
``partial`` is true where the line goes on in the next object of its source and stream.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from json.encoder import encode_basestring

from logpipeline import cri
from logpipeline_collector.archive.naming import Origin


def render(origin: Origin, is_cri: bool, data: bytes, time_ns: int) -> bytes:
    """Return the lines of *data* as objects; *time_ns* is the time of lines that carry none."""
    base = {
        "host": origin.host,
        "namespace": origin.namespace,
        "pod": origin.pod,
        "container": origin.container,
        "source": origin.path,
    }
    fields = "".join(f",{_text(name)}:{_text(value)}" for name, value in base.items())
    lines = _cri(data) if is_cri else _plain(data)
    default = rfc3339(time_ns)
    texts = [
        f'{{"time":{_text(time or default)},"stream":"{stream}"{fields},{_message(line)}{more}}}\n'
        for time, stream, line, more in lines
    ]
    return "".join(texts).encode()


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


def _text(value: str) -> str:
    # A source may hold bytes that are no UTF-8; a lone surrogate is not every parser's JSON.
    raw = value.encode("utf-8", "surrogateescape")
    return encode_basestring(raw.decode("utf-8", "backslashreplace"))
