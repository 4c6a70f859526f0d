"""The words of `dlq`. Nothing heavy is imported here."""

from __future__ import annotations

import argparse

from logpipeline_cli.parser import Command, count, example

LIMIT = 1000


def _dlq(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    ls = _action(
        actions,
        "ls",
        "list dead letters",
        "Count the dead letters by reason, partition, host, source and consumer, or list them one\n"
        "by one, the newest first. One that waits has no collector to make a letter of it yet.",
        "logpipeline dlq ls --reason max-deliver --since 2h",
    )
    ls.add_argument("--all", action="store_true", help="one by one, with their numbers")
    ls.add_argument(
        "--limit", type=count, default=LIMIT, metavar="N", help=f"N of them at most ({LIMIT})"
    )
    ls.add_argument("--before", type=count, metavar="NUMBER", help="only older ones: the next page")
    ls.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="how to print (text)"
    )
    _filters(ls)
    show = _action(
        actions,
        "show",
        "print one dead letter",
        "Print a dead letter with all that is known, and its message as text.",
        "logpipeline dlq show 17",
    )
    show.add_argument("number", type=count, metavar="NUMBER", help="which, see `dlq ls --all`")
    show.add_argument("--raw", action="store_true", help="only the message, byte for byte")
    retry = _action(
        actions,
        "retry",
        "send the messages of dead letters again",
        "Send messages again to where they were, and delete their letters. All readers of a host\n"
        "get them once more; collectors and the table know them, and write no line twice.",
        "logpipeline dlq retry --reason max-deliver",
    )
    _which(retry)
    retry.add_argument(
        "--again",
        action="store_true",
        help="also messages that collectors cannot know, and will write a second time",
    )
    purge = _action(
        actions,
        "purge",
        "delete dead letters",
        "Delete dead letters, after you agreed. Their messages stay in their streams.",
        "logpipeline dlq purge --reason bad-version",
    )
    _which(purge)
    purge.add_argument("--yes", action="store_true", help="do not ask")


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    help_text: str,
    description: str,
    shown: str,
) -> argparse.ArgumentParser:
    parser = actions.add_parser(
        name,
        help=help_text,
        description=description,
        epilog=example(shown),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-f", "--file", metavar="FILE", help="the LogPipeline resource (YAML)")
    parser.add_argument("--data", metavar="DIR", help="the pipeline's data folder")
    parser.add_argument("--nats", metavar="URL", help="the NATS server (default: the resource's)")
    return parser


def _which(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("numbers", nargs="*", type=count, metavar="NUMBER", help="these")
    parser.add_argument("--all", action="store_true", help="all of them")
    _filters(parser)


def _filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", help="only with this reason: max-deliver, bad-version, …")
    parser.add_argument("--partition", type=_number, metavar="N", help="only of this partition")
    parser.add_argument("--host", help="only of this host")
    parser.add_argument("--consumer", metavar="NAME", help="only what this consumer gave up")
    parser.add_argument(
        "--since", metavar="WHEN", help="only from a time on: a span (2h) or RFC 3339"
    )


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of a partition, such as 0")
    return int(text)


COMMANDS = (
    Command(
        "dlq",
        "look at dead letters, and send them again",
        "What could not be archived, and what readers of a consumer gave up, is kept with the\n"
        "reason. List it, look at it, send it again, or delete it.",
        "logpipeline dlq ls",
        _dlq,
    ),
)
