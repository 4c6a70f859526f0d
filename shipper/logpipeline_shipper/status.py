"""The state of a shipper: the answers to probes, and the answer to `status`."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from logpipeline.nats.connection import Connection
from logpipeline_shipper.checkpoint import CheckpointWriter
from logpipeline_shipper.shared import Shared
from logpipeline_shipper.source import Source
from logpipeline_shipper.source_manager import SourceManager

# A backlog that does not shrink for so long, with a connection and no known reason, means that the
# shipper hangs.
STALL_S = 60.0
# Sources in one answer: 350 bytes each, and more where names are long.
SOURCES_SHOWN_MAX = 1000
# Hosts whose sums are in an answer that does not list all sources: 200 bytes each.
HOSTS_SHOWN_MAX = 500
# What an answer has beside its text.
HEADERS_BYTES = 1024
UNREADABLE_SHOWN_MAX = 100


class Health:
    """Answers probes; `refresh` is called once a second."""

    def __init__(
        self,
        connection: Connection,
        manager: SourceManager,
        shared: Shared,
        checkpoint: CheckpointWriter,
        *,
        root: str,
    ) -> None:
        # The server writes a denial in lower case. A node needs the right to publish its logs, and
        # no other: without another right some checks are left out.
        self._denial = f'publish to "{root}.'.lower()
        self._connection = connection
        self._manager = manager
        self._shared = shared
        self._checkpoint = checkpoint
        self._progress = -1
        self._moved_s = shared.clock()

    @property
    def answer_bytes_max(self) -> int:
        """What an answer to a question may have."""
        return self._connection.max_payload_bytes - HEADERS_BYTES

    def refresh(self) -> None:
        """Check whether anything moved, or has a reason not to move."""
        progress = self._shared.totals.progress
        waits = not self._connection.is_connected or bool(self._shared.sender.problems)
        if progress != self._progress or waits or not self._manager.backlog_bytes():
            self._progress, self._moved_s = progress, self._shared.clock()

    def live(self) -> str | None:
        """Return None, or why a restart may help."""
        still_s = self._shared.clock() - self._moved_s
        if still_s < STALL_S:
            return None
        return (
            f"nothing was sent for {still_s:.0f} s, though the server is connected and lines wait"
        )

    def ready(self) -> str | None:
        """Return None, or why lines are not delivered or positions not saved."""
        if not self._connection.is_connected:
            return self._connection.problem or "not connected to NATS yet"
        denied = self._connection.problem or ""
        problems = [
            denied if self._denial in denied.lower() else None,
            self._checkpoint.problem,
            self._shared.intents.problem,
            next(iter(self._shared.sender.problems.values()), None),
        ]
        return next((problem for problem in problems if problem), None)


def describe(manager: SourceManager, shared: Shared, health: Health, name: str) -> bytes:
    """Return the answer to `status`, as JSON that fits into a message. Where not all sources are
    listed, it has the sums of each host over all of its sources; those with the most missing bytes,
    then with the largest backlog, come first.
    """
    now_s = shared.clock()
    sources = sorted(manager.sources.values(), key=_worst_source_first)
    unreadable = sorted(manager.failing().items())
    answer: dict[str, Any] = {
        "component": "shipper",
        "name": name,
        "ready": health.ready(),
        "live": health.live(),
        "hosts": len(manager.hosts),
        "sources_total": len(sources),
        "backlog_bytes": manager.backlog_bytes(),
        "lines": shared.totals.lines,
        "acked_bytes": shared.sender.acked_bytes,
        "missing_bytes": manager.counts["missing_bytes"],
        "unseen_generations": manager.unseen.at(time.time()),
        "unreadable_total": len(unreadable),
        "unconfirmed_s": manager.unconfirmed_s(),
        "on_the_way_bytes": manager.on_the_way_bytes(),
        "to_be_named_bytes": manager.to_be_named_bytes(),
        "unhealed_bytes": shared.totals.unhealed_bytes,
        "quarantined": shared.quarantine.kept(),
        "dropped_bytes": shared.quarantine.dropped_bytes,
        "unnamed_bytes": shared.totals.unnamed_bytes,
    }
    room = health.answer_bytes_max
    answer["refused_hosts"] = _fitting(sorted(manager.refused_hosts)[:100], room // 8)
    named = [{"path": str(path), "reason": reason} for path, reason in unreadable]
    answer["unreadable"] = _fitting(named[:UNREADABLE_SHOWN_MAX], room // 8)
    # What is left when there are sums of hosts, too.
    shown = [_row(source, now_s) for source in sources[:SOURCES_SHOWN_MAX]]
    listed = _fitting(shown, room // 2)
    if len(listed) < len(sources):
        hosts = sorted(_by_host(sources, len(listed), now_s), key=_worst_first)
        answer["by_host"] = _fitting(hosts[:HOSTS_SHOWN_MAX], room // 8)
        answer["hosts_left_out"] = len(hosts) - len(answer["by_host"])
    return _text({**answer, "sources": listed})


def _row(source: Source, now_s: float) -> dict[str, Any]:
    position = source.chain.position()
    return {
        "host": source.key.host,
        "source": source.key.source,
        "backlog_bytes": source.chain.backlog_bytes(),
        "waiting_s": _waiting_s(source, now_s),
        "lines": source.acked_lines,
        "acked_bytes": source.acked_bytes,
        "missing_bytes": source.chain.missing_bytes,
        "unseen_generations": source.chain.unseen_generations,
        "position": list(position) if position else None,
        "on_the_way_bytes": source.account.on_the_way,
        "to_be_named_bytes": source.account.to_be_named,
    }


def _waiting_s(source: Source, now_s: float) -> float:
    return 0.0 if source.behind_since_s is None else round(now_s - source.behind_since_s, 3)


def _by_host(sources: Iterable[Source], listed: int, now_s: float) -> Iterator[dict[str, Any]]:
    """Yield the sums of *sources* for each host, and for how long something of those behind the
    first *listed* has waited.
    """
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    waiting_s: dict[str, float] = {}
    for number, source in enumerate(sources):
        host = source.key.host
        of_host = sums[host]
        of_host["sources"] += 1
        of_host["lines"] += source.acked_lines
        of_host["acked_bytes"] += source.acked_bytes
        of_host["backlog_bytes"] += source.chain.backlog_bytes()
        of_host["missing_bytes"] += source.chain.missing_bytes
        of_host["on_the_way_bytes"] += source.account.on_the_way
        if number >= listed:
            waiting_s[host] = max(_waiting_s(source, now_s), waiting_s.get(host, 0.0))
    for host, size in sums.items():
        yield {"host": host, **size, "unlisted_waiting_s": waiting_s.get(host, 0.0)}


def _worst_source_first(source: Source) -> tuple[int, int]:
    return -source.chain.missing_bytes, -source.chain.backlog_bytes()


def _worst_first(row: Mapping[str, Any]) -> tuple[int, int]:
    return -row["missing_bytes"], -row["backlog_bytes"]


def _fitting(rows: Sequence[Any], room_bytes: int) -> list[Any]:
    """Return the first of *rows* that take at most *room_bytes* as JSON."""
    for count, row in enumerate(rows):
        room_bytes -= len(_text(row)) + 1
        if room_bytes < 0:
            return list(rows[:count])
    return list(rows)


def _text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
