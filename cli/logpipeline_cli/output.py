"""Output of commands: aligned tables for people, JSON for scripts, and no control characters of
logs.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from logpipeline_cli.errors import CliError

# C0 and C1 controls but tab; bidirectional overrides and isolates; line and paragraph separators.
# They could move the cursor, rename the window, answer in the user's name, or show a line's
# characters in another order.
_UNSAFE = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def escaped(line: bytes) -> str:
    """Return *line* as text that is safe on a terminal: unsafe characters and bytes are escaped,
    such as ``\\x1b``.
    """
    return _escaped(line.decode("utf-8", "backslashreplace"))


def escaped_name(name: str) -> str:
    """Return a name, which may hold bytes that are no valid text, as safe text for a terminal."""
    return escaped(name.encode("utf-8", "surrogateescape"))


def write_content(chunks: Iterable[bytes], *, raw: bool) -> None:
    """Print the content of a file chunk by chunk, byte for byte if *raw*. A line need not fit into
    memory.

    Unless *raw*, the next file begins on a new line.
    """
    if raw:
        for chunk in chunks:
            sys.stdout.buffer.write(chunk)
        return
    # A character may be split between two chunks.
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    end = "\n"
    for chunk in chain(chunks, (b"",)):
        text = decoder.decode(chunk, final=not chunk)
        sys.stdout.write("\n".join(_escaped(part) for part in text.split("\n")))
        end = text[-1:] or end
    if end != "\n":
        sys.stdout.write("\n")


def write_line(line: bytes, *, raw: bool) -> None:
    """Print one log line, byte for byte if *raw*."""
    if raw:
        sys.stdout.buffer.write(line + b"\n")
    else:
        sys.stdout.write(escaped(line) + "\n")


def print_json(value: Any) -> None:
    """Print *value* as indented JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=True))


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return *rows* below *headers* in columns."""
    cells = [list(headers), *([escaped_name(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def bytes_text(count: float) -> str:
    """Return a number of bytes as text: ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def seconds_text(seconds: float) -> str:
    """Return a time span as text: ``120 ms``, ``3.2 s``, ``5 m``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} m" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _escaped(text: str) -> str:
    return _UNSAFE.sub(lambda match: _escape(match.group()), text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def agreed(question: str, *, yes: bool) -> bool:
    """Return whether the person at the terminal agrees; with *yes* nothing is asked.

    Raises:
        CliError: there is no terminal to ask at.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise CliError("confirmation is needed, and there is no terminal: give --yes to confirm")
    print(f"{question} [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
