"""``logpipeline files``: what the collectors wrote, also where none of them runs any more."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from logpipeline.observe.logs import printable
from logpipeline.spec import load
from logpipeline_cli.committed import Piece, Reading, matching, pieces_of
from logpipeline_cli.errors import CliError
from logpipeline_cli.exits import EXIT_FAILED, EXIT_OK
from logpipeline_cli.local.layout import Layout, default_data, running_layout
from logpipeline_cli.output import bytes_text, print_json, table, write_content


def run(args: argparse.Namespace) -> int:
    """List files, or print what is in them."""
    folders = _collectors(file=args.file, data=args.data)
    if args.action == "ls":
        return _list(folders, args)
    return _print(folders, args)


def _list(folders: list[Path], args: argparse.Namespace) -> int:
    pieces = pieces_of(folders, args.host)
    if args.output == "json":
        print_json([_entry(piece) for piece in pieces])
        return EXIT_OK
    rows = [
        (p.file.host, p.file.name, bytes_text(p.file.length), _state(p), p.collector)
        for p in pieces
    ]
    print(table(("HOST", "PATH", "COMMITTED", "STATE", "COLLECTOR"), rows))
    return EXIT_OK


def _print(folders: list[Path], args: argparse.Namespace) -> int:
    if not matching(pieces_of(folders, args.host), args.path):
        where = f" match {args.path!r}" if args.path else ""
        raise CliError(f"no files of {args.host!r}{where}; see `logpipeline files ls`")
    reading = Reading(folders, args.host, args.path)
    for chunks in reading.files():
        write_content(chunks, raw=args.raw)
    for name in reading.lost:
        print(f"{printable(name)} was removed meanwhile (retention)", file=sys.stderr)
    return EXIT_FAILED if reading.lost else EXIT_OK


def _collectors(*, file: str | None, data: str | None) -> list[Path]:
    if file is not None and data is None:
        pipeline = load(Path(file))
        layout = Layout(default_data(pipeline.namespace, pipeline.name))
    else:
        layout = running_layout(data, None)
    if not (folders := layout.collectors()):
        raise CliError(
            f"no collector ever ran in {layout.data}; say which folder with --data DIR, or which "
            "pipeline with -f FILE"
        )
    return folders


def _state(piece: Piece) -> str:
    if piece.file.is_compressed:
        return "compressed"
    return "rotated" if piece.file.is_rotated else "active"


def _entry(piece: Piece) -> dict[str, Any]:
    return {
        "host": piece.file.host,
        "path": piece.file.name,
        "bytes": piece.file.length,
        "rotated": piece.file.is_rotated,
        "compressed": piece.file.is_compressed,
        "collector": piece.collector,
        "file": str(piece.file.path),
    }
