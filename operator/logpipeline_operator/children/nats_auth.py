"""The users of the managed server: the Secrets with their passwords. The server reads these from
files, and never from its command line.

The table's user has a Secret of its own: it is there only where there is a table, and comes
to a pipeline that runs already without a change of what the others log in with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from logpipeline.authority import CALLOUT, COLLECTOR, OPERATOR, SHIPPER, TABLE
from logpipeline.spec import LogPipeline
from logpipeline_operator.children import model, names
from logpipeline_operator.children.model import NATS_CLUSTER_PORT, Component, Manifest

__all__ = ["CALLOUT", "COLLECTOR", "OPERATOR", "ROLES", "SHIPPER", "TABLE", "USERS"]

# Servers of a cluster show it to each other.
ROUTE = "route"
USERS = (OPERATOR, COLLECTOR, SHIPPER)
ROLES = (*USERS, ROUTE)

USERS_FILE = "users.conf"
TABLE_FILE = "table.conf"
CALLOUT_FILE = "callout.conf"
# The callout's public key, a variable of the server's configuration; and the key of its seed.
ISSUER = "callout_issuer"
ISSUER_SEED = "callout-issuer.nk"
ROUTES_FILE = "routes.conf"
CLUSTER_SERVERS = 3
# They stand in the server's own format and in URLs, where other characters mean something.
_PASSWORD = re.compile(r"[A-Za-z0-9_-]{16,128}")
_ROUTE_PASSWORD = re.compile(r'password: "([^"]*)"')


def keys(role: str) -> tuple[str, str]:
    """Return the keys of the Secret that hold *role*'s user and password."""
    return f"{role}-user", f"{role}-password"


OPERATOR_KEYS = keys(OPERATOR)


def name(pipeline: LogPipeline) -> str:
    """Return the Secret's name."""
    return names.nats_auth(pipeline)


def secret_of(pipeline: LogPipeline, role: str) -> str:
    """Return the name of the Secret that holds *role*'s user and password."""
    own = {TABLE: names.table_auth, CALLOUT: names.callout_auth}
    return own.get(role, name)(pipeline)


def users(pipeline: LogPipeline) -> tuple[str, ...]:
    """Return the roles that log in to the managed server."""
    return (*USERS, TABLE) if pipeline.spec.table.enabled else USERS


def password_in(held: Mapping[str, str], role: str) -> str:
    """Return *role*'s password in the texts of its Secret, empty where there is none that could be
    written where it is needed.
    """
    password = held.get(keys(role)[1], "")
    if role == ROUTE:
        # It stands nowhere else.
        found = _ROUTE_PASSWORD.search(held.get(ROUTES_FILE, ""))
        password = found[1] if found else ""
    return password if _PASSWORD.fullmatch(password) else ""


def secret(pipeline: LogPipeline, passwords: Mapping[str, str]) -> Manifest:
    """Return the Secret with a password for each of ROLES.

    Raises:
        ValueError: a password is missing, or could mean something else where it is written.
    """
    for role in ROLES:
        _check(role, passwords.get(role, ""))
    data = _data({role: passwords[role] for role in USERS}, USERS_FILE)
    data[ROUTES_FILE] = _routes(pipeline, passwords[ROUTE])
    return _manifest(pipeline, name(pipeline), data)


def table_secret(pipeline: LogPipeline, password: str) -> Manifest:
    """Return the Secret with the table's *password*.

    Raises:
        ValueError: it could mean something else where it is written.
    """
    _check(TABLE, password)
    data = _data({TABLE: password}, TABLE_FILE)
    return _manifest(pipeline, secret_of(pipeline, TABLE), data)


def audience(pipeline: LogPipeline) -> str:
    """Return for whom tokens of *pipeline*'s shippers are made: a token that somebody else is
    given, such as the API server, opens nothing here.
    """
    return f"{names.nats(pipeline)}.{pipeline.namespace}.nats.logpipeline.dev"


def callout_secret(pipeline: LogPipeline, password: str, seed: str, issuer: str) -> Manifest:
    """Return the Secret with the callout's *password*, and the *seed* of what it signs with, whose
    public key is *issuer*.

    Raises:
        ValueError: one could mean something else where it is written.
    """
    _check(CALLOUT, password)
    data = _data({CALLOUT: password}, CALLOUT_FILE)
    data[CALLOUT_FILE] += f'{ISSUER}: "{issuer}"\n'
    return _manifest(pipeline, names.callout_auth(pipeline), {**data, ISSUER_SEED: seed})


def variable(role: str) -> str:
    """Return the variable of the server's configuration that holds *role*'s password."""
    return f"{role}_password"


def _check(role: str, password: str) -> None:
    if not _PASSWORD.fullmatch(password):
        raise ValueError(f"the password of {role} needs 16 to 128 of A-Z a-z 0-9 _ -")


def _data(passwords: Mapping[str, str], file: str) -> dict[str, str]:
    """Return users and passwords, each under a key, and all in the *file* for the server."""
    data: dict[str, str] = {}
    for role, password in passwords.items():
        user_key, password_key = keys(role)
        data |= {user_key: role, password_key: password}
    data[file] = "".join(f'{variable(role)}: "{word}"\n' for role, word in passwords.items())
    return data


def _manifest(pipeline: LogPipeline, name: str, data: dict[str, str]) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": model.metadata(pipeline, name, Component.NATS),
        "type": "Opaque",
        "stringData": data,
    }


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
