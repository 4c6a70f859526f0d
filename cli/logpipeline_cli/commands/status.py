"""``logpipeline status``: partitions with owner and lag, shippers, readers, tables, problems."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from logpipeline.lag import PartitionState, survey
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.nats.unanswered import Unanswered, bucket_part
from logpipeline.observe.logs import printable
from logpipeline.tables.state import TableState, tables_of
from logpipeline_cli.dead_letters.entries import room_of
from logpipeline_cli.errors import EXIT_FAILED, EXIT_OK
from logpipeline_cli.losses import (
    Acknowledged,
    acknowledged,
    listed_whole,
    lost,
    missing,
    owned,
    sums,
)
from logpipeline_cli.output import bytes_text, print_json, seconds_text, table
from logpipeline_cli.problems import conflicts, of_shipper, problems
from logpipeline_cli.readers import readers_of
from logpipeline_cli.silence import silent, silent_owners
from logpipeline_cli.tables.status import as_json, standing, why_no_table
from logpipeline_cli.target import Target, ask, connected, find_target
from logpipeline_cli.time_arguments import time_text

WATCH_EVERY_S = 1.0
# A part that is busy, or just starts, may answer later than the others.
ANSWER_WITHIN_S = 10.0
ROWS_SHOWN_MAX = 20
# The tables below them are to be seen as well.
PROBLEMS_SHOWN_MAX = 10
_SHIPPER_COLUMNS = (
    *("SHIPPER", "HOSTS", "SOURCES", "BACKLOG", "ON THE WAY", "MISSING", "UNSEEN", "UNREADABLE"),
    "REFUSED",
    "STATE",
)
_READER_COLUMNS = ("READER", "PARTITIONS", "PENDING", "UNACKNOWLEDGED", "REDELIVERED", "MISSED")
# Returns further fields of the status, by their names in JSON: what the operator found.
More = Callable[[], dict[str, Any]]
_CLEAR = "\x1b[H\x1b[2J"


def run(args: argparse.Namespace) -> int:
    """Print the status once, or each second with --watch; with --check its problems."""
    target = find_target(file=args.file, data=args.data, nats=args.nats)
    if args.check:
        return asyncio.run(check(target, as_json=args.output == "json"))
    asyncio.run(show(target, as_json=args.output == "json", watch=args.watch))
    return EXIT_OK


async def check(target: Target, *, as_json: bool, known: Sequence[str] = ()) -> int:
    """Print the problems of the pipeline, one on a line, those of *known* first; return
    `EXIT_FAILED` if there is one.
    """
    async with connected(target, "status") as js:
        found = [*known, *problems(await gather(js, target, patience_s=ANSWER_WITHIN_S))]
    if as_json:
        print_json({"problems": found})
    else:
        print("\n".join(map(printable, found)) or "no problems")
    return EXIT_FAILED if found else EXIT_OK


async def show(target: Target, *, as_json: bool, watch: bool, more: More = dict) -> None:
    """Print the status with the fields that *more* returns, such as *conditions*."""
    async with connected(target, "status") as js:
        if not watch:
            _show(await gather(js, target) | more(), as_json=as_json)
            return
        while True:
            try:
                status = await gather(js, target) | more()
                _show(status, as_json=as_json, clear=sys.stdout.isatty())
            except (NotSent, OutcomeUnknown, ApiError) as error:
                # With --watch a user wants to see when the server is back.
                print(f"the server does not answer: {printable(str(error))}", file=sys.stderr)
            sys.stdout.flush()
            await asyncio.sleep(WATCH_EVERY_S)


def _show(status: dict[str, Any], *, as_json: bool, clear: bool = False) -> None:
    if as_json:
        print_json(status)
    else:
        print((_CLEAR if clear else "") + render(status))


async def gather(
    js: JetStream, target: Target, *, patience_s: float = 0.0, with_all_losses: bool = False
) -> dict[str, Any]:
    """Return the status of the pipeline now, as it is printed in JSON. Parts that do not answer are
    asked again for *patience_s*. Of many losses the newest are listed; *with_all_losses* all, and
    only collectors are waited for. What no server answers for is named, beside all the rest.

    Raises:
        NotSent, OutcomeUnknown, ApiError: the server could not be asked.
    """
    pipeline = target.pipeline
    group = pipeline.spec.collectors.group
    until_s = time.monotonic() + patience_s
    while True:
        unanswered = Unanswered()
        answers, partitions = await asyncio.gather(
            ask(js.connection, pipeline.names.control_subject), survey(js, pipeline, unanswered)
        )
        missing_parts = silent(target, partitions, answers)
        owners = silent_owners(group, partitions, answers)
        waits_for = owners if with_all_losses else missing_parts
        if not waits_for or time.monotonic() > until_s:
            break
    dead = await room_of(js, pipeline.names.dead_letter_stream, unanswered)
    known = [each for each in partitions if each.is_there and each.is_known]
    bucket = Bucket(js, pipeline.names.state_bucket)
    part = bucket_part(bucket.name)
    tables: list[TableState] = await unanswered.ask(
        part, lambda: tables_of(js, pipeline, known), []
    )
    # One stream may hold several partitions.
    streams = dict.fromkeys(each.stream for each in known)
    readers = await readers_of(js, bucket, list(streams), unanswered)
    seen = await unanswered.ask(part, lambda: acknowledged(bucket), Acknowledged())
    places = owned(answers["collector"])
    if with_all_losses:
        places = await listed_whole(js.connection, pipeline.names.control_subject, places)
    states = [asdict(state) for state in partitions]
    losses = lost(places, seen, group=group)
    whole = sums(states, places, losses, seen, group=group)
    return {
        "name": pipeline.name,
        "namespace": pipeline.namespace,
        "server": _without_secret(js.connection.options.servers[0]),
        "serverTrouble": target.run.trouble if target.run is not None else "",
        "heldBack": target.run.held if target.run is not None else "",
        "group": group,
        "unanswered": unanswered.reasons,
        "silent": missing_parts,
        "silentOwners": owners,
        "partitions": states,
        "collectors": answers["collector"],
        "shippers": answers["shipper"],
        "readers": readers,
        "missing": [*_unread(answers["shipper"]), *missing(places, group=group)],
        "lost": losses,
        "sums": [asdict(each) for each in whole],
        "conflicts": conflicts(answers["shipper"]),
        "deadLetters": dead["messages"] if dead is not None else None,
        "deadLetterRoom": dead,
        "tables": [as_json(each) for each in tables],
        "noTable": _no_table(target),
        "trimming": {
            "above": pipeline.spec.stream.trim_above,
            "skipTablesAbove": pipeline.spec.stream.skip_tables_above,
        },
    }


def _no_table(target: Target) -> str:
    """Return why a pipeline that runs here keeps no table; empty where its resource decides."""
    if target.run is None or target.pipeline.spec.table.enabled is not None:
        return ""
    return why_no_table(target.pipeline)


def render(status: dict[str, Any]) -> str:
    """Return *status* as text."""
    partitions = [PartitionState(**entry) for entry in status["partitions"]]
    lag = sum(state.lag_messages for state in partitions)
    lines = [
        f"{status['namespace']}/{status['name']} on {status['server']}: "
        f"{len(status['shippers'])} shippers, {_members(status)} collectors answer; "
        f"lag {lag} messages, {bytes_text(sum(state.lag_bytes for state in partitions))}; "
        f"{_dead_letters(status['deadLetterRoom'])}",
        *([status["checked"]] if "checked" in status else []),
        *([f"Warning: {status['unchecked']}"] if "unchecked" in status else []),
        *([f"no table: {status['noTable']}"] if status["noTable"] else []),
        *standing(status),
        *conditions_text(status.get("conditions", [])),
        *_problems(status),
        "",
        table(
            ("PARTITION", "OWNER", "EPOCH", "STORED", "COMMITTED", "LAG", "BYTES", "AGE"),
            [_partition_row(state) for state in partitions],
        ),
    ]
    if status["shippers"]:
        rows = [_shipper_row(answer) for answer in status["shippers"]]
        lines += ["", table(_SHIPPER_COLUMNS, rows)]
    lines += _some(_READER_COLUMNS, [_reader_row(reader) for reader in status["readers"]])
    shared = [(row["host"], row["source"], row["shippers"]) for row in status["conflicts"]]
    lines += _some(("HOST", "SOURCE", "SHIPPED BY"), shared)
    own = status["group"]
    rows = [
        (row["host"], row["source"], row["bytes"], of_group(row, own)) for row in status["missing"]
    ]
    lines += _some(("HOST", "SOURCE", "MISSING BYTES", ""), rows)
    lines += _unlisted(status, "missing_unlisted", "are missing of sources that are not listed")
    named = [
        (
            *(row["host"], row["source"], row["bytes"], row["cause"]),
            *(time_text(row["time_ns"]), of_group(row, own)),
        )
        for row in status["lost"]
        if not row["acknowledged"]
    ]
    lines += _some(("HOST", "SOURCE", "LOST BYTES", "CAUSE", "SINCE", ""), named)
    lines += _unlisted(status, "lost_unlisted", "are lost and not listed here")
    return "\n".join(lines)


def _problems(status: dict[str, Any]) -> list[str]:
    found = [printable(each) for each in problems(status)]
    lines = [f"* {each}" for each in found[:PROBLEMS_SHOWN_MAX]]
    if len(found) > PROBLEMS_SHOWN_MAX:
        lines.append(f"and {len(found) - PROBLEMS_SHOWN_MAX} more: see `status --check`")
    return ["", f"Problems: {len(found)}", *lines] if found else []


def _dead_letters(room: dict[str, Any] | None) -> str:
    if room is None:
        return "dead letters not known"
    text = f"{room['messages']} dead letters"
    if room["messages"] and room["bytesMax"] > 0:
        text += f", {bytes_text(room['bytes'])} of {bytes_text(room['bytesMax'])}"
    return text


def _some(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return the lines of a table of the first *rows*, none where there are none."""
    if not rows:
        return []
    lines = ["", table(columns, rows[:ROWS_SHOWN_MAX])]
    if len(rows) > ROWS_SHOWN_MAX:
        lines.append(f"and {len(rows) - ROWS_SHOWN_MAX} more; see -o json")
    return lines


def of_group(row: dict[str, Any], own: str) -> str:
    """Return the name of the group that lacks the bytes of *row*; empty for the pipeline's *own*
    one, and for what a shipper says.
    """
    return f"group {row['group']}" if row["group"] not in ("", own) else ""


def _unlisted(status: dict[str, Any], name: str, what: str) -> list[str]:
    """Return the line about bytes that lists do not name, none where there are none."""
    size = sum(row[name] for row in status["sums"] if row["group"] == status["group"])
    return [f"and {bytes_text(size)} {what}"] if size else []


def _members(status: dict[str, Any]) -> int:
    """Return how many collectors answer."""
    return len({(answer.get("group"), answer.get("member")) for answer in status["collectors"]})


def conditions_text(conditions: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines that show a resource's conditions, none where there are none."""
    rows = [
        tuple(condition.get(name, "") for name in ("type", "status", "reason", "message"))
        for condition in conditions
    ]
    return ["", table(("CONDITION", "STATUS", "REASON", "MESSAGE"), rows)] if rows else []


def _partition_row(state: PartitionState) -> tuple[object, ...]:
    if not (state.is_there and state.is_known):
        why = "not known" if state.is_there else "no stream"
        return state.partition, why, "", "", "", "", "", ""
    owner = state.owner or "none"
    if state.released:
        owner = f"released by {owner}"
    if state.assigned and state.assigned != state.owner:
        owner += f" -> {state.assigned}"
    return (
        state.partition,
        owner,
        state.epoch,
        state.last_sequence,
        state.committed,
        state.lag_messages,
        bytes_text(state.lag_bytes),
        seconds_text(state.lag_s) if state.lag_messages else "",
    )


def _shipper_row(answer: dict[str, Any]) -> tuple[object, ...]:
    return (
        answer.get("name", ""),
        answer.get("hosts", 0),
        answer.get("sources_total", 0),
        bytes_text(answer.get("backlog_bytes", 0)),
        bytes_text(answer.get("on_the_way_bytes", 0)),
        bytes_text(answer.get("missing_bytes", 0)),
        answer.get("unseen_generations", 0),
        answer.get("unreadable_total", 0),
        answer.get("quarantined", 0),
        next(of_shipper(answer), "fine"),
    )


def _reader_row(reader: dict[str, Any]) -> tuple[object, ...]:
    sums = (
        sum(each[field] for each in reader["streams"])
        for field in ("pendingMessages", "unacknowledged", "redelivered", "missedMessages")
    )
    return reader["name"], len(reader["streams"]), *sums


def _without_secret(url: str) -> str:
    """Return *url* without the user and password, or the token, that it may hold."""
    scheme, separator, rest = url.rpartition("://")
    return scheme + separator + rest.rpartition("@")[2]


def _unread(shippers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the sources of which bytes were gone before their shipper read them."""
    return [
        {
            "host": source["host"],
            "source": source["source"],
            "bytes": source["missing_bytes"],
            "toldBy": "shipper",
            "group": "",
        }
        for answer in shippers
        for source in answer.get("sources", [])
        if source.get("missing_bytes")
    ]
