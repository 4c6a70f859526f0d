"""Arguments of the commands that show a running pipeline: its status, its losses, its lines and its
files. `kubectl logpipeline` takes most of them, too.
"""

from __future__ import annotations

import argparse

from logpipeline_cli.arguments.parser import (
    Adder,
    Command,
    add_action,
    add_multiline,
    add_output,
    add_pipeline,
    add_target,
    count,
    expression,
)

# Loopback: the page is plain HTTP.
CONSOLE_ADDRESS = "127.0.0.1:8630"


def _status(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add_status(parser)


def _console(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add_console(parser)


def _losses(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add_losses(parser)


def _audit(parser: argparse.ArgumentParser) -> None:
    add_pipeline(parser)
    add_audit(parser)


def _tail(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add_tail(parser, "--namespace")


def _files(parser: argparse.ArgumentParser) -> None:
    add_files(parser, add_pipeline)


def add_status(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how the status is shown."""
    add_output(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("-w", "--watch", action="store_true", help="print again each second")
    how.add_argument(
        "--check",
        action="store_true",
        help="print only problems, one on a line, and exit with 1 if there is one",
    )


def add_console(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where the page is served."""
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        default=CONSOLE_ADDRESS,
        help=f"where to serve the page ({CONSOLE_ADDRESS}; port 0: a free one)",
    )
    parser.add_argument(
        "--host-name",
        metavar="NAME",
        nargs="+",
        help="further names by which browsers may call it, such as that of a proxy",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="the page's token, in a file that only you can read (default: a new one at each "
        "start, which is printed)",
    )


def add_losses(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose losses, or acknowledge them."""
    add_output(parser)
    parser.add_argument("--all", action="store_true", help="list acknowledged losses, too")
    parser.add_argument(
        "--acknowledge",
        metavar="ID",
        nargs="+",
        help="mark these losses (`all`: all) as seen; `status --check` no longer reports them",
    )


def add_audit(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how fast and how often to compare."""
    add_output(parser)
    parser.add_argument(
        "--rate", metavar="SIZE", help="read at most so much per second, such as 1Mi (no limit)"
    )
    parser.add_argument(
        "--every", metavar="SPAN", help="compare again after each pause of this span: 1h (once)"
    )


def add_tail(parser: argparse.ArgumentParser, namespace: str) -> None:
    """Add the options that choose lines; *namespace* is the option for the namespace of pods."""
    parser.add_argument("host", nargs="?", metavar="HOST", help="only this host (default: all)")
    parser.add_argument(
        namespace,
        dest="pod_namespace",
        metavar="NAMESPACE",
        help="only lines of pods in this namespace",
    )
    parser.add_argument("--pod", help="only lines of this pod")
    _add_grep(parser)
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="from a span ago (10m), or from a time (2026-11-21T10:00:00Z) on (default: now)",
    )
    parser.add_argument(
        "--lines",
        type=count,
        metavar="N",
        help="exit after N lines, or N events with --multiline (default: run until Ctrl-C)",
    )
    parser.add_argument("--raw", action="store_true", help="do not escape control characters")


def _add_grep(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--grep",
        type=expression,
        metavar="REGEX",
        help="only lines, or events with --multiline, that match",
    )
    add_multiline(parser, default="each line is one")


def add_files(parser: argparse.ArgumentParser, where: Adder) -> None:
    """Add the actions of `files`; *where* adds to each the options that choose the pipeline."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = add_action(
        actions,
        "ls",
        "list the collectors' files",
        "List the collectors' files.",
        f"{parser.prog} ls -o json",
    )
    listing.add_argument("host", nargs="?", metavar="HOST", help="only this host (default: all)")
    content = add_action(
        actions,
        "cat",
        "print a host's lines",
        "Print the committed content of a host's files, uncompressed, oldest first.",
        f"{parser.prog} cat web1.example.net --path '*/app.log'",
    )
    content.add_argument("host", metavar="HOST", help="the host")
    content.add_argument("--path", metavar="GLOB", help="only files whose path matches")
    _add_grep(content)
    content.add_argument("--raw", action="store_true", help="do not escape control characters")
    for action in (listing, content):
        where(action)
    add_output(listing)


COMMANDS = (
    Command(
        name="status",
        help="show partitions, owners, lag, and missing lines",
        description="Show partitions with owner, epoch and lag; shippers with their backlog;\n"
        "missing and lost bytes; and dead letters. With --check it prints only problems, and\n"
        "exits with 1 if there is one.",
        example="logpipeline status -w",
        add=_status,
        run="commands.status:run",
    ),
    Command(
        name="top",
        help="watch sources, partitions and readers, what is worst first",
        description="Watch a pipeline on the terminal: rates, lag, and missing bytes of sources,\n"
        "partitions, collectors, shippers, readers and tables, what is worst first. Keys sort,\n"
        "filter, pause, open one source, and follow lines. For a pipe use `status -w`.",
        example="logpipeline top",
        add=add_target,
        run="commands.top:run",
        extra="top",
    ),
    Command(
        name="console",
        help="watch a pipeline in a browser",
        description="Serve a page on this machine that shows the way of the lines with rates,\n"
        "what is missing, hosts and files, lines as they pass, and the life of each source. It\n"
        "prints the page's address, with the token that reading it takes. Ctrl-C ends it.",
        example="logpipeline console",
        add=_console,
        run="commands.console:run",
        extra="console",
    ),
    Command(
        name="losses",
        help="list lost lines with their causes, and acknowledge them",
        description="List which bytes are lost: of which file, since when, and why. A loss leaves\n"
        "the list when its bytes are sent again, or found again. Exits with 1 if not all\n"
        "are listed: a collector does not answer, or they are only counted.",
        example="logpipeline losses --acknowledge 1f0c9a2b44",
        add=_losses,
        run="commands.losses:run",
    ),
    Command(
        name="audit",
        help="compare log files with the collectors' files",
        description="Read this machine's log files again, as far as collectors have confirmed\n"
        "them, and look for each line in the collected files. Exits with 1 if a line is missing\n"
        "there.",
        example="logpipeline audit --rate 1Mi",
        add=_audit,
        run="commands.audit:run",
    ),
    Command(
        name="tail",
        help="follow lines as they pass",
        description="Follow the lines of one host, or of all, live or from a time on. Control\n"
        "characters are escaped unless --raw is given.",
        example="logpipeline tail web1.example.net --since 10m --grep ERROR",
        add=_tail,
        run="commands.tail:run",
    ),
    Command(
        name="files",
        help="list or print the collectors' files",
        description="List or print the files that the collectors wrote.",
        example="logpipeline files cat web1.example.net",
        add=_files,
        run="commands.files:run",
    ),
)
