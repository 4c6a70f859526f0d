"""How to reach a server by the environment alone, with the variables that fshipper has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from logpipeline.nats.options import NatsOptions

DEFAULT = "nats://127.0.0.1:4222"


def nats_of(environment: Mapping[str, str], url: str | None = None) -> NatsOptions:
    """Return the options that *environment* names; *url* wins over its servers."""

    def file(name: str) -> Path | None:
        return Path(environment[name]) if environment.get(name) else None

    servers = url or environment.get("NATS_URL") or DEFAULT
    return NatsOptions(
        servers=tuple(servers.split(",")),
        creds_file=file("NATS_CREDS"),
        ca_file=file("NATS_CA"),
        cert_file=file("NATS_CERTIFICATE"),
        key_file=file("NATS_KEY"),
    )
