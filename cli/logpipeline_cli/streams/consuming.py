"""The words of `consume`. Nothing heavy is imported here."""

from __future__ import annotations

import argparse

from logpipeline_cli.parser import Command, count

DESCRIPTION = """\
Read the streams as consumer NAME: one that the resource lists in spec.consumers, one that is there
on the streams, or a durable one that is made. Lines go to a command's standard input, or to
standard output. A message is acknowledged when the command has ended with 0; with --state it is
remembered as processed before that, and skipped when it is delivered again.

A command finds LOGPIPELINE_STREAM, _PARTITION, _FIRST, _LAST, _BATCH (a name of the batch that is
the same when a batch is handed out again) and _MAY_REPEAT (1: a reader died over it) in its
environment."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the words of `consume`."""
    parser.add_argument("name", metavar="NAME", help="the consumer")
    parser.add_argument("-f", "--file", metavar="FILE", help="the LogPipeline resource (YAML)")
    parser.add_argument("--data", metavar="DIR", help="the pipeline's data folder")
    parser.add_argument("--nats", metavar="URL", help="the NATS server (default: the resource's)")
    _output(parser)
    _acks(parser)
    _failures(parser)
    _start(parser)
    _end(parser)


def _output(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--exec", metavar="CMD", help="run this by the shell for each batch, with its lines"
    )
    where.add_argument("--stdout", action="store_true", help="print the lines (the default)")
    parser.add_argument(
        "-o",
        "--output",
        choices=("raw", "cri", "json"),
        default="raw",
        help="lines as programs wrote them (raw), as the runtime did, or as JSON",
    )


def _acks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ack",
        default="each",
        metavar="WHEN",
        help="each message (the default); every=100 messages, interval=30s, or both with a comma, "
        "whichever comes first; all: up to --batch messages by their last; none: as they come",
    )
    parser.add_argument(
        "--batch",
        type=count,
        default=0,
        metavar="N",
        help="hand out up to N messages at once (default: 1 with --ack each, else 100)",
    )
    parser.add_argument(
        "--state",
        metavar="FILE|kv",
        help="remember what was processed in a file, or in the pipeline's key-value bucket",
    )
    parser.add_argument("--group", action="store_true", help="share the work with other readers")
    parser.add_argument("--member", default="", metavar="NAME", help="our name in the group")
    parser.add_argument(
        "--in-order", action="store_true", help="one message in flight for each partition"
    )


def _failures(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--on-error",
        choices=("stop", "retry", "dead-letter"),
        default="stop",
        help="what becomes of a message that can never be processed: stop there (the default), try "
        "again, or put it among the dead letters. A command that ends by a signal, by --timeout or "
        "with a code of --retry-on is tried again",
    )
    parser.add_argument(
        "--retry-on",
        default="75",
        metavar="CODES",
        help="exit codes that ask for another try, with commas (75)",
    )
    parser.add_argument(
        "--tries",
        type=count,
        default=0,
        metavar="N",
        help="how often a message is tried (default: the consumer's maxDeliver, else for ever)",
    )
    parser.add_argument(
        "--timeout", default="5m", metavar="SPAN", help="how long a command may take (5m)"
    )
    parser.add_argument(
        "--allow-unread", action="store_true", help="let a command leave input unread"
    )
    parser.add_argument(
        "--max-age", metavar="SPAN", help="skip messages that are older, such as 10m"
    )


def _start(parser: argparse.ArgumentParser) -> None:
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--deliver",
        choices=("all", "new", "last"),
        default="all",
        help="where a consumer that is made begins: with all that is stored (the default), with "
        "what comes, or with the last message",
    )
    start.add_argument("--since", metavar="TIME", help="or at a time, or so long ago: 2h")
    start.add_argument("--from-seq", type=count, metavar="N", help="or at a sequence")
    parser.add_argument(
        "--ephemeral", action="store_true", help="make a consumer that goes when we end"
    )
    parser.add_argument("--partitions", metavar="LIST", help="read these only: 0-3,7")
    parser.add_argument(
        "--reset",
        action="store_true",
        help="first forget, after asking, how far NAME was: its state, and the consumers that were "
        "made for it",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _end(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=count, metavar="N", help="end after N messages")
    parser.add_argument(
        "--until-caught-up", action="store_true", help="end when nothing is left to be processed"
    )


COMMAND = Command(
    "consume",
    "read the streams as a consumer",
    DESCRIPTION,
    "logpipeline consume billing --state kv --group --exec ./load.sh",
    add,
)
