"""Turns successive statuses of a pipeline into rows with rates. Pure: no clock, no connection.

A status is what `logpipeline_cli.commands.status.gather` returns.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from logpipeline.partition import partition_of
from logpipeline_cli.losses import beyond
from logpipeline_cli.problems import name_of, of_shipper, problems
from logpipeline_cli.watching.host_sums import HostSums
from logpipeline_cli.watching.last_answers import LastAnswer, LastAnswers
from logpipeline_cli.watching.rows import (
    CollectorRow,
    HostRow,
    MissingRow,
    PartitionRow,
    Rate,
    ReaderRow,
    ShipperRow,
    SourceRow,
    Stage,
    TableRow,
    View,
)
from logpipeline_cli.watching.series import FORGET_S, Counters, Written

Status = Mapping[str, Any]
# Sources that are watched, those of which most is missing or waits: each takes 10 KB for its rates.
# A fleet has a million, and no person reads more rows. The sums hold all of them.
SOURCES_MAX = 2000


class Watch:
    """One pipeline that is watched; `observe` takes one status after the other."""

    def __init__(self) -> None:
        self._counters = Counters()
        self._written: dict[Hashable, tuple[float, Written]] = {}
        self._shippers = LastAnswers()
        self._collectors = LastAnswers()
        self._hosts = HostSums(self._counters)

    def observe(self, status: Status, at_s: float, *, every_s: float = 1.0) -> View:
        """Take the *status* of the moment *at_s*, in seconds, and return what is to be shown."""
        shippers = self._shippers.take(
            ((each.get("name", ""), each) for each in status["shippers"]), at_s
        )
        collectors = self._collectors.take(
            (((each.get("group"), each.get("member")), each) for each in status["collectors"]),
            at_s,
        )
        count = max(len(status["partitions"]), 1)
        (missing, by), lost = _missing(status["missing"]), _lost(status["lost"])
        sources = self._sources(shippers, at_s, count, missing, by, lost)
        hosts = self._hosts.observe(shippers, sources, missing, lost, at_s, partitions=count)
        partitions = self._partitions(status, collectors, at_s)
        shipper_rows = tuple(self._shipper(each, at_s) for each in shippers)
        collector_rows = tuple(self._collector(each, at_s) for each in collectors)
        tables = tuple(self._table(each, at_s) for each in status["tables"])
        readers = tuple(self._reader(each, at_s) for each in status["readers"])
        silent = _silent(shippers, collectors, status)
        view = View(
            name=status["name"],
            namespace=status["namespace"],
            server=status["server"],
            at_s=at_s,
            every_s=every_s,
            stages=(
                self._files(shippers, at_s),
                *_stages(shipper_rows, partitions, collector_rows, tables, readers),
            ),
            sources=tuple(sorted(sources, key=_badness, reverse=True)[:SOURCES_MAX]),
            hosts=tuple(sorted(hosts, key=_badness, reverse=True)),
            hosts_total=self._hosts.total,
            missing=tuple(_rows_of_missing(status)),
            sources_total=_sources_total(shippers, sources),
            partitions=tuple(sorted(partitions, key=_partition_badness, reverse=True)),
            collectors=tuple(sorted(collector_rows, key=_collector_badness, reverse=True)),
            shippers=tuple(sorted(shipper_rows, key=_shipper_badness, reverse=True)),
            readers=readers,
            tables=tables,
            problems=(*silent, *problems(status)),
            losses=tuple(row for row in status["lost"] if not row["acknowledged"]),
        )
        self._forget(at_s)
        return view

    def _rate(self, key: Hashable, at_s: float, answer: Status, is_silent: bool) -> Rate:
        """Return the rate of what *answer* counts as lines and bytes."""
        if is_silent:
            return Rate()
        lines = self._counters.observe((key, "lines"), at_s, answer.get("lines", 0))
        size = self._counters.observe((key, "bytes"), at_s, answer.get("bytes", 0))
        return Rate(lines_s=lines.rate, bytes_s=size.rate, history=tuple(size.rates))

    def _sources(
        self,
        shippers: Sequence[LastAnswer],
        at_s: float,
        partitions: int,
        missing: Mapping[tuple[str, str], int],
        by: Mapping[tuple[str, str], tuple[str, ...]],
        lost: Mapping[tuple[str, str], int],
    ) -> list[SourceRow]:
        found = [
            (answer, source) for answer in shippers for source in answer.status.get("sources", [])
        ]
        if len(found) > SOURCES_MAX:
            found.sort(key=lambda each: _weight(each[1], missing, lost), reverse=True)
        rows = [
            self._source(answer, source, at_s, partitions, missing, by, lost)
            for answer, source in found[:SOURCES_MAX]
        ]
        # Of some sources no shipper knows any more, or it lists others, and collectors still wait
        # for their bytes.
        known = {(source["host"], source["source"]) for _, source in found}
        of_hosts = {
            row["host"]: str(each.status.get("name", ""))
            for each in shippers
            for row in each.status.get("by_host", ())
        }
        rows += [
            SourceRow(
                host=host,
                source=source,
                partition=partition_of(host, partitions),
                shipper=of_hosts.get(host, ""),
                missing_bytes=missing.get((host, source), 0),
                missing_by=by.get((host, source), ()),
                lost_bytes=lost.get((host, source), 0),
            )
            for host, source in sorted((missing.keys() | lost.keys()) - known)
        ]
        return rows

    def _source(
        self,
        answer: LastAnswer,
        source: Status,
        at_s: float,
        partitions: int,
        missing: Mapping[tuple[str, str], int],
        by: Mapping[tuple[str, str], tuple[str, ...]],
        lost: Mapping[tuple[str, str], int],
    ) -> SourceRow:
        host, path = str(source["host"]), str(source["source"])
        shipper = str(answer.status.get("name", ""))
        key = "source", shipper, host, path
        counted = {"lines": source.get("lines", 0), "bytes": source.get("acked_bytes", 0)}
        generation, offset = source.get("position") or ("", 0)
        return SourceRow(
            host=host,
            source=path,
            partition=partition_of(host, partitions),
            shipper=shipper,
            rate=self._rate(key, at_s, counted, answer.is_silent),
            waiting_s=self._waiting_s(key, answer, source, at_s),
            backlog_bytes=source.get("backlog_bytes", 0),
            on_the_way_bytes=source.get("on_the_way_bytes", 0),
            missing_bytes=missing.get((host, path), 0),
            missing_by=by.get((host, path), ()),
            lost_bytes=lost.get((host, path), 0),
            unseen_generations=source.get("unseen_generations", 0),
            generation=str(generation),
            offset=int(offset),
            silent_s=answer.silent_s,
        )

    def _waiting_s(self, key: Hashable, answer: LastAnswer, source: Status, at_s: float) -> float:
        """Return how long the oldest byte that is not shipped can have waited.

        The shipper says for how long something has waited, which rises for ever where a busy file
        is never read to its end at the moment of a look. What was written when limits it. While the
        shipper is silent, nothing is known to be shipped of what waited, or is written since.
        """
        _, written = self._written.get(key, (0.0, Written()))
        self._written[key] = at_s, written
        waiting, done = source.get("backlog_bytes", 0), source.get("acked_bytes", 0)
        age_s = written.age_s(at_s - answer.age_s, done=done, waiting=waiting)
        reported_s = float(source.get("waiting_s", 0.0))
        known_s = reported_s if age_s is None else min(age_s, reported_s)
        return known_s + answer.silent_s

    def _shipper(self, answer: LastAnswer, at_s: float) -> ShipperRow:
        status, name = answer.status, str(answer.status.get("name", ""))
        counted = {"lines": status.get("lines", 0), "bytes": status.get("acked_bytes", 0)}
        return ShipperRow(
            name=name,
            hosts=status.get("hosts", 0),
            sources=status.get("sources_total", 0),
            rate=self._rate(("shipper", name), at_s, counted, answer.is_silent),
            waiting_s=self._hosts.waiting_s.get(name, 0.0),
            backlog_bytes=status.get("backlog_bytes", 0),
            on_the_way_bytes=status.get("on_the_way_bytes", 0),
            missing_bytes=status.get("missing_bytes", 0),
            problem=next(of_shipper(status), ""),
            silent_s=answer.silent_s,
        )

    def _partitions(
        self, status: Status, collectors: Sequence[LastAnswer], at_s: float
    ) -> list[PartitionRow]:
        written = {
            (str(answer.status.get("member")), each["partition"]): each
            for answer in collectors
            if not answer.is_silent and answer.status.get("group") == status["group"]
            for each in answer.status.get("partitions", [])
        }
        whole = {row["partition"]: row for row in _own_sums(status)}
        rows, streams = [], set[str]()
        for state in status["partitions"]:
            number = int(state["partition"])
            counted = written.get((state["owner"], number), {})
            key = "partition", number
            # What one stream of several partitions stores is counted with the first of them.
            end = 0 if state["stream"] in streams else state["last_sequence"]
            streams.add(state["stream"])
            # One that is not known reads 0, and so would seem to be filled when it is known again.
            stored = (
                self._counters.observe((key, "stored"), at_s, end)
                if state["is_known"]
                else self._counters.last((key, "stored"))
            )
            rows.append(
                PartitionRow(
                    partition=number,
                    stream=state["stream"],
                    owner=state["owner"],
                    state=_state_of(state),
                    rate=self._rate(key, at_s, counted, not counted),
                    stored_s=stored.rate,
                    stored_history=tuple(stored.rates),
                    messages=state["messages"],
                    bytes=state["bytes"],
                    lag_messages=state["lag_messages"],
                    lag_bytes=state["lag_bytes"],
                    lag_s=state["lag_s"],
                    missing_bytes=whole[number]["missing"],
                    lost_bytes=whole[number]["lost_new"],
                )
            )
        return rows

    def _collector(self, answer: LastAnswer, at_s: float) -> CollectorRow:
        group, member = str(answer.status.get("group", "")), str(answer.status.get("member", ""))
        owned = [each for each in answer.status.get("partitions", []) if "epoch" in each]
        # Each partition counts from 0 with each epoch: their sum would jump when one moves.
        rates = [
            self._rate(
                ("owned", group, member, each["partition"], each["epoch"]),
                at_s,
                each,
                answer.is_silent,
            )
            for each in owned
        ]
        found = (each["problem"] for each in answer.status.get("partitions", []))
        return CollectorRow(
            member=member,
            group=group,
            partitions=tuple(each["partition"] for each in owned),
            rate=_sum_of(rates),
            lag_s=max((each["lag_seconds"] for each in owned), default=0.0),
            pending_bytes=sum(each["pending_bytes"] for each in owned),
            uncommitted_bytes=sum(each["uncommitted_bytes"] for each in owned),
            missing_bytes=sum(each["missing_bytes"] for each in owned),
            problem=next((problem for problem in found if problem), ""),
            silent_s=answer.silent_s,
        )

    def _reader(self, reader: Status, at_s: float) -> ReaderRow:
        streams, name = reader["streams"], reader["name"]
        read = _sum_of(
            [
                Rate(bytes_s=series.rate, history=tuple(series.rates))
                for each in streams
                for series in [
                    self._counters.observe(("reader", name, each["stream"]), at_s, each["read"])
                ]
            ]
        )
        return ReaderRow(
            name=name,
            partitions=len(streams),
            messages_s=read.bytes_s,
            history=read.history,
            pending_messages=sum(each["pendingMessages"] for each in streams),
            unacknowledged=sum(each["unacknowledged"] for each in streams),
            redelivered=sum(each["redelivered"] for each in streams),
            missed_messages=sum(each["missedMessages"] for each in streams),
        )

    def _table(self, table: Status, at_s: float) -> TableRow:
        rows = self._counters.observe(("table", table["name"]), at_s, table["rows"])
        lags = [each["lag"] for each in table["streams"]]
        return TableRow(
            name=table["name"],
            path=table["path"],
            rows=table["rows"],
            lines_s=rows.rate,
            history=tuple(rows.rates),
            lag_s=max((lag["age_s"] for lag in lags), default=0.0),
            lag_messages=sum(lag["messages"] for lag in lags),
            lag_bytes=sum(lag["bytes"] for lag in lags),
            missed_messages=table["missed_messages"],
            problem=table["problem"],
        )

    def _files(self, shippers: Sequence[LastAnswer], at_s: float) -> Stage:
        """Return the files as a stage: written is what was shipped from them, and what waits."""
        rates = []
        for answer in shippers:
            status = answer.status
            total = status.get("acked_bytes", 0) + status.get("backlog_bytes", 0)
            key = "written", status.get("name", "")
            if not answer.is_silent:
                grown = self._counters.observe(key, at_s, total, may_fall=True)
                rates.append(Rate(bytes_s=grown.rate, history=tuple(grown.rates)))
        return Stage(
            name="files",
            count=sum(each.status.get("sources_total", 0) for each in shippers),
            rate=_sum_of(rates),
            waiting_bytes=sum(each.status.get("backlog_bytes", 0) for each in shippers),
        )

    def _forget(self, at_s: float) -> None:
        self._counters.forget(at_s)
        old = [key for key, (when_s, _) in self._written.items() if at_s - when_s > FORGET_S]
        for key in old:
            del self._written[key]


def _stages(
    shippers: Sequence[ShipperRow],
    partitions: Sequence[PartitionRow],
    collectors: Sequence[CollectorRow],
    tables: Sequence[TableRow],
    readers: Sequence[ReaderRow],
) -> Iterator[Stage]:
    """Yield the stages behind the files, in the order in which lines pass them."""
    yield Stage(
        name="shippers",
        count=len(shippers),
        rate=_sum_of([row.rate for row in shippers]),
        waiting_bytes=sum(row.on_the_way_bytes for row in shippers),
        waiting_s=max((row.waiting_s for row in shippers), default=0.0),
    )
    yield Stage(
        name="streams",
        count=len(partitions),
        rate=_sum_of([Rate(history=row.stored_history) for row in partitions]),
        messages_s=sum(row.stored_s for row in partitions),
        waiting_bytes=sum(row.lag_bytes for row in partitions),
        waiting_s=max((row.lag_s for row in partitions), default=0.0),
    )
    yield Stage(
        name="collectors",
        count=len(collectors),
        rate=_sum_of([row.rate for row in collectors]),
        waiting_bytes=sum(row.uncommitted_bytes for row in collectors),
        waiting_s=max((row.lag_s for row in collectors), default=0.0),
    )
    for table in tables:
        yield Stage(
            name="table",
            count=table.rows,
            rate=Rate(lines_s=table.lines_s, history=table.history),
            waiting_bytes=table.lag_bytes,
            waiting_s=table.lag_s,
        )
    if readers:
        yield Stage(
            name="readers",
            count=len(readers),
            rate=_sum_of([Rate(history=row.history) for row in readers]),
            messages_s=sum(row.messages_s for row in readers),
        )


def _sources_total(shippers: Iterable[LastAnswer], rows: Iterable[SourceRow]) -> int:
    """Return how many sources there are: those of shippers, listed or not, and others that miss
    bytes.
    """
    known = sum(each.status.get("sources_total", 0) for each in shippers)
    return int(known + sum(not row.shipper for row in rows))


def _weight(
    source: Status,
    missing: Mapping[tuple[str, str], int],
    lost: Mapping[tuple[str, str], int],
) -> tuple[int, int]:
    key = source["host"], source["source"]
    return missing.get(key, 0) + lost.get(key, 0), source.get("backlog_bytes", 0)


def _state_of(state: Status) -> str:
    """Return what is to be known of a partition's owner; empty where all is well."""
    if not state["is_there"]:
        return "no stream"
    if not state["is_known"]:
        return "not known"
    if not state["owner"]:
        return "no owner"
    if state["released"]:
        return "released"
    moves = state["assigned"] and state["assigned"] != state["owner"]
    return f"moves to {state['assigned']}" if moves else ""


def _sum_of(rates: Sequence[Rate]) -> Rate:
    """Return the sum of *rates*, their histories being aligned at their ends."""
    length = max((len(rate.history) for rate in rates), default=0)
    sums = [0.0] * length
    for rate in rates:
        begin = length - len(rate.history)
        for index, value in enumerate(rate.history):
            sums[begin + index] += value
    return Rate(
        lines_s=sum(rate.lines_s for rate in rates),
        bytes_s=sum(rate.bytes_s for rate in rates),
        history=tuple(sums),
    )


def _missing(
    rows: Iterable[Status],
) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], tuple[str, ...]]]:
    """Return the missing bytes of each source, and which kinds of components report them."""
    sizes: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    by: dict[tuple[str, str], tuple[str, ...]] = {}
    for row in rows:
        key = row["host"], row["source"]
        sizes[key][row["group"]] += row["bytes"]
        by[key] = tuple(dict.fromkeys((*by.get(key, ()), row["toldBy"])))
    # Groups of collectors read the same messages: they lack the same bytes, or one lacks more.
    return {key: of.pop("", 0) + max(of.values(), default=0) for key, of in sizes.items()}, by


def _lost(rows: Iterable[Status]) -> dict[tuple[str, str], int]:
    """Return the lost bytes of each source that no person has acknowledged."""
    sizes: defaultdict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        if not row["acknowledged"]:
            sizes[row["host"], row["source"]] += row["bytes"]
    return sizes


def _rows_of_missing(status: Status) -> list[MissingRow]:
    """Return what is missing and lost, the largest first."""
    whats = {
        "shipper": "gone before it was read",
        "collector": "a hole, which may still be filled",
    }
    rows = [
        MissingRow(
            host=row["host"],
            source=row["source"],
            bytes=row["bytes"],
            what=whats.get(row["toldBy"], ""),
            by=_by(f"a {row['toldBy']}", row["group"], status),
            group=row["group"],
        )
        for row in status["missing"]
    ]
    rows += [
        MissingRow(
            host=row["host"],
            source=row["source"],
            bytes=row["bytes"],
            what=f"lost: {row['cause']}",
            by=_by("its shipper", row["group"], status),
            since_ns=row["time_ns"],
            generation=row["generation"],
            start=row["start"],
            group=row["group"],
        )
        for row in status["lost"]
        if not row["acknowledged"]
    ]
    rows += _rows_of_unlisted(status)
    return sorted(rows, key=lambda row: -row.bytes)


def _rows_of_unlisted(status: Status) -> Iterator[MissingRow]:
    """Yield what is missing and lost in sources that no list names, by group and partition."""
    found = [(status["group"], row["partition"], row) for row in _own_sums(status)]
    found += [(*place, sizes) for place, sizes in beyond(status).items()]
    heard = {(row["group"], row["partition"]): row["is_heard"] for row in status["sums"]}
    for group, partition, sizes in found:
        by = "a collector" if heard[group, partition] else "the last commit"
        for name, what in (("missing_unlisted", "holes"), ("lost_unlisted", "lost")):
            if sizes[name]:
                yield MissingRow(
                    host="",
                    source="",
                    bytes=sizes[name],
                    what=f"{what} of sources of partition {partition} that are not listed",
                    by=_by(by, group, status),
                    group=group,
                    partition=partition,
                )


def _by(who: str, group: str, status: Status) -> str:
    return who if group in ("", status["group"]) else f"{who} (group {group})"


def _own_sums(status: Status) -> list[Status]:
    """Return the sums of the pipeline's own group, by partition."""
    return [row for row in status["sums"] if row["group"] == status["group"]]


def _silent(
    shippers: Iterable[LastAnswer], collectors: Iterable[LastAnswer], status: Status
) -> Iterator[str]:
    """Yield a sentence for each component that answered before, and does not answer now."""
    names = [(each, str(each.status.get("name", ""))) for each in shippers]
    names += [(each, name_of(each.status, status)) for each in collectors]
    for each, name in names:
        if each.is_silent:
            yield f"{name} has not answered for {each.silent_s:.0f} s"


def _badness(row: SourceRow | HostRow) -> tuple[float, ...]:
    return (
        row.missing_bytes + row.lost_bytes,
        row.waiting_s,
        row.backlog_bytes,
        row.on_the_way_bytes,
        row.rate.bytes_s,
    )


def _partition_badness(row: PartitionRow) -> tuple[float, ...]:
    is_bad = bool(row.state)
    return is_bad, row.missing_bytes + row.lost_bytes, row.lag_s, row.lag_bytes, -row.partition


def _collector_badness(row: CollectorRow) -> tuple[float, ...]:
    return bool(row.problem or row.silent_s), row.missing_bytes, row.lag_s, row.pending_bytes


def _shipper_badness(row: ShipperRow) -> tuple[float, ...]:
    is_bad = bool(row.problem or row.silent_s)
    return is_bad, row.missing_bytes, row.waiting_s, row.backlog_bytes
