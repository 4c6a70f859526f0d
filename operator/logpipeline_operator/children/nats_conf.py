"""The managed server's configuration, in its own format: JSON values, variables, included files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from logpipeline.authority import (
    NODES_ACCOUNT,
    READERS_ACCOUNT,
    STREAMS_ACCOUNT,
    crossings,
    permissions,
)
from logpipeline.spec import LogPipeline
from logpipeline_operator.children import credentials, names, nats_tls
from logpipeline_operator.children.model import (
    NATS_CLUSTER_PORT,
    NATS_MONITOR_PORT,
    NATS_PORT,
)

MIB = 2**20
# The server's own default.
PAYLOAD_BYTES_MIN = MIB
# Headers and subject travel beside a batch, and count.
MESSAGE_OVERHEAD_BYTES = 8 * 1024
# The file system needs a part itself, and a full disk stops the server: it must refuse messages
# earlier.
STORE_PERCENT = 95
MEMORY_STORE_BYTES = 64 * MIB
# If the resource keeps its streams in memory.
MEMORY_STREAMS_BYTES = 1024 * MIB
# The volume of the streams, and its folder.
CLAIM = "data"
STORE = "/data"
FOLDER = "/etc/nats"
TLS_FOLDER = f"{FOLDER}/tls"
# The server's default of two seconds is too short when all shippers connect at once.
TLS_TIMEOUT_S = 10
# The limit for the callout's answer; all shippers of a large cluster may connect at once.
CALLOUT_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class Variable:
    """A value that the server finds in its environment, or in a file that was included before."""

    name: str


def pages(users: str) -> str:
    """Return the path below which the server's pages are, such as ``/healthz``. They show streams
    and clients, and need no login. So their path has the hash of the Secret of its *users*, which
    is known only to those who may read that Secret or the server's pods.
    """
    return f"/{users}" if users else ""


def render(
    pipeline: LogPipeline,
    *,
    has_accounts: bool = False,
    has_callout: bool = False,
    users: str = "",
    claimed_bytes: int = 0,
) -> str:
    """Return the configuration; it contains no password. With *has_accounts* nodes have an account
    of their own; with *has_callout* the callout decides on clients that are not users; for *users*
    see `pages`. *claimed_bytes*: the size of the volumes that are there.
    """
    managed = pipeline.spec.nats.managed
    files = user_files(pipeline, has_callout=has_callout)
    lines = [f'include "{file}"' for file in files]
    server = _server(pipeline, claimed_bytes) | ({"http_base_path": pages(users)} if users else {})
    lines += [f"{name}: {_value(value)}" for name, value in server.items()]
    known = _users(pipeline, has_accounts=has_accounts, has_callout=has_callout)
    lines += [f"{name}: {_value(value)}" for name, value in known.items()]
    lines += _clients_tls(pipeline)
    if managed.replicas > 1:
        lines += [
            "cluster: {",
            f"  name: {_value(names.nats(pipeline))}",
            f'  listen: "0.0.0.0:{NATS_CLUSTER_PORT}"',
            # Clients need only the Service, and others should not learn the servers' addresses.
            "  no_advertise: true",
            f'  include "{credentials.ROUTES_FILE}"',
            *_routes_tls(pipeline),
            "}",
        ]
    return "\n".join(lines) + "\n"


def user_files(pipeline: LogPipeline, *, has_callout: bool = False) -> list[str]:
    """Return the files with passwords that stand beside the configuration."""
    table = [credentials.TABLE_FILE] if pipeline.spec.table.enabled else []
    callout = [credentials.CALLOUT_FILE] if has_callout else []
    return [credentials.USERS_FILE, *table, *callout]


def payload_bytes(pipeline: LogPipeline) -> int:
    """Return the size of the largest message that the server must accept, in whole MiB."""
    batch = pipeline.spec.batch
    needed = max(batch.max_bytes, batch.max_line_bytes or 0) + MESSAGE_OVERHEAD_BYTES
    return max(PAYLOAD_BYTES_MIN, -(-needed // MIB) * MIB)


def managed_storage_bytes(pipeline: LogPipeline) -> int | None:
    """Return the limit of a managed server's streams together; None for the user's own server."""
    managed = pipeline.spec.nats.managed
    return None if pipeline.spec.nats.servers else _file_store_bytes(managed.storage)


def _clients_tls(pipeline: LogPipeline) -> list[str]:
    if not nats_tls.is_on(pipeline):
        return []
    lines = [f"tls: {_value(_certificate())}"]
    return [*lines, "allow_non_tls: true"] if nats_tls.takes_plain(pipeline) else lines


def _routes_tls(pipeline: LogPipeline) -> list[str]:
    """Return the TLS of routes: servers must show each other their certificates."""
    if not nats_tls.is_on(pipeline):
        return []
    both = {**_certificate(), "ca_file": f"{TLS_FOLDER}/{nats_tls.CA_FILE}", "verify": True}
    return [f"  tls: {_value(both, '  ')}"]


def _certificate() -> dict[str, Any]:
    return {
        "cert_file": f"{TLS_FOLDER}/{nats_tls.CERTIFICATE_FILE}",
        "key_file": f"{TLS_FOLDER}/{nats_tls.KEY_FILE}",
        "timeout": TLS_TIMEOUT_S,
    }


def _file_store_bytes(storage_bytes: int) -> int:
    return storage_bytes * STORE_PERCENT // 100


def _server(pipeline: LogPipeline, claimed_bytes: int) -> dict[str, Any]:
    managed, nats = pipeline.spec.nats.managed, pipeline.spec.nats
    is_in_memory = pipeline.spec.stream.storage == "memory"
    jetstream: dict[str, Any] = {
        "store_dir": STORE,
        "sync_interval": managed.sync_interval,
        # Volumes never shrink. With a limit below what its streams reserve the server refuses every
        # change of them, also the one that would make them smaller.
        "max_file_store": _file_store_bytes(max(managed.storage, claimed_bytes)),
        "max_memory_store": MEMORY_STREAMS_BYTES if is_in_memory else MEMORY_STORE_BYTES,
    }
    if nats.js_domain:
        jetstream["domain"] = nats.js_domain
    return {
        "server_name": Variable("POD_NAME"),
        "listen": f"0.0.0.0:{NATS_PORT}",
        "http": f"0.0.0.0:{NATS_MONITOR_PORT}",
        "max_payload": payload_bytes(pipeline),
        "jetstream": jetstream,
    }


def _users(pipeline: LogPipeline, *, has_accounts: bool, has_callout: bool) -> dict[str, Any]:
    callout = (credentials.CALLOUT,) if has_callout else ()
    users = {
        role: {
            "user": role,
            "password": Variable(credentials.variable(role)),
            "permissions": permissions(pipeline, role),
        }
        for role in (*credentials.users(pipeline), *callout)
    }
    names = list(users)
    if not has_accounts:
        return {"authorization": {"users": list(users.values())}}
    nodes = [users.pop(credentials.SHIPPER)]
    readers = READERS_ACCOUNT if has_callout else ""
    crossing = crossings(pipeline, readers=readers)
    return {
        "accounts": {
            STREAMS_ACCOUNT: {
                "jetstream": "enabled",
                "users": list(users.values()),
                **crossing[STREAMS_ACCOUNT],
            },
            NODES_ACCOUNT: {"users": nodes, **crossing[NODES_ACCOUNT]},
            **({readers: crossing[readers]} if readers else {}),
        },
        **({"authorization": _asks_callout(names)} if has_callout else {}),
    }


def _asks_callout(users: list[str]) -> dict[str, Any]:
    """Return the settings by which the callout decides on clients that are not *users*."""
    return {
        "timeout": CALLOUT_TIMEOUT_S,
        "auth_callout": {
            "issuer": Variable(credentials.ISSUER),
            "auth_users": users,
            "account": STREAMS_ACCOUNT,
        },
    }


def _value(value: Any, indent: str = "") -> str:
    """Return *value* as the server reads it: JSON, but for variables."""
    inner = f"{indent}  "
    if isinstance(value, Variable):
        return f"${value.name}"
    if isinstance(value, Mapping):
        fields = (f"{inner}{name}: {_value(item, inner)}\n" for name, item in value.items())
        return f"{{\n{''.join(fields)}{indent}}}"
    if isinstance(value, list):
        items = (f"{inner}{_value(item, inner)}\n" for item in value)
        return f"[\n{''.join(items)}{indent}]"
    return json.dumps(value, ensure_ascii=False)
