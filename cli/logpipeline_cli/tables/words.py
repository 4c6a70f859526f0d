"""The words of `table`, `query` and `report`. Nothing heavy is imported here."""

from __future__ import annotations

import argparse

from logpipeline.multiline import AUTO, PRESETS
from logpipeline_cli.parser import Command, example

ACTIONS = (
    ("run", "keep the table with Spark", "logpipeline table run -f logpipeline.yaml"),
    ("ls", "list the table's files", "logpipeline table ls -o json"),
    ("verify", "prove that the table is whole", "logpipeline table verify"),
    ("compact", "put small files together now", "logpipeline table compact"),
    ("retain", "delete what is too old now", "logpipeline table retain"),
    ("erase", "erase lines of the table for good", "logpipeline table erase --host web1 --dry-run"),
    ("rebuild", "make a lost state of the table anew", "logpipeline table rebuild --dry-run"),
)

DESCRIPTIONS = {
    "erase": "Erase the lines that have all that is given, and print a proof. They leave the\n"
    "table at once, in one version of its log, also beside the job. Files that held them stay\n"
    "for two hours, for readers that began before, and so do former versions. Counts stay.\n"
    "Streams, collectors' files and lines that are not in the table yet are not touched.",
    "rebuild": "Make what a table keeps in its folder _table anew, if it is lost or damaged: of\n"
    "the table's log, its rows, and what is left. It says what cannot be known, and asks. Lines\n"
    "are not touched. Stop the job before: one that writes meanwhile is left alone.",
}


def _where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--file", metavar="FILE", help="the LogPipeline resource (YAML)")
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="the pipeline's data folder (default: $XDG_DATA_HOME/logpipeline/<namespace>.<name>)",
    )
    parser.add_argument(
        "--path", metavar="PATH", help="where the table is (default: spec.table.path)"
    )


def _table(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, help_text, usage in ACTIONS:
        sub = actions.add_parser(
            name,
            help=help_text,
            description=DESCRIPTIONS.get(name, f"{help_text[0].upper()}{help_text[1:]}."),
            epilog=example(usage),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        _where(sub)
        if name == "run":
            _run(sub)
        if name == "erase":
            _erase(sub)
        if name in ("erase", "rebuild"):
            _asked(sub)
        if name in ("ls", "verify", "erase"):
            sub.add_argument("-o", "--output", choices=("text", "json"), default="text",
                             help="how to print (text)")  # fmt: skip


def _erase(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", metavar="NAME", help="only lines of this host")
    parser.add_argument(
        "--namespace", metavar="NS", dest="pod_namespace", help="only lines of this namespace"
    )
    parser.add_argument("--pod", metavar="NAME", help="only lines of this pod")
    parser.add_argument("--container", metavar="NAME", help="only lines of this container")
    parser.add_argument(
        "--source",
        metavar="GLOB",
        help="only lines of this source, by its whole name, or by a pattern (* stands for / too)",
    )
    _times(parser)
    parser.add_argument(
        "--without-grace",
        action="store_true",
        help="remove the files that held them at once: a reader that began before fails, and sees "
        "no wrong lines; former versions that need these files cannot be read any more",
    )


def _asked(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run", action="store_true", help="only print what would be done, and change nothing"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nats", metavar="URL", help="the NATS server (default: the resource's)")
    parser.add_argument(
        "--once", action="store_true", help="end when all that waits is in the table"
    )
    parser.add_argument(
        "--from",
        dest="begin",
        metavar="TIME",
        help="keep another table beside the pipeline's own, at --path, of what was stored since "
        "then: a span (24h), a time (2026-11-21T10:00:00Z), or earliest. No stream waits for it",
    )
    parser.add_argument(
        "--stop-on-loss",
        action="store_true",
        help="end, and say so, where messages were gone before they were read, instead of going on "
        "behind them",
    )
    parser.add_argument(
        "--master",
        metavar="MASTER",
        default="local[*]",
        help="where Spark runs: local[*], or k8s://… with executors (local[*])",
    )
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        default="127.0.0.1:0",
        help="where to serve /metrics, /healthz and /readyz (127.0.0.1 and a free port)",
    )


def _query(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sql", metavar="SQL", nargs="?",
        help="a question to the tables lines, events, minutes and sources; --grep needs none",
    )  # fmt: skip
    parser.add_argument(
        "--grep", metavar="TEXT", action="append", default=[],
        help="only lines with this text, as it is written and as whole words (as `grep -wF`); "
        "given twice, with both. Without SQL the lines are printed, the oldest first. Hours that "
        "were put together are searched without being read as a whole",
    )  # fmt: skip
    _where(parser)
    _times(parser)
    parser.add_argument(
        "--multiline",
        action="append",
        choices=(*PRESETS, AUTO),
        help="whose stack traces are one row of events each (may be repeated; default: auto, all)",
    )
    parser.add_argument(
        "--multiline-begin",
        metavar="REGEX",
        help="a row of events begins at each line that this finds something in (RE2), and goes on "
        "with all others",
    )
    parser.add_argument(
        "-o", "--output", choices=("text", "json", "csv"), default="text",
        help="how to print (text)",
    )  # fmt: skip


def _report(parser: argparse.ArgumentParser) -> None:
    _where(parser)
    _times(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="report.html", help="where to write (report.html)"
    )


def _times(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--since", metavar="TIME", help="from 24h ago, or from 2026-11-21T10:00:00Z"
    )
    parser.add_argument("--until", metavar="TIME", help="to 1h ago, or to 2026-11-21T12:00:00Z")


COMMANDS = (
    Command(
        "table",
        "keep a table of all lines, and look after it",
        "Keep a table of all lines with Spark, and look after it: `run` needs Java and\n"
        "`pip install logpipeline[spark]`; the others need no Java.",
        "logpipeline table verify -f logpipeline.yaml",
        _table,
    ),
    Command(
        "query",
        "ask the table in SQL, or for the lines with a word",
        "Ask the table in SQL (DuckDB's). lines has a row for each line; events has one for each\n"
        "stack trace, and for each other line; minutes has counts per minute, cluster, host,\n"
        "namespace and level; sources per hour and container. --grep finds the lines with a word.",
        'logpipeline query "SELECT host, sum(lines) FROM minutes GROUP BY host"',
        _query,
    ),
    Command(
        "report",
        "write a page of plots from the counts",
        "Write one self-contained HTML page: volume by host, namespace and level, error rate,\n"
        "the loudest containers, gaps.",
        "logpipeline report --since 24h -o report.html",
        _report,
    ),
)
