"""The words of `kubectl logpipeline`: the commands that make sense in a cluster, each with the
options of kubectl in place of files and folders. Nothing heavy is imported here.
"""

from __future__ import annotations

import argparse

from logpipeline_cli import arguments
from logpipeline_cli.parser import Command, Parser, add_commands

PROGRAM = "kubectl logpipeline"


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = Parser(
        prog=PROGRAM,
        description="Looks at a LogPipeline in a cluster: where it stands, and what it collected.",
        epilog="Start with `kubectl logpipeline status`.",
    )
    add_commands(parser, COMMANDS)
    return parser


def _cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--namespace", help="the LogPipeline's (default: the context's)")
    parser.add_argument(
        "--pipeline", metavar="NAME", help="the LogPipeline (default: the only one there)"
    )
    parser.add_argument("--context", help="which context of the kubeconfig")
    parser.add_argument("--kubeconfig", metavar="FILE", help="which kubeconfig")


def _nats(parser: argparse.ArgumentParser) -> None:
    _cluster(parser)
    parser.add_argument(
        "--nats",
        metavar="URL",
        help="reach NATS here (default: through a port-forward, or as the resource says)",
    )


def _status(parser: argparse.ArgumentParser) -> None:
    _nats(parser)
    arguments.status(parser)


def _losses(parser: argparse.ArgumentParser) -> None:
    _nats(parser)
    arguments.losses(parser)


def _tail(parser: argparse.ArgumentParser) -> None:
    _nats(parser)
    arguments.lines(parser, "--pod-namespace")


def _plan(parser: argparse.ArgumentParser) -> None:
    _nats(parser)
    parser.add_argument(
        "-f", "--file", metavar="FILE", help="as if this resource (YAML) were applied"
    )
    arguments.output(parser)


def _audit(parser: argparse.ArgumentParser) -> None:
    _where_files_are(parser)
    arguments.audit(parser)


def _files(parser: argparse.ArgumentParser) -> None:
    arguments.files(parser, _where_files_are)


def _where_files_are(parser: argparse.ArgumentParser) -> None:
    _cluster(parser)
    parser.add_argument(
        "--running",
        action="store_true",
        help="only of collectors that run; no pod is started for those that are gone",
    )


COMMANDS = (
    Command(
        "status",
        "show conditions, partitions, owners, lag and what is missing",
        "Show the resource's conditions, partitions with owner, epoch and lag, shippers with\n"
        "backlog, missing and lost bytes, and dead letters. --check prints only problems, and\n"
        "exits with 1 if there is one.",
        "kubectl logpipeline status -n logging --pipeline prod -w",
        _status,
    ),
    Command(
        "losses",
        "list what is lost, with its cause; acknowledge it",
        "List which bytes are lost, of which file, since when and why. What is sent again, or\n"
        "turns up, leaves the list.",
        "kubectl logpipeline losses -n logging --pipeline prod",
        _losses,
    ),
    Command(
        "tail",
        "follow lines as they pass",
        "Follow the lines of one host, or of all, live or from a time. Control characters are\n"
        "escaped unless --raw is given.",
        "kubectl logpipeline tail node-1 --since 10m --pod-namespace shop",
        _tail,
    ),
    Command(
        "audit",
        "compare the nodes' log files with what is archived of them",
        "Read the nodes' log files once more, as far as collectors have confirmed them, and look\n"
        "for each line in the archived files. A program in the pods does it; only checksums leave\n"
        "them. Exits with 1 if a line is not there.",
        "kubectl logpipeline audit -n logging --rate 1Mi",
        _audit,
    ),
    Command(
        "files",
        "list or print the collectors' files, also of those that were scaled away",
        "List or print what the collectors wrote. For collectors that are gone, a pod that can do\n"
        "nothing else mounts what they left, and is removed at the end.",
        "kubectl logpipeline files cat node-1",
        _files,
    ),
    Command(
        "plan",
        "show what the operator would change in JetStream",
        "Show what the resource, or a file with another one, would change in JetStream: each\n"
        "change is in place, refused by the server, or deletes data. Exit 0: nothing to change;\n"
        "2: changes; 1: an error.",
        "kubectl logpipeline plan -f logpipeline.yaml",
        _plan,
    ),
    Command(
        "inject",
        "put a shipper beside the containers of a workload",
        "Print Kubernetes manifests with a shipper as a sidecar in each pod template; the same as\n"
        "`logpipeline inject`.",
        "kubectl logpipeline inject -f deployment.yaml --pipeline prod | kubectl apply -f -",
        arguments.inject,
    ),
    Command(
        "version",
        "print the version",
        "Print the versions of logpipeline, Python and the embedded nats-server.",
        "kubectl logpipeline version",
        arguments.version,
    ),
)
# Those that ask a cluster; the others are the plain command's.
IN_CLUSTER = frozenset({"status", "losses", "audit", "tail", "files", "plan"})
