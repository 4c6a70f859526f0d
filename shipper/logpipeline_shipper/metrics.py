"""The metrics of a shipper."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import Counter

from logpipeline.observe.metrics import Family, Metrics
from logpipeline_shipper.files.source_filter import SourceFilter
from logpipeline_shipper.progress import ProgressListener
from logpipeline_shipper.shared import Shared
from logpipeline_shipper.source_manager import COUNTERS, SourceManager

Read = Callable[[], float]

_HELP = {
    "missing_bytes": "Bytes that were in a file and were gone before they were read.",
    "unseen_generations": "Files deleted before their end was seen, at least.",
    "restarts": "Paths at which another file was found than the known one.",
    "long_lines": "Lines that were cut into pieces because of their length.",
    "hole_bytes": "NULs at the beginning of files, as a truncation leaves them.",
    "truncations": "Files that were truncated while they were read.",
}


class ShipperMetrics:
    """All metrics of one shipper; `refresh` updates them."""

    def __init__(
        self,
        manager: SourceManager,
        shared: Shared,
        listener: ProgressListener,
        source_filter: SourceFilter,
    ) -> None:
        self.metrics = Metrics("shipper")
        self._manager = manager
        self._shared = shared
        self._source_filter = source_filter
        self._seen: dict[tuple[str, str], float] = {}
        self._hosts: set[str] = set()
        made = self.metrics
        self._totals: list[tuple[str, Family[Counter], Read]] = [
            (name, made.counter(name, text), read) for name, text, read in self._counters(listener)
        ]
        self._retries = made.counter(
            "retries", "Publishes that were tried again, by reason.", ["reason"]
        )
        self._unreadable = made.counter(
            "unreadable", "Files that could not be read, by reason.", ["reason"]
        )
        self._backlog = made.gauge(
            "backlog_bytes", "Bytes not yet acknowledged, by host.", ["host"]
        )
        self._behind = made.gauge(
            "backlog_seconds", "Seconds for which bytes of a host have waited, by host.", ["host"]
        )
        made.watch(
            "in_flight_bytes",
            "Bytes in memory: read, and not acknowledged.",
            lambda: shared.budget.used,
        )
        made.watch("sources", "Sources that are shipped now.", lambda: len(manager.sources))
        made.watch(
            "on_the_way_bytes",
            "Bytes sent, and not confirmed by every group of collectors.",
            manager.on_the_way_bytes,
        )
        made.watch(
            "unreadable_files",
            "Files and folders that cannot be read now.",
            lambda: len(manager.failing()),
        )
        made.watch("open_files", "Log files that are open now.", lambda: len(manager.descriptors))
        made.watch(
            "undecided",
            "Containers that wait for the metadata of their pod.",
            source_filter.waiting,
        )
        self._left_out = made.gauge(
            "left_out", "Containers that are not shipped, by reason.", ["reason"]
        )
        made.watch(
            "refused_hosts",
            "Hosts refused because of their name.",
            lambda: len(manager.refused_hosts),
        )

    def refresh(self) -> None:
        """Raise the counters by what was counted since the last call, and set the gauges."""
        for name, counter, read in self._totals:
            self._add(counter, (name, ""), read())
        for reason, count in self._shared.sender.retries.items():
            self._add(self._retries, ("retries", reason), count, reason)
        for reason, count in self._manager.unreadable.items():
            self._add(self._unreadable, ("unreadable", reason), count, reason)
        for reason, count in self._source_filter.left_out.items():
            self._left_out.labels(reason).set(count)
        self._refresh_hosts()

    def _counters(self, listener: ProgressListener) -> list[tuple[str, str, Read]]:
        totals, source_filter = self._shared.totals, self._source_filter
        return [
            *self._sending_counters(),
            ("lines", "Lines acknowledged.", lambda: totals.lines),
            (
                "rewinds",
                "Sources whose unconfirmed bytes were sent again after a loss.",
                lambda: totals.doubts,
            ),
            ("filled_bytes", "Bytes sent again to fill holes.", lambda: totals.filled_bytes),
            (
                "unhealed_bytes",
                "Bytes that the server lost, and whose file is gone.",
                lambda: totals.unhealed_bytes,
            ),
            (
                "source_failures",
                "Defects of the shipper that stopped a source for a moment.",
                lambda: totals.failures,
            ),
            (
                "unnamed_bytes",
                "Lost bytes that cannot be reported to collectors.",
                lambda: totals.unnamed_bytes,
            ),
            (
                "unhealable_holes",
                "Holes given up after several tries.",
                lambda: listener.unhealable_gaps,
            ),
            (
                "malformed_progress",
                "Malformed progress messages of collectors.",
                lambda: listener.malformed,
            ),
            (
                "decided_by_path",
                "Containers decided by path: their pod was not known in time.",
                lambda: source_filter.by_path_alone,
            ),
            (
                "refused_acks",
                "Annotations of pods with an unknown acknowledgement.",
                lambda: source_filter.refused_acks,
            ),
            (
                "vanished_undecided",
                "Logs deleted while their container waited for a decision.",
                lambda: source_filter.vanished_undecided,
            ),
            *((name, _HELP[name], self._of_chains(name)) for name in COUNTERS),
        ]

    def _sending_counters(self) -> list[tuple[str, str, Read]]:
        sender, quarantine = self._shared.sender, self._shared.quarantine
        return [
            ("acks", "Messages acknowledged.", lambda: sender.acks),
            (
                "unacknowledged",
                "Messages sent without an acknowledgement.",
                lambda: sender.unacknowledged,
            ),
            ("acked_bytes", "Log bytes acknowledged.", lambda: sender.acked_bytes),
            ("duplicates", "Messages that the server already had.", lambda: sender.duplicates),
            ("resends", "Publishes marked as perhaps sent before.", lambda: sender.resends),
            ("quarantined", "Messages put into the quarantine.", lambda: quarantine.put_in),
            (
                "dropped",
                "Refused messages for which the quarantine had no room.",
                lambda: quarantine.dropped,
            ),
            (
                "dropped_bytes",
                "Bytes of refused messages for which there was no room.",
                lambda: quarantine.dropped_bytes,
            ),
        ]

    def _of_chains(self, name: str) -> Read:
        return lambda: self._manager.counts[name]

    def _add(
        self, counter: Family[Counter], key: tuple[str, str], value: float, *labels: str
    ) -> None:
        counter.labels(*labels).inc(max(value - self._seen.get(key, 0.0), 0.0))
        self._seen[key] = value

    def _refresh_hosts(self) -> None:
        backlogs = self._manager.backlogs()
        for host in self._hosts - backlogs.keys():
            self._backlog.forget(host)
            self._behind.forget(host)
        self._hosts = set(backlogs)
        for host, (size, seconds) in backlogs.items():
            self._backlog.labels(host).set(size)
            self._behind.labels(host).set(seconds)
