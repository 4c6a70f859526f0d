"""What shippers and collectors answer to the question for their status, as far as it is read here.

Each program with the login of a component may answer, and a component may be of another version. An
answer that cannot be read is left out as a whole, and said: it ends no command and no page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from logpipeline.subjects import BadHost, check_host

# More of a name than this is not shown.
NAME_CHARS_MAX = 80

Kind = Callable[[Any], bool]


def is_number(value: Any) -> bool:
    """Whether *value* can be added to another one."""
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return is_one and math.isfinite(value)


def is_text(value: Any) -> bool:
    """Whether *value* is text that can be written; bytes of a path may be no UTF-8."""
    try:
        value.encode("utf-8", "surrogateescape")
    except (AttributeError, UnicodeEncodeError):
        return False
    return True


def is_host(value: Any) -> bool:
    """Whether *value* can be a host's name in a subject."""
    try:
        check_host(value)
    except (BadHost, TypeError):
        return False
    return True


def is_text_or_none(value: Any) -> bool:
    """Whether *value* is a problem, or says that there is none."""
    return value is None or is_text(value)


def is_position(value: Any) -> bool:
    """Whether *value* is a generation and an offset, or None."""
    is_pair = isinstance(value, list) and len(value) == 2
    return value is None or (is_pair and is_text(value[0]) and isinstance(value[1], int))


def are_texts(value: Any) -> bool:
    """Whether *value* is a list of texts."""
    return isinstance(value, list) and all(map(is_text, value))


@dataclass(frozen=True, slots=True)
class Shape:
    """An object in JSON: the fields that it needs, and others that it may have."""

    needed: Mapping[str, Kind]
    others: Mapping[str, Kind] = field(default_factory=dict)

    def fits(self, value: Any) -> bool:
        """Whether *value* is such an object; fields that are not known here may be anything."""
        return (
            isinstance(value, dict)
            and all(name in value and kind(value[name]) for name, kind in self.needed.items())
            and all(kind(value[name]) for name, kind in self.others.items() if name in value)
        )

    def rows(self, value: Any) -> bool:
        """Whether *value* is a list of such objects."""
        return isinstance(value, list) and all(map(self.fits, value))


def _numbers(names: str) -> dict[str, Kind]:
    return dict.fromkeys(names.split(), is_number)


_OF_SOURCE: dict[str, Kind] = {"host": is_host, "source": is_text}
SOURCE = Shape(
    _OF_SOURCE,
    {
        **_numbers("backlog_bytes waiting_s lines acked_bytes missing_bytes unseen_generations"),
        **_numbers("on_the_way_bytes to_be_named_bytes"),
        "position": is_position,
    },
)
HOST = Shape(
    {
        "host": is_host,
        **_numbers("sources lines acked_bytes backlog_bytes missing_bytes on_the_way_bytes"),
        **_numbers("unlisted_waiting_s"),
    }
)
SHIPPER = Shape(
    {"name": is_text},
    {
        **_numbers("hosts sources_total backlog_bytes lines acked_bytes missing_bytes"),
        **_numbers("unseen_generations unreadable_total unconfirmed_s on_the_way_bytes"),
        **_numbers("to_be_named_bytes unhealed_bytes quarantined dropped_bytes unnamed_bytes"),
        "ready": is_text_or_none,
        "live": is_text_or_none,
        "refused_hosts": are_texts,
        "unreadable": Shape({"path": is_text, "reason": is_text}).rows,
        **_numbers("hosts_left_out"),
        "by_host": HOST.rows,
        "sources": SOURCE.rows,
    },
)
LOSS = Shape(
    {**_OF_SOURCE, "generation": is_text, "cause": is_text, **_numbers("start end time_ns")}
)
GONE = Shape(_numbers("after end again_from"))
PARTITION = Shape(
    {"partition": is_number, "problem": is_text_or_none},
    {
        **_numbers("lost_bytes damaged_bytes removed_for_room_bytes lines bytes missed_messages"),
        **_numbers("forgotten_sources losses_left_out missing_left_out"),
        "snapshot_problem": is_text_or_none,
        "gone_folders": GONE.rows,
        "missing": Shape({**_OF_SOURCE, **_numbers("bytes")}).rows,
        "losses": LOSS.rows,
    },
)
# An owned partition has an epoch, and these numbers with it.
OWNED = Shape(_numbers("epoch lag_seconds pending_bytes uncommitted_bytes missing_bytes"))
COLLECTOR = Shape(
    {"group": is_text, "member": is_text},
    {
        "dead_letters_not_kept": Shape({"host": is_text, **_numbers("messages bytes")}).rows,
        "partitions": PARTITION.rows,
    },
)


def name_in(kind: str, answer: Mapping[str, Any]) -> str:
    """Return how the component of *kind* that gave *answer* is called, as far as it says so."""
    name = answer.get("name" if kind == "shipper" else "member")
    return ascii(name)[1:-1][:NAME_CHARS_MAX] if isinstance(name, str) and name else f"a {kind}"


def is_readable(kind: str, answer: Any) -> bool:
    """Whether *answer* is one of a component of *kind*, `shipper` or `collector`."""
    if kind == "shipper":
        # `status` shows the first unreadable file where there are any.
        is_whole = SHIPPER.fits(answer)
        return is_whole and bool(answer.get("unreadable") or not answer.get("unreadable_total"))
    if not COLLECTOR.fits(answer):
        return False
    owned = [row for row in answer.get("partitions", ()) if "epoch" in row]
    return OWNED.rows(owned)
