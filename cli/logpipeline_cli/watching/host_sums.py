"""Sums over the sources of each host: over all that shippers know, watched or not. No clock: the
time of each observation is given.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logpipeline.partition import partition_of
from logpipeline_cli.watching.last_answers import LastAnswer
from logpipeline_cli.watching.rows import HostRow, Rate, SourceRow
from logpipeline_cli.watching.series import Counters, rise

# Hosts that are watched, those of which most is missing or waits: each takes 5 KB for its rates.
HOSTS_MAX = 5000

# A host and one of its sources.
Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was seen of one source, or of one host of a shipper that lists only some sources: its
    counters. All that was written up to *cleared_s* is shipped, and all that was written up to
    *mark_s* will be when *mark* bytes are.
    """

    lines: float
    bytes: float
    mark_s: float
    mark: float
    cleared_s: float


@dataclass(slots=True)
class _Sum:
    """The sums of one host. *lines* and *bytes* were shipped since the last observation."""

    sizes: Counter[str] = field(default_factory=Counter)
    waiting_s: float = 0.0
    lines: float = 0.0
    bytes: float = 0.0
    silent_s: list[float] = field(default_factory=list)

    @property
    def is_silent(self) -> bool:
        """Whether none of its shippers answers."""
        return all(self.silent_s)

    @property
    def badness(self) -> tuple[float, ...]:
        """By what the worst hosts are found."""
        gone = self.sizes["missing_bytes"] + self.sizes["lost_bytes"]
        return gone, self.waiting_s, self.sizes["backlog_bytes"]


class HostSums:
    """The hosts of one pipeline. *total* is how many there are, *waiting_s* for how long the oldest
    byte of each shipper has waited at most.
    """

    def __init__(self, counters: Counters) -> None:
        self.total = 0
        self.waiting_s: dict[str, float] = {}
        self._counters = counters
        self._seen: dict[Hashable, _Seen] = {}
        self._now: dict[Hashable, _Seen] = {}
        self._shipped: dict[str, tuple[float, float]] = {}

    def observe(
        self,
        shippers: Sequence[LastAnswer],
        watched: Iterable[SourceRow],
        missing: Mapping[Name, int],
        lost: Mapping[Name, int],
        at_s: float,
        *,
        partitions: int,
    ) -> list[HostRow]:
        """Take the answers of *shippers* at *at_s*, and return the hosts that are watched.
        *watched* are the rows of sources; *missing* and *lost* are bytes of those that are
        listed.
        """
        self._now, self.waiting_s = {}, {}
        sums: defaultdict[str, _Sum] = defaultdict(_Sum)
        waits = {(row.shipper, row.host, row.source): row.waiting_s for row in watched}
        for answer in shippers:
            self._add_sources(answer, waits, sums, at_s)
            self._add_hosts(answer, sums, at_s)
            told = (*answer.status.get("sources", ()), *answer.status.get("by_host", ()))
            for host in {str(row["host"]) for row in told}:
                sums[host].silent_s.append(answer.silent_s)
        for row in watched:
            sums[row.host].sizes["sources"] += not row.shipper
        for field_name, sizes in (("missing_bytes", missing), ("lost_bytes", lost)):
            for (host, _), size in sizes.items():
                sums[host].sizes[field_name] += size
        self._seen = self._now
        left_out = sum(each.status.get("hosts_left_out", 0) for each in shippers)
        self.total = len(sums) + int(left_out)
        chosen = list(sums.items())
        if len(chosen) > HOSTS_MAX:
            chosen = sorted(chosen, key=lambda each: each[1].badness, reverse=True)[:HOSTS_MAX]
        rows = [self._row(host, size, at_s, partitions) for host, size in chosen]
        self._shipped = {host: self._shipped[host] for host, _ in chosen}
        return rows

    def _add_sources(
        self,
        answer: LastAnswer,
        waits: Mapping[tuple[str, str, str], float],
        sums: Mapping[str, _Sum],
        at_s: float,
    ) -> None:
        """Add what a shipper lists, but for the counts of hosts whose sums it gives itself."""
        shipper = str(answer.status.get("name", ""))
        summed = {row["host"] for row in answer.status.get("by_host", ())}
        for source in answer.status.get("sources", ()):
            host, path = str(source["host"]), str(source["source"])
            key, of_host = (shipper, host, path), sums[host]
            lines, size, age_s = self._look(key, source, at_s - answer.age_s)
            waiting_s = waits.get(key)
            if waiting_s is None:
                waiting_s = min(source.get("waiting_s", 0.0), age_s) + answer.silent_s
            self._wait(shipper, of_host, waiting_s)
            if host not in summed:
                of_host.lines += lines
                of_host.bytes += size
                of_host.sizes["sources"] += 1
                of_host.sizes["backlog_bytes"] += source.get("backlog_bytes", 0)
                of_host.sizes["on_the_way_bytes"] += source.get("on_the_way_bytes", 0)

    def _add_hosts(self, answer: LastAnswer, sums: Mapping[str, _Sum], at_s: float) -> None:
        """Add the sums of a shipper that lists only some of its sources."""
        shipper = str(answer.status.get("name", ""))
        missing = Counter[str]()
        for source in answer.status.get("sources", ()):
            missing[source["host"]] += source.get("missing_bytes", 0)
        for row in answer.status.get("by_host", ()):
            of_host = sums[str(row["host"])]
            lines, size, _ = self._look(
                (shipper, row["host"]), row, at_s - answer.age_s, may_fall=True
            )
            self._wait(shipper, of_host, row["unlisted_waiting_s"] + answer.silent_s)
            of_host.lines += lines
            of_host.bytes += size
            for name in ("sources", "backlog_bytes", "on_the_way_bytes"):
                of_host.sizes[name] += row[name]
            unlisted = max(0, row["missing_bytes"] - missing[row["host"]])
            of_host.sizes["missing_bytes"] += unlisted

    def _wait(self, shipper: str, of_host: _Sum, waiting_s: float) -> None:
        of_host.waiting_s = max(of_host.waiting_s, waiting_s)
        self.waiting_s[shipper] = max(self.waiting_s.get(shipper, 0.0), waiting_s)

    def _look(
        self, key: Hashable, row: Mapping[str, Any], at_s: float, *, may_fall: bool = False
    ) -> tuple[float, float, float]:
        """Take the counters of *row*, which its shipper said at *at_s*.

        Return how many lines and bytes were shipped since the last look, and for how long the
        oldest waiting byte had waited at most.
        """
        lines, done = row.get("lines", 0), row.get("acked_bytes", 0)
        waiting = row.get("backlog_bytes", 0)
        before = self._seen.get(key)
        cleared_s = -math.inf
        mark_s, mark = at_s, done + waiting
        if before is not None and mark >= before.mark:
            cleared_s = before.cleared_s
            if done >= before.mark:
                cleared_s = before.mark_s
            else:
                mark_s, mark = before.mark_s, before.mark
        if not waiting:
            cleared_s = at_s
        self._now[key] = _Seen(lines, done, mark_s, mark, cleared_s)
        if before is None:
            return 0, 0, at_s - cleared_s
        return (
            rise(before.lines, lines, may_fall=may_fall),
            rise(before.bytes, done, may_fall=may_fall),
            at_s - cleared_s,
        )

    def _row(self, host: str, size: _Sum, at_s: float, partitions: int) -> HostRow:
        lines, done = self._shipped.get(host, (0.0, 0.0))
        self._shipped[host] = lines + size.lines, done + size.bytes
        rate = Rate()
        if not size.is_silent:
            key = "host", host
            each = [
                self._counters.observe((key, what), at_s, value)
                for what, value in zip(("lines", "bytes"), self._shipped[host], strict=True)
            ]
            rate = Rate(lines_s=each[0].rate, bytes_s=each[1].rate, history=tuple(each[1].rates))
        return HostRow(
            host=host,
            partition=partition_of(host, partitions),
            sources=size.sizes["sources"],
            rate=rate,
            waiting_s=size.waiting_s,
            backlog_bytes=size.sizes["backlog_bytes"],
            on_the_way_bytes=size.sizes["on_the_way_bytes"],
            missing_bytes=size.sizes["missing_bytes"],
            lost_bytes=size.sizes["lost_bytes"],
            silent_s=max(size.silent_s, default=0.0),
        )
