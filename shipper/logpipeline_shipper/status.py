"""The state of a shipper: its metrics, the answers to probes, and the answer to `status`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from prometheus_client import Counter

from logpipeline.nats.connection import Connection
from logpipeline.observe.metrics import Family, Metrics
from logpipeline_shipper.checkpoint import CheckpointWriter
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

# A backlog that does not shrink for so long, with a connection and no known reason, means that the
# shipper hangs.
STALL_S = 60.0
# Sources in one answer, those with the largest backlog first: 300 bytes each.
SOURCES_SHOWN_MAX = 1000
UNREADABLE_SHOWN_MAX = 100


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
        """Add what was counted since the last call."""
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
                "Lost bytes that could not be reported to collectors.",
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
            ("quarantined", "Messages put into the quarantine.", lambda: quarantine.kept),
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
    """Return the answer to `status`, as JSON."""
    sources = sorted(manager.sources.values(), key=lambda source: -source.chain.backlog_bytes())
    rows: list[dict[str, Any]] = []
    for source in sources[:SOURCES_SHOWN_MAX]:
        position = source.chain.position()
        rows.append(
            {
                "host": source.key.host,
                "source": source.key.source,
                "backlog_bytes": source.chain.backlog_bytes(),
                "missing_bytes": source.chain.missing_bytes,
                "unseen_generations": source.chain.unseen_generations,
                "position": list(position) if position else None,
                "on_the_way_bytes": source.account.on_the_way,
                "to_be_named_bytes": source.account.to_be_named,
            }
        )
    unreadable = manager.failing()
    answer = {
        "component": "shipper",
        "name": name,
        "ready": health.ready(),
        "live": health.live(),
        "hosts": len(manager.hosts),
        "refused_hosts": sorted(manager.refused_hosts)[:100],
        "sources_total": len(sources),
        "backlog_bytes": manager.backlog_bytes(),
        "missing_bytes": manager.counts["missing_bytes"],
        "unseen_generations": manager.counts["unseen_generations"],
        "unreadable_total": len(unreadable),
        "unreadable": [
            {"path": str(path), "reason": reason}
            for path, reason in sorted(unreadable.items())[:UNREADABLE_SHOWN_MAX]
        ],
        "unconfirmed_s": manager.unconfirmed_s(),
        "on_the_way_bytes": manager.on_the_way_bytes(),
        "to_be_named_bytes": manager.to_be_named_bytes(),
        "unhealed_bytes": shared.totals.unhealed_bytes,
        "quarantined": shared.quarantine.kept,
        "dropped_bytes": shared.quarantine.dropped_bytes,
        "sources": rows,
    }
    return json.dumps(answer, separators=(",", ":")).encode()
