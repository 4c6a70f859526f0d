"""The commands of ``kubectl logpipeline`` that read files in pods: ``files`` and ``audit``."""

from __future__ import annotations

import argparse

from logpipeline.quantity import parse_bytes
from logpipeline_cli.cluster.agent_client import PodFiles
from logpipeline_cli.cluster.agent_pods import collectors_of, note, shippers_of
from logpipeline_cli.cluster.session import find, session
from logpipeline_cli.commands.files import WHY_LOST, no_files, print_entries, wanted_of
from logpipeline_cli.errors import EXIT_FAILED, EXIT_OK
from logpipeline_cli.file_entries import in_order, mixed, turns
from logpipeline_cli.output import write_content
from logpipeline_cli.time_arguments import parsed


def files(args: argparse.Namespace) -> int:
    """List the files of all collectors, also of those that were scaled away, or print their
    content.
    """
    with session(args) as cluster:
        found = find(cluster, args.pipeline)
        with collectors_of(found, only_running=args.running) as ends:
            glob = args.path if args.action == "cat" else None
            group = found.pipeline.spec.collectors.group
            files = PodFiles(ends, group, args.host, glob)
            if args.action == "ls":
                print_entries(in_order(files.entries()), as_json=args.output == "json")
                return EXIT_OK
            return _print_content(files, args)


def _print_content(files: PodFiles, args: argparse.Namespace) -> int:
    entries = files.entries()
    if not entries:
        raise no_files(args, "kubectl logpipeline")
    for former, latter in mixed(entries):
        note(
            f"{former.place}: {former.member} wrote to it before {latter.member} and again "
            "afterwards; the lines of the two are not in order"
        )
    wanted = wanted_of(args)
    for turn in turns(entries):
        for chunks in files.contents(turn):
            write_content(wanted(chunks), raw=args.raw)
    for name in files.lost:
        note(f"{name}, or its end, is not there: {WHY_LOST}")
    return EXIT_FAILED if files.lost else EXIT_OK


def audit(args: argparse.Namespace) -> int:
    """Compare the nodes' log files with the collectors' files, once or again and again."""
    # `files` needs none of these.
    from logpipeline_cli.auditing.remote import RemoteCollectorFiles, RemoteNode
    from logpipeline_cli.commands.audit import Audit, check_comparable, repeat

    rate = parsed("--rate", args.rate, parse_bytes)
    with session(args) as cluster:
        found = find(cluster, args.pipeline)
        check_comparable(found.pipeline)
        spec = found.pipeline.spec.collectors
        kept_ns = spec.retention.max_age_ns
        nodes = [RemoteNode(end, rate, kept_ns) for end in shippers_of(found)]
        with collectors_of(found, only_running=args.running) as ends:
            group, output = spec.group, spec.output
            collectors = [RemoteCollectorFiles(end, group, output, rate) for end in ends]
            return repeat(Audit(found.pipeline, collectors), nodes, args)
