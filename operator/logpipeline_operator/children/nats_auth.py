"""The users of the managed server. Their passwords are made once, by who applies this Secret; the
server reads them from files, and never from its command line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from logpipeline.spec import LogPipeline
from logpipeline_operator.children import labels, names
from logpipeline_operator.children.model import NATS_CLUSTER_PORT, Component, Manifest

OPERATOR = "operator"
COLLECTOR = "collector"
SHIPPER = "shipper"
# Servers of a cluster show it to each other.
ROUTE = "route"
USERS = (OPERATOR, COLLECTOR, SHIPPER)
ROLES = (*USERS, ROUTE)

USERS_FILE = "users.conf"
ROUTES_FILE = "routes.conf"
CLUSTER_SERVERS = 3
# They stand in the server's own format and in URLs, where other characters mean something.
_PASSWORD = re.compile(r"[A-Za-z0-9_-]{16,128}")


def keys(role: str) -> tuple[str, str]:
    """Return the keys of the Secret that hold *role*'s user and password."""
    return f"{role}-user", f"{role}-password"


OPERATOR_KEYS = keys(OPERATOR)


def name(pipeline: LogPipeline) -> str:
    """Return the Secret's name."""
    return names.nats_auth(pipeline)


def secret(pipeline: LogPipeline, passwords: Mapping[str, str]) -> Manifest:
    """Return the Secret with a password for each of ROLES.

    Raises:
        ValueError: a password is missing, or could mean something else where it is written.
    """
    for role in ROLES:
        if not _PASSWORD.fullmatch(passwords.get(role, "")):
            raise ValueError(f"the password of {role} needs 16 to 128 of A-Z a-z 0-9 _ -")
    data: dict[str, str] = {}
    for role in USERS:
        user_key, password_key = keys(role)
        data |= {user_key: role, password_key: passwords[role]}
    data[USERS_FILE] = "".join(f'{variable(role)}: "{passwords[role]}"\n' for role in USERS)
    data[ROUTES_FILE] = _routes(pipeline, passwords[ROUTE])
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": labels.metadata(pipeline, name(pipeline), Component.NATS),
        "type": "Opaque",
        "stringData": data,
    }


def variable(role: str) -> str:
    """Return the variable of the server's configuration that holds *role*'s password."""
    return f"{role}_password"


def _routes(pipeline: LogPipeline, password: str) -> str:
    """Return how servers of a cluster find each other, and what they show."""
    headless = names.nats_headless(pipeline)
    urls = "".join(
        f'  "nats://{ROUTE}:{password}@{names.nats(pipeline)}-{ordinal}.{headless}.'
        f'{pipeline.namespace}.svc:{NATS_CLUSTER_PORT}"\n'
        for ordinal in range(CLUSTER_SERVERS)
    )
    return (
        f'authorization: {{user: "{ROUTE}", password: "{password}", timeout: 5}}\n'
        f"routes: [\n{urls}]\n"
    )
