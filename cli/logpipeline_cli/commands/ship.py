"""``logpipeline ship``: one shipper, until it is asked to stop."""

from __future__ import annotations

import argparse
import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from logpipeline.authority import inbox_prefix, user_of_host
from logpipeline.spec import load
from logpipeline_cli.commands.component import http_address, run_until_stopped, server_of
from logpipeline_cli.errors import CliError
from logpipeline_cli.local.layout import Layout, default_data
from logpipeline_cli.streams import fshipper

if TYPE_CHECKING:
    from logpipeline_shipper.config import ShipperConfig
    from logpipeline_shipper.kubernetes.client import Access

RESOURCE_WORDS = {
    "name": "--name",
    "kubernetes": "--kubernetes",
    "namespaces": "--namespaces",
    "include": "--include",
}
# Where a pod finds who it is to the API server.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def run(args: argparse.Namespace) -> int:
    """Run the shipper that the words name, or that fshipper's variables describe."""
    from logpipeline_shipper.config import from_pipeline
    from logpipeline_shipper.service import run as serve

    if fshipper.is_meant(args, os.environ, fshipper.SHIP, RESOURCE_WORDS):
        config = _one_file(args)
        return run_until_stopped("shipper", lambda stop: serve(config, stop))
    pipeline = load(Path(args.file))
    names = [shipper.name for shipper in pipeline.spec.local.shippers]
    name = args.name or (names[0] if len(names) == 1 else None)
    if name is None or name not in names:
        known = ", ".join(names) or "none: list them in spec.local.shippers"
        raise CliError(f"say which shipper to run with --name; the resource has: {known}")
    data = Path(args.data) if args.data else None
    folder = data or Layout(default_data(pipeline.namespace, pipeline.name)).shipper(name)
    if args.kubernetes and not args.host:
        raise CliError("--kubernetes needs the node's name: give --host $(NODE_NAME)")
    host, port = http_address(args.http)
    nats = server_of(pipeline, args.nats).named(f"logpipeline shipper {name}")
    if args.as_host:
        if not args.host:
            raise CliError("--as-host needs the host's name: give --host $(NODE_NAME)")
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
    config = _without_ourselves(_with_words(config, args), folder)
    return run_until_stopped("shipper", lambda stop: serve(config, stop))


def _one_file(args: argparse.Namespace) -> ShipperConfig:
    from logpipeline_shipper.fshipper import config_of

    what = fshipper.one_file(os.environ, args.host)
    host, port = http_address(args.http)
    # Positions of their own for each file and subject: their processes run side by side.
    told = f"{what.file.absolute()}\0{what.subject}\0{what.host}".encode("utf-8", "surrogateescape")
    folder = default_data("fshipper", hashlib.blake2b(told, digest_size=8).hexdigest())
    return config_of(
        what,
        nats=fshipper.server_of(os.environ, args.nats).named("logpipeline ship"),
        data=Path(args.data) if args.data else folder,
        read_out_s=args.read_out,
        http_host=host,
        http_port=port,
    )


def _with_words(config: ShipperConfig, args: argparse.Namespace) -> ShipperConfig:
    """Let the words replace what the resource says."""
    if args.include:
        only = replace(config.hosts[0], pods_dir=None, hosts_below=None, exclude=())
        config = replace(config, hosts=(replace(only, include=tuple(args.include)),))
    return replace(config, read_out_s=args.read_out)


def _in_cluster() -> Access:
    from logpipeline_shipper.kubernetes.client import Access

    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}") for name in ("HOST", "PORT"))
    if not host or not port:
        raise CliError(
            "--kubernetes works in a pod only: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT "
            "are not set; leave it out to select by namespace, pod and container alone"
        )
    return Access(
        url=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        ca_file=SERVICE_ACCOUNT / "ca.crt",
        token_file=SERVICE_ACCOUNT / "token",
    )


def _without_ourselves(config: ShipperConfig, data: Path) -> ShipperConfig:
    """Leave out what the pipeline itself writes: its logs would be shipped in a circle."""
    layout = Layout(data.parent.parent)
    is_ours = data == layout.shipper(data.name)
    folders = layout.own_folders if is_ours else (data,)
    own = tuple(f"{folder.resolve()}/**" for folder in folders)
    hosts = tuple(replace(host, exclude=(*host.exclude, *own)) for host in config.hosts)
    return replace(config, hosts=hosts)
