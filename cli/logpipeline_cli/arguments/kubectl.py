"""Arguments of `kubectl logpipeline`: the commands that make sense in a cluster, with the options
of kubectl in place of files and folders of this machine.
"""

from __future__ import annotations

import argparse

from logpipeline_cli.arguments import inspection, pipeline, streams
from logpipeline_cli.arguments.parser import Command, Parser, add_commands, add_global, add_output

PROGRAM = "kubectl logpipeline"


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = Parser(
        prog=PROGRAM,
        description="Shows the status, the losses, the lines and the files of a LogPipeline in a "
        "cluster.",
        epilog="Start with `kubectl logpipeline status`.",
    )
    add_global(parser)
    add_commands(parser, COMMANDS)
    return parser


def _cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n", "--namespace", help="the namespace of the LogPipeline (default: the context's)"
    )
    parser.add_argument(
        "--pipeline", metavar="NAME", help="the LogPipeline (default: the only one there)"
    )
    parser.add_argument("--context", help="the context of the kubeconfig")
    parser.add_argument("--kubeconfig", metavar="FILE", help="the kubeconfig")


def _nats(parser: argparse.ArgumentParser) -> None:
    _cluster(parser)
    parser.add_argument(
        "--nats",
        metavar="URL",
        help="connect to NATS here (default: through a port-forward, or as the resource says)",
    )


def _status(parser: argparse.ArgumentParser) -> None:
    _nats(parser)
    inspection.add_status(parser)


def _console(parser: argparse.ArgumentParser) -> None:
    _nats(parser)
    inspection.add_console(parser)


def _losses(parser: argparse.ArgumentParser) -> None:
    _nats(parser)
    inspection.add_losses(parser)


def _tail(parser: argparse.ArgumentParser) -> None:
    _nats(parser)
    inspection.add_tail(parser, "--pod-namespace")


def _plan(parser: argparse.ArgumentParser) -> None:
    _nats(parser)
    parser.add_argument(
        "-f", "--file", metavar="FILE", help="plan as if this resource (YAML) were applied"
    )
    add_output(parser)


def _dlq(parser: argparse.ArgumentParser) -> None:
    streams.add_dlq(parser, _nats)


def _audit(parser: argparse.ArgumentParser) -> None:
    _collectors(parser)
    inspection.add_audit(parser)


def _files(parser: argparse.ArgumentParser) -> None:
    inspection.add_files(parser, _collectors)


def _collectors(parser: argparse.ArgumentParser) -> None:
    _cluster(parser)
    parser.add_argument(
        "--running",
        action="store_true",
        help="only files of running collectors; start no pods for those of collectors that are "
        "gone",
    )


COMMANDS = (
    Command(
        name="status",
        help="show conditions, partitions, owners, lag, and missing lines",
        description="Show the resource's conditions; partitions with owner, epoch and lag;\n"
        "shippers with their backlog; missing and lost bytes; and dead letters. With --check it\n"
        "prints only problems, and exits with 1 if there is one.",
        example="kubectl logpipeline status -n logging --pipeline prod -w",
        add=_status,
        run="cluster.commands:status",
    ),
    Command(
        name="top",
        help="watch sources, partitions and readers, what is worst first",
        description="Watch a pipeline on the terminal: rates, lag, and missing bytes of sources,\n"
        "partitions, collectors, shippers, readers and tables, what is worst first. Keys sort,\n"
        "filter, pause, open one source, and follow lines. For a pipe use `status -w`.",
        example="kubectl logpipeline top -n logging --pipeline prod",
        add=_nats,
        run="cluster.commands:top",
        extra="top",
    ),
    Command(
        name="console",
        help="watch a pipeline in a browser",
        description="Serve a page on this machine that shows the way of the lines with rates,\n"
        "what is missing, hosts and files, lines as they pass, and the life of each source. It\n"
        "prints the page's address, with the token that reading it takes. Ctrl-C ends it.",
        example="kubectl logpipeline console -n logging --pipeline prod",
        add=_console,
        run="cluster.commands:console",
        extra="console",
    ),
    Command(
        name="losses",
        help="list lost lines with their causes, and acknowledge them",
        description="List which bytes are lost: of which file, since when, and why. A loss leaves\n"
        "the list when its bytes are sent again, or found again. Exits with 1 if not all\n"
        "are listed: a collector does not answer, or they are only counted.",
        example="kubectl logpipeline losses -n logging --pipeline prod",
        add=_losses,
        run="cluster.commands:losses",
    ),
    Command(
        name="dlq",
        help="list dead letters, show one, send them again, or delete them",
        description="Look at the messages that could not be collected, or that a consumer gave\n"
        "up; send them again, or delete them.",
        example="kubectl logpipeline dlq ls -n logging --pipeline prod",
        add=_dlq,
        run="cluster.commands:dlq",
    ),
    Command(
        name="tail",
        help="follow lines as they pass",
        description="Follow the lines of one host, or of all, live or from a time on. Control\n"
        "characters are escaped unless --raw is given.",
        example="kubectl logpipeline tail node-1 --since 10m --pod-namespace shop",
        add=_tail,
        run="cluster.commands:tail",
    ),
    Command(
        name="audit",
        help="compare the nodes' log files with the collectors' files",
        description="Read the nodes' log files again, as far as collectors have confirmed them,\n"
        "and look for each line in the collected files. A program in the pods does it; only\n"
        "checksums leave them. Exits with 1 if a line is missing in the collectors' files.",
        example="kubectl logpipeline audit -n logging --rate 1Mi",
        add=_audit,
        run="cluster.files:audit",
    ),
    Command(
        name="files",
        help="list or print the collectors' files, also of collectors that were scaled away",
        description="List or print the files that the collectors wrote. For collectors that are\n"
        "gone, a pod that only waits mounts their volumes; it is removed at the end.",
        example="kubectl logpipeline files cat node-1",
        add=_files,
        run="cluster.files:files",
    ),
    Command(
        name="plan",
        help="show what the operator would change in JetStream",
        description="Show what the resource, or another one in a file, would change in JetStream:\n"
        "each change is made in place, refused by the server, or deletes data. Exit 0: nothing to\n"
        "change; 2: changes; 1: an error.",
        example="kubectl logpipeline plan -f logpipeline.yaml",
        add=_plan,
        run="cluster.commands:plan",
    ),
    Command(
        name="inject",
        help="add a shipper to the pods of a workload",
        description="Print Kubernetes manifests with a shipper as a sidecar in each pod template;\n"
        "the same as `logpipeline inject`.",
        example="kubectl logpipeline inject -f deploy.yaml --pipeline prod | kubectl apply -f -",
        add=pipeline.add_inject,
        run="commands.inject:run",
    ),
    Command(
        name="version",
        help="print the versions",
        description="Print the versions of logpipeline, Python, nats-server and nats-py.",
        example="kubectl logpipeline version",
        add=add_output,
        run="commands.program:version",
    ),
)
