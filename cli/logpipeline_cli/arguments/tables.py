"""Arguments of the commands about a table of lines: `table`, `query` and `report`."""

from __future__ import annotations

import argparse

from logpipeline_cli.arguments.parser import (
    Command,
    add_action,
    add_http,
    add_multiline,
    add_nats,
    add_output,
    add_pipeline,
    add_yes,
)

ACTIONS = (
    ("run", "write the table with Spark", "logpipeline table run -f logpipeline.yaml"),
    ("ls", "list the table's files", "logpipeline table ls -o json"),
    ("verify", "check that the table is complete", "logpipeline table verify"),
    ("compact", "merge small files now", "logpipeline table compact"),
    ("retain", "delete expired files now", "logpipeline table retain"),
    ("erase", "erase lines of the table for good", "logpipeline table erase --host web1 --dry-run"),
    ("rebuild", "restore the lost state of a table", "logpipeline table rebuild --dry-run"),
)

DESCRIPTIONS = {
    "erase": "Erase the lines that match all given options, and print a proof. They leave the\n"
    "table at once, in one version of its log, also while the job runs. Files that held them,\n"
    "and earlier versions, stay for two hours, for readers that began before. Counts stay.\n"
    "Streams, collectors' files and lines that are not in the table yet are not changed.",
    "rebuild": "Restore what a table keeps in its folder _table, if it is lost or damaged: from\n"
    "the table's log, its rows, and what is left. It prints what cannot be restored, and asks\n"
    "for confirmation. Lines are not changed. Stop the job first: a table that a job is writing\n"
    "is refused.",
}


def _table(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, help_text, example in ACTIONS:
        description = DESCRIPTIONS.get(name, f"{help_text[0].upper()}{help_text[1:]}.")
        sub = add_action(actions, name, help_text, description, example)
        _where(sub)
        if name == "run":
            _run(sub)
        if name == "erase":
            _erase(sub)
        if name in ("erase", "rebuild"):
            sub.add_argument(
                "--dry-run",
                action="store_true",
                help="change nothing; print what would be done",
            )
            add_yes(sub)
        if name in ("ls", "verify", "erase"):
            add_output(sub)


def _where(parser: argparse.ArgumentParser) -> None:
    add_pipeline(parser)
    parser.add_argument(
        "--path", metavar="PATH", help="the table's path (default: spec.table.path)"
    )


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
        help="only lines of this source: its full name, or a pattern of * and ? (they match / too)",
    )
    _times(parser)
    parser.add_argument(
        "--without-grace",
        action="store_true",
        help="remove the files that held them at once. A reader that began before fails; it never "
        "gets wrong lines. Earlier versions that need these files cannot be read any more",
    )


def _run(parser: argparse.ArgumentParser) -> None:
    add_nats(parser)
    parser.add_argument(
        "--once", action="store_true", help="exit when the table has all stored messages"
    )
    parser.add_argument(
        "--from",
        dest="begin",
        metavar="TIME",
        help="write another table beside the pipeline's own, at --path, of messages stored since "
        "then: a span ago (24h), a time (2026-11-21T10:00:00Z), or earliest. Trimming does not "
        "wait for this table",
    )
    parser.add_argument(
        "--stop-on-loss",
        action="store_true",
        help="exit with a message where messages were gone before they were read, instead of going "
        "on behind them",
    )
    parser.add_argument(
        "--master",
        metavar="MASTER",
        default="local[*]",
        help="where Spark runs: local[*], or k8s://… with executors (local[*])",
    )
    add_http(parser)


def _query(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sql",
        metavar="SQL",
        nargs="?",
        help="an SQL query over the views lines, events, minutes and sources; not needed with "
        "--grep",
    )
    parser.add_argument(
        "--grep",
        metavar="TEXT",
        action="append",
        default=[],
        help="only lines that contain this text, literally and as whole words (as `grep -wF`); "
        "given twice, lines that contain both. Without SQL the lines are printed, the oldest "
        "first. Compacted hours are searched without reading them completely",
    )
    _where(parser)
    _times(parser)
    # It is in RE2's syntax here, which RE2 checks.
    add_multiline(parser, default="auto, all", begin=str)
    parser.add_argument(
        "-o",
        "--output",
        choices=("text", "json", "csv"),
        default="text",
        help="output format (text)",
    )


def _report(parser: argparse.ArgumentParser) -> None:
    _where(parser)
    _times(parser)
    parser.add_argument(
        "--out", metavar="FILE", default="report.html", help="where to write (report.html)"
    )


def _times(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="only from a span ago (24h), or from a time (2026-11-21T10:00:00Z) on",
    )
    parser.add_argument("--until", metavar="TIME", help="only until then, given in the same way")


COMMANDS = (
    Command(
        name="table",
        help="write and maintain a table of all lines",
        description="Write a table of all lines with Spark, and maintain it. `run` needs Java and\n"
        "`pip install logpipeline[spark]`; the other actions need no Java.",
        example="logpipeline table verify -f logpipeline.yaml",
        add=_table,
        run="commands.table:run",
        extra="spark",
    ),
    Command(
        name="query",
        help="query the table in SQL, or search it for words",
        description="Query the table in SQL (DuckDB's). The view lines has a row for each line;\n"
        "events has one for each stack trace, and for each other line; minutes has counts per\n"
        "minute, cluster, host, namespace and level; sources has counts per hour and container.\n"
        "--grep finds the lines with a word.",
        example='logpipeline query "SELECT host, sum(lines) FROM minutes GROUP BY host"',
        add=_query,
        run="commands.query:run",
        extra="query",
    ),
    Command(
        name="report",
        help="write an HTML page of plots from the counts",
        description="Write one self-contained HTML page: volume by host, namespace and level, the\n"
        "error rate, the containers with the most lines, and gaps.",
        example="logpipeline report --since 24h --out report.html",
        add=_report,
        run="commands.report:run",
        extra="query",
    ),
)
