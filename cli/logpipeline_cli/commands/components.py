"""The commands that run one component until they are asked to stop: ``ship``, ``collect``,
``operator`` and ``callout``.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from logpipeline.authority import inbox_prefix, user_of_host
from logpipeline.credentials import nats_options
from logpipeline.layout import Layout, default_data
from logpipeline.nats.connection import NatsOptions
from logpipeline.observe import logs
from logpipeline.process import keep_freed_memory
from logpipeline.spec import LogPipeline, expand_local, load
from logpipeline_cli import fshipper
from logpipeline_cli.errors import CliError, UsageError
from logpipeline_cli.local.parts import die_with_parent

if TYPE_CHECKING:
    from logpipeline_shipper.config import ShipperConfig
    from logpipeline_shipper.kubernetes.client import Access

NATS_VARIABLE = "NATS_URL"
# The supervisor names a component's user of the embedded server by the folder of that user's files,
# and never passes a password.
LOGIN_VARIABLE = "LOGPIPELINE_NATS_LOGIN"

# Options that make sense only with a resource, by their names in the parsed arguments.
SHIP_RESOURCE_OPTIONS = {
    "name": "--name",
    "kubernetes": "--kubernetes",
    "namespaces": "--namespaces",
    "include": "--include",
}
COLLECT_RESOURCE_OPTIONS = {"member": "--member", "data": "--data"}

# Where a pod finds its credentials for the API server.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# Packages that an operator needs and a plain installation lacks.
OPERATOR_PACKAGES = ("kopf", "kubernetes")


def run_until_stopped(component: str, serve: Callable[[asyncio.Event], Awaitable[int]]) -> int:
    """Run *serve* until SIGTERM or SIGINT sets its event; return its exit code."""
    die_with_parent()
    keep_freed_memory()
    logs.setup(component, format="text" if sys.stderr.isatty() else "json")

    async def main() -> int:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        return await serve(stop)

    return asyncio.run(main())


def http_address(text: str, option: str = "--http") -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``, which *option* gave.

    Raises:
        CliError: *text* does not have that form.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(
            f"{option} {text!r}: give HOST:PORT, such as 127.0.0.1:9100 or 0.0.0.0:9100"
        )
    return host.strip("[]"), int(port)


def server_of(pipeline: LogPipeline, nats: str | None) -> NatsOptions:
    """Return how to connect to the server: by --nats, ``NATS_URL``, or the resource, in this order.

    Raises:
        CliError: none of them names a server.
    """
    given = nats or os.environ.get(NATS_VARIABLE) or ""
    servers = tuple(given.split(",")) if given else tuple(pipeline.spec.nats.servers)
    if not servers:
        raise CliError(
            "no NATS server is known: give --nats URL, set NATS_URL, or list spec.nats.servers"
        )
    login = os.environ.get(LOGIN_VARIABLE)
    return nats_options(pipeline, servers=servers, login=Path(login) if login else None)


def ship(args: argparse.Namespace) -> int:
    """Run a shipper of the resource, or the one that fshipper's variables describe."""
    from logpipeline_shipper.config import from_pipeline
    from logpipeline_shipper.service import run as serve

    if fshipper.is_meant(args, os.environ, fshipper.SHIP, SHIP_RESOURCE_OPTIONS):
        config = _one_file(args)
        return run_until_stopped("shipper", lambda stop: serve(config, stop))
    pipeline = load(Path(args.file))
    home = Layout(default_data(pipeline.namespace, pipeline.name))
    pipeline = expand_local(pipeline, home.data)
    names = [shipper.name for shipper in pipeline.spec.local.shippers]
    name = args.name or (names[0] if len(names) == 1 else None)
    if name is None or name not in names:
        known = ", ".join(names) or "none: list them in spec.local.shippers"
        raise CliError(f"say which shipper to run with --name; the resource has: {known}")
    data = Path(args.data) if args.data else None
    folder = data or home.shipper(name)
    if args.kubernetes and not args.host:
        raise UsageError("--kubernetes needs the node's name: give --host $(NODE_NAME)")
    host, port = http_address(args.http)
    nats = server_of(pipeline, args.nats).named(f"logpipeline shipper {name}")
    if args.as_host:
        if not args.host:
            raise UsageError("--as-host needs the host's name: give --host $(NODE_NAME)")
        nats = replace(nats, inbox_prefix=inbox_prefix(user_of_host(args.host)))
    config = from_pipeline(
        pipeline,
        shipper=name,
        data=folder,
        nats=nats,
        host=args.host,
        kubernetes=_in_cluster() if args.kubernetes else None,
        namespaces_file=Path(args.namespaces) if args.namespaces else None,
        http_host=host,
        http_port=port,
    )
    config = _without_own_files(_with_options(config, args), folder)
    return run_until_stopped("shipper", lambda stop: serve(config, stop))


def _one_file(args: argparse.Namespace) -> ShipperConfig:
    from logpipeline_shipper.fshipper import config_of

    what = fshipper.one_file(os.environ, args.host)
    host, port = http_address(args.http)
    # Each file and subject has its own positions: their processes run side by side.
    key = f"{what.file.absolute()}\0{what.subject}\0{what.host}".encode("utf-8", "surrogateescape")
    folder = default_data("fshipper", hashlib.blake2b(key, digest_size=8).hexdigest())
    return config_of(
        what,
        nats=fshipper.server_of(os.environ, args.nats).named("logpipeline ship"),
        data=Path(args.data) if args.data else folder,
        read_out_s=args.read_out,
        http_host=host,
        http_port=port,
    )


def _with_options(config: ShipperConfig, args: argparse.Namespace) -> ShipperConfig:
    """Return *config* with the options that replace values of the resource."""
    if args.include:
        only = replace(config.hosts[0], pods_dir=None, hosts_below=None, exclude=())
        config = replace(config, hosts=(replace(only, include=tuple(args.include)),))
    return replace(config, read_out_s=args.read_out)


def _in_cluster() -> Access:
    from logpipeline_shipper.kubernetes.client import Access

    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}") for name in ("HOST", "PORT"))
    if not host or not port:
        raise CliError(
            "--kubernetes works only in a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT "
            "are not set; leave it out to select by namespace, pod and container only"
        )
    return Access(
        url=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        ca_file=SERVICE_ACCOUNT / "ca.crt",
        token_file=SERVICE_ACCOUNT / "token",
    )


def _without_own_files(config: ShipperConfig, data: Path) -> ShipperConfig:
    """Exclude the files that the pipeline writes: its logs would be shipped in a circle."""
    layout = Layout(data.parent.parent)
    is_ours = data == layout.shipper(data.name)
    folders = layout.own_folders if is_ours else (data,)
    own = tuple(f"{folder.resolve()}/**" for folder in folders)
    hosts = tuple(replace(host, exclude=(*host.exclude, *own)) for host in config.hosts)
    return replace(config, hosts=hosts)


def collect(args: argparse.Namespace) -> int:
    """Run a collector of the resource, or the reader that fshipper's variables describe."""
    if fshipper.is_meant(args, os.environ, fshipper.COLLECT, COLLECT_RESOURCE_OPTIONS):
        return _read_plainly(args)
    if not args.member:
        raise CliError("say which collector this is: --member collector-0")
    return _collect(args)


def _collect(args: argparse.Namespace) -> int:
    from logpipeline_collector import service
    from logpipeline_collector.config import from_pipeline

    pipeline = load(Path(args.file))
    data = Path(args.data) if args.data else None
    folder = data or Layout(default_data(pipeline.namespace, pipeline.name)).collector(args.member)
    host, port = http_address(args.http)
    config = from_pipeline(
        pipeline,
        member=args.member,
        data=folder,
        nats=server_of(pipeline, args.nats).named(f"logpipeline {args.member}"),
        http_host=host,
        http_port=port,
    )
    return run_until_stopped("collector", lambda stop: service.run(config, stop))


def _read_plainly(args: argparse.Namespace) -> int:
    from logpipeline_collector.fshipper.config import ReaderConfig
    from logpipeline_collector.fshipper.service import run as serve

    subject, target, directory, pattern = fshipper.output(os.environ)
    host, port = http_address(args.http)
    config = ReaderConfig(
        nats=fshipper.server_of(os.environ, args.nats).named("logpipeline collect"),
        subject=subject,
        target=target,
        partitions=fshipper.read_partitions(os.environ),
        directory=directory,
        pattern=pattern,
        http_host=host,
        http_port=port,
    )
    return run_until_stopped("collector", lambda stop: serve(config, stop))


def operator(args: argparse.Namespace) -> int:
    """Run the operator until SIGTERM, or until another operator leads."""
    if missing := [name for name in OPERATOR_PACKAGES if find_spec(name) is None]:
        raise CliError(
            f"the operator needs {' and '.join(missing)}: pip install 'logpipeline[operator]'"
        )
    from logpipeline_operator.main import main

    return main(operator_arguments(args))


def operator_arguments(args: argparse.Namespace) -> list[str]:
    """Return *args* as the operator's own command line."""
    words = [f"--namespace={namespace}" for namespace in args.namespace or ()]
    for name in ("http", "kubeconfig", "context"):
        value = getattr(args, name)
        words += [] if value is None else [f"--{name}={value}"]
    words += ["--read-only"] if args.read_only else []
    words += ["--no-lease"] if args.no_lease else []
    return words


def callout(args: argparse.Namespace) -> int:
    """Run the auth callout of the given server."""
    try:
        from logpipeline_operator.callout.claims import Issuer
        from logpipeline_operator.callout.service import Answers, KeysFile
        from logpipeline_operator.callout.service import run as serve
        from logpipeline_operator.callout.store import StoreWatch, end_servers
    except ModuleNotFoundError as error:
        raise CliError(
            f"{error.name} is not installed: pip install 'logpipeline[operator]'"
        ) from None
    pipeline = load(Path(args.file))
    try:
        keys = KeysFile(Path(args.keys))
        issuer = Issuer(Path(args.issuer).read_text())
    except ValueError as error:
        raise CliError(f"--keys or --issuer: {error}") from None
    except OSError as error:
        raise CliError(f"{error.filename} cannot be read: {error.strerror}") from None
    nats = server_of(pipeline, args.nats).named("logpipeline callout")
    if args.nats and pipeline.spec.nats.servers:
        # The server beside us, connected to by its address; its certificate is for the resource's
        # name.
        nats = replace(nats, tls_name=urlsplit(pipeline.spec.nats.servers[0]).hostname or "")
    answers = Answers(pipeline, issuer, keys.current)
    http = http_address(args.http)
    if (args.store is None) != (args.pages is None):
        raise UsageError("--store and --pages need each other: give both, or none")
    watch = StoreWatch(Path(args.store), args.pages, end_servers) if args.store else None
    return run_until_stopped("callout", lambda stop: serve(nats, answers, http, watch, stop))
