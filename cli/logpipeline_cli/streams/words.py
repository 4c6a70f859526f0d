"""The words of `export` and `stream`. Nothing heavy is imported here."""

from __future__ import annotations

import argparse

from logpipeline_cli.parser import Command, count, example
from logpipeline_cli.streams.consuming import COMMAND as CONSUME


def _export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "streams",
        nargs="+",
        metavar="STREAM",
        help="a stream, LOGS_0, or the base of several, LOGS",
    )
    parser.add_argument(
        "--nats", metavar="URL", help="the NATS server (default: $NATS_URL, or this machine's)"
    )
    parser.add_argument(
        "--partitions",
        type=count,
        metavar="N",
        help="how many there shall be (default: as many as the highest number needs)",
    )
    parser.add_argument(
        "--no-consumers", action="store_true", help="leave the streams' consumers out"
    )


def _stream(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    remove = actions.add_parser(
        "rm-msg",
        help="delete one message",
        description="Delete one message, after it was shown and you agreed. Its lines stay in the\n"
        "collectors' files and in the table: docs/consuming.md says what to do about these.",
        epilog=example("logpipeline stream rm-msg 3 41922"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    remove.add_argument("partition", type=_number, metavar="PARTITION", help="which partition")
    remove.add_argument("sequence", type=count, metavar="SEQUENCE", help="which message")
    purge = actions.add_parser(
        "purge",
        help="delete messages",
        description="Delete the messages of a partition, of a host, or all, after you agreed.\n"
        "What no collector has written yet is lost.",
        epilog=example("logpipeline stream purge --host web1.example.net"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = purge.add_mutually_exclusive_group(required=True)
    which.add_argument("--all", action="store_true", help="of all partitions")
    which.add_argument("--partition", type=_number, metavar="N", help="of this partition")
    which.add_argument("--host", help="of this host")
    purge.add_argument("--keep", type=count, metavar="N", help="keep the newest N of each stream")
    options = actions.add_parser(
        "options",
        help="print with which options Spark reads the streams",
        description="Print the options of Spark's data source jetstream that read the pipeline's\n"
        "streams: servers, login and names. docs/spark.md says how to use them.",
        epilog=example("logpipeline stream options -o json"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="how to print (text)"
    )
    for sub in (remove, purge, options):
        sub.add_argument("-f", "--file", metavar="FILE", help="the LogPipeline resource (YAML)")
        sub.add_argument("--data", metavar="DIR", help="the pipeline's data folder")
        sub.add_argument("--nats", metavar="URL", help="the NATS server (default: the resource's)")
    for sub in (remove, purge):
        sub.add_argument("--yes", action="store_true", help="do not ask")


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of a partition, such as 0")
    return int(text)


COMMANDS = (
    CONSUME,
    Command(
        "export",
        "write existing streams and consumers as a LogPipeline",
        "Write existing streams of one base, and their consumers, as a LogPipeline that adopts\n"
        "them as they are. Nothing is changed. The server is that of $NATS_URL, with $NATS_CREDS,\n"
        "$NATS_CA, $NATS_CERTIFICATE and $NATS_KEY.",
        "logpipeline export LOGS > logpipeline.yaml",
        _export,
    ),
    Command(
        "stream",
        "delete stored messages by hand, or print how Spark reads them",
        "Delete one message, or those of a partition or host; both ask first. Or print the\n"
        "options with which Spark's data source reads the streams.",
        "logpipeline stream rm-msg 3 41922",
        _stream,
    ),
)
