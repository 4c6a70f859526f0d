"""How a resource's local part says who we are to the server."""

from __future__ import annotations

from pathlib import Path

from logpipeline.nats.connection import NatsOptions
from logpipeline.spec import LogPipeline


def nats_options(
    pipeline: LogPipeline, *, servers: tuple[str, ...], token_file: Path | None = None
) -> NatsOptions:
    """Return how to reach *servers*: by *token_file*, our own server's, or as the resource says."""
    if token_file is not None:
        return NatsOptions(servers=servers, token_file=token_file)
    files = pipeline.spec.local.nats
    return NatsOptions(
        servers=servers,
        js_domain=pipeline.spec.nats.js_domain,
        tls_first=pipeline.spec.nats.tls_first,
        ca_file=_path(files.ca_file),
        cert_file=_path(files.cert_file),
        key_file=_path(files.key_file),
        creds_file=_path(files.creds_file),
        nkey_file=_path(files.nkey_file),
        token_file=_path(files.token_file),
        user_file=_path(files.user_file),
        password_file=_path(files.password_file),
        inbox_prefix=files.inbox_prefix,
    )


def _path(text: str | None) -> Path | None:
    return Path(text).expanduser() if text else None
