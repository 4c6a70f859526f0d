"""The operator's access to a pipeline's NATS: its Secrets, its server's address, its connection.

A connection stays open between reconciliations, and is made anew if its address or its credentials
change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import API_TIMEOUT_S, JetStream, PubAck
from logpipeline.spec import LogPipeline
from logpipeline_operator import (
    certificates,
    child_objects,
    secret_files,
    server_users,
    volume_claims,
)
from logpipeline_operator.children import config, credentials, names, nats_tls
from logpipeline_operator.children.credentials import credential_files
from logpipeline_operator.children.model import ManagedServer
from logpipeline_operator.cluster.client import Cluster, ClusterError, Fence
from logpipeline_operator.cluster.kinds import kind
from logpipeline_operator.queue import Key
from logpipeline_operator.secret_files import SecretProblem

log = logging.getLogger(__name__)

# Kubernetes makes this namespace with the cluster, and it is never made again.
CLUSTER_NAMESPACE = "kube-system"


class ServerTls(NamedTuple):
    """The managed server's TLS: the certificates that clients trust, the mark of the server's own
    (`nats_tls.mark`), when it ends, in seconds since the epoch, and which were made now.
    """

    bundle: str = ""
    mark: str = ""
    ends: float | None = None
    made: str = ""


class Login(NamedTuple):
    """The operator's credentials, by path below their folder. *server* has the state of the
    managed server's Secrets, and *tls* its TLS, empty if it speaks none. *put_right* names what
    other managers had changed in the Secrets.
    """

    files: dict[str, bytes]
    server: ManagedServer = ManagedServer()
    tls: ServerTls = ServerTls()
    put_right: tuple[str, ...] = ()


@dataclass(slots=True)
class Access:
    """Credentials and connections of all pipelines."""

    cluster: Cluster
    links: Links
    _installation: str | None = None

    async def login(
        self, pipeline: LogPipeline, *, may_write: bool, has_callout: bool = False
    ) -> Login:
        """Return the operator's credentials for the pipeline's NATS; *has_callout*: a managed
        server may have a callout.

        Raises:
            SecretProblem: a Secret is missing, or lacks a key.
            ClusterError, ClusterAway: it could not be read.
        """
        wanted = credential_files(pipeline, credentials.OPERATOR)
        if pipeline.spec.nats.servers:
            found = {
                name: await self.cluster.get(kind("Secret"), pipeline.namespace, name)
                for name in sorted({file.owner for file in wanted})
            }
            return Login(secret_files.contents(wanted, found))
        roles = await server_users.of_roles(self.cluster, pipeline, may_write=may_write)
        table = callout = server_users.Kept(None)
        if has_callout:
            callout = await server_users.of_callout(self.cluster, pipeline, may_write=may_write)
        if pipeline.spec.table.enabled:
            table = await server_users.of_table(self.cluster, pipeline, may_write=may_write)
        held = {names.nats_auth(pipeline): roles.secret}
        tls = ServerTls()
        if nats_tls.is_on(pipeline):
            tls = await self._server_tls(pipeline, may_write=may_write)
            bundle = {nats_tls.CA_FILE: secret_files.encoded(tls.bundle.encode())}
            held[names.nats_ca(pipeline)] = {"data": bundle}
        files = secret_files.contents(wanted, held, is_ours=True)
        put_right = tuple(each.put_right for each in (roles, table, callout) if each.put_right)
        server = ManagedServer(
            users=roles.hash,
            table_user=table.hash,
            callout_user=callout.hash,
            ca=tls.bundle,
            certificate=tls.mark,
        )
        return Login(files, server, tls, put_right)

    async def decided(self, pipeline: LogPipeline) -> LogPipeline:
        """Return *pipeline* with TLS of the managed server decided: if the resource leaves it open,
        it stays as it was when the server was made.

        Raises:
            ClusterError, ClusterAway: it could not be read.
        """
        nats = pipeline.spec.nats
        if nats.servers or nats.managed.tls is not None:
            return pipeline
        name = names.nats(pipeline)
        server = await self.cluster.get(kind("StatefulSet"), pipeline.namespace, name)
        made = await child_objects.claims(self.cluster, Key(pipeline.namespace, pipeline.name))
        return nats_tls.decided(pipeline, began_with_tls=volume_claims.began_with_tls(server, made))

    async def connect(self, key: Key, pipeline: LogPipeline, files: dict[str, bytes]) -> JetStream:
        """Return the pipeline's JetStream.

        Raises:
            ConnectFailed: the server does not answer, or refuses; the message has the cause.
        """

        def options(folder: Path) -> NatsOptions:
            return config.nats_options(pipeline, folder)

        return await self.links.get(key, files, config.servers(pipeline), options)

    def open(self, key: Key) -> JetStream | None:
        """Return the pipeline's JetStream over the connection that it has, if it is open."""
        return self.links.open(key)

    async def installation(self) -> str:
        """Return the id of this cluster among those that use the same NATS; empty if the operator
        may not read it.
        """
        if self._installation is None:
            try:
                there = await self.cluster.get(kind("Namespace"), None, CLUSTER_NAMESPACE)
            except ClusterError as error:
                if error.status != HTTPStatus.FORBIDDEN:
                    raise
                there = None
            self._installation = str(there["metadata"]["uid"]) if there else ""
        return self._installation

    async def drop(self, key: Key) -> None:
        """Forget a pipeline."""
        await self.links.drop(key)

    async def keep_only(self, keys: Sequence[Key]) -> list[Key]:
        """Forget all pipelines but *keys*, and return those that were forgotten."""
        gone = [key for key in self.links.known() if key not in set(keys)]
        for key in gone:
            await self.links.drop(key)
        return gone

    async def close(self) -> None:
        """End all connections."""
        await self.links.close()

    async def _server_tls(self, pipeline: LogPipeline, *, may_write: bool) -> ServerTls:
        """Return the managed server's TLS, after its due certificates were renewed."""
        name, now = names.nats_tls(pipeline), datetime.now(UTC)
        there = await self.cluster.get(kind("Secret"), pipeline.namespace, name)
        if there is None and not may_write:
            raise SecretProblem(f"the Secret {name} does not exist; {secret_files.MADE_BY_US}")
        if there is not None and not server_users.is_ours(there):
            raise SecretProblem(
                f"the Secret {name} is not the operator's; delete or rename it: the operator makes "
                "the certificate of the managed server itself"
            )
        found = server_users.decoded(there)
        kept = certificates.upkeep(found, nats_tls.server_names(pipeline), now)
        if not kept.why or not may_write:
            return _tls_of(found, made="")
        data = {file: secret_files.encoded(content) for file, content in kept.files.items()}
        if there is None:
            await self.cluster.create(nats_tls.secret(pipeline, data))
        else:
            # Refused if it has changed since it was read: the next reconciliation decides again.
            await server_users.change(self.cluster, there, {"data": data})
        log.info(
            "certificates of a server were made",
            extra={"pipeline": f"{pipeline.namespace}/{pipeline.name}", "why": kept.why},
        )
        return _tls_of(kept.files, made=kept.why)


def _tls_of(files: dict[str, bytes], *, made: str) -> ServerTls:
    ends = certificates.ends(files)
    return ServerTls(
        bundle=files.get(nats_tls.CA_FILE, b"").decode("ascii", "replace"),
        mark=certificates.mark_of(files),
        ends=ends.timestamp() if ends else None,
        made=made,
    )


# A server that does not answer makes one reconciliation slow, and there are only so many workers.
CONNECT_WAIT_S = 5.0


class FencedJetStream(JetStream):
    """Checks the *fence* before each request of the API and each message."""

    def __init__(self, connection: Connection, fence: Fence) -> None:
        super().__init__(connection)
        self._fence = fence

    async def call(
        self, request: str, body: dict[str, Any] | None = None, *, timeout_s: float = API_TIMEOUT_S
    ) -> Any:
        """Return the answer, as `JetStream.call` does.

        Raises:
            ClusterAway: this operator may not lead any more.
        """
        self._fence.check()
        return await super().call(request, body, timeout_s=timeout_s)

    async def publish(
        self,
        subject: str,
        payload: bytes,
        headers: dict[str, str] | None = None,
        *,
        timeout_s: float = API_TIMEOUT_S,
    ) -> PubAck:
        """Store a message, as `JetStream.publish` does.

        Raises:
            ClusterAway: this operator may not lead any more.
        """
        self._fence.check()
        return await super().publish(subject, payload, headers, timeout_s=timeout_s)


@dataclass(slots=True)
class _Link:
    fingerprint: str
    connection: Connection


@dataclass(slots=True)
class Links:
    """The connections; requests pass the *fence*. Credentials lie below *folder* only while one
    connects: it is in memory, and small, and all pipelines share it.
    """

    folder: Path
    fence: Fence
    _links: dict[Key, _Link] = field(default_factory=dict)

    async def get(
        self,
        key: Key,
        files: Mapping[str, bytes],
        servers: tuple[str, ...],
        options: Callable[[Path], NatsOptions],
    ) -> JetStream:
        """Return the pipeline's JetStream over an open connection.

        *options* returns how to connect, given the folder of the credentials.

        Raises:
            ConnectFailed: the server does not answer, or refuses; the message has the cause.
        """
        fingerprint = secret_files.fingerprint(files, *servers)
        link = self._links.get(key)
        if link is not None and link.fingerprint != fingerprint:
            await self.drop(key)
            link = None
        js = self.open(key)
        if js is not None:
            return js
        if link is not None:
            # The connection retries by itself. A new attempt finds the cause for this one.
            await self.drop(key)
        folder = self.folder / f"{key.namespace}_{key.name}"
        connection = Connection(
            options(folder).named("logpipeline operator"),
            lambda: secret_files.written(files, folder),
        )
        await connection.start(patience_s=CONNECT_WAIT_S)
        self._links[key] = _Link(fingerprint, connection)
        return FencedJetStream(connection, self.fence)

    def open(self, key: Key) -> JetStream | None:
        """Return the pipeline's JetStream over the connection that it has, if it is open."""
        link = self._links.get(key)
        if link is None or not link.connection.is_connected:
            return None
        return FencedJetStream(link.connection, self.fence)

    def known(self) -> list[Key]:
        """Return the pipelines that have a connection."""
        return list(self._links)

    async def drop(self, key: Key) -> None:
        """End the pipeline's connection, and forget its credentials."""
        link = self._links.pop(key, None)
        if link is not None:
            await link.connection.close()

    async def close(self) -> None:
        """End all connections."""
        for key in list(self._links):
            await self.drop(key)
