"""``logpipeline dlq``: list dead letters, show one, send them again, or delete them."""

from __future__ import annotations

import argparse
import asyncio
import heapq
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from logpipeline import wire
from logpipeline.dead_letters import Letter
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, rfc3339_of
from logpipeline_cli.dead_letters.entries import Choice, DeadStream, Entry, Groups, NoEntry, whole
from logpipeline_cli.dead_letters.sending import CannotSend, send_again
from logpipeline_cli.errors import EXIT_FAILED, EXIT_OK, CliError
from logpipeline_cli.output import agreed, bytes_text, print_json, table, write_content
from logpipeline_cli.target import Target, connected, find_target
from logpipeline_cli.time_arguments import moment_ns

# Refusals that are printed one by one; all are counted.
REFUSALS_SHOWN_MAX = 20


def run(args: argparse.Namespace) -> int:
    """Carry out the action; exit 1 if a part of it failed."""
    return act(find_target(file=args.file, data=args.data, nats=args.nats), args)


def act(target: Target, args: argparse.Namespace) -> int:
    """Carry out the action on the letters of *target*; exit 1 if a part of it failed."""
    action = {"ls": _ls, "show": _show, "retry": _retry, "purge": _purge}[args.action]
    return asyncio.run(_with_stream(action, target, args))


async def _with_stream(action: Any, target: Target, args: argparse.Namespace) -> int:
    async with connected(target, "dlq") as js:
        return int(await action(DeadStream(js, target.pipeline), args))


async def _ls(dead: DeadStream, args: argparse.Namespace) -> int:
    if args.all or args.before:
        entries = await _newest(dead, args)
        if args.output == "json":
            print_json([_row(entry) for entry in entries])
        else:
            _print_entries(entries, args.limit)
        return EXIT_OK
    groups = Groups()
    async for entry in dead.entries(_choice(args)):
        groups.add(entry)
    rows = [
        {
            **group._asdict(),
            "count": count.count,
            "waiting": count.waiting,
            "first": rfc3339_of(count.first_ns),
            "last": rfc3339_of(count.last_ns),
        }
        for group, count in groups.sorted()[: args.limit]
    ]
    if args.output == "json":
        print_json(rows)
    elif rows:
        print(table([name.upper() for name in rows[0]], [list(row.values()) for row in rows]))
    else:
        print("There are no dead letters.")
    return EXIT_OK


async def _newest(dead: DeadStream, args: argparse.Namespace) -> list[Entry]:
    """Return the newest entries; at most one page of them is held in memory."""
    page: list[tuple[int, Entry]] = []
    async for entry in dead.entries(_choice(args)):
        if args.before is None or entry.number < args.before:
            push = heapq.heappush if len(page) < args.limit else heapq.heappushpop
            push(page, (entry.number, entry))
    return [entry for _, entry in sorted(page, reverse=True)]


def _print_entries(entries: list[Entry], limit: int) -> None:
    if not entries:
        print("There are no dead letters.")
        return
    headers = ("NUMBER", "TIME", "REASON", "STREAM", "SEQUENCE", "HOST", "SOURCE", "CONSUMER", "")
    print(table(headers, [_cells(entry) for entry in entries]))
    if len(entries) == limit:
        print(f"Older ones: --before {entries[-1].number}")


def _cells(entry: Entry) -> list[object]:
    letter = entry.letter
    state = "waits" if entry.waits else "gone" if letter.is_gone else ""
    where = (letter.stream, letter.sequence, entry.host, entry.source, letter.consumer, state)
    return [entry.number, rfc3339_of(entry.time_ns), letter.reason, *where]


def _row(entry: Entry) -> dict[str, Any]:
    letter = entry.letter
    return {
        "number": entry.number,
        "time": rfc3339_of(entry.time_ns),
        "reason": letter.reason,
        "detail": letter.detail,
        "stream": letter.stream,
        "partition": entry.partition,
        "sequence": letter.sequence,
        "stored": rfc3339_of(letter.time_ns),
        "subject": letter.subject,
        "host": entry.host,
        "source": entry.source,
        "consumer": letter.consumer,
        "bytes": letter.payload_bytes,
        "gone": letter.is_gone,
        "waits": entry.waits,
    }


async def _show(dead: DeadStream, args: argparse.Namespace) -> int:
    entry = await dead.entry(args.number)
    found = await whole(dead.js, entry.letter)
    letter = found or entry.letter
    if args.raw:
        sys.stdout.buffer.write(letter.payload)
        return EXIT_OK if found else EXIT_FAILED
    rows: list[tuple[str, object]] = list(_row(entry).items())
    rows += [
        (line.partition(":")[0], line.partition(":")[2].strip())
        for line in letter.headers.decode("utf-8", "backslashreplace").split("\r\n")[1:]
        if line
    ]
    print(table(("FIELD", "VALUE"), rows))
    print()
    if letter.is_gone:
        print("The message is gone.")
        return EXIT_OK
    write_content([_readable(letter)], raw=False)
    if found is None:
        kept = bytes_text(len(letter.payload))
        print(f"(of {bytes_text(letter.payload_bytes)} {kept} were kept)", file=sys.stderr)
    return EXIT_OK


def _readable(letter: Letter) -> bytes:
    """Return the uncompressed message, where its headers describe the compression."""
    try:
        batch = wire.decode_headers(wire.parse_headers(letter.headers)) if letter.headers else None
        return letter.payload if batch is None else wire.decode_payload(batch, letter.payload)
    except wire.BadMessage:
        return letter.payload


async def _retry(dead: DeadStream, args: argparse.Namespace) -> int:
    sent = refused = 0
    async with aclosing(_chosen(dead, args)) as numbers:
        async for number in numbers:
            try:
                sent += await send_again(dead, await dead.entry(number), again=args.again)
                continue
            except NoEntry as error:
                if not args.numbers:
                    continue  # another retry was faster
                why = str(error)
            except (CannotSend, ApiError, NotSent, OutcomeUnknown, TimeoutError) as error:
                why = f"letter {number} stays: {str(error) or 'the server did not answer in time'}"
            refused += 1
            if refused <= REFUSALS_SHOWN_MAX:
                print(why, file=sys.stderr)
    print(f"Sent again: {sent}." + (f" Letters that stay: {refused}." if refused else ""))
    return EXIT_FAILED if refused else EXIT_OK


async def _purge(dead: DeadStream, args: argparse.Namespace) -> int:
    count = last = 0
    async with aclosing(_chosen(dead, args)) as numbers:
        async for number in numbers:
            count, last = count + 1, max(last, number)
    if not count:
        print("No letters match.")
        return EXIT_OK
    if not agreed(f"Delete {count} dead letters for good?", yes=args.yes):
        print("Nothing was deleted.")
        return EXIT_FAILED
    deleted = 0 if args.numbers else await dead.purge(_choice(args), last)
    async with aclosing(_chosen(dead, args)) as numbers:
        async for number in numbers:
            # Letters that came later were not part of the confirmation.
            if number <= last:
                deleted += await dead.js.message_delete(dead.name, number)
    print(f"Deleted: {deleted}.")
    return EXIT_OK


async def _chosen(dead: DeadStream, args: argparse.Namespace) -> AsyncGenerator[int, None]:
    """Yield the numbers of the letters that *args* choose."""
    choice = _choice(args)
    is_filtered = choice != Choice()
    if args.numbers:
        if args.all or is_filtered:
            raise CliError(
                "give numbers, or filters, or --all; numbers cannot be combined with the others"
            )
        await dead.info()
        for number in args.numbers:
            yield number
        return
    if not args.all and not is_filtered:
        raise CliError("say which letters: give numbers, filters such as --reason, or --all")
    async for entry in dead.entries(choice):
        yield entry.number


def _choice(args: argparse.Namespace) -> Choice:
    return Choice(
        reason=args.reason,
        partition=args.partition,
        host=args.host,
        consumer=args.consumer,
        since_ns=moment_ns("--since", args.since) if args.since else None,
    )
