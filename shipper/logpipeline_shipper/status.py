"""Says how the shipper is: to probes whether it lives and works, to whoever asks, what it ships."""

from __future__ import annotations

import json
from typing import Any

from logpipeline.nats.connection import Connection
from logpipeline_shipper.fleet import Fleet
from logpipeline_shipper.positions import PositionKeeper
from logpipeline_shipper.shared import Shared

# So long may a backlog stand still, with a connection and no reason known, before we are stuck.
STALL_S = 60.0
# Sources in one answer, those with the largest backlog first: 300 bytes each.
SOURCES_TOLD_MAX = 1000


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
