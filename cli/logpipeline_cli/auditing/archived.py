"""The lines of archived files, as the programs wrote them, whatever the output's form is."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator

from logpipeline_cli.auditing.lines import lines_in


class NoLine(Exception):
    """A line of an archived file is not of the form that the pipeline has now."""


def lines_of(output: str, chunks: Iterable[bytes], *, is_cri: bool) -> Iterator[bytes]:
    """Yield the program's lines in one archived file of the form *output* (``raw``, ``cri`` or
    ``json``), without their ends.

    Raises:
        NoLine: it is of another form.
    """
    lines = lines_in(chunks, is_cri=is_cri and output == "cri")
    yield from _messages(lines) if output == "json" else lines


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
