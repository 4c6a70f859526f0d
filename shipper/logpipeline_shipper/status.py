"""Says how the shipper is: to probes whether it lives and works, to whoever asks, what it ships."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from prometheus_client import Counter

from logpipeline.nats.connection import Connection
from logpipeline.observe.metrics import Family, Metrics
from logpipeline_shipper.checkpoint import PositionKeeper
from logpipeline_shipper.files.source_filter import Gate
from logpipeline_shipper.fleet import COUNTERS, Fleet
from logpipeline_shipper.progress import ProgressListener
from logpipeline_shipper.shared import Shared

Read = Callable[[], float]

_HELP = {
    "missing_bytes": "Bytes that were in a file and vanished before they were read.",
    "unseen_generations": "Files that came and went unseen, at least.",
    "restarts": "Files that turned out to be others than those read before.",
    "long_lines": "Lines that were cut into pieces for their length.",
    "hole_bytes": "NULs that files began with, as truncation leaves them.",
    "truncations": "Files that were cut to a smaller size while they were read.",
}

# So long may a backlog stand still, with a connection and no reason known, before we are stuck.
STALL_S = 60.0
# Sources in one answer, those with the largest backlog first: 300 bytes each.
SOURCES_TOLD_MAX = 1000


class ShipperMetrics:
    """All metrics of one shipper; `refresh` brings them up to date."""

    def __init__(
        self, fleet: Fleet, shared: Shared, listener: ProgressListener, gate: Gate
    ) -> None:
        self.metrics = Metrics("shipper")
        self._fleet = fleet
        self._shared = shared
        self._gate = gate
        self._seen: dict[tuple[str, str], float] = {}
        self._hosts: set[str] = set()
        made = self.metrics
        self._totals: list[tuple[str, Family[Counter], Read]] = [
            (name, made.counter(name, text), read) for name, text, read in self._counters(listener)
        ]
        self._retries = made.counter("retries", "Publishes tried again, by reason.", ["reason"])
        self._unreadable = made.counter("unreadable", "Files not read, by reason.", ["reason"])
        self._backlog = made.gauge("backlog_bytes", "Bytes not yet acknowledged.", ["host"])
        self._behind = made.gauge("backlog_seconds", "Time since a host was level.", ["host"])
        made.watch("in_flight_bytes", "Bytes read, not acknowledged.", lambda: shared.budget.used)
        made.watch("sources", "Sources known now.", lambda: len(fleet.pumps))
        made.watch("on_the_way_bytes", "Sent, not confirmed.", fleet.on_the_way_bytes)
        made.watch("open_files", "Log files open now.", lambda: len(fleet.descriptors))
        made.watch("undecided", "Containers whose pod is not known yet.", gate.waiting)
        self._left_out = made.gauge("left_out", "Containers not shipped, by reason.", ["reason"])
        made.watch("refused_hosts", "Hosts with a bad name.", lambda: len(fleet.refused_hosts))

    def refresh(self) -> None:
        """Count what came since the last time."""
        for name, counter, read in self._totals:
            self._add(counter, (name, ""), read())
        for reason, count in self._shared.sender.retries.items():
            self._add(self._retries, ("retries", reason), count, reason)
        for reason, count in self._fleet.unreadable.items():
            self._add(self._unreadable, ("unreadable", reason), count, reason)
        for reason, count in self._gate.left_out.items():
            self._left_out.labels(reason).set(count)
        self._refresh_hosts()

    def _counters(self, listener: ProgressListener) -> list[tuple[str, str, Read]]:
        shared, fleet, gate = self._shared, self._fleet, self._gate
        sender, totals, quarantine = shared.sender, shared.totals, shared.quarantine

        def chains(name: str) -> Read:
            return lambda: fleet.counts[name]

        return [
            ("acks", "Messages acknowledged.", lambda: sender.acks),
            ("unacknowledged", "Messages sent unasked.", lambda: sender.unacknowledged),
            ("acked_bytes", "Log bytes acknowledged.", lambda: sender.acked_bytes),
            ("duplicates", "Messages the server already had.", lambda: sender.duplicates),
            ("resends", "Publishes marked as perhaps sent before.", lambda: sender.resends),
            ("lines", "Lines acknowledged.", lambda: totals.lines),
            ("rewinds", "Sources sent again after a loss.", lambda: totals.doubts),
            ("filled_bytes", "Bytes sent again to fill holes.", lambda: totals.filled_bytes),
            ("unhealed_bytes", "Lost bytes gone from files.", lambda: totals.unhealed_bytes),
            ("source_failures", "Faults of ours in a source.", lambda: totals.failures),
            ("unnamed_bytes", "Lost bytes told to nobody.", lambda: totals.unnamed_bytes),
            ("unhealable_holes", "Holes given up.", lambda: listener.unhealable_gaps),
            ("malformed_progress", "Bad progress messages.", lambda: listener.malformed),
            ("quarantined", "Messages put aside.", lambda: quarantine.kept),
            ("dropped", "Refused messages lost.", lambda: quarantine.dropped),
            ("dropped_bytes", "Bytes of those.", lambda: quarantine.dropped_bytes),
            ("decided_by_path", "Pods not known in time.", lambda: gate.by_path_alone),
            ("refused_acks", "Bad annotations of pods.", lambda: gate.refused_acks),
            ("vanished_undecided", "Logs gone in that time.", lambda: gate.vanished_undecided),
            *((name, _HELP[name], chains(name)) for name in COUNTERS),
        ]

    def _add(
        self, counter: Family[Counter], key: tuple[str, str], value: float, *labels: str
    ) -> None:
        counter.labels(*labels).inc(max(value - self._seen.get(key, 0.0), 0.0))
        self._seen[key] = value

    def _refresh_hosts(self) -> None:
        backlogs = self._fleet.backlogs()
        for host in self._hosts - backlogs.keys():
            self._backlog.forget(host)
            self._behind.forget(host)
        self._hosts = set(backlogs)
        for host, (size, seconds) in backlogs.items():
            self._backlog.labels(host).set(size)
            self._behind.labels(host).set(seconds)


class Health:
    """Judges the parts of a shipper; `refresh` is called once a second."""

    def __init__(
        self,
        connection: Connection,
        fleet: Fleet,
        shared: Shared,
        keeper: PositionKeeper,
        *,
        root: str,
    ) -> None:
        # The server tells a denial in small letters. A node needs the right to publish its logs,
        # and no other: what else is denied only makes us less certain.
        self._denial = f'publish to "{root}.'.lower()
        self._connection = connection
        self._fleet = fleet
        self._shared = shared
        self._keeper = keeper
        self._progress = -1
        self._moved_s = shared.clock()

    def refresh(self) -> None:
        """Look whether anything moved, or has a reason not to."""
        progress = self._shared.totals.progress
        waits = not self._connection.is_connected or bool(self._shared.sender.problems)
        if progress != self._progress or waits or not self._fleet.backlog_bytes():
            self._progress, self._moved_s = progress, self._shared.clock()

    def live(self) -> str | None:
        """Return None, or why a restart may help."""
        still_s = self._shared.clock() - self._moved_s
        if still_s < STALL_S:
            return None
        return f"nothing was sent for {still_s:.0f} s, though the server is there and lines wait"

    def ready(self) -> str | None:
        """Return None, or why lines are not delivered or positions not kept."""
        if not self._connection.is_connected:
            return self._connection.problem or "not connected to NATS yet"
        denied = self._connection.problem or ""
        problems = [
            denied if self._denial in denied.lower() else None,
            self._keeper.problem,
            self._shared.intents.problem,
            next(iter(self._shared.sender.problems.values()), None),
        ]
        return next((problem for problem in problems if problem), None)


def describe(fleet: Fleet, shared: Shared, health: Health, name: str) -> bytes:
    """Return the answer to who asks how the shipper is."""
    pumps = sorted(fleet.pumps.values(), key=lambda pump: -pump.chain.backlog_bytes())
    sources: list[dict[str, Any]] = []
    for pump in pumps[:SOURCES_TOLD_MAX]:
        position = pump.chain.position()
        sources.append(
            {
                "host": pump.key.host,
                "source": pump.key.source,
                "backlog_bytes": pump.chain.backlog_bytes(),
                "missing_bytes": pump.chain.missing_bytes,
                "unseen_generations": pump.chain.unseen_generations,
                "position": list(position) if position else None,
                "on_the_way_bytes": pump.account.on_the_way,
                "to_be_named_bytes": pump.account.to_be_named,
            }
        )
    answer = {
        "component": "shipper",
        "name": name,
        "ready": health.ready(),
        "live": health.live(),
        "hosts": len(fleet.hosts),
        "refused_hosts": sorted(fleet.refused_hosts)[:100],
        "sources_total": len(pumps),
        "backlog_bytes": fleet.backlog_bytes(),
        "missing_bytes": fleet.counts["missing_bytes"],
        "unseen_generations": fleet.counts["unseen_generations"],
        "unconfirmed_s": fleet.unconfirmed_s(),
        "on_the_way_bytes": fleet.on_the_way_bytes(),
        "to_be_named_bytes": fleet.to_be_named_bytes(),
        "unhealed_bytes": shared.totals.unhealed_bytes,
        "quarantined": shared.quarantine.kept,
        "dropped_bytes": shared.quarantine.dropped_bytes,
        "sources": sources,
    }
    return json.dumps(answer, separators=(",", ":")).encode()
