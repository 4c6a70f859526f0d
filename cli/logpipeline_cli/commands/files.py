"""``logpipeline files``: list or print the files that the collectors wrote, also when no collector
runs any more.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from logpipeline.layout import Layout, default_data, running_layout
from logpipeline.observe.logs import printable
from logpipeline.spec import load
from logpipeline_cli.committed import Reading, pieces_of
from logpipeline_cli.errors import EXIT_FAILED, EXIT_OK, CliError
from logpipeline_cli.events import event_rules, matching
from logpipeline_cli.file_entries import Entry
from logpipeline_cli.output import bytes_text, print_json, table, write_content

WHY_LOST = "removed meanwhile (retention), or the file was removed or cut by others"


def run(args: argparse.Namespace) -> int:
    """List files, or print their content."""
    folders = _collectors(file=args.file, data=args.data)
    if args.action == "ls":
        pieces = pieces_of(folders, args.host)
        entries = [Entry.of(piece.collector, piece.file) for piece in pieces]
        print_entries(entries, as_json=args.output == "json")
        return EXIT_OK
    return _print_content(folders, args)


def print_entries(entries: Sequence[Entry], *, as_json: bool) -> None:
    """Print a list of files."""
    if as_json:
        print_json([_fields(entry) for entry in entries])
        return
    rows = [(e.host, e.name, bytes_text(e.bytes), _state(e), e.member) for e in entries]
    print(table(("HOST", "PATH", "COMMITTED", "STATE", "COLLECTOR"), rows))


def no_files(args: argparse.Namespace, program: str) -> CliError:
    """Return the error for a host, or a path, that has no files."""
    where = f" match {args.path!r}" if args.path else ""
    return CliError(f"no files of {args.host!r}{where}; see `{program} files ls`")


def wanted_of(args: argparse.Namespace) -> Callable[[Iterable[bytes]], Iterable[bytes]]:
    """Return a function of a file's bytes that leaves those that `--grep` chooses."""
    if args.grep is None:
        return lambda chunks: chunks
    return partial(matching, pattern=args.grep, rules=event_rules(args))


def _print_content(folders: list[Path], args: argparse.Namespace) -> int:
    if not pieces_of(folders, args.host, glob=args.path):
        raise no_files(args, "logpipeline")
    wanted = wanted_of(args)
    reading = Reading(folders, args.host, args.path)
    for chunks in reading.files():
        write_content(wanted(chunks), raw=args.raw)
    for name, missing in reading.lost:
        said = f"{missing} bytes of {printable(name)} are not there: {WHY_LOST}"
        print(said, file=sys.stderr)
    return EXIT_FAILED if reading.lost else EXIT_OK


def _collectors(*, file: str | None, data: str | None) -> list[Path]:
    if file is not None and data is None:
        pipeline = load(Path(file))
        layout = Layout(default_data(pipeline.namespace, pipeline.name))
    else:
        layout = running_layout(data, None)
    if not (folders := layout.collectors()):
        raise CliError(
            f"no collector ever ran in {layout.data}; give another folder with --data DIR, or the "
            "pipeline with -f FILE"
        )
    return folders


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
