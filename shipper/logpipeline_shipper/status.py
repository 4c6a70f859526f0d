"""The state of a shipper: the answers to probes, and the answer to `status`."""

from __future__ import annotations

import json
import time
from typing import Any

from logpipeline.nats.connection import Connection
from logpipeline_shipper.checkpoint import CheckpointWriter
from logpipeline_shipper.shared import Shared
from logpipeline_shipper.source_manager import SourceManager

# A backlog that does not shrink for so long, with a connection and no known reason, means that the
# shipper hangs.
STALL_S = 60.0
# Sources in one answer, those with the largest backlog first: 350 bytes each.
SOURCES_SHOWN_MAX = 1000
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
    now_s = shared.clock()
    for source in sources[:SOURCES_SHOWN_MAX]:
        position = source.chain.position()
        since_s = now_s if source.behind_since_s is None else source.behind_since_s
        rows.append(
            {
                "host": source.key.host,
                "source": source.key.source,
                "backlog_bytes": source.chain.backlog_bytes(),
                "waiting_s": round(now_s - since_s, 3),
                "lines": source.acked_lines,
                "acked_bytes": source.acked_bytes,
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
        "lines": shared.totals.lines,
        "acked_bytes": shared.sender.acked_bytes,
        "missing_bytes": manager.counts["missing_bytes"],
        "unseen_generations": manager.unseen.at(time.time()),
        "unreadable_total": len(unreadable),
        "unreadable": [
            {"path": str(path), "reason": reason}
            for path, reason in sorted(unreadable.items())[:UNREADABLE_SHOWN_MAX]
        ],
        "unconfirmed_s": manager.unconfirmed_s(),
        "on_the_way_bytes": manager.on_the_way_bytes(),
        "to_be_named_bytes": manager.to_be_named_bytes(),
        "unhealed_bytes": shared.totals.unhealed_bytes,
        "quarantined": shared.quarantine.kept(),
        "dropped_bytes": shared.quarantine.dropped_bytes,
        "unnamed_bytes": shared.totals.unnamed_bytes,
        "sources": rows,
    }
    return json.dumps(answer, separators=(",", ":")).encode()
