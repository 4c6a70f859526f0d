"""Messages of syslog: RFC 5424, and what RFC 3164 describes. Pure: any bytes are a message.

A message that is in neither form is kept as a whole: the parser refuses nothing, since no log must
be lost for its form.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Literal

Form = Literal["rfc5424", "rfc3164", "other"]

PRIORITY_MAX = 191
# What RFC 3164 has a relay assume where a message names no priority: user, notice.
PRIORITY_DEFAULT = 13
FACILITIES = (
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp", "ntp", "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
)  # fmt: skip
SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")

_PRIORITY = re.compile(r"<([0-9]{1,3})>")
_HEADER = re.compile(r"1 (\S{1,64}) (\S{1,255}) (\S{1,48}) (\S{1,128}) (\S{1,32})(?: |$)")
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
# Also with a year, as Cisco writes it, and as RFC 3339, as rsyslog's forward format does.
_BSD_TIME = re.compile(
    rf"((?:{_MONTHS}) [ 0-3]?[0-9] (?:[0-9]{{4}} )?[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,18}(?:Z|[+-][0-9]{2}:[0-9]{2})) "
)
_BSD_HOST = re.compile(r"([A-Za-z0-9._:\-]{1,255}) ")
_BSD_TAG = re.compile(r"([^\s\[:\]]{1,48})(?:\[([^\s\]]{1,128})\])?: ?")
_SD_NAME = r'[^\s=\]"]{1,64}'
_SD_BEGIN = re.compile(rf"\[({_SD_NAME})")
# A value ends at a quote that no backslash is before; it may hold line breaks.
_SD_PARAM = re.compile(rf' +({_SD_NAME})="((?:[^"\\\]]|\\.)*)"', re.DOTALL)
_SD_ESCAPED = re.compile(r'\\(["\\\]])')
_BOM = "\ufeff"
_NIL = "-"
# What would end a line, or looks to a shipper like the hole that a truncation leaves.
_RAW_ESCAPES = {b"\n": b"#012", b"\0": b"#000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message; a part that it lacks is empty. *time* is as the sender wrote it. Bytes that are
    not UTF-8 are lone surrogates in the texts.
    """

    form: Form
    priority: int
    text: str
    time: str = ""
    host: str = ""
    app: str = ""
    process: str = ""
    message_id: str = ""
    data: dict[str, dict[str, str | list[str]]] = field(default_factory=dict)

    @property
    def facility(self) -> str:
        """The part of the system that it is about."""
        return FACILITIES[self.priority >> 3]

    @property
    def severity(self) -> str:
        """How serious it is."""
        return SEVERITIES[self.priority & 7]


def parse(raw: bytes) -> Message:
    """Return the message *raw*, which is without the framing of its transport."""
    text = raw.decode("utf-8", "surrogateescape")
    match = _PRIORITY.match(text)
    if match is None or int(match[1]) > PRIORITY_MAX:
        return Message(form="other", priority=PRIORITY_DEFAULT, text=text)
    priority, rest = int(match[1]), text[match.end() :]
    return _rfc5424(priority, rest) or _rfc3164(priority, rest)


def _rfc5424(priority: int, text: str) -> Message | None:
    header = _HEADER.match(text)
    if header is None:
        return None
    found = _structured_data(text, header.end())
    if found is None:
        return None
    data, end = found
    time, host, app, process, message_id = (
        "" if each == _NIL else each for each in header.groups()
    )
    return Message(
        form="rfc5424",
        priority=priority,
        time=time,
        host=host,
        app=app,
        process=process,
        message_id=message_id,
        data=data,
        text=text[end:].removeprefix(" ").removeprefix(_BOM),
    )


def _structured_data(
    text: str, at: int
) -> tuple[dict[str, dict[str, str | list[str]]], int] | None:
    """Return the structured data at *at*, and where it ends; None if it is malformed."""
    if text[at : at + 1] == _NIL and text[at + 1 : at + 2] in ("", " "):
        return {}, at + 1
    data: dict[str, dict[str, str | list[str]]] = {}
    while begin := _SD_BEGIN.match(text, at):
        at = begin.end()
        params = data.setdefault(begin[1], {})
        while param := _SD_PARAM.match(text, at):
            at = param.end()
            _add(params, param[1], _SD_ESCAPED.sub(r"\1", param[2]))
        if text[at : at + 1] != "]":
            return None
        at += 1
    return (data, at) if data and text[at : at + 1] in ("", " ") else None


def _add(params: dict[str, str | list[str]], name: str, value: str) -> None:
    """Add a parameter; one that is there more often, as the RFC allows, becomes a list."""
    former = params.get(name)
    if former is None:
        params[name] = value
    elif isinstance(former, list):
        former.append(value)
    else:
        params[name] = [former, value]


def _rfc3164(priority: int, text: str) -> Message:
    time, host = _BSD_TIME.match(text), None
    at = 0
    if time is not None:
        at = time.end()
        host = _BSD_HOST.match(text, at)
        # Without a host the tag follows at once (`su: …`), as programs write to a local socket.
        if host is not None and host[1].endswith(":"):
            host = None
        at = host.end() if host is not None else at
    tag = _BSD_TAG.match(text, at)
    return Message(
        form="rfc3164" if time is not None or tag is not None else "other",
        priority=priority,
        time=time[1] if time is not None else "",
        host=host[1] if host is not None else "",
        app=tag[1] if tag is not None else "",
        process=(tag[2] or "") if tag is not None else "",
        text=text[tag.end() if tag is not None else at :],
    )


def raw_line(raw: bytes, cut_bytes: int) -> bytes:
    """Return the message *raw* as a line, as it was received: line feeds and NULs in it are `#012`
    and `#000`, as rsyslog writes them. *cut_bytes* of it are missing at its end.
    """
    for byte, escape in _RAW_ESCAPES.items():
        raw = raw.replace(byte, escape)
    mark = f" [{cut_bytes} bytes cut]".encode() if cut_bytes else b""
    return raw + mark + b"\n"


def json_line(message: Message, *, received: str, sender: str, cut_bytes: int) -> bytes:
    """Return *message* as a JSON object on one line; *received* is a time, *sender* an address."""
    fields: dict[str, object] = {
        "received": received,
        "sender": sender,
        "form": message.form,
        "facility": message.facility,
        "severity": message.severity,
        "time": message.time,
        "host": message.host,
        "app": message.app,
        "process": message.process,
        "message_id": message.message_id,
        "data": message.data,
        "message": message.text,
        "cut_bytes": cut_bytes,
    }
    return json_of({name: value for name, value in fields.items() if value})


def json_of(fields: dict[str, object]) -> bytes:
    """Return *fields* as one line. Bytes that are no UTF-8 are escapes of lone surrogates."""
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(fields, separators=(",", ":")).encode() + b"\n"
