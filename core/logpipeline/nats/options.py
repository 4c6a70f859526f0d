"""Addresses of the NATS servers and our login, in the form that nats-py takes."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

# A dead peer is noticed after (PINGS_OUTSTANDING_MAX + 1) intervals: nats-py's default is six
# minutes.
PING_INTERVAL_S = 5
PINGS_OUTSTANDING_MAX = 2
CONNECT_TIMEOUT_S = 5
# More than all batches in flight, so that nats-py never refuses or blocks what our own budget
# admitted.
PENDING_BYTES_MAX = 128 * 1024 * 1024
# Short enough to go on soon, and long enough for a server that a thousand clients come back to.
BACKOFF_MAX_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsOptions:
    """Addresses of the servers, and our login. Files are read again at each connect, so that
    secrets can be rotated.
    """

    servers: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    name: str = "logpipeline"
    user_file: Path | None = None
    password_file: Path | None = None
    token_file: Path | None = None
    creds_file: Path | None = None
    nkey_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    tls_first: bool = False
    # The name that the server's certificate is for, where we call the server by another one.
    tls_name: str = ""
    inbox_prefix: str = "_INBOX"
    # The wait between two attempts to connect grows up to this.
    backoff_max_s: float = BACKOFF_MAX_S
    js_domain: str = ""

    def named(self, name: str) -> NatsOptions:
        """Return the same options for the component *name*, as shown in the server's monitoring."""
        return replace(self, name=name)


def with_scheme(server: str) -> str:
    """Return *server* with a scheme: fshipper's ``NATS_URL`` may lack it."""
    return server if "://" in server else f"nats://{server}"


def without_secret(server: str) -> str:
    """Return the URL *server* as it may be shown: without user and password."""
    scheme, separator, rest = server.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def connect_options(options: NatsOptions) -> dict[str, Any]:
    given: dict[str, Any] = {
        "servers": [with_scheme(server) for server in options.servers],
        "name": options.name,
        "allow_reconnect": False,
        # A server that is not there counts as an answer: retries and their back-off are ours.
        "max_reconnect_attempts": 1,
        "reconnect_time_wait": 0,
        "connect_timeout": CONNECT_TIMEOUT_S,
        "ping_interval": PING_INTERVAL_S,
        "max_outstanding_pings": PINGS_OUTSTANDING_MAX,
        "pending_size": PENDING_BYTES_MAX,
        "inbox_prefix": options.inbox_prefix,
        "error_cb": _ignore_error,
    }
    for name, path in (
        ("user", options.user_file),
        ("password", options.password_file),
        ("token", options.token_file),
    ):
        if path is not None:
            given[name] = path.read_text().strip()
    if options.creds_file is not None:
        given["user_credentials"] = str(options.creds_file)
    if options.nkey_file is not None:
        given["nkeys_seed"] = str(options.nkey_file)
    if (
        options.ca_file
        or options.cert_file
        or any(server.startswith("tls://") for server in options.servers)
    ):
        context = ssl.create_default_context(
            cafile=str(options.ca_file) if options.ca_file else None
        )
        if options.cert_file is not None:
            context.load_cert_chain(options.cert_file, options.key_file)
        given["tls"] = context
        given["tls_handshake_first"] = options.tls_first
        if options.tls_name:
            given["tls_hostname"] = options.tls_name
    return given


async def _ignore_error(error: Exception) -> None:
    """nats-py reports here what `connect` also raises, and what `Session` handles itself."""
