"""How the table stands, as it is written to the resource: seldom, though it grows all the time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from logpipeline.spec import LogPipeline
from logpipeline.tables.progress import TableProgress
from logpipeline.tables.standing import TableState
from logpipeline_operator.status import former
from logpipeline_operator.status.lag import UNKNOWN, fresh_from, words
from logpipeline_operator.status.text import bounded, clean

Status = dict[str, Any]

# Figures that change with every batch are written at most so often, and only while lines come.
FIGURES_EVERY_S = 60.0
# As many as a person looks through; the progress in the bucket has all of them.
STREAMS_MAX = former.TABLE_STREAMS_MAX
PATH_BYTES_MAX = 512
# What the resource can hold, where the bucket has nonsense.
_NUMBER_MAX = 2**63 - 1
_TIME_MAX_S = 253_402_300_799


def table_status(
    pipeline: LogPipeline, state: TableState | None, previous: Mapping[str, Any], now: datetime
) -> Status:
    """Return the part of the status that is about the table of *pipeline*; *state* is None where
    nobody could look.
    """
    before = former.table(previous)
    if state is None:
        return {**before, "lag": UNKNOWN}
    now_seen = {"lag": _lag(pipeline, state, str(before.get("lag", "")))}
    before.pop("missed", None)
    if state.missed_messages:
        now_seen["missed"] = _missed(state.missed_messages)
    if state.progress is None:
        return now_seen
    if state.is_unknown:
        return {**before, **now_seen}
    figures = {name: before[name] for name in former.TABLE_FIGURES if name in before}
    if _is_due(figures, state.progress, now):
        figures = _figures(state.progress)
    return {**figures, **now_seen}


def _missed(messages: int) -> str:
    """Return about how many: a number that grew with each line would be a write with each look."""
    size = 10 ** (len(str(messages)) - 1)
    step = max(each for each in (1, 2, 5) if each * size <= messages)
    return f"at least {_within(step * size)} messages"


def _is_due(figures: Mapping[str, Any], progress: TableProgress, now: datetime) -> bool:
    """Return whether *progress* is news, and the *figures* of the last time are old enough."""
    if figures.keys() != set(former.TABLE_FIGURES) or figures["path"] != _path(progress):
        return True
    if figures["commit"] == progress.commit:
        return False
    at = datetime.strptime(figures["committedAt"], former.TIME).replace(tzinfo=UTC)
    age_s = (now - at).total_seconds()
    # A time that lies ahead comes of a clock that was set back.
    return not 0 <= age_s < FIGURES_EVERY_S


def _figures(progress: TableProgress) -> Status:
    at = datetime.fromtimestamp(min(max(0, progress.at_ns) // 10**9, _TIME_MAX_S), UTC)
    streams = sorted(progress.streams.items(), key=lambda item: (len(item[0]), item[0]))
    return {
        "path": _path(progress),
        "commit": _within(progress.commit),
        "rows": _within(progress.rows),
        "committedAt": at.strftime(former.TIME),
        "streams": [
            {"name": bounded(clean(name)), "sequence": _within(position.sequence)}
            for name, position in streams[:STREAMS_MAX]
        ],
    }


def _within(number: int) -> int:
    return min(max(0, number), _NUMBER_MAX)


def _path(progress: TableProgress) -> str:
    return bounded(clean(progress.path), bytes_max=PATH_BYTES_MAX)


def _lag(pipeline: LogPipeline, state: TableState, previous: str) -> str:
    fresh_s = fresh_from(pipeline.spec.table.interval_ns / 1e9)
    lags = [each.lag for each in state.streams]
    if state.is_unknown or not lags:
        return UNKNOWN
    age_s, size = max(lag.age_s for lag in lags), sum(lag.bytes for lag in lags)
    return words(age_s, size, previous, fresh_s=fresh_s)
