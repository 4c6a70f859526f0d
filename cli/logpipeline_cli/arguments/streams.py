"""Arguments of the commands that read streams or change stored messages: `consume`, `export`,
`stream`, `replay` and `dlq`. Those of `sink` are in a module of their own.
"""

from __future__ import annotations

import argparse

from logpipeline_cli.arguments.parser import (
    Adder,
    Command,
    add_action,
    add_multiline,
    add_output,
    add_start,
    add_target,
    add_yes,
    count,
    number,
    partition,
)
from logpipeline_cli.arguments.sinks import SINK

LETTERS_LISTED = 1000


def _consume(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the consumer")
    add_target(parser)
    _consume_output(parser)
    _consume_acks(parser)
    _consume_failures(parser)
    _consume_start(parser)
    parser.add_argument("--count", type=count, metavar="N", help="exit after N messages")
    parser.add_argument(
        "--until-caught-up", action="store_true", help="exit when no message is left to process"
    )


def _consume_output(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--exec", metavar="CMD", help="a shell command to run for each batch, with its lines"
    )
    where.add_argument("--stdout", action="store_true", help="print the lines (the default)")
    parser.add_argument(
        "-o",
        "--output",
        choices=("raw", "cri", "json"),
        default="raw",
        help="lines as programs wrote them (raw), as the container runtime did (cri), or as JSON",
    )
    add_multiline(parser, default="each line is one; JSON only")
    parser.add_argument(
        "--event-time",
        action="append",
        metavar="FORMAT",
        help="where event_time comes from: a format of spec.table.time (auto, iso8601, rfc3164, "
        "rfc5424, klog, common, epochS, epochMs, epochUs, epochNs) or a pattern of strptime; may "
        "be repeated: the first that finds a plausible time (default: the resource's "
        "spec.table.time; else, and where none is found, the container runtime's time; JSON only)",
    )
    parser.add_argument(
        "--zone",
        metavar="ZONE",
        help="the zone of such times that name none, such as Europe/Berlin or +01:00 (default: the "
        "resource's spec.table.zone)",
    )


def _consume_acks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ack",
        default="each",
        metavar="WHEN",
        help="when to acknowledge. each: each message (the default); every=100 messages, "
        "interval=30s, or both with a comma, whichever comes first; all: up to --batch messages by "
        "their last one; none: never",
    )
    parser.add_argument(
        "--batch",
        type=count,
        default=0,
        metavar="N",
        help="process up to N messages at once (default: 1 with --ack each, else 100)",
    )
    parser.add_argument(
        "--state",
        metavar="FILE|kv",
        help="keep the processed position in a file, or in the pipeline's key-value bucket (kv)",
    )
    parser.add_argument("--group", action="store_true", help="share the work with other readers")
    parser.add_argument("--member", default="", metavar="NAME", help="our name in the group")
    parser.add_argument(
        "--in-order", action="store_true", help="one message in flight for each partition"
    )


def _consume_failures(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--on-error",
        choices=("stop", "retry", "dead-letter"),
        default="stop",
        help="what to do with a message that cannot be processed: stop there (the default), try "
        "again, or store it as a dead letter. A command that ends by a signal, by --timeout or "
        "with a code of --retry-on is tried again",
    )
    parser.add_argument(
        "--retry-on",
        default="75",
        metavar="CODES",
        help="exit codes that ask for another try, separated by commas (75)",
    )
    parser.add_argument(
        "--tries",
        type=count,
        default=0,
        metavar="N",
        help="how often a message is tried (default: the consumer's maxDeliver, else no limit)",
    )
    parser.add_argument(
        "--timeout", default="5m", metavar="SPAN", help="how long a command may take (5m)"
    )
    parser.add_argument(
        "--allow-unread", action="store_true", help="accept that a command leaves input unread"
    )
    parser.add_argument(
        "--max-age", metavar="SPAN", help="skip messages that are older, such as 10m"
    )


def _consume_start(parser: argparse.ArgumentParser) -> None:
    add_start(parser)
    parser.add_argument(
        "--ephemeral", action="store_true", help="create a consumer that is deleted when we exit"
    )
    parser.add_argument("--partitions", metavar="LIST", help="read only these: 0-3,7")
    parser.add_argument(
        "--reset",
        action="store_true",
        help="first, after confirmation, forget the position of NAME: its state, and the consumers "
        "that were created for it",
    )
    add_yes(parser)


def _export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "streams",
        nargs="+",
        metavar="STREAM",
        help="a stream, LOGS_0, or the common base of several, LOGS",
    )
    parser.add_argument(
        "--nats",
        metavar="URL",
        help="the NATS server (default: $NATS_URL, else nats://127.0.0.1:4222)",
    )
    parser.add_argument(
        "--partitions",
        type=count,
        metavar="N",
        help="the number of partitions (default: as many as the highest stream number needs; one "
        "stream of all partitions needs it)",
    )
    parser.add_argument(
        "--no-consumers", action="store_true", help="leave out the streams' consumers"
    )


def _stream(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    remove = add_action(
        actions,
        "rm-msg",
        "delete one message",
        "Show one message, ask for confirmation, and delete it. Its lines stay in the collectors'\n"
        "files and in the table; docs/consuming.md says how to erase them there.",
        "logpipeline stream rm-msg 3 41922",
    )
    remove.add_argument("partition", type=partition, metavar="PARTITION", help="the partition")
    remove.add_argument("sequence", type=count, metavar="SEQUENCE", help="the message's sequence")
    purge = add_action(
        actions,
        "purge",
        "delete messages",
        "Delete the messages of a partition, of a host, or all, after confirmation. Messages that\n"
        "no collector has written yet are lost.",
        "logpipeline stream purge --host web1.example.net",
    )
    which = purge.add_mutually_exclusive_group(required=True)
    which.add_argument("--all", action="store_true", help="of all partitions")
    which.add_argument("--partition", type=partition, metavar="N", help="of this partition")
    which.add_argument("--host", help="of this host")
    purge.add_argument("--keep", type=count, metavar="N", help="keep the newest N of each stream")
    options = add_action(
        actions,
        "options",
        "print the options with which Spark reads the streams",
        "Print the options of Spark's data source jetstream that read the pipeline's streams:\n"
        "servers, login and names. docs/spark.md says how to use them.",
        "logpipeline stream options -o json",
    )
    add_output(options)
    for action in (remove, purge, options):
        add_target(action)
    for action in (remove, purge):
        add_yes(action)


def _replay(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        dest="into",
        metavar="DIR|-",
        required=True,
        help="the folder to write to, new or of this replay only, or - for standard output",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("raw", "cri", "json"),
        help="the format of lines (default: that of the resource's collectors)",
    )
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="messages stored since a time (2026-11-21T10:00:00Z), or since a span ago (2h)",
    )
    parser.add_argument("--until", metavar="TIME", help="messages stored until then")
    parser.add_argument(
        "--from-seq", type=count, metavar="N", help="from this sequence of the stream on"
    )
    parser.add_argument("--to-seq", type=count, metavar="N", help="up to this sequence")
    parser.add_argument(
        "--partition", metavar="SET", help="only these partitions, such as 0,2-4 (default: all)"
    )
    parser.add_argument("--host", help="only lines of this host")
    parser.add_argument("--namespace", dest="pod_namespace", help="only lines of this namespace")
    parser.add_argument("--pod", help="only lines of this pod")
    parser.add_argument("--container", help="only lines of this container")
    parser.add_argument(
        "--original-speed",
        action="store_true",
        help="write lines in the order and at the pace in which they were stored",
    )
    parser.add_argument(
        "--speed", type=number, metavar="N", help="N times as fast as they were stored"
    )
    parser.add_argument(
        "--follow", action="store_true", help="go on with new messages, until Ctrl-C"
    )
    parser.add_argument(
        "--partial", action="store_true", help="accept that a part is no longer stored"
    )
    add_target(parser)


def _dlq(parser: argparse.ArgumentParser) -> None:
    add_dlq(parser, add_target)


def add_dlq(parser: argparse.ArgumentParser, where: Adder) -> None:
    """Add the actions of `dlq`; *where* adds to each the options that choose the pipeline."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    ls = add_action(
        actions,
        "ls",
        "list dead letters",
        "Count the dead letters by reason, partition, host, source and consumer, or list them one\n"
        "by one, the newest first. One that is waiting has not been made a letter by a collector\n"
        "yet.",
        f"{parser.prog} ls --reason max-deliver --since 2h",
    )
    ls.add_argument("--all", action="store_true", help="list them one by one, with their numbers")
    ls.add_argument(
        "--limit",
        type=count,
        default=LETTERS_LISTED,
        metavar="N",
        help=f"at most N of them ({LETTERS_LISTED})",
    )
    ls.add_argument("--before", type=count, metavar="NUMBER", help="only older ones: the next page")
    show = add_action(
        actions,
        "show",
        "print one dead letter",
        "Print a dead letter with all its fields, and its message as text.",
        f"{parser.prog} show 17",
    )
    show.add_argument("number", type=count, metavar="NUMBER", help="its number, see `dlq ls --all`")
    show.add_argument("--raw", action="store_true", help="only the message, byte for byte")
    retry = add_action(
        actions,
        "retry",
        "send the messages of dead letters again",
        "Publish messages again on their subjects, and delete their letters. All readers of a\n"
        "host get them again; collectors and the table recognise them, and write no line twice.",
        f"{parser.prog} retry --reason max-deliver",
    )
    purge = add_action(
        actions,
        "purge",
        "delete dead letters",
        "Delete dead letters, after confirmation. Their messages stay in their streams.",
        f"{parser.prog} purge --reason bad-version",
    )
    for action in (ls, show, retry, purge):
        where(action)
    add_output(ls)
    _letter_filters(ls)
    for action in (retry, purge):
        action.add_argument(
            "numbers", nargs="*", type=count, metavar="NUMBER", help="the letters' numbers"
        )
        action.add_argument("--all", action="store_true", help="all letters")
        _letter_filters(action)
    retry.add_argument(
        "--again",
        action="store_true",
        help="also messages that collectors cannot recognise, and will write a second time",
    )
    add_yes(purge)


def _letter_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", help="only with this reason: max-deliver, bad-version, …")
    parser.add_argument("--partition", type=partition, metavar="N", help="only of this partition")
    parser.add_argument("--host", help="only of this host")
    parser.add_argument("--consumer", metavar="NAME", help="only given up by this consumer")
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="only since a time (2026-11-21T10:00:00Z), or since a span ago (2h)",
    )


COMMANDS = (
    Command(
        name="consume",
        help="read the streams as a consumer",
        description="""\
Read the streams as consumer NAME: one that the resource lists in spec.consumers, one that exists
on the streams, or a durable one that is created. Lines go to a command's standard input, or to
standard output. A message is acknowledged after the command has exited with 0. With --state its
position is stored before that, and the message is skipped when it is delivered again.

A command finds LOGPIPELINE_STREAM, _PARTITION, _FIRST, _LAST, _BATCH (the batch's name, which is
the same when the batch is processed again) and _MAY_REPEAT (1: an earlier reader died while it
processed the batch) in its environment.""",
        example="logpipeline consume billing --state kv --group --exec ./load.sh",
        add=_consume,
        run="commands.consume:run",
    ),
    SINK,
    Command(
        name="export",
        help="write existing streams and consumers as a LogPipeline",
        description="Write existing streams of one base, or one stream of all partitions, and\n"
        "their consumers, as a LogPipeline that adopts them as they are. Nothing is changed. The\n"
        "server is that of $NATS_URL, with $NATS_CREDS, $NATS_CA, $NATS_CERTIFICATE and $NATS_KEY.",
        example="logpipeline export LOGS > logpipeline.yaml",
        add=_export,
        run="commands.stream:export",
    ),
    Command(
        name="stream",
        help="delete stored messages, or print how Spark reads them",
        description="Delete one message, or those of a partition or host; both ask for\n"
        "confirmation. Or print the options with which Spark's data source reads the streams.",
        example="logpipeline stream rm-msg 3 41922",
        add=_stream,
        run="commands.stream:stream",
    ),
    Command(
        name="replay",
        help="write stored messages again, into a folder of your own",
        description="Write stored messages again as the collectors would: decoded, in order, each\n"
        "line once, in files of the same names. No reader's position changes. When a replay into\n"
        "a folder was interrupted, the same command continues it.",
        example="logpipeline replay --since 2h --host web1.example.net --out /tmp/web1",
        add=_replay,
        run="commands.replay:run",
    ),
    Command(
        name="dlq",
        help="list dead letters, and send them again",
        description="Messages that could not be collected, or that readers of a consumer gave up,\n"
        "are kept with the reason. List them, show one, send them again, or delete them.",
        example="logpipeline dlq ls",
        add=_dlq,
        run="commands.dlq:run",
    ),
)
