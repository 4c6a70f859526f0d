"""The event time of a line: when what it says happened. It is the time that the line itself names,
or else that of the container runtime. A table has it in its column `event_ts`, and readers find it
by the same rules, `spec.table.time`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logpipeline.line_fields import Names, document, number_of_rule, remove, value
from logpipeline.spec.table import FieldType, ParseRule, Table, TimeRule
from logpipeline.timestamps import HEAD_BYTES_MAX, find, of_number

# So many bytes hold all characters that begin in a head.
_CUT_BYTES = HEAD_BYTES_MAX + 3


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimes:
    """Finds the times that lines name, by the first of *rules* that finds one. Those of a field
    need the rules to *parse* lines; *zone* is that of times which name none.
    """

    rules: tuple[TimeRule, ...] = ()
    parse: tuple[ParseRule, ...] = ()
    zone: str = "UTC"

    @staticmethod
    def of(table: Table) -> EventTimes:
        """Return the way in which the table of a resource finds them."""
        return EventTimes(rules=table.time, parse=table.parse, zone=table.zone)

    def find_us(self, text: bytes, near_us: int, names: Names | None) -> int | None:
        """Return the time that a line names, in microseconds since 1970; the server stored it at
        *near_us*. *names* are None for a piece of a line, which has no fields.
        """
        head: bytes | None = None
        fields: dict[str, tuple[FieldType, Any]] | None = None
        for rule in self.rules:
            if rule.field is not None:
                if fields is None:
                    fields = self._fields(text, names)
                found = self._in_field(*fields.get(rule.field, _NOTHING), near_us, rule)
            else:
                head = head_of(text) if head is None else head
                found = self._in_text(head, near_us, rule)
            if found is not None:
                return found
        return None

    def _fields(self, text: bytes, names: Names | None) -> dict[str, tuple[FieldType, Any]]:
        """Return type and value of the declared fields of a line."""
        number = None if names is None else number_of_rule(names, self.parse)
        if number is None:
            return {}
        rule = self.parse[number]
        said = document(text.decode("utf-8", "replace"), rule) or {}
        found: dict[str, tuple[FieldType, Any]] = {}
        for field in rule.fields:
            found[field.name] = (field.type, value(said, field))
            if found[field.name][1] is not None:
                # What a field took is not there for the fields behind it.
                remove(said, field.key)
        return found

    def _in_field(self, kind: FieldType, value: Any, near_us: int, rule: TimeRule) -> int | None:
        if kind == "timestamp":
            return self._in_timestamp(value, near_us)
        if isinstance(value, str):
            return self._in_text(value.encode()[:HEAD_BYTES_MAX], near_us, rule)
        if value is None or isinstance(value, bool):
            return None
        return of_number(float(value), near_us, format=rule.format)

    def _in_timestamp(self, value: Any, near_us: int) -> int | None:
        if isinstance(value, str) and len(value) <= HEAD_BYTES_MAX:
            return find(value.encode(), near_us, format="auto", zone=self.zone)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return of_number(float(value), near_us, format="auto")
        return None

    def _in_text(self, head: bytes, near_us: int, rule: TimeRule) -> int | None:
        return find(head, near_us, format=rule.pattern or rule.format, zone=self.zone)


NONE = EventTimes()
_NOTHING: tuple[FieldType, Any] = ("string", None)


def head_of(text: bytes) -> bytes:
    """Return where a time is looked for: the first bytes of the text of which a table has a column,
    in which bytes that are not UTF-8 are replaced.
    """
    head = text[:_CUT_BYTES]
    if not head.isascii():
        head = head.decode("utf-8", "replace").encode()
    return head[:HEAD_BYTES_MAX]
