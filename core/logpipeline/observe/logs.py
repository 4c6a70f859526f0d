"""Our own log records: one line each, with fields, for machines as JSON and for eyes as text.

What is logged may carry bytes of strangers, a file's name for example. So a record never spans two
lines, and as text never reaches a terminal as anything but text.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from logpipeline import json_text

Format = Literal["json", "text"]

# The least level of records that are written.
LEVEL_VARIABLE = "LOGPIPELINE_LOG_LEVEL"
# A field that is longer is cut: a record is for a human, and a bad message may be megabytes long.
VALUE_CHARACTERS_MAX = 4096
# The end of a traceback says what happened, so that is what is kept.
TRACEBACK_CHARACTERS_MAX = 16_384

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_HEAD = ("time", "level", "component", "message", "error")


def setup(
    component: str,
    format: Format | None = None,
    *,
    level: int | str | None = None,
    stream: TextIO | None = None,
) -> None:
    """Send every record of this process to *stream* (standard error), as text to a terminal only;
    by default from the level that ``$LOGPIPELINE_LOG_LEVEL`` names, else from info on.

    Calling it again replaces what the call before has set up.
    """
    target = stream or sys.stderr
    chosen = format or ("text" if target.isatty() else "json")
    handler = logging.StreamHandler(target)
    handler.setFormatter(JsonFormatter(component) if chosen == "json" else TextFormatter(component))
    root = logging.getLogger()
    for former in root.handlers[:]:
        if isinstance(former.formatter, JsonFormatter | TextFormatter):
            root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(level if level is not None else _chosen_level())


def _chosen_level() -> int:
    name = os.environ.get(LEVEL_VARIABLE, "").upper()
    return logging.getLevelNamesMapping().get(name, logging.INFO)


def text_of(line: str) -> str:
    """Return *line*, a record of another process as JSON, as text; any other line as it is."""
    try:
        record = json_text.parse(line)
        head = [str(record.pop(name)) for name in ("time", "level", "component", "message")]
    except (ValueError, KeyError, TypeError, AttributeError):
        return printable(line)
    time, level, component, message = map(printable, head)
    fields = [f"{printable(str(name))}={_quoted(str(value))}" for name, value in record.items()]
    return " ".join([time, f"{level.upper():<7}", component, message, *fields])


class JsonFormatter(logging.Formatter):
    """A record as one JSON object on one line."""

    def __init__(self, component: str) -> None:
        super().__init__()
        self.component = component

    def format(self, record: logging.LogRecord) -> str:
        """Return *record* as JSON; a field that has a name of ours gets an underscore."""
        head = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "component": self.component,
            "message": _cut(record.getMessage()),
        }
        error = {"error": _end_of_traceback(self, record)} if record.exc_info else {}
        return json.dumps(head | fields_of(record) | error)


class TextFormatter(logging.Formatter):
    """A record as one line for a terminal, whatever bytes are in it."""

    def __init__(self, component: str) -> None:
        super().__init__()
        self.component = component

    def format(self, record: logging.LogRecord) -> str:
        """Return *record* as time, level, component, message, and then its fields."""
        parts = [
            _time_of(record),
            f"{record.levelname:<7}",
            self.component,
            printable(_cut(record.getMessage())),
        ]
        for name, value in fields_of(record).items():
            parts.append(f"{printable(name)}={_quoted(str(value))}")
        if record.exc_info:
            parts.append(f"error={_quoted(_end_of_traceback(self, record))}")
        return " ".join(parts)


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields that the caller gave as *extra*."""
    return {
        f"{name}_" if name in _HEAD else name: _bounded(value)
        for name, value in vars(record).items()
        if name not in _STANDARD
    }


def printable(text: str) -> str:
    """Return *text* with all escaped that a terminal acts on, that ends a line, or hides others."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def _quoted(text: str) -> str:
    if text and not any(character in ' "=\\' for character in text):
        return printable(text)
    return '"' + printable(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _bounded(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float) else _as_text(value)


def _as_text(value: Any) -> str:
    if isinstance(value, bytes):
        value = value[: VALUE_CHARACTERS_MAX + 1].decode(errors="backslashreplace")
    return _cut(str(value))


def _cut(text: str) -> str:
    if len(text) <= VALUE_CHARACTERS_MAX:
        return text
    return f"{text[:VALUE_CHARACTERS_MAX]}… ({len(text)} characters)"


def _end_of_traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    assert record.exc_info is not None
    return formatter.formatException(record.exc_info)[-TRACEBACK_CHARACTERS_MAX:]


def _time_of(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
