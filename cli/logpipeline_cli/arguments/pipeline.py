"""Arguments of the commands that run a pipeline, its components, or what it needs around it."""

from __future__ import annotations

import argparse

from logpipeline_cli.arguments.inspection import CONSOLE_ADDRESS
from logpipeline_cli.arguments.parser import (
    Command,
    add_file,
    add_http,
    add_nats,
    add_output,
    add_pipeline,
    add_target,
    add_yes,
    number,
)


def _up(parser: argparse.ArgumentParser) -> None:
    add_pipeline(parser, required=True)
    add_nats(parser)
    _allow_data_loss(parser, "; for the file as it is at the start, and not for later changes")
    parser.add_argument(
        "--console",
        metavar="HOST:PORT",
        nargs="?",
        const=CONSOLE_ADDRESS,
        help="also serve the page of `logpipeline console`, and print its address "
        f"({CONSOLE_ADDRESS}; port 0: a free one)",
    )


def _demo(parser: argparse.ArgumentParser) -> None:
    add_pipeline(parser)
    parser.add_argument(
        "--seconds",
        type=number,
        metavar="N",
        help="write for N seconds, then check and exit (default: $DEMO_SECONDS, else until Ctrl-C)",
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="the seed of the application's random lines (1)"
    )


def _plan(parser: argparse.ArgumentParser) -> None:
    add_pipeline(parser, required=True)
    add_nats(parser)
    add_output(parser)


def _apply(parser: argparse.ArgumentParser) -> None:
    _plan(parser)
    _allow_data_loss(parser)


def _allow_data_loss(parser: argparse.ArgumentParser, more: str = "") -> None:
    parser.add_argument(
        "--allow-data-loss",
        action="store_true",
        help=f"also apply changes that delete stored messages{more}",
    )


def _validate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f",
        "--file",
        metavar="FILE",
        nargs="+",
        required=True,
        help="files of YAML or JSON, folders of them, or - for standard input",
    )
    add_output(parser)


def _delete(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument(
        "--with-data",
        action="store_true",
        help="also delete its data folder: collected files, positions, table, and the server's "
        "store",
    )
    add_yes(parser)


def _nats_auth(parser: argparse.ArgumentParser) -> None:
    add_file(parser, required=True)
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a host on which a shipper runs (give it once for each host)",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="the folder to write to")
    parser.add_argument(
        "--account", default="LOGS", metavar="NAME", help="the account of the streams (LOGS)"
    )


def _ship(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument(
        "--name", help="the shipper among spec.local.shippers (default: the only one)"
    )
    parser.add_argument("--host", help="the host's name (default: this machine's)")
    parser.add_argument(
        "--kubernetes",
        action="store_true",
        help="in a pod: get labels and annotations of the pods of node --host from the API server",
    )
    parser.add_argument(
        "--namespaces",
        metavar="FILE",
        help="where podNamespaces is Selector: a JSON list of the namespaces whose pods are read; "
        "the file is read again when it changes",
    )
    parser.add_argument(
        "--as-host",
        action="store_true",
        help="the server has a user for each host: receive replies in the inbox of --host only",
    )
    parser.add_argument(
        "--include",
        action="append",
        metavar="GLOB",
        help="ship only these plain files (may be repeated; default: those of the resource)",
    )
    parser.add_argument(
        "--read-out",
        type=number,
        default=0.0,
        metavar="SECONDS",
        help="when stopped, first read all files to the end, for at most so long: no other "
        "process writes to them any more (0)",
    )
    add_http(parser)


def _collect(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument("--member", help="the name of this collector: collector-0, …")
    add_http(parser)


def _operator(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--namespace",
        action="append",
        metavar="NAMESPACE",
        help="manage the pipelines of this namespace only (may be repeated; default: all)",
    )
    parser.add_argument(
        "--read-only",
        action="store_true",
        help="change nothing; write to the status what would be done",
    )
    parser.add_argument("--http", metavar="HOST:PORT", help="where to serve metrics and probes")
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="the kubeconfig, outside of the cluster"
    )
    parser.add_argument("--context", help="the context of the kubeconfig")
    parser.add_argument(
        "--no-lease", action="store_true", help="lead without a Lease: where no other operator runs"
    )


def _callout(parser: argparse.ArgumentParser) -> None:
    add_file(parser, required=True)
    add_nats(parser)
    parser.add_argument(
        "--keys",
        metavar="FILE",
        required=True,
        help="the cluster's public keys, as served by /openid/v1/jwks",
    )
    parser.add_argument(
        "--issuer",
        metavar="FILE",
        required=True,
        help="the seed of the account nkey that signs the answers",
    )
    parser.add_argument(
        "--store",
        metavar="FOLDER",
        help="the server's store_dir: when files of a stream are removed there, the server is "
        "ended, so that its supervisor starts it again; needs --pages",
    )
    parser.add_argument(
        "--pages", metavar="URL", help="the server's monitoring pages, such as /healthz"
    )
    add_http(parser)


def add_inject(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `inject`."""
    parser.add_argument(
        "-f", "--file", metavar="FILE", required=True, help="manifests (YAML); - for standard input"
    )
    parser.add_argument(
        "--pipeline",
        metavar="NAME",
        help="the LogPipeline (default: the one of an earlier injection)",
    )
    parser.add_argument(
        "--namespace", help="the LogPipeline's namespace; a workload in another one is refused"
    )
    parser.add_argument(
        "--path",
        action="append",
        metavar="GLOB",
        help="the log files (may be repeated; default: /var/log/app/*.log)",
    )
    parser.add_argument(
        "--volume", metavar="NAME", default="logs", help="the volume that holds them (logs)"
    )
    parser.add_argument("--image", help="the shipper's image (default: the one of this version)")
    parser.add_argument(
        "--credentials",
        action="append",
        metavar="KIND=SECRET:KEY,…",
        help="credentials for your own NATS: tls, creds, nkey, token or user (may be repeated)",
    )
    parser.add_argument("--out", metavar="FILE", help="where to write (default: standard output)")


COMMANDS = (
    Command(
        name="up",
        help="run a LogPipeline on this machine",
        description="Run a LogPipeline on this machine: nats-server, shippers and collectors. A\n"
        "component that crashes is started again; a changed file is planned and applied live;\n"
        "Ctrl-C drains and stops.",
        example="logpipeline up -f logpipeline.yaml",
        add=_up,
        run="commands.up:run",
    ),
    Command(
        name="demo",
        help="watch the logs of a busy machine arrive, and check every line",
        description="Start a small busy application, ship its logs and this machine's own, show\n"
        "the progress, and at the end check every line: exit 1 if one was lost, duplicated, or\n"
        "out of order.",
        example="logpipeline demo --seconds 20",
        add=_demo,
        run="commands.demo:run",
    ),
    Command(
        name="plan",
        help="show what `apply` would change in JetStream",
        description="Show what `apply` would change in JetStream: each change is made in place,\n"
        "refused by the server, or deletes data. Exit 0: nothing to change; 2: changes; 1: an\n"
        "error.",
        example="logpipeline plan -f logpipeline.yaml",
        add=_plan,
        run="commands.plan:plan",
    ),
    Command(
        name="apply",
        help="create and change JetStream's streams and consumers as the resource says",
        description="Create and change JetStream's streams and consumers as the resource says.\n"
        "Changes that would delete stored messages are held back unless --allow-data-loss is\n"
        "given.",
        example="logpipeline apply -f logpipeline.yaml",
        add=_apply,
        run="commands.plan:apply",
    ),
    Command(
        name="validate",
        help="find the mistakes of resources, without a server",
        description="Check LogPipelines without a server: each mistake with its line and column,\n"
        "and warnings: globs that match no file here, ~, and brackets. Exits with 1 if there is a\n"
        "mistake. Of folders only LogPipelines are checked.",
        example="logpipeline validate -f logpipeline.yaml deploy/",
        add=_validate,
        run="commands.validate:run",
    ),
    Command(
        name="delete",
        help="delete the streams and consumers of a pipeline, and its data if asked to",
        description="Delete the streams and consumers of a pipeline that does not run, after a\n"
        "question. Lines that are only there are lost. Collected files and positions stay, unless\n"
        "--with-data is given. Streams and consumers of others are not touched.",
        example="logpipeline delete -f logpipeline.yaml --with-data",
        add=_delete,
        run="commands.delete:run",
    ),
    Command(
        name="nats-auth",
        help="write users and accounts for your own nats-server",
        description="Write the accounts and users of a LogPipeline for your own nats-server, and\n"
        "the credential files of each user. A shipper may publish for its own host only. When\n"
        "run again, it keeps existing passwords.",
        example="logpipeline nats-auth -f logpipeline.yaml --out nats-users --host web1 --host db1",
        add=_nats_auth,
        run="commands.nats_auth:run",
    ),
    Command(
        name="ship",
        help="run one shipper",
        description="Run one shipper: follow this machine's log files and publish their lines.\n"
        "Without -f it works as fshipper's producer, configured by SHIPPER_FILE, SHIPPER_SUBJECT,\n"
        "SHIPPER_PARTITIONS and NATS_URL.",
        example="logpipeline ship -f logpipeline.yaml --nats nats://nats.example:4222",
        add=_ship,
        run="commands.components:ship",
    ),
    Command(
        name="collect",
        help="run one collector",
        description="Run one collector: write the partitions that are assigned to it into files.\n"
        "Without -f it works as fshipper's consumer, configured by SHIPPER_SUBJECT,\n"
        "SHIPPER_READ_PARTITIONS, SHIPPER_DIRECTORY, SHIPPER_OUTPUT, SHIPPER_STREAM_TARGET and\n"
        "NATS_URL.",
        example="logpipeline collect -f logpipeline.yaml --member collector-0 --data /data",
        add=_collect,
        run="commands.components:collect",
    ),
    Command(
        name="operator",
        help="run the Kubernetes operator",
        description="Run the Kubernetes operator: create and keep the objects that each\n"
        "LogPipeline of the cluster asks for. It reads the images of pods, and other settings,\n"
        "from environment variables LOGPIPELINE_….",
        example="logpipeline operator --namespace logging --kubeconfig ~/.kube/config",
        add=_operator,
        run="commands.components:operator",
        extra="operator",
    ),
    Command(
        name="callout",
        help="run the auth callout of a nats-server in a cluster",
        description="Run the auth callout of a nats-server: a shipper logs in with the token of\n"
        "its pod, and may publish for the pod's node only. The operator runs the callout beside\n"
        "the servers that it manages.",
        example="logpipeline callout -f logpipeline.yaml --keys jwks.json --issuer issuer.nk",
        add=_callout,
        run="commands.components:callout",
        extra="operator",
    ),
    Command(
        name="inject",
        help="add a shipper to the pods of a workload",
        description="Print Kubernetes manifests with a shipper as a sidecar in each pod template,\n"
        "for log files in a volume of the pod. The sidecar stops last, and ships what the other\n"
        "containers wrote. It reads the ConfigMap and Secret of its LogPipeline, which must be in\n"
        "the same namespace.",
        example="logpipeline inject -f deployment.yaml --pipeline prod | kubectl apply -f -",
        add=add_inject,
        run="commands.inject:run",
    ),
)
