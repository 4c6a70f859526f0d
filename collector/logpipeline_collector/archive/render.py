"""From the bytes of a batch to the bytes of an output file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

from logpipeline import cri
from logpipeline.wire import Batch
from logpipeline_collector.archive.naming import Origin, Template


def render(output: str, origin: Origin, batch: Batch | None, data: bytes, time_ns: int) -> bytes:
    """Return what stands for *data* (whole lines, or adjoining pieces of one) in a file of format
    *output*.
    """
    is_cri = batch is not None and batch.format == "cri"
    if output == "json":
        return _json(origin, batch, data, time_ns)
    if output == "raw" and is_cri:
        return _texts(data)
    if output == "cri" and not is_cri:
        return _as_cri(data, time_ns)
    return data


def pieces(
    template: Template, batch: Batch | None, data: bytes, time_ns: int
) -> Iterator[tuple[str, bytes]]:
    """Yield *data* in pieces with the period of each; one piece unless the lines' times span
    periods.
    """
    if not template.has_time:
        yield template.text, data
        return
    first_ns = (batch.first_time_ns if batch else 0) or time_ns
    last_ns = (batch.last_time_ns if batch else 0) or first_ns
    period = template.period(first_ns)
    if batch is None or batch.format != "cri" or template.period(last_ns) == period:
        yield period, data
        return
    start = position = 0
    while position < len(data):
        end = data.find(b"\n", position) + 1 or len(data)
        now = template.period(cri.time_ns(data[position : position + 64]) or first_ns)
        # Fragments of one line stay together, in the period of the first of them.
        if now != period and cri.last_cut(data[start:position]) == position - start:
            if position > start:
                yield period, data[start:position]
            start, period = position, now
        position = end
    yield period, data[start:]


def _texts(data: bytes) -> bytes:
    if cri.has_fragments(data):
        return b"".join(line.text + (b"\n" if line.whole else b"") for line in cri.join(data))
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return b"".join([_text(line) + b"\n" for line in lines])


def _text(line: bytes) -> bytes:
    fields = line.split(b" ", 3)
    if len(fields) == 4 and fields[1] in (b"stdout", b"stderr"):
        return fields[3]
    return b"" if len(fields) == 3 and fields[1] in (b"stdout", b"stderr") else line


def _as_cri(data: bytes, time_ns: int) -> bytes:
    stamp = _rfc3339(time_ns).encode()
    lines = data.split(b"\n")
    ends = lines.pop() if not lines[-1] else None
    texts = [b"%s stdout F %s\n" % (stamp, line) for line in lines]
    if ends is None and texts:
        texts[-1] = texts[-1].replace(b" stdout F ", b" stdout P ", 1)
    return b"".join(texts)


def _json(origin: Origin, batch: Batch | None, data: bytes, time_ns: int) -> bytes:
    base = {
        "host": origin.host,
        "namespace": origin.namespace,
        "pod": origin.pod,
        "container": origin.container,
        "source": origin.path,
    }
    base = {name: value for name, value in base.items() if value}
    records = []
    for time_text, stream, text, whole in _lines(batch, data, time_ns):
        record: dict[str, object] = {"time": time_text, **base}
        if stream:
            record["stream"] = stream
        # Bytes that are no UTF-8 become lone surrogates, which JSON escapes and a reader can undo.
        record["message"] = text.decode("utf-8", "surrogateescape")
        if not whole:
            record["partial"] = True
        records.append(json.dumps(record, ensure_ascii=True, separators=(",", ":")).encode())
    return b"".join(record + b"\n" for record in records)


def _lines(
    batch: Batch | None, data: bytes, time_ns: int
) -> Iterator[tuple[str, str, bytes, bool]]:
    if batch is not None and batch.format == "cri":
        for line in cri.join(data):
            yield line.time.decode("ascii", "replace"), line.stream.decode(), line.text, line.whole
        return
    stamp = _rfc3339(time_ns)
    *texts, rest = data.split(b"\n")
    for text in texts:
        yield stamp, "", text, True
    if rest:
        yield stamp, "", rest, False


def _rfc3339(time_ns: int) -> str:
    moment = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ns % 1_000_000_000:09d}Z"
