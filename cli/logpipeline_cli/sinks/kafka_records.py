"""What a line is in Kafka: its topic, key, value, time and headers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from logpipeline.consuming.message import Message
from logpipeline.origin import Origin
from logpipeline_cli.batches import json_lines
from logpipeline_cli.errors import UsageError
from logpipeline_cli.sinks.destination import line_names

Key = Literal["host", "source"]
Form = Literal["json", "raw"]
# As the client takes them.
Headers = list[tuple[str, str | bytes | None]]

# A pod is none of them: its name is used once, and a topic is there for years.
_FIELDS = ("host", "namespace", "container")
_FIELD = re.compile(r"\{([^{}]*)\}")
_LEGAL = re.compile(r"[A-Za-z0-9._-]+")
_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")
# A field that a line does not have, such as the namespace of a plain file.
NONE = "none"


class Record(NamedTuple):
    """A line for Kafka; *time_ms* is in milliseconds since 1970."""

    value: bytes
    headers: Headers
    time_ms: int


class Shape(NamedTuple):
    """How lines become records: the *topic* may have fields in braces, *key* says which lines stay
    in order, *form* is that of a value.
    """

    topic: str
    key: Key
    form: Form

    @property
    def has_fields(self) -> bool:
        """Whether lines go to several topics."""
        return "{" in self.topic

    def topic_of(self, message: Message) -> str:
        """Return the topic of the lines of *message*; what no topic's name holds becomes ``_``.

        Raises:
            BadMessage: its headers are not valid.
        """
        origin = message.origin
        return _FIELD.sub(
            lambda found: _ILLEGAL.sub("_", getattr(origin, found[1]) or NONE), self.topic
        )

    def key_of(self, message: Message) -> bytes:
        """Return the key of the lines of *message*: lines of one key are in one partition.

        Raises:
            BadMessage: its headers are not valid.
        """
        origin = message.origin
        return _bytes(origin.host if self.key == "host" else f"{origin.host}/{origin.path}")

    def records(self, message: Message, created: str) -> Iterator[Record]:
        """Yield the lines of *message* of the stream that was *created* then.

        Raises:
            BadMessage: it cannot be decoded.
        """
        common = [("host", _bytes(message.host)), *_origin_headers(message.origin)]
        lines = message.lines
        values = json_lines(message) if self.form == "json" else [line.text for line in lines]
        # They stay the same: whoever reads records that were never committed knows them by these.
        names = line_names(message, created)
        for name, line, value in zip(names, lines, values, strict=True):
            headers: Headers = [("id", name.encode()), *common]
            if line.stream:
                headers.append(("stream", line.stream.encode()))
            if not line.is_whole:
                headers.append(("partial", b"true"))
            yield Record(value, headers, line.time_ns // 1_000_000)


def _origin_headers(origin: Origin) -> list[tuple[str, bytes]]:
    fields = {
        "namespace": origin.namespace,
        "pod": origin.pod,
        "container": origin.container,
        "source": origin.path,
    }
    return [(name, _bytes(value)) for name, value in fields.items() if value]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def shape_of(topic: str, key: Key, form: Form) -> Shape:
    """Return how lines become records.

    Raises:
        UsageError: *topic* cannot be the name of one.
    """
    unknown = [name for name in _FIELD.findall(topic) if name not in _FIELDS]
    if unknown or not _LEGAL.fullmatch(_FIELD.sub("x", topic)):
        known = ", ".join(f"{{{name}}}" for name in _FIELDS)
        raise UsageError(
            f"--topic {topic!r}: give the name of a topic, such as logs or logs-{{namespace}}; "
            f"{known} stand for those of a line"
        )
    return Shape(topic, key, form)
