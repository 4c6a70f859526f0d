"""The shipper's numbers for Prometheus, taken once a second from what its parts count."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import Counter

from logpipeline.observe.metrics import Family, Metrics
from logpipeline_shipper.files.gate import Gate
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
