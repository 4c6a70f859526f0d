"""``logpipeline inject``: add a shipper to the pods of each workload in a manifest."""

from __future__ import annotations

import argparse
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from logpipeline_cli.errors import EXIT_OK, CliError
from logpipeline_cli.injection.manifests import TEXT_BYTES_MAX, rewritten
from logpipeline_cli.injection.sidecar import (
    CREDENTIAL_KINDS,
    TEMPLATES,
    Credentials,
    Manifest,
    Sidecar,
    inject,
    name_of,
    pipeline_of,
    workloads_in,
)

PATH = "/var/log/app/*.log"
VOLUME = "logs"
STANDARD = "-"
_CREDENTIALS = re.compile(r"([a-z]+)=([a-z0-9.-]+):([-._a-zA-Z0-9]+(?:,[-._a-zA-Z0-9]+)*)")


def run(args: argparse.Namespace) -> int:
    """Print the changed manifest, or write it to --output."""
    found = 0

    def change(document: Any) -> None:
        nonlocal found
        for workload in workloads_in(document):
            found += 1
            inject(workload, _sidecar(args, workload))

    result = rewritten(_read(args.file), change)
    if not found:
        kinds = ", ".join(TEMPLATES)
        raise CliError(f"{args.file} has no workload: give a manifest with one of {kinds}")
    if args.out is None:
        sys.stdout.write(result)
    else:
        _write(Path(args.out), result)
    return EXIT_OK


def _sidecar(args: argparse.Namespace, workload: Manifest) -> Sidecar:
    pipeline = args.pipeline or pipeline_of(workload)
    if pipeline is None:
        raise CliError(
            f"name the LogPipeline for {name_of(workload)} with --pipeline NAME "
            "(`kubectl get logpipelines` lists them)"
        )
    return Sidecar(
        pipeline=pipeline,
        namespace=args.namespace,
        paths=tuple(args.path or (PATH,)),
        volume=args.volume,
        image=args.image or f"docker.io/logpipeline/shipper:{metadata.version('logpipeline')}",
        credentials=tuple(map(_credentials, args.credentials or ())),
    )


def _credentials(text: str) -> Credentials:
    match = _CREDENTIALS.fullmatch(text)
    if match is None or match[1] not in CREDENTIAL_KINDS:
        kinds = ", ".join(CREDENTIAL_KINDS)
        raise CliError(
            f"--credentials {text!r}: give KIND=SECRET:KEY[,KEY…] with a kind of {kinds}, such as "
            "creds=nats-credentials:user.creds"
        )
    return Credentials(kind=match[1], secret=match[2], keys=tuple(match[3].split(",")))


def _read(file: str) -> str:
    if file == STANDARD:
        raw = sys.stdin.buffer.read(TEXT_BYTES_MAX + 1)
    else:
        with Path(file).open("rb") as stream:
            raw = stream.read(TEXT_BYTES_MAX + 1)
    if len(raw) > TEXT_BYTES_MAX:
        raise CliError(f"{file} is longer than {TEXT_BYTES_MAX} bytes; inject it in parts")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise CliError(f"{file} is not valid UTF-8: {error.reason}") from error


def _write(path: Path, text: str) -> None:
    """Replace the file atomically: it may be the one that was read."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text)
    temporary.replace(path)
