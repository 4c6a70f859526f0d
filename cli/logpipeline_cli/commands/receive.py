"""``logpipeline receive``: append logs that are no files to files, until asked to stop."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from logpipeline.filelock import FileLocked
from logpipeline.observe.metrics import Metrics
from logpipeline.quantity import QuantityError, parse_bytes
from logpipeline_cli.commands.components import http_address, run_until_stopped
from logpipeline_cli.errors import CliError, UsageError
from logpipeline_cli.receiving.file_names import BadTemplate, NameTemplate
from logpipeline_cli.receiving.framing import LF, NUL
from logpipeline_cli.receiving.journal import PROGRAM, Journal, JournalConfig
from logpipeline_cli.receiving.redo import SpoolBroken
from logpipeline_cli.receiving.service import ReceiverConfig, Source
from logpipeline_cli.receiving.service import run as serve
from logpipeline_cli.receiving.spool import SpoolFull
from logpipeline_cli.receiving.syslog_server import VARIABLES, SyslogConfig, SyslogServer
from logpipeline_cli.receiving.tls import BadCertificate, ServerTls

DELIMITERS = {"lf": LF, "nul": NUL}
# RFC 5424 has every receiver take as much (6.1).
MESSAGE_BYTES_MIN = 480
ROTATE_BYTES_MIN = 4096


def run(args: argparse.Namespace) -> int:
    """Receive what the given kind says until SIGTERM."""
    return KINDS[args.kind](args)


def _syslog(args: argparse.Namespace) -> int:
    if not (args.udp or args.tcp or args.tls):
        raise UsageError("say where to listen: --udp, --tcp or --tls with HOST:PORT")
    if bool(args.tls) != bool(args.tls_cert):
        raise UsageError("--tls and --tls-cert need each other: give both, or none")
    tls = _tls(args)
    config = SyslogConfig(
        udp=_address(args.udp, "--udp"),
        tcp=_address(args.tcp, "--tcp"),
        tls=_address(args.tls, "--tls"),
        server_tls=tls,
        output=args.output,
        name=_template(args.name, VARIABLES),
        message_bytes_max=_size(args.message_bytes, "--message-bytes", MESSAGE_BYTES_MIN),
        connections_max=args.connections,
        delimiter=DELIMITERS[args.delimiter],
    )
    return _receive(
        args, lambda metrics: SyslogServer(config, metrics), connections_max=args.connections
    )


def _journald(args: argparse.Namespace) -> int:
    folder = f"{args.chroot}/usr/bin" if args.chroot else None
    if shutil.which(PROGRAM, path=folder) is None:
        where = f"in {folder}" if folder else "here"
        raise CliError(f"{PROGRAM} is not installed {where}: it comes with systemd")
    if args.chroot and os.geteuid():
        raise CliError("--chroot needs root, with the capability SYS_CHROOT in a container")
    config = JournalConfig(
        options=(f"--directory={args.directory}",) if args.directory else (),
        filters=tuple(f"--unit={unit}" for unit in args.unit),
        output=args.output,
        root=args.chroot,
    )
    return _receive(args, lambda metrics: Journal(config, metrics))


def _otlp(args: argparse.Namespace) -> int:
    # It needs an optional package.
    from logpipeline_cli.receiving import otlp_server

    address = _address(args.listen, "--listen")
    assert address is not None
    name = _template(args.name, otlp_server.VARIABLES)
    tls = _tls(args)
    # A request that there is no room for is refused at once: its client sends it again.
    return _receive(
        args,
        lambda metrics: otlp_server.OtlpServer(address, name, metrics, tls),
        waits=False,
        connections_max=otlp_server.OPEN_CONNECTIONS_MAX,
    )


def _tls(args: argparse.Namespace) -> ServerTls | None:
    if not args.tls_cert:
        if args.tls_key or args.tls_client_ca:
            raise UsageError("--tls-key and --tls-client-ca belong to a --tls-cert: give one")
        return None
    key = Path(args.tls_key) if args.tls_key else None
    authority = Path(args.tls_client_ca) if args.tls_client_ca else None
    try:
        return ServerTls(Path(args.tls_cert), key, authority)
    except BadCertificate as error:
        raise CliError(f"TLS: {error}") from None


def _template(text: str, variables: frozenset[str]) -> NameTemplate:
    try:
        return NameTemplate(text, variables)
    except BadTemplate as error:
        raise UsageError(f"--name {text!r}: {error}") from None


def _receive(
    args: argparse.Namespace,
    make: Callable[[Metrics], Source],
    *,
    waits: bool = True,
    connections_max: int = 0,
) -> int:
    config = ReceiverConfig(
        folder=Path(args.to),
        http=http_address(args.http),
        waits=waits,
        rotate_bytes=_size(args.rotate_at, "--rotate-at", ROTATE_BYTES_MIN),
        keep=args.keep,
        connections_max=connections_max,
    )
    try:
        return run_until_stopped("receiver", lambda stop: serve(config, make, stop))
    except FileLocked as error:
        raise CliError(
            f"{args.to} belongs to another receiver, process {error.owner}: give another --to"
        ) from None
    except SpoolFull as error:
        raise CliError(f"{args.to}: {error}; make room, and start again") from None
    except SpoolBroken as error:
        raise CliError(f"{args.to}: {error}") from None


def _address(text: str | None, option: str) -> tuple[str, int] | None:
    if text is None:
        return None
    try:
        return http_address(text)
    except UsageError:
        raise UsageError(f"{option} {text!r}: give HOST:PORT, such as 0.0.0.0:514") from None


def _size(text: str, option: str, least: int) -> int:
    try:
        size = parse_bytes(text)
    except QuantityError as error:
        raise UsageError(f"{option}: {error}") from None
    if size < least:
        raise UsageError(f"{option} {text!r}: give at least {least} bytes")
    return size


KINDS = {"syslog": _syslog, "journald": _journald, "otlp": _otlp}
