"""A managed server as a pipeline's children configure it: a real one with that very configuration,
and the files of each role as they lie in its pods.
"""

from __future__ import annotations

import os
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from logpipeline.credentials import nats_options
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.server_binary import find_binary
from logpipeline.spec import LogPipeline, parse
from logpipeline_operator.callout.claims import Issuer, new_seed
from logpipeline_operator.certificates import upkeep
from logpipeline_operator.children import config, credentials, nats_conf, nats_tls
from ports import free_port
from waiting import eventually

PASSWORDS = {role: f"-{role}-0123456789abcdef" for role in credentials.ROLES}
CALLOUT_PASSWORD = "-callout-0123456789abcdef"
TABLE_PASSWORD = "-table-0123456789abcdef"
# The hash of the Secret, which the operator takes.
USERS = "0123456789abcdef" * 2


def resource(**spec: Any) -> LogPipeline:
    """The pipeline *prod*, with two partitions."""
    return parse(
        {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": "prod", "namespace": "logging", "uid": "1-2"},
            "spec": {"partitions": 2, **spec},
        }
    )


@dataclass(frozen=True, slots=True)
class Managed:
    """A running server, and the folder in which each role's files lie as in its pods."""

    pipeline: LogPipeline
    url: str
    folder: Path
    # The port of its pages.
    monitor: int
    # The process ends with it.
    process: ExitStack
    # Those that it ever had; the last one runs.
    pids: list[int] = field(default_factory=list)

    @property
    def pid(self) -> int:
        """The process that runs."""
        return self.pids[-1]

    def at(self, role: str) -> Path:
        """The folder of *role*'s credentials."""
        return self.folder / role

    def options(self, role: str, local: LogPipeline) -> NatsOptions:
        """How the component with the resource *local* logs in, its files being in our folder."""
        text = config.render(local).replace(
            str(config.FOLDER / config.NATS_FOLDER), str(self.at(role))
        )
        moved = parse(yaml.safe_load(text))
        return self.reached(nats_options(moved, servers=(self.url,)))

    def operator(self) -> NatsOptions:
        """How the operator logs in."""
        own = config.nats_options(self.pipeline, self.at(credentials.OPERATOR))
        return self.reached(own)

    def reached(self, options: NatsOptions) -> NatsOptions:
        """The same options for where the server is here, and not in a cluster."""
        name = nats_tls.server_name(self.pipeline)
        return replace(options, servers=(self.url,), tls_name=name)

    def certify(self, files: Mapping[str, bytes]) -> None:
        """Have the server show the certificate in *files* from its next start on."""
        (self.folder / "tls").mkdir(exist_ok=True)
        for file in nats_tls.SERVER_FILES:
            (self.folder / "tls" / file).write_bytes(files[file])

    def trust(self, files: Mapping[str, bytes]) -> None:
        """Have clients trust the authority in *files* from their next connect on."""
        for user in self.folder.glob("*/user"):
            (user.parent / "tls").mkdir(exist_ok=True)
            (user.parent / "tls" / nats_tls.CA_FILE).write_bytes(files[nats_tls.CA_FILE])

    async def restart(self) -> None:
        """End the server, and start it again."""
        self.process.close()
        await self.start()

    async def start(self) -> None:
        """Start the server, and return when it is healthy."""
        self.pids.append(self.process.enter_context(server(self.folder)))
        below = nats_conf.pages(USERS)
        await eventually(lambda: is_healthy(self.monitor, below))


@asynccontextmanager
async def managed(
    pipeline: LogPipeline,
    folder: Path,
    *,
    has_accounts: bool = False,
    has_callout: bool = False,
    names: tuple[str, ...] = (),
    claimed_bytes: int = 0,
    store: Path | None = None,
) -> AsyncIterator[Managed]:
    """Run a server with the configuration and the Secrets that *pipeline*'s children would have;
    its certificate is for *names* too, and its volumes have *claimed_bytes*. *store* is a
    former server's, by default an empty one.
    """
    port, monitor = free_port(), free_port()
    folder.mkdir()
    data = credentials.users_secret(pipeline, PASSWORDS)["stringData"]
    data |= credentials.table_secret(pipeline, TABLE_PASSWORD)["stringData"]
    roles = credentials.users(pipeline)
    if has_callout:
        seed = new_seed(os.urandom(32))
        issuer = Issuer(seed).public_key
        callout = credentials.callout_secret(pipeline, CALLOUT_PASSWORD, seed, issuer)
        data |= callout["stringData"]
        roles = (*roles, credentials.CALLOUT)
        (folder / credentials.ISSUER_SEED).write_text(seed)
    text = nats_conf.render(
        pipeline,
        has_accounts=has_accounts,
        has_callout=has_callout,
        users=USERS,
        claimed_bytes=claimed_bytes,
    )
    for there, here in (
        ("0.0.0.0:4222", f"127.0.0.1:{port}"),
        ("0.0.0.0:8222", f"127.0.0.1:{monitor}"),
        (f'"{nats_conf.STORE}"', f'"{store or folder / "store"}"'),
        *([(nats_conf.TLS_FOLDER, f"{folder}/tls")] if nats_tls.is_on(pipeline) else []),
    ):
        assert there in text
        text = text.replace(there, here)
    (folder / "nats.conf").write_text(text)
    for file in nats_conf.user_files(pipeline, has_callout=has_callout):
        (folder / file).write_text(data[file])
    for role in roles:
        (folder / role / "user").mkdir(parents=True)
        for file, key in zip(("user", "password"), credentials.keys(role), strict=True):
            (folder / role / "user" / file).write_text(data[key])
    with ExitStack() as process:
        at = Managed(pipeline, f"nats://127.0.0.1:{port}", folder, monitor, process)
        if nats_tls.is_on(pipeline):
            now = datetime.now(UTC)
            files = upkeep({}, (*nats_tls.server_names(pipeline), *names), now).files
            at.certify(files)
            at.trust(files)
        await at.start()
        yield at


@contextmanager
def server(folder: Path, name: str = "prod-nats-0") -> Iterator[int]:
    """Run nats-server with the configuration in *folder*, as the pod *name*; yield its process."""
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [find_binary(), "--config", folder / "nats.conf"],
            stdout=log,
            stderr=log,
            env={**os.environ, "POD_NAME": name},
        )
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def is_healthy(monitor_port: int, below: str = "") -> bool:
    """Whether the server, whose pages lie *below* a path, passes the full check, as its probes ask
    for.
    """
    try:
        url = f"http://127.0.0.1:{monitor_port}{below}/healthz"
        with urllib.request.urlopen(url, timeout=1) as page:
            return bool(page.status == 200)
    except OSError:
        return False


@asynccontextmanager
async def connected(options: NatsOptions) -> AsyncIterator[JetStream]:
    """Connect with *options*."""
    connection = Connection(options)
    # A refused login is tried again all this time: tests of refusals wait for its end.
    await connection.start(patience_s=10.0)
    try:
        yield JetStream(connection)
    finally:
        await connection.close()


async def refused(connection: Connection, subject: str, what: str) -> None:
    """Return once the server has named *subject* as refused; the client hands its words on in small
    letters.
    """
    named = f'"{subject}"'.lower()
    await eventually(lambda: named in (connection.problem or "").lower(), what=what)
