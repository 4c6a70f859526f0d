"""The words of the command ``logpipeline``. Nothing heavy is imported here: help and completion
are instant.
"""

from __future__ import annotations

import argparse

from logpipeline_cli.letters.words import COMMANDS as LETTER_COMMANDS
from logpipeline_cli.parser import (
    PROGRAM,
    Adder,
    Command,
    Parser,
    add_commands,
    count,
    example,
    seconds,
)
from logpipeline_cli.replaying.words import COMMANDS as REPLAY_COMMANDS
from logpipeline_cli.samples import COMMANDS as SAMPLE_COMMANDS
from logpipeline_cli.streams.words import COMMANDS as STREAM_COMMANDS
from logpipeline_cli.tables.words import COMMANDS as TABLE_COMMANDS


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; ``args.command`` names the one that was chosen."""
    parser = Parser(
        prog=PROGRAM,
        description="Moves logs from files to files through NATS JetStream: each line once, "
        "in order.",
        epilog="Start with `logpipeline demo`, then `logpipeline up -f logpipeline.yaml`.",
    )
    add_commands(parser, COMMANDS)
    return parser


def _file(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    parser.add_argument(
        "-f", "--file", metavar="FILE", required=required, help="the LogPipeline resource (YAML)"
    )


def _data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="where server, positions and files are kept (default: "
        "$XDG_DATA_HOME/logpipeline/<namespace>.<name>)",
    )


def _nats(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--nats", metavar="URL", help="use this NATS server (default: the resource's, or embedded)"
    )


def _operator(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--namespace",
        action="append",
        metavar="NAMESPACE",
        help="look after the pipelines of this namespace only (may be repeated; default: all)",
    )
    parser.add_argument(
        "--read-only",
        action="store_true",
        help="say what would be done, in the status, and do nothing",
    )
    parser.add_argument("--http", metavar="HOST:PORT", help="where metrics and probes are served")
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="how to reach the cluster from outside of it"
    )
    parser.add_argument("--context", help="which context of the kubeconfig")
    parser.add_argument(
        "--no-lease", action="store_true", help="lead without a Lease: for one operator alone"
    )


def output(parser: argparse.ArgumentParser) -> None:
    """Add how to print."""
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="how to print (text)"
    )


def _running(parser: argparse.ArgumentParser) -> None:
    _file(parser, required=False)
    _data(parser)
    _nats(parser)


def _up(parser: argparse.ArgumentParser) -> None:
    _file(parser)
    _data(parser)
    _nats(parser)
    parser.add_argument(
        "--allow-data-loss",
        action="store_true",
        help="also apply changes that delete stored messages",
    )


def _demo(parser: argparse.ArgumentParser) -> None:
    _file(parser, required=False)
    _data(parser)
    parser.add_argument(
        "--seconds",
        type=seconds,
        metavar="N",
        help="write for N seconds, then check and end (default: $DEMO_SECONDS, else till Ctrl-C)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the busy application's lines (1)")


def _plan(parser: argparse.ArgumentParser) -> None:
    _file(parser)
    _data(parser)
    _nats(parser)
    output(parser)


def _apply(parser: argparse.ArgumentParser) -> None:
    _plan(parser)
    parser.add_argument(
        "--allow-data-loss",
        action="store_true",
        help="also apply changes that delete stored messages",
    )


def _nats_auth(parser: argparse.ArgumentParser) -> None:
    _file(parser)
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a host with a shipper; give each",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="the folder to write to")
    parser.add_argument(
        "--account", default="LOGS", metavar="NAME", help="the account of the streams (LOGS)"
    )


def _ship(parser: argparse.ArgumentParser) -> None:
    _file(parser, required=False)
    _data(parser)
    _nats(parser)
    parser.add_argument("--name", help="which of the resource's local shippers (default: the only)")
    parser.add_argument("--host", help="the host's name (default: this machine's)")
    parser.add_argument(
        "--kubernetes",
        action="store_true",
        help="in a pod: ask the API server for labels and annotations of the pods of node --host",
    )
    parser.add_argument(
        "--namespaces",
        metavar="FILE",
        help="where podNamespaces is Selector: a list of the namespaces whose pods are read, as "
        "JSON; it is read again when it changes",
    )
    parser.add_argument(
        "--as-host",
        action="store_true",
        help="the server knows a user for each host: get answers at an inbox of --host alone",
    )
    parser.add_argument(
        "--include",
        action="append",
        metavar="GLOB",
        help="ship these plain files and nothing else (may be repeated; default: the resource's)",
    )
    parser.add_argument(
        "--read-out",
        type=seconds,
        default=0.0,
        metavar="SECONDS",
        help="nobody else writes any more when it stops: first read all files to their last byte, "
        "for so long at most",
    )
    _http(parser)


def _collect(parser: argparse.ArgumentParser) -> None:
    _file(parser, required=False)
    _data(parser)
    _nats(parser)
    parser.add_argument("--member", help="which collector this is: collector-0, …")
    _http(parser)


def _callout(parser: argparse.ArgumentParser) -> None:
    _file(parser)
    _nats(parser)
    parser.add_argument(
        "--keys", metavar="FILE", required=True, help="the cluster's keys, as /openid/v1/jwks says"
    )
    parser.add_argument(
        "--issuer",
        metavar="FILE",
        required=True,
        help="the seed of the account's nkey that answers are signed with",
    )
    parser.add_argument(
        "--store",
        metavar="FOLDER",
        help="the server's store_dir: once files of a stream are removed there, the server is "
        "ended, to be started again by whoever runs it; needs --pages",
    )
    parser.add_argument(
        "--pages", metavar="URL", help="where the server shows its state, such as /healthz"
    )
    _http(parser)


def inject(parser: argparse.ArgumentParser) -> None:
    """Add the words of `inject`."""
    parser.add_argument(
        "-f", "--file", metavar="FILE", required=True, help="manifests (YAML); - for standard input"
    )
    parser.add_argument(
        "--pipeline",
        metavar="NAME",
        help="the LogPipeline (default: the one of a former injection)",
    )
    parser.add_argument("--namespace", help="the LogPipeline's namespace, to be checked")
    parser.add_argument(
        "--path",
        action="append",
        metavar="GLOB",
        help="the log files (may be repeated; default: /var/log/app/*.log)",
    )
    parser.add_argument(
        "--volume", metavar="NAME", default="logs", help="the volume they lie in (logs)"
    )
    parser.add_argument("--image", help="the shipper's image (default: the one of this version)")
    parser.add_argument(
        "--credentials",
        action="append",
        metavar="KIND=SECRET:KEY,…",
        help="how to log in to your own NATS: tls, creds, nkey, token or user (may be repeated)",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="where to write (default: standard output)"
    )


def _http(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        default="127.0.0.1:0",
        help="where to serve /metrics, /healthz and /readyz (127.0.0.1 and a free port)",
    )


def _status(parser: argparse.ArgumentParser) -> None:
    _running(parser)
    status(parser)


def status(parser: argparse.ArgumentParser) -> None:
    """Add how a status is shown."""
    output(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("-w", "--watch", action="store_true", help="print again each second")
    how.add_argument(
        "--check",
        action="store_true",
        help="print only problems, one a line, and exit with 1 if there is one",
    )


def _losses(parser: argparse.ArgumentParser) -> None:
    _running(parser)
    losses(parser)


def losses(parser: argparse.ArgumentParser) -> None:
    """Add which losses are meant."""
    output(parser)
    parser.add_argument("--all", action="store_true", help="also those that were acknowledged")
    parser.add_argument(
        "--acknowledge",
        metavar="ID",
        nargs="+",
        help="note that these losses (`all`: all) were seen: `status --check` passes over them",
    )


def _audit(parser: argparse.ArgumentParser) -> None:
    _file(parser, required=False)
    _data(parser)
    audit(parser)


def audit(parser: argparse.ArgumentParser) -> None:
    """Add how to compare."""
    output(parser)
    parser.add_argument(
        "--rate", metavar="SIZE", help="read at most so much in a second, such as 1Mi (no limit)"
    )
    parser.add_argument(
        "--every", metavar="SPAN", help="compare again, so long after each time, such as 1h (once)"
    )


def _tail(parser: argparse.ArgumentParser) -> None:
    _running(parser)
    lines(parser, "--namespace")


def lines(parser: argparse.ArgumentParser, namespace: str) -> None:
    """Add which lines are wanted; the option *namespace* says of pods in which one."""
    parser.add_argument("host", nargs="?", metavar="HOST", help="only this host (default: all)")
    parser.add_argument(
        namespace,
        dest="pod_namespace",
        metavar="NAMESPACE",
        help="only lines of pods in this namespace",
    )
    parser.add_argument("--pod", help="only lines of this pod")
    parser.add_argument("--grep", metavar="REGEX", help="only lines that match")
    parser.add_argument(
        "--since", metavar="TIME", help="from 10m ago, or from 2026-11-21T10:00:00Z (default: now)"
    )
    parser.add_argument(
        "--lines", type=count, metavar="N", help="end after N lines (default: till Ctrl-C)"
    )
    parser.add_argument("--raw", action="store_true", help="do not escape control characters")


def _files(parser: argparse.ArgumentParser) -> None:
    def where(sub: argparse.ArgumentParser) -> None:
        _file(sub, required=False)
        _data(sub)

    files(parser, where)


def files(parser: argparse.ArgumentParser, where: Adder) -> None:
    """Add the actions of `files`; *where* adds to each which pipeline is meant."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser(
        "ls",
        help="list the collectors' files",
        description="List the collectors' files.",
        epilog=example(f"{parser.prog} ls -o json"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    listing.add_argument("host", nargs="?", metavar="HOST", help="only this host (default: all)")
    content = actions.add_parser(
        "cat",
        help="print a host's lines",
        description="Print what is committed of a host's files, oldest first, unpacked.",
        epilog=example(f"{parser.prog} cat web1.example.net --path '*/app.log'"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    content.add_argument("host", metavar="HOST", help="the host")
    content.add_argument("--path", metavar="GLOB", help="only files whose path matches")
    content.add_argument("--raw", action="store_true", help="do not escape control characters")
    for sub in (listing, content):
        where(sub)
    output(listing)


def version(parser: argparse.ArgumentParser) -> None:
    """Add the words of `version`."""
    output(parser)


def _completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="for which shell")


_FIRST = (
    Command(
        "up",
        "run a LogPipeline on this machine",
        "Run a LogPipeline on this machine: nats-server, shippers and collectors. A part that\n"
        "crashes is started again; a changed file is planned and applied live; Ctrl-C drains.",
        "logpipeline up -f logpipeline.yaml",
        _up,
    ),
    Command(
        "demo",
        "watch a busy machine's logs arrive, and check every line",
        "Start a small busy application, ship its logs and this machine's own, show what happens,\n"
        "and at the end check every line: exit 1 if one was lost, came twice, or out of order.",
        "logpipeline demo --seconds 20",
        _demo,
    ),
    Command(
        "plan",
        "show what applying would change in JetStream",
        "Show what applying would change in JetStream: each change is in place, refused by the\n"
        "server, or deletes data. Exit 0: nothing to change; 2: changes; 1: an error.",
        "logpipeline plan -f logpipeline.yaml",
        _plan,
    ),
    Command(
        "apply",
        "make JetStream's streams and consumers as the resource says",
        "Make JetStream's streams and consumers as the resource says. What would delete stored\n"
        "messages is held back unless --allow-data-loss is given.",
        "logpipeline apply -f logpipeline.yaml",
        _apply,
    ),
    Command(
        "nats-auth",
        "write users and accounts for a nats-server of your own",
        "Write the accounts and users of a LogPipeline for a nats-server of your own, and the\n"
        "files that each of them logs in with. A shipper speaks for its own host alone. Given\n"
        "again, it keeps the passwords that are there.",
        "logpipeline nats-auth -f logpipeline.yaml --out nats-users --host web1 --host db1",
        _nats_auth,
    ),
    Command(
        "ship",
        "run one shipper",
        "Run one shipper: follow this machine's log files and publish them. Without -f it is\n"
        "fshipper's producer, told by SHIPPER_FILE, SHIPPER_SUBJECT, SHIPPER_PARTITIONS, NATS_URL.",
        "logpipeline ship -f logpipeline.yaml --nats nats://nats.example:4222",
        _ship,
    ),
    Command(
        "collect",
        "run one collector",
        "Run one collector: write the partitions that are assigned to it into files. Without -f\n"
        "it is fshipper's consumer, told by SHIPPER_SUBJECT, SHIPPER_READ_PARTITIONS,\n"
        "SHIPPER_DIRECTORY, SHIPPER_OUTPUT, SHIPPER_STREAM_TARGET, NATS_URL.",
        "logpipeline collect -f logpipeline.yaml --member collector-0 --data /data",
        _collect,
    ),
    Command(
        "operator",
        "make of each LogPipeline in a cluster what it asks for",
        "Run the operator: make of each LogPipeline in a cluster what it asks for. What images it\n"
        "gives pods, and more, it reads from LOGPIPELINE_… of its environment.",
        "logpipeline operator --namespace logging --kubeconfig ~/.kube/config",
        _operator,
    ),
    Command(
        "callout",
        "tell a nats-server which node a shipper speaks for",
        "Run the auth callout of a nats-server: a shipper comes with the token of its pod, and\n"
        "may speak for the pod's node alone. The operator runs it beside the servers it manages.",
        "logpipeline callout -f logpipeline.yaml --keys jwks.json --issuer issuer.nk",
        _callout,
    ),
    Command(
        "inject",
        "put a shipper beside the containers of a workload",
        "Print Kubernetes manifests with a shipper as a sidecar in each pod template, for log\n"
        "files in a volume of the pod. It stops last, and ships what the others left. It reads\n"
        "the ConfigMap and Secret of its LogPipeline, which lies in the same namespace.",
        "logpipeline inject -f deployment.yaml --pipeline prod | kubectl apply -f -",
        inject,
    ),
    Command(
        "status",
        "show partitions, owners, lag and what is missing",
        "Show partitions with owner, epoch and lag, shippers with backlog, missing and lost\n"
        "bytes, and dead letters. --check prints only problems, and exits with 1 if there is one.",
        "logpipeline status -w",
        _status,
    ),
    Command(
        "losses",
        "list what is lost, with its cause; acknowledge it",
        "List which bytes are lost, of which file, since when and why. What is sent again, or\n"
        "turns up, leaves the list.",
        "logpipeline losses --acknowledge 1f0c9a2b44",
        _losses,
    ),
    Command(
        "audit",
        "compare log files with what is archived of them",
        "Read this machine's log files once more, as far as collectors have confirmed them, and\n"
        "look for each line in the archived files. Exits with 1 if one is not there.",
        "logpipeline audit --rate 1Mi",
        _audit,
    ),
    Command(
        "tail",
        "follow lines as they pass",
        "Follow the lines of one host, or of all, live or from a time. Control characters are\n"
        "escaped unless --raw is given.",
        "logpipeline tail web1.example.net --since 10m --grep ERROR",
        _tail,
    ),
    Command(
        "files",
        "list or print the collectors' files",
        "List or print what the collectors wrote.",
        "logpipeline files cat web1.example.net",
        _files,
    ),
)
# What is asked about the command itself.
_LAST = (
    Command(
        "version",
        "print the version",
        "Print the versions of logpipeline, Python and the embedded nats-server.",
        "logpipeline version -o json",
        version,
    ),
    Command(
        "completion",
        "print a shell's completion script",
        "Print the completion script of a shell.",
        'eval "$(logpipeline completion bash)"',
        _completion,
    ),
)
_MORE = STREAM_COMMANDS + REPLAY_COMMANDS + LETTER_COMMANDS + TABLE_COMMANDS + SAMPLE_COMMANDS
COMMANDS = _FIRST + _MORE + _LAST
