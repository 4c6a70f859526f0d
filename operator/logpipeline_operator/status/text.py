"""Makes texts of others fit to be shown: short, on one line, without secrets, and the same each
time.

An error's text that changes with every try would cause a write of the status with every try.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

# An event holds no more, in bytes; a condition could, but nobody reads on.
MESSAGE_BYTES_MAX = 1024
# Names that are told before the rest is counted.
NAMES_SHOWN_MAX = 3
# Longer ones come only from hostile or broken sources, and cost time to look through.
_READ_CHARS_MAX = 8192

_SECRETS = (
    # A URL's user and password.
    (re.compile(r"\b([a-z][a-z0-9+.-]{0,15}://)[^\s/@]{1,512}@", re.IGNORECASE), r"\1"),
    (re.compile(r"\beyJ[\w-]{8,}(\.[\w-]*){0,2}"), "(a token)"),
    # A seed of nkeys.
    (re.compile(r"\bS[UAOCNX][A-Z2-7]{40,}\b"), "(a seed)"),
    (
        re.compile(r"-----BEGIN [^-]{1,64}-----.*?(-----END [^-]{1,64}-----|$)", re.DOTALL),
        "(a key)",
    ),
    (
        re.compile(r"\b(password|passwd|pass|auth_token|token|seed)(\"?\s*[=:]\s*)[^\s,;]+", re.I),
        r"\1\2(hidden)",
    ),
)
_CHANGING = (
    (re.compile(r"\b_INBOX\.[\w.]+", re.IGNORECASE), "_INBOX.*"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "(an id)"),
    (re.compile(r"\b0x[0-9a-f]{6,}\b"), "(an address)"),
    # The memory address of a Python object, a port that changes with each try.
    (re.compile(r"(?<=\d:)[0-9]{4,5}(?=->)"), "*"),
)


def clean(text: str) -> str:
    """Return *text* on one line, without control characters, secrets, and what always changes."""
    text = text[:_READ_CHARS_MAX]
    for pattern, instead in (*_SECRETS, *_CHANGING):
        text = pattern.sub(instead, text)
    return " ".join("".join(map(_plain, text)).split())


def bounded(text: str, *, bytes_max: int = MESSAGE_BYTES_MAX) -> str:
    """Return *text*, cut where it would be longer than *bytes_max* bytes of UTF-8."""
    data = text.encode("utf-8", "replace")
    if len(data) <= bytes_max:
        return data.decode()
    return data[: bytes_max - len("…".encode())].decode("utf-8", "ignore") + "…"


def listed(names: Sequence[str], *, shown_max: int = NAMES_SHOWN_MAX) -> str:
    """Return *names* for a sentence: the first ones, and how many more there are."""
    shown = list(names[:shown_max])
    if more := len(names) - len(shown):
        return f"{', '.join(shown)} and {more} more"
    return ", ".join(shown)


def counted(count: int, noun: str, nouns: str = "") -> str:
    """Return *count* with its *noun*: ``1 pod``, ``2 pods``."""
    return f"{count} {noun if count == 1 else nouns or noun + 's'}"


def numbered(numbers: Sequence[int]) -> str:
    """Return rising *numbers* as ranges: ``0-4, 7``."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return listed([str(a) if a == b else f"{a}-{b}" for a, b in ranges], shown_max=8)


def sentence(text: str) -> str:
    """Return *text* with an end, so that another sentence can follow."""
    return text if not text or text[-1] in ".!?…" else f"{text}."


def _plain(letter: str) -> str:
    # Control characters, and those that turn the order of writing round, would fool a terminal.
    if letter.isspace():
        return " "
    return "\N{REPLACEMENT CHARACTER}" if unicodedata.category(letter)[0] == "C" else letter
