"""Access to a pipeline's NATS from outside of the cluster: through a forwarded port if the server
is a Service of the cluster; with a reader's login if read access is enough and the server has
readers, else with the operator's credentials.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import urlsplit

from logpipeline.authority import READERS_DOMAIN, inbox_prefix, user_of_reader
from logpipeline.layout import Layout, default_data
from logpipeline.nats.connection import NatsOptions
from logpipeline.spec import LogPipeline
from logpipeline_cli.cluster.api import Forbidden, Manifest, NotFound, path
from logpipeline_cli.cluster.kubectl import Forward
from logpipeline_cli.cluster.session import Found
from logpipeline_cli.errors import CliError
from logpipeline_cli.target import Target
from logpipeline_operator.children import config, credentials, names, nats_tls
from logpipeline_operator.secret_files import SecretProblem, contents, encoded, write

PORT = 4222
TOKEN_FILE = "token"
# A working day of `status --watch`.
READER_TOKEN_S = 12 * 3600
# <service>.<namespace>.svc[.<domain>]; a name without a dot is a Service of the pipeline's
# namespace.
_SERVICE = re.compile(r"([a-z0-9-]+)(?:\.([a-z0-9-]+)\.svc(?:\..+)?)?")


class Service(NamedTuple):
    """A Service of the cluster, and its port."""

    namespace: str
    name: str
    port: int


@contextmanager
def reached(
    found: Found, url: str | None, pipeline: LogPipeline | None = None, *, only_looks: bool = False
) -> Iterator[Target]:
    """Yield the target *pipeline* (default: that of *found*), at the NATS of *found*, or at *url*.
    With *only_looks* the login is a reader's, if the server has readers; else it is the operator's.

    Raises:
        CliError: the server cannot be reached from here, or the user may not read its credentials.
    """
    given = url or os.environ.get("NATS_URL")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="logpipeline-"))) / "nats"
        has_own_login = given is not None and "@" in given
        options = _login(found, folder, only_looks=only_looks, has_own=has_own_login)
        servers = tuple(given.split(",")) if given else (_server(found, stack),)
        wanted = pipeline or found.pipeline
        layout = Layout(default_data(wanted.namespace, wanted.name))
        yield Target(wanted, layout, replace(options, servers=servers), None)


def service_of(server: str, namespace: str) -> Service | None:
    """Return the Service that the URL *server* names, seen from *namespace*; None if it names
    none.
    """
    parts = urlsplit(server if "://" in server else f"nats://{server}")
    match = _SERVICE.fullmatch(parts.hostname or "")
    if match is None or match[0] == "localhost":
        return None
    return Service(match[2] or namespace, match[1], parts.port or PORT)


def _server(found: Found, stack: ExitStack) -> str:
    pipeline = found.pipeline
    servers = config.servers(pipeline)
    services = [(server, service_of(server, pipeline.namespace)) for server in servers]
    for server, service in services:
        if service is None:
            return server
    server, service = services[0]
    assert service is not None
    if found.cluster.kubectl.is_in_pod:
        return server
    if not server.startswith("nats://") or pipeline.spec.nats.tls is not None:
        raise CliError(
            f"{server} is inside the cluster and has a certificate for that name, which a "
            "forwarded port does not have; give --nats URL with a name that it has outside"
        )
    forward = Forward(
        found.cluster.kubectl, service.namespace, f"service/{service.name}", service.port
    )
    stack.enter_context(forward)
    return f"nats://127.0.0.1:{forward.local_port}"


def _login(found: Found, folder: Path, *, only_looks: bool, has_own: bool) -> NatsOptions:
    pipeline, trusted = _trusted(found)
    token = _token(found) if only_looks and not has_own else ""
    if has_own or token:
        files = credentials.trust_files(pipeline)
    else:
        files = credentials.credential_files(pipeline, credentials.OPERATOR)
    try:
        owners = {file.owner for file in files if file.kind == "secret"}
        held = {name: _secret(found, name) for name in owners} | trusted
        read = contents(files, held, is_ours=not pipeline.spec.nats.servers)
    except SecretProblem as error:
        raise CliError(str(error)) from error
    write({**read, TOKEN_FILE: token.encode()} if token else read, folder)
    if has_own or token:
        ca_file = folder / files[0].path if files else None
        options = _as_reader(token, folder) if token else NatsOptions()
        options = replace(options, ca_file=ca_file)
    else:
        options = config.nats_options(pipeline, folder)
    # The certificate is for the Service's name, whatever address is used.
    return replace(options, tls_name=nats_tls.server_name(pipeline)) if trusted else options


def _trusted(found: Found) -> tuple[LogPipeline, dict[str, Manifest | None]]:
    """Return the pipeline of *found* with its TLS settings decided, and the ConfigMap with the CA
    of its server in the form of a Secret; none if the server uses no TLS.
    """
    pipeline, name = found.pipeline, names.nats_ca(found.pipeline)
    if pipeline.spec.nats.servers or pipeline.spec.nats.managed.tls == nats_tls.DISABLED:
        return pipeline, {}
    try:
        there = found.cluster.api.get(path("v1", "configmaps", pipeline.namespace, name))
    except NotFound:
        # The operator creates the ConfigMap before a server that needs it.
        return nats_tls.decided(pipeline, began_with_tls=False), {}
    except Forbidden as error:
        raise CliError(
            f"talking to NATS needs the right to get the ConfigMap {name} ({error}): the server's "
            "certificate is checked by it; ask for this right"
        ) from error
    data = {key: encoded(text.encode()) for key, text in (there.get("data") or {}).items()}
    return nats_tls.decided(pipeline, began_with_tls=True), {name: {"data": data}}


def _token(found: Found) -> str:
    """Return a token of the pipeline's readers; empty if its server has no readers, or the user may
    not create one.
    """
    pipeline = found.pipeline
    if pipeline.spec.nats.servers:
        return ""
    account = path("v1", "serviceaccounts", pipeline.namespace, names.reader(pipeline))
    wanted = {"audiences": [credentials.audience(pipeline)], "expirationSeconds": READER_TOKEN_S}
    try:
        made = found.cluster.api.create(f"{account}/token", {"spec": wanted})
    except (NotFound, Forbidden):
        return ""
    return str(made["status"]["token"])


def _as_reader(token: str, folder: Path) -> NatsOptions:
    prefix = inbox_prefix(user_of_reader(token))
    return NatsOptions(
        token_file=folder / TOKEN_FILE, inbox_prefix=prefix, js_domain=READERS_DOMAIN
    )


def _secret(found: Found, name: str) -> Manifest | None:
    try:
        return found.cluster.api.get(path("v1", "secrets", found.pipeline.namespace, name))
    except NotFound:
        return None
    except Forbidden as error:
        raise CliError(
            f"talking to NATS needs the right to get the Secret {name} ({error}), or, for all but "
            "`losses --acknowledge` and `dlq`, to create serviceaccounts/token of "
            f"{names.reader(found.pipeline)}; ask for one of them, or give --nats URL with a user "
            "and password of your own in it"
        ) from error
