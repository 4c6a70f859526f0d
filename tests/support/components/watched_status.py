"""Statuses of a made-up pipeline, as `logpipeline_cli.commands.status.gather` returns them, and the
views of them.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from logpipeline_cli.losses import Acknowledged, lost, missing, sums
from logpipeline_cli.losses import owned as owned_places
from logpipeline_cli.watching.rows import View
from logpipeline_cli.watching.watch import Watch


def source(host: str = "web1", path: str = "/var/log/app.log", **fields: Any) -> dict[str, Any]:
    """Return a shipper's row of one source."""
    row: dict[str, Any] = {
        "host": host,
        "source": path,
        "backlog_bytes": 0,
        "missing_bytes": 0,
        "unseen_generations": 0,
        "position": ["g1", 100],
        "on_the_way_bytes": 0,
        "lines": 0,
        "acked_bytes": 0,
        "waiting_s": 0.0,
    }
    return row | fields


def shipper(*sources: dict[str, Any], name: str = "web", **fields: Any) -> dict[str, Any]:
    """Return a shipper's answer with *sources*."""
    sums = {
        field: sum(each[field] for each in sources)
        for field in ("lines", "acked_bytes", "backlog_bytes", "missing_bytes", "on_the_way_bytes")
    }
    hosts = len({each["host"] for each in sources})
    answer = {"name": name, "hosts": hosts, "sources_total": len(sources), "sources": sources}
    return answer | sums | fields


def owned(number: int = 0, **fields: Any) -> dict[str, Any]:
    """Return what a collector answers of one partition."""
    row: dict[str, Any] = {
        "partition": number,
        "problem": None,
        "epoch": 1,
        "lines": 0,
        "bytes": 0,
        "lag_seconds": 0.0,
        "pending_bytes": 0,
        "uncommitted_bytes": 0,
        "missing_bytes": 0,
        "missing": [],
        "losses": [],
    }
    return row | fields


def collector(
    *partitions: dict[str, Any], member: str = "collector-0", group: str = "main"
) -> dict[str, Any]:
    """Return a collector's answer with *partitions*."""
    return {"group": group, "member": member, "partitions": list(partitions)}


def partition(number: int = 0, **fields: Any) -> dict[str, Any]:
    """Return the state of one partition."""
    state: dict[str, Any] = {
        "partition": number,
        "stream": f"LOGS_{number}",
        "is_there": True,
        "is_known": True,
        "messages": 0,
        "bytes": 0,
        "last_sequence": 0,
        "assigned": "collector-0",
        "owner": "collector-0",
        "released": False,
        "lag_messages": 0,
        "lag_bytes": 0,
        "lag_s": 0.0,
        "missing_bytes": 0,
        "lost_bytes": 0,
        "epoch": 1,
    }
    return state | fields


def status(**fields: Any) -> dict[str, Any]:
    """Return a status without a problem, with *fields* put over it."""
    found: dict[str, Any] = {
        "name": "prod",
        "group": "main",
        "namespace": "default",
        "server": "nats://127.0.0.1:4222",
        "partitions": [partition()],
        "collectors": [collector(owned())],
        "shippers": [shipper(source())],
        "readers": [],
        "tables": [],
        "conflicts": [],
        "unanswered": {},
        "deadLetterRoom": {
            "messages": 0,
            "bytes": 0,
            "bytesMax": 0,
            "messagesMax": 0,
            "givenUpFull": [],
        },
    }
    found |= fields
    group, places, seen = found["group"], owned_places(found["collectors"]), Acknowledged()
    losses = lost(places, seen, group=group)
    whole = sums(found["partitions"], places, losses, seen, group=group)
    told = {
        "missing": missing(places, group=group),
        "lost": losses,
        "sums": [asdict(each) for each in whole],
    }
    told |= found
    # A test need not say of whom its rows are.
    for row in (*told["missing"], *told["lost"]):
        row.setdefault("group", "" if row.get("toldBy") == "shipper" else group)
        row.setdefault("partition", 0)
    return told


def watched(*statuses: dict[str, Any], every_s: float = 1.0) -> View:
    """Return the last view of *statuses*, one each *every_s*."""
    watch = Watch()
    views = [watch.observe(each, 1000.0 + at * every_s) for at, each in enumerate(statuses)]
    return views[-1]
