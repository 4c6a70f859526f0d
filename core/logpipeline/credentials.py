"""Login to the server, from the resource's local part."""

from __future__ import annotations

from pathlib import Path

from logpipeline.authority import inbox_prefix
from logpipeline.nats.connection import NatsOptions
from logpipeline.spec import LogPipeline

# The files of a user of our own server, in a folder that is called as the user is.
USER_FILE = "user"
PASSWORD_FILE = "password"


def nats_options(
    pipeline: LogPipeline, *, servers: tuple[str, ...], login: Path | None = None
) -> NatsOptions:
    """Return how to reach *servers*: by *login*, the folder of a user of our own server, or as the
    resource says.
    """
    if login is not None:
        return NatsOptions(
            servers=servers,
            user_file=login / USER_FILE,
            password_file=login / PASSWORD_FILE,
            inbox_prefix=inbox_prefix(login.name),
        )
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
