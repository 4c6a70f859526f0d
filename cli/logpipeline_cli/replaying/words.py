"""The words of `replay`. Nothing heavy is imported here."""

from __future__ import annotations

import argparse

from logpipeline_cli.parser import Command, count, seconds


def _replay(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        dest="into",
        metavar="DIR|-",
        required=True,
        help="a folder of its own, or - for standard output",
    )
    parser.add_argument(
        "--output",
        choices=("raw", "cri", "json"),
        help="how lines are written (default: as the resource's collectors do)",
    )
    parser.add_argument(
        "--since", metavar="WHEN", help="stored from then on: a span (2h) or RFC 3339"
    )
    parser.add_argument("--until", metavar="WHEN", help="stored until then")
    parser.add_argument(
        "--from-seq", type=count, metavar="N", help="from this message of the partition's stream on"
    )
    parser.add_argument("--to-seq", type=count, metavar="N", help="up to this message")
    parser.add_argument(
        "--partition", metavar="SET", help="these partitions, such as 0,2-4 (default: all)"
    )
    parser.add_argument("--host", help="only lines of this host")
    parser.add_argument("--namespace", dest="pod_namespace", help="only lines of this namespace")
    parser.add_argument("--pod", help="only lines of this pod")
    parser.add_argument("--container", help="only lines of this container")
    parser.add_argument(
        "--original-speed", action="store_true", help="as fast as it was stored, in that order"
    )
    parser.add_argument(
        "--speed", type=seconds, metavar="N", help="N times as fast as it was stored"
    )
    parser.add_argument("--follow", action="store_true", help="go on with what comes, until Ctrl-C")
    parser.add_argument(
        "--partial", action="store_true", help="be content where a part is no longer there"
    )
    parser.add_argument("-f", "--file", metavar="FILE", help="the LogPipeline resource (YAML)")
    parser.add_argument("--data", metavar="DIR", help="the pipeline's data folder")
    parser.add_argument("--nats", metavar="URL", help="the NATS server (default: the resource's)")


COMMANDS = (
    Command(
        "replay",
        "write once more what the streams still hold",
        "Write what the streams still hold as the collectors would: decoded, in order, each line\n"
        "once, in files of the same names. No reader's position is touched. A replay into a\n"
        "folder that was interrupted goes on when the same is said again.",
        "logpipeline replay --since 2h --host web1.example.net -o /tmp/web1",
        _replay,
    ),
)
