"""Redaction: what must not leave a machine is masked in the shipper, byte for byte. So all offsets,
and the lengths of files and lines, stay what they are.

Expressions are RE2's, which takes time in proportion to the text whatever the expression is: an
author of a resource cannot stop a shipper by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import re2

from logpipeline import cri
from logpipeline.spans import Span

Format = Literal["cri", "plain"]

MASK = "*"
# Of the states that RE2 keeps for all expressions together. With less it is slower, not wrong.
MEMORY_BYTES_MAX = 32 * 1024 * 1024
# Where `^` stands for itself: behind a backslash, and in a class of characters.
_NO_ANCHOR = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]")
_ESCAPE = re.compile(r"\\.")
# Looked for at the ends of a text, these would depend on where a batch ends. `\Q` would hide them.
_TEXT_ENDS = (r"\A", r"\z", r"\Q")
# So would `^` and `$`.
_NO_LINE_ENDS = re.compile(r"\(\?[a-zA-Z]*-[a-zA-Z]*m")


# How the digits of a card's number are grouped, where other numbers stand beside it.
_CARD_GROUPS = (
    ("13,19",),
    *(("4", "4", "4", "1,7"), ("4", "4", "4", "4", "1,3"), ("4", "6", "3,9")),
    *(("4", "3", "3", "3"), ("6", "13"), ("8", "8")),
)
CARD_DIGITS_MAX = 19


@dataclass(frozen=True, slots=True)
class Preset:
    """A named expression. Of a match its groups are masked, or all of it, if it has none; or what
    *parts* finds in it.
    """

    expression: str
    parts: Callable[[bytes], Iterable[Span]] | None = None


def _numbers_of_cards(digits: bytes) -> Iterator[Span]:
    """Yield where numbers of cards are in *digits*, which are numbers behind one another, with one
    space or hyphen between them: each part may be such a number, and so may all of them.
    """
    if _is_card(digits):
        yield 0, len(digits)
    for form in _CARD_FORMS:
        for match in form.finditer(digits):
            if _is_card(match.group(1)):
                yield match.span(1)


def _card_form(first: str, *others: str) -> re.Pattern[bytes]:
    """Return what finds numbers in groups of so many digits, also where they overlap."""
    # They are separated in one way.
    rest = "([ -])" + r"\2".join(f"[0-9]{{{digits}}}" for digits in others) if others else ""
    return re.compile(f"(?<![0-9])(?=([0-9]{{{first}}}{rest})(?![0-9]))".encode())


_CARD_FORMS = tuple(_card_form(*groups) for groups in _CARD_GROUPS)


def _is_card(text: bytes) -> bool:
    """Return whether the digits of *text* are a number with a check digit by Luhn's formula
    (ISO/IEC 7812-1, annex B), as those of payment cards are.
    """
    digits = [byte - 48 for byte in reversed(text) if 48 <= byte <= 57]
    if len(digits) > CARD_DIGITS_MAX:
        return False
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


PRESETS = {
    "bearer": Preset(r"(?i)\b(?:bearer|basic)[ \t]+([a-z0-9._~+/=-]{8,})"),
    "jwt": Preset(r"\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*"),
    "aws-key": Preset(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    # The value of a field with such a name, in JSON, logfmt, a query, a header or a Ruby hash.
    "secret": Preset(
        r"(?i)(?:passwd|password|passphrase|pwd|secret|token|api[_-]?key|private[_-]?key)"
        r"(?:"
        # In JSON that is a text within JSON the quotes are escaped.
        r"\\\"[ \t]*:[ \t]*\\\"((?:\\\\\\\"|[^\"\\]|\\[^\"])+)"
        r"|[\"']?[ \t]*(?:=>|[=:])[ \t]*"
        r"(?:\"((?:[^\"\\]|\\.)+)|'([^']+)|([^ \t\"',;&]+)))"
    ),
    "url-password": Preset(r"\b[a-z][a-z0-9+.-]*://[^ \t/:@]*:([^ \t/@]+)@"),
    # All digits up to a letter or another sign: where a number ends among others, its form says.
    "card": Preset(r"\b[0-9](?:[ -]?[0-9]){12,}\b", _numbers_of_cards),
    "iban": Preset(r"\b[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b"),
    "email": Preset(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"),
    "ipv4": Preset(r"\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}\b"),
}


class BadExpression(ValueError):
    """An expression that cannot be used; the message says why."""


class _Rule(NamedTuple):
    pattern: Any
    parts: Callable[[bytes], Iterable[Span]] | None

    def places(self, match: Any) -> Iterator[Span]:
        """Yield what is to be masked of *match*."""
        if self.parts is not None:
            at = match.start()
            yield from ((at + start, at + end) for start, end in self.parts(match.group()))
        else:
            groups = range(1, self.pattern.groups + 1) if self.pattern.groups else (0,)
            # A group that took no part is at -1.
            yield from (span for span in map(match.span, groups) if span[0] >= 0)


class Redactor:
    """Masks what one of the *presets* or of the *expressions* finds in a line: its groups, or all
    of it, if it has none.

    Raises:
        BadExpression: an expression has a mistake.
        KeyError: there is no such preset.
    """

    def __init__(
        self, presets: Sequence[str] = (), expressions: Sequence[str] = (), mask: str = MASK
    ) -> None:
        known = [PRESETS[name] for name in presets]
        wanted = [*known, *(Preset(expression) for expression in expressions)]
        self._mask = mask.encode("ascii")
        self._rules = [_Rule(compiled(each.expression), each.parts) for each in wanted]
        alternatives = "|".join(f"(?:{each.expression})" for each in wanted)
        self._any = _compiled(alternatives) if wanted else None
        # In a container's log `^` is behind what the runtime wrote.
        self._is_anchored = any("^" in _NO_ANCHOR.sub("", each.expression) for each in wanted)

    def redact(self, data: bytes, log_format: Format) -> bytes:
        """Return *data*, which are lines of a file, with as many bytes, and what was found masked.
        A run of fragments of a container's line is looked at as one line.
        """
        if self._any is None:
            return data
        is_cri = log_format == "cri"
        # What is found in a line as the runtime wrote it need not be all that is in its text.
        is_hidden = is_cri and (self._is_anchored or cri.has_fragments(data))
        if not is_hidden and self._any.search(data) is None:
            return data
        if not is_cri:
            return self._masked(data)
        masked = bytearray(data)
        for places in _texts(data):
            text = b"".join(data[start:end] for start, end in places)
            found, at = self._masked(text), 0
            for start, end in places:
                masked[start:end] = found[at : at + end - start]
                at += end - start
        return bytes(masked)

    def _masked(self, text: bytes) -> bytes:
        masked: bytearray | None = None
        for rule in self._rules:
            # Each looks at the text as it was written: their order is of no matter.
            for match in rule.pattern.finditer(text):
                for start, end in rule.places(match):
                    if masked is None:
                        masked = bytearray(text)
                    masked[start:end] = self._mask * (end - start)
        return text if masked is None else bytes(masked)


NOTHING_REDACTED = Redactor()


def compiled(expression: str) -> Any:
    """Return *expression* of RE2 for the bytes of lines; `^` and `$` are the ends of a line.

    Raises:
        BadExpression: it has a mistake.
    """
    if used := [each for each in _ESCAPE.findall(expression) if each in _TEXT_ENDS]:
        raise BadExpression(f"{used[0]} is not known: take ^ and $ for the ends of a line")
    if _NO_LINE_ENDS.search(_NO_ANCHOR.sub("", expression)):
        raise BadExpression("the flag m stays set: ^ and $ are the ends of a line")
    pattern = _compiled(expression)
    if pattern.search(b"") is not None:
        raise BadExpression("it finds something in an empty text: name what is to be masked")
    return pattern


def _compiled(expression: str) -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    # No match goes beyond a line.
    options.never_nl = True
    options.log_errors = False
    options.max_mem = MEMORY_BYTES_MAX
    try:
        return re2.compile(f"(?m){expression}".encode(), options=options)
    except re2.error as error:
        (why,) = error.args
        raise BadExpression(why.decode(errors="replace")) from None


def _texts(data: bytes) -> Iterator[list[tuple[int, int]]]:
    """Yield where the texts of the CRI lines *data* are: a place for each line, or for each
    fragment of a run. A line that is not in the format is a text.
    """
    runs: dict[bytes, list[tuple[int, int]]] = {}
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        fields = data[start:end].split(b" ", 3)
        if len(fields) < 4 or fields[1] not in (b"stdout", b"stderr"):
            yield [(start, end)]
        else:
            run = runs.pop(fields[1], [])
            run.append((end - len(fields[3]), end))
            if cri.is_fragment(fields[2]):
                runs[fields[1]] = run
            else:
                yield run
        start = end + 1
    yield from runs.values()
