"""Texts for the status: short, on one line, without secrets, and the same each time.

An error's text that differs with every attempt would cause a write of the status with every
attempt.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial

from logpipeline.lag import PartitionState

# The limit of an event's message, in bytes. A condition could be longer, but would not be read.
MESSAGE_BYTES_MAX = 1024
# Names that are shown; the rest is counted.
NAMES_SHOWN_MAX = 3
# Longer texts come only from hostile or broken sources, and take long to search.
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

UNKNOWN = "unknown"
NOTHING = "nothing"
# Collectors commit several times a second; below this lag a pipeline is up to date.
FRESH_S = 10.0
# A rounded number stays until the value differs by this factor: else it would flicker at a border.
MARGIN = 1.25
# A round may begin just before a line arrives, and the next one takes some time.
ROUNDS_FRESH = 3

_UNITS_S = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_STEPS_S = (
    10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 28_800, 43_200,
    86_400, 172_800, 345_600, 604_800, 1_209_600, 2_592_000,
)  # fmt: skip
_UNITS_BYTES = ("KiB", "MiB", "GiB", "TiB", "PiB")
_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)


def clean(text: str) -> str:
    """Return *text* on one line, without control characters, secrets and changing parts."""
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
    """Return *text* with a full stop, so that another sentence can follow."""
    return text if not text or text[-1] in ".!?…" else f"{text}."


def _plain(letter: str) -> str:
    # Control characters, and those that reverse the direction of writing, would deceive readers.
    if letter.isspace():
        return " "
    return "\N{REPLACEMENT CHARACTER}" if unicodedata.category(letter)[0] == "C" else letter


# A running pipeline has a slightly different lag in each reconciliation; an exact number would
# cause a write each time.
def lag_text(partitions: Sequence[PartitionState], previous: str = "") -> str:
    """Return the lag of *partitions*; the text of the *previous* status if it still fits."""
    if not partitions:
        return UNKNOWN
    age_s = max(state.lag_s for state in partitions)
    size = sum(state.lag_bytes for state in partitions)
    return words(age_s, size, previous)


def size_text(size: int) -> str:
    """Return *size* bytes as a rounded text, ``nothing`` for 0."""
    return bytes_text(size) if size else NOTHING


def words(age_s: float, size: float, previous: str = "", *, fresh_s: float = FRESH_S) -> str:
    """Return a lag of *age_s* seconds and *size* bytes as a text; the *previous* text if it still
    fits. Below *fresh_s* the size is left out.
    """
    old_size, _, old_age = previous.rpartition(", ")
    age = _kept(age_s, old_age or previous, partial(age_text, fresh_s=fresh_s))
    if age == fresh_text(fresh_s):
        return age
    return f"{_kept(size, old_size, bytes_text)}, {age}"


def age_text(age_s: float, *, fresh_s: float = FRESH_S) -> str:
    """Return *age_s* seconds as a rounded text: ``30 s``, ``5 min``, ``2 d``."""
    return fresh_text(fresh_s) if age_s < fresh_s else _span(age_s)


def fresh_text(fresh_s: float) -> str:
    """Return the text of a lag below *fresh_s*: ``< 10 s``."""
    return f"< {_span(fresh_s)}"


def fresh_from(interval_s: float) -> float:
    """Return the lag below which a reader with rounds every *interval_s* is up to date."""
    wanted = max(ROUNDS_FRESH * interval_s, FRESH_S)
    return next((step for step in _STEPS_S if step >= wanted), _STEPS_S[-1])


def _span(span_s: float) -> str:
    step = max((step for step in _STEPS_S if step <= span_s), default=_STEPS_S[0])
    size, unit = next((size, unit) for size, unit in _UNITS_S if step >= size)
    return f"{step // size} {unit}"


def bytes_text(size: float) -> str:
    """Return *size* bytes as a rounded text: ``20 MiB``."""
    number, units = size / 1024, iter(_UNITS_BYTES)
    unit = next(units)
    for larger in units:
        if number < 1024:
            break
        number, unit = number / 1024, larger
    return f"{max((step for step in _STEPS if step <= number), default=1)} {unit}"


def _kept(value: float, previous: str, text: Callable[[float], str]) -> str:
    words = [text(each) for each in (value, value / MARGIN, value * MARGIN)]
    return previous if previous in words else words[0]
