"""``kubectl logpipeline files``: what all collectors wrote, also those that were scaled away."""

from __future__ import annotations

import argparse
from typing import Any

from logpipeline_cli.cluster.ends import collectors_of, note
from logpipeline_cli.cluster.entries import Entry, in_order, mixed, turns
from logpipeline_cli.cluster.remote import Archive
from logpipeline_cli.cluster.session import find, session
from logpipeline_cli.errors import CliError
from logpipeline_cli.exits import EXIT_FAILED, EXIT_OK
from logpipeline_cli.output import bytes_text, print_json, table, write_content


def run(args: argparse.Namespace) -> int:
    """List files, or print what is in them."""
    with session(args) as cluster:
        found = find(cluster, args.pipeline)
        with collectors_of(found, only_running=args.running) as ends:
            glob = args.path if args.action == "cat" else None
            group = found.pipeline.spec.collectors.group
            archive = Archive(ends, group, args.host, glob)
            return _list(archive, args) if args.action == "ls" else _print(archive, args)


def _list(archive: Archive, args: argparse.Namespace) -> int:
    entries = in_order(archive.entries())
    if args.output == "json":
        print_json([_fields(entry) for entry in entries])
        return EXIT_OK
    rows = [(e.host, e.name, bytes_text(e.bytes), _state(e), e.member) for e in entries]
    print(table(("HOST", "PATH", "COMMITTED", "STATE", "COLLECTOR"), rows))
    return EXIT_OK


def _print(archive: Archive, args: argparse.Namespace) -> int:
    entries = archive.entries()
    if not entries:
        where = f" match {args.path!r}" if args.path else ""
        raise CliError(f"no files of {args.host!r}{where}; see `kubectl logpipeline files ls`")
    for former, latter in mixed(entries):
        note(
            f"{former.place}: {former.member} wrote to it before {latter.member} and again "
            "afterwards; the lines of the two are not in order"
        )
    for turn in turns(entries):
        for chunks in archive.contents(turn):
            write_content(chunks, raw=args.raw)
    for name in archive.lost:
        note(f"{name} was removed meanwhile (retention)")
    return EXIT_FAILED if archive.lost else EXIT_OK


def _state(entry: Entry) -> str:
    if entry.is_compressed:
        return "compressed"
    return "rotated" if entry.is_rotated else "active"


def _fields(entry: Entry) -> dict[str, Any]:
    return {
        "host": entry.host,
        "path": entry.name,
        "bytes": entry.bytes,
        "rotated": entry.is_rotated,
        "compressed": entry.is_compressed,
        "collector": entry.member,
        "file": entry.file,
    }
