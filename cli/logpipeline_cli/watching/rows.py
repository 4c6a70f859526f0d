"""What is shown of a pipeline at one moment: rows of its parts, with rates. All are values, which a
terminal, a page or a test can take.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Lines and bytes per second now, and *history*: bytes per second of each observation, the
    oldest first.
    """

    lines_s: float = 0.0
    bytes_s: float = 0.0
    history: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """One source. Its oldest byte that is not shipped has waited for *waiting_s* at most.
    *missing_bytes* are gone unread, or in holes that may still be filled; *missing_by* names who
    says so: shippers and collectors. *silent_s* is how long its shipper has not answered, 0.0 while
    it does.
    """

    host: str
    source: str
    partition: int
    shipper: str = ""
    rate: Rate = Rate()
    waiting_s: float = 0.0
    backlog_bytes: int = 0
    on_the_way_bytes: int = 0
    missing_bytes: int = 0
    missing_by: tuple[str, ...] = ()
    lost_bytes: int = 0
    unseen_generations: int = 0
    generation: str = ""
    offset: int = 0
    silent_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRow:
    """One host, with the sums over all its sources, watched or not; *waiting_s* is the largest of
    them. One of its shippers has not answered for *silent_s*.
    """

    host: str
    partition: int
    sources: int
    rate: Rate = Rate()
    waiting_s: float = 0.0
    backlog_bytes: int = 0
    on_the_way_bytes: int = 0
    missing_bytes: int = 0
    lost_bytes: int = 0
    silent_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingRow:
    """Bytes of one source that did not arrive: *what* happened to them, and who says so (*by*).
    *since_ns* is when they were reported as lost, 0 for those that are missing. *group* is the
    group of collectors that lacks them, empty for what a shipper says. What no list names is of a
    *partition*, and has no host and source.
    """

    host: str
    source: str
    bytes: int
    what: str
    by: str
    since_ns: int = 0
    generation: str = ""
    start: int = 0
    group: str = ""
    partition: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """One partition: what its stream stores, and how far its collector is. *rate* is what is
    written to files; *stored_s* the messages per second that are stored, with the *stored_history*
    of each observation.
    """

    partition: int
    stream: str
    owner: str
    state: str
    rate: Rate = Rate()
    stored_s: float = 0.0
    stored_history: tuple[float, ...] = ()
    messages: int = 0
    bytes: int = 0
    lag_messages: int = 0
    lag_bytes: int = 0
    lag_s: float = 0.0
    missing_bytes: int = 0
    lost_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorRow:
    """One collector, with the sums over its partitions; *lag_s* is the largest of them."""

    member: str
    group: str
    partitions: tuple[int, ...]
    rate: Rate = Rate()
    lag_s: float = 0.0
    pending_bytes: int = 0
    uncommitted_bytes: int = 0
    missing_bytes: int = 0
    problem: str = ""
    silent_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShipperRow:
    """One shipper, with the sums over its sources; *waiting_s* is the largest of them."""

    name: str
    hosts: int
    sources: int
    rate: Rate = Rate()
    waiting_s: float = 0.0
    backlog_bytes: int = 0
    on_the_way_bytes: int = 0
    missing_bytes: int = 0
    problem: str = ""
    silent_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderRow:
    """One consumer that reads the streams beside the collectors; *messages_s* are acknowledged per
    second, or delivered where it acknowledges none.
    """

    name: str
    partitions: int
    messages_s: float = 0.0
    history: tuple[float, ...] = ()
    pending_messages: int = 0
    unacknowledged: int = 0
    redelivered: int = 0
    missed_messages: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One table: the lines written to it each second, and its lag."""

    name: str
    path: str
    rows: int
    lines_s: float = 0.0
    history: tuple[float, ...] = ()
    lag_s: float = 0.0
    lag_messages: int = 0
    lag_bytes: int = 0
    missed_messages: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage on the way of the lines: files, shippers, streams, collectors, table, readers.
    *waiting* is what it has not given on yet. Of streams the server counts messages alone; *count*
    is how many there are: sources, shippers and so on, and the lines of a table.
    """

    name: str
    count: int
    rate: Rate = Rate()
    messages_s: float = 0.0
    waiting_bytes: int = 0
    waiting_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A pipeline at *at_s*, in seconds since 1970. Each list has what is worst first. *sources* and
    *hosts* are those that are watched, of *sources_total* and *hosts_total*. *losses* are those of
    the status. *trouble* says why there is nothing newer, empty where there is.
    """

    name: str
    namespace: str
    server: str
    at_s: float
    every_s: float
    stages: tuple[Stage, ...] = ()
    sources: tuple[SourceRow, ...] = ()
    sources_total: int = 0
    hosts: tuple[HostRow, ...] = ()
    hosts_total: int = 0
    missing: tuple[MissingRow, ...] = ()
    partitions: tuple[PartitionRow, ...] = ()
    collectors: tuple[CollectorRow, ...] = ()
    shippers: tuple[ShipperRow, ...] = ()
    readers: tuple[ReaderRow, ...] = ()
    tables: tuple[TableRow, ...] = ()
    problems: tuple[str, ...] = ()
    losses: tuple[Mapping[str, Any], ...] = ()
    trouble: str = ""
