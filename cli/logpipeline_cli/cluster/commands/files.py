"""``kubectl logpipeline files``: what all collectors wrote, also those that were scaled away."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from logpipeline.observe.logs import printable
from logpipeline_cli.cluster.entries import Entry, in_order, mixed, turns
from logpipeline_cli.cluster.places import Claimed, Places, places
from logpipeline_cli.cluster.readers import FOLDER, readers
from logpipeline_cli.cluster.remote import Archive, FarEnd
from logpipeline_cli.cluster.session import Found, find, session
from logpipeline_cli.errors import CliError
from logpipeline_cli.exits import EXIT_FAILED, EXIT_OK
from logpipeline_cli.output import bytes_text, print_json, table, write_content
from logpipeline_operator.children import names


def run(args: argparse.Namespace) -> int:
    """List files, or print what is in them."""
    with session(args) as cluster:
        found = find(cluster, args.pipeline)
        seen = _places(found, only_running=args.running)
        for note in seen.notes:
            _note(note)
        with _ends(found, seen) as ends:
            glob = args.path if args.action == "cat" else None
            group = found.pipeline.spec.collectors.group
            archive = Archive(ends, group, args.host, glob)
            return _list(archive, args) if args.action == "ls" else _print(archive, args)


def _places(found: Found, *, only_running: bool) -> Places:
    pods = found.objects("pods", "collector")
    claims = [] if only_running else found.objects("persistentvolumeclaims", "collector")
    seen = places(found.pipeline, pods, claims)
    if only_running:
        seen = Places(seen.running, (), seen.notes)
    if not seen.running and not seen.claimed:
        name = found.pipeline.name
        raise CliError(
            f"no collector of {name} runs, and none left a volume that can be read; see `kubectl "
            f"describe logpipeline {name} -n {found.pipeline.namespace}`"
        )
    return seen


@contextmanager
def _ends(found: Found, seen: Places) -> Iterator[list[FarEnd]]:
    kubectl, namespace = found.cluster.kubectl, found.pipeline.namespace
    prefix = f"{names.collector(found.pipeline)}-"
    members = [place.pod for place in seen.running]
    ends = []
    for place in seen.running:
        folders: dict[str, Any] = {"folders": {place.pod: place.folder}}
        if place.lost_below:
            below = {"folder": place.lost_below, "prefix": prefix, "without": members}
            folders["shared"] = below
        ends.append(FarEnd(place.pod, kubectl.exec_words(namespace, place.pod), folders))
    if seen.claimed:
        _note(f"starting {len(seen.claimed)} pods to read what collectors left that are gone")
    with readers(found, seen.claimed) as made:
        for claimed, pod in made.items():
            folders = _folders(claimed, prefix, members)
            where = f"{claimed.claim} (by pod {pod})"
            ends.append(FarEnd(where, kubectl.exec_words(namespace, pod), folders))
        yield ends


def _folders(claimed: Claimed, prefix: str, members: list[str]) -> dict[str, Any]:
    if not claimed.is_shared:
        return {"folders": {claimed.member: FOLDER}}
    return {"folders": {}, "shared": {"folder": FOLDER, "prefix": prefix, "without": members}}


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
        _note(
            f"{former.place}: {former.member} wrote to it before {latter.member} and again "
            "afterwards; the lines of the two are not in order"
        )
    for turn in turns(entries):
        for chunks in archive.contents(turn):
            write_content(chunks, raw=args.raw)
    for name in archive.lost:
        _note(f"{name} was removed meanwhile (retention)")
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


def _note(text: str) -> None:
    print(printable(text), file=sys.stderr)
