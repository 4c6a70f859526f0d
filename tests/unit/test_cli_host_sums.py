"""The sums of hosts hold all sources, also those that are not watched."""

from __future__ import annotations

from typing import Any

import pytest

from components.watched_status import shipper, source, status, watched
from logpipeline_cli.console.answers import view_json
from logpipeline_cli.watching import host_sums
from logpipeline_cli.watching.columns import HOSTS, SOURCES
from logpipeline_cli.watching.rows import HostRow, View
from logpipeline_cli.watching.watch import SOURCES_MAX

MANY = SOURCES_MAX + 9


def hosts(view: View) -> dict[str, HostRow]:
    """Return the rows of hosts by their names."""
    return {row.host: row for row in view.hosts}


def many(at_s: int, **fields: Any) -> dict[str, Any]:
    """The answer of a shipper for two hosts with more sources than are watched, at *at_s*."""
    rows = [
        source(f"h{at % 2}", f"/{at}", lines=at_s, acked_bytes=10 * at_s, on_the_way_bytes=1)
        for at in range(MANY)
    ]
    return shipper(*rows, **fields)


def test_hosts_are_sums_over_all_sources() -> None:
    """Watched or not."""
    view = watched(status(shippers=[many(1)]), status(shippers=[many(3)]), every_s=2.0)

    found = hosts(view)
    assert {name: row.sources for name, row in found.items()} == {"h0": 1005, "h1": 1004}
    assert sum(row.on_the_way_bytes for row in view.hosts) == MANY
    assert (found["h0"].rate.lines_s, found["h1"].rate.bytes_s) == (1005.0, 10040.0)


def test_a_host_of_which_no_source_is_watched_has_its_row() -> None:
    """All hosts are there, though ten of them have more sources than are watched."""
    fleet = [
        shipper(*(source(f"h{at}", f"/{number}") for number in range(200)), name=f"s{at}")
        for at in range(40)
    ]

    view = watched(status(shippers=fleet))

    assert len(view.hosts) == 40
    assert {row.sources for row in view.hosts} == {200}


def test_a_shipper_that_lists_some_sources_says_the_sums_of_its_hosts() -> None:
    """Of these its rows are a part; what is missing of others counts as well."""
    sums = {
        "host": "h", "lines": 0, "acked_bytes": 0, "backlog_bytes": 50, "missing_bytes": 9,
        "on_the_way_bytes": 7, "sources": 3000, "unlisted_waiting_s": 70.0,
    }  # fmt: skip
    listed = source("h", "/a", backlog_bytes=40, missing_bytes=4, waiting_s=5.0)
    told = [{"host": "h", "source": "/a", "bytes": 4, "toldBy": "shipper"}]

    def at(acked_bytes: int) -> dict[str, Any]:
        answer = shipper(listed, sources_total=3000, by_host=[{**sums, "acked_bytes": acked_bytes}])
        return status(shippers=[answer | {"hosts_left_out": 2}], missing=told)

    view = watched(at(100), at(300), at(200))

    [row] = view.hosts
    assert (row.sources, row.backlog_bytes, row.missing_bytes) == (3000, 50, 9)
    assert (row.waiting_s, view.shippers[0].waiting_s) == (70.0, 70.0)
    # Sources that went away take their counts with them; nothing was shipped.
    assert row.rate.history == (200.0, 0.0)
    tabs = {tab["name"]: tab["count"] for tab in view_json(view, SOURCES, text="", by="")["tables"]}
    assert (tabs["Sources"], tabs["Hosts"]) == ("1 of 3000", "1 of 3")


def test_all_sources_are_in_the_tab_where_all_are_watched() -> None:
    """And those that no shipper knows."""
    missing = [{"host": "gone", "source": "/app.log", "bytes": 5, "toldBy": "collector"}]

    view = watched(status(missing=missing))

    assert (SOURCES.count(view), HOSTS.count(view)) == ("2", "2")
    assert SOURCES.count(watched(status(shippers=[many(1)]))) == f"{SOURCES_MAX} of {MANY}"


def test_a_busy_source_that_is_not_watched_makes_no_host_late() -> None:
    """What was seen waiting is shipped soon, though something always waits."""
    busy = {"backlog_bytes": 5, "waiting_s": 500.0}
    stuck = [source("h0", f"/{at}", backlog_bytes=50) for at in range(SOURCES_MAX)]
    statuses = [
        status(shippers=[shipper(*stuck, source("h1", "/busy", acked_bytes=10 * at, **busy))])
        for at in range(6)
    ]

    assert hosts(watched(*statuses))["h1"].waiting_s <= 3.0
    still = [status(shippers=[shipper(*stuck, source("h1", "/busy", **busy))]) for _ in range(6)]
    assert hosts(watched(*still))["h1"].waiting_s == 500.0


def test_of_too_many_hosts_the_worst_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """And how many there are."""
    monkeypatch.setattr(host_sums, "HOSTS_MAX", 3)
    rows = [source(f"h{at}", backlog_bytes=at) for at in range(9)]

    view = watched(status(shippers=[shipper(*rows)]))

    assert [row.host for row in view.hosts] == ["h8", "h7", "h6"]
    assert HOSTS.count(view) == "3 of 9"
