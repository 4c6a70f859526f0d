"""The lines of archived files, as the programs wrote them, whatever the output's form is."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator

from logpipeline import cri


class NoLine(Exception):
    """A line of an archived file is not of the form that the pipeline has now."""


def lines_of(output: str, chunks: Iterable[bytes], *, is_cri: bool) -> Iterator[bytes]:
    """Yield the program's lines in one archived file of the form *output* (``raw``, ``cri`` or
    ``json``), without their ends.

    Raises:
        NoLine: it is of another form.
    """
    if output == "json":
        yield from _messages(_split(chunks))
    elif output == "cri" and is_cri:
        yield from _texts(chunks)
    else:
        yield from _split(chunks)


def _split(chunks: Iterable[bytes]) -> Iterator[bytes]:
    held = b""
    for chunk in chunks:
        *lines, rest = (held + chunk if held else chunk).split(b"\n")
        yield from lines
        held = rest
    if held:
        yield held


def _texts(chunks: Iterable[bytes]) -> Iterator[bytes]:
    held = b""
    for chunk in chunks:
        held += chunk
        cut = cri.last_cut(held)
        yield from (line.text for line in cri.join(held[:cut]))
        held = held[cut:]
    yield from (line.text for line in cri.join(held))


def _messages(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the texts of JSON *lines*; what was too long for one stands in several, of which all
    but the last say so.
    """
    begun: dict[tuple[str, str], bytes] = {}
    for line in lines:
        try:
            row = json.loads(line)
            coded = row.get("message_base64")
            text = row["message"].encode() if coded is None else base64.b64decode(coded)
            key = (str(row.get("source", "")), str(row.get("stream", "")))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise NoLine(f"{line[:60]!r} is no line of JSON output") from error
        text = begun.pop(key, b"") + text
        if row.get("partial"):
            begun[key] = text
        else:
            yield text
    yield from begun.values()
