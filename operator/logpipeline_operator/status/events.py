"""Events: one for each transition of a condition, and for each correction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from logpipeline_operator.status import previous_status
from logpipeline_operator.status.facts import Facts
from logpipeline_operator.status.reasons import Reason, reason_of
from logpipeline_operator.status.text import bounded, clean, listed, sentence

# If several conditions have the same reason, the first one gets the event.
_ORDER = (
    "Ready",
    "StreamsReady",
    "CollectorsAvailable",
    "ShippersAvailable",
    "TableRunning",
    "Durable",
    "Complete",
    "Paused",
)
# A new pipeline, or one that is reached again, gets no event with these reasons.
_EXPECTED = tuple(
    reason.word
    for reason in (
        Reason.ACTIVE, Reason.SYNC_ALWAYS, Reason.TABLE_DISABLED, Reason.NOTHING_LOST
    )
)  # fmt: skip
# Users chose these themselves, so they are not warnings.
_CHOSEN = tuple(
    reason.word
    for reason in (Reason.PAUSED, Reason.UNMANAGED, Reason.READ_ONLY, Reason.TABLE_DISABLED)
)
DRIFTS_SHOWN_MAX = 8


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a LogPipeline."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def events_of(previous: Mapping[str, Any] | None, new: Mapping[str, Any]) -> list[Event]:
    """Return an event for each transition between the status *previous* and *new*."""
    events: list[Event] = []
    reported: set[str] = set()
    for kind in _ORDER:
        before, after = (
            previous_status.condition(previous, kind),
            previous_status.condition(new, kind),
        )
        word, status = str(after.get("reason", "")), after.get("status")
        if (before.get("status"), before.get("reason")) == (status, after.get("reason")):
            # It did not change: its event was sent before.
            reported.add(word)
        elif (
            status not in (None, "Unknown")
            and word not in reported
            and (before.get("status") not in (None, "Unknown") or word not in _EXPECTED)
        ):
            reported.add(word)
            message = bounded(clean(str(after.get("message", ""))))
            events.append(Event(_type(kind, status, word), word, message))
    return events


def news_of(facts: Facts) -> list[Event]:
    """Return events for corrected drift, for renewed certificates, and for refused logins."""
    news, found = [], facts.news
    if found.refused_logins:
        text = f"The managed server refused logins: {found.refused_logins}"
        news.append(_news(Reason.LOGINS_REFUSED, text, "Warning"))
    if found.drifted:
        children = listed(sorted(set(found.drifted)), shown_max=DRIFTS_SHOWN_MAX)
        news.append(
            _news(Reason.DRIFT_CORRECTED, f"Corrected changes of other managers: {children}")
        )
    if found.renewed:
        news.append(_news(Reason.CERTIFICATE_RENEWED, f"The managed server gets {found.renewed}"))
    return news


def _news(reason: Reason, text: str, type: Literal["Normal", "Warning"] = "Normal") -> Event:
    return Event(type, reason.word, bounded(clean(f"{sentence(text)} {reason.value.do}")))


def _type(kind: str, status: object, word: str) -> Literal["Normal", "Warning"]:
    reason = reason_of(word)
    is_passing = reason is not None and reason.value.is_passing
    is_bad = status == "False" and kind != "Paused"
    return "Warning" if is_bad and not is_passing and word not in _CHOSEN else "Normal"
