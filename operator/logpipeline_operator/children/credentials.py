"""The credentials for NATS: the Secrets of a managed server's users, and the files that a component
needs to log in to any server. Servers and clients read passwords from files only.

The table's user has a Secret of its own, so that a table can be added to a running pipeline without
a change of the other users' Secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

from logpipeline.authority import CALLOUT, COLLECTOR, OPERATOR, SHIPPER, TABLE, inbox_prefix
from logpipeline.spec import LogPipeline
from logpipeline.spec.components import LocalNats
from logpipeline.spec.streams import Nats
from logpipeline_operator.children import model, names, nats_tls
from logpipeline_operator.children.model import NATS_CLUSTER_PORT, Component, Manifest

__all__ = ["CALLOUT", "COLLECTOR", "OPERATOR", "ROLES", "SHIPPER", "TABLE", "USERS"]

# The user as which servers of a cluster log in to each other.
ROUTE = "route"
USERS = (OPERATOR, COLLECTOR, SHIPPER)
ROLES = (*USERS, ROUTE)

USERS_FILE = "users.conf"
TABLE_FILE = "table.conf"
CALLOUT_FILE = "callout.conf"
# The variable of the server's configuration with the callout's public key, and the key of the
# callout's seed in its Secret.
ISSUER = "callout_issuer"
ISSUER_SEED = "callout-issuer.nk"
ROUTES_FILE = "routes.conf"
CLUSTER_SERVERS = 3
# Passwords stand in the server's configuration format and in URLs, where other characters have a
# meaning.
_PASSWORD = re.compile(r"[A-Za-z0-9_-]{16,128}")
_ROUTE_PASSWORD = re.compile(r'password: "([^"]*)"')


def keys(role: str) -> tuple[str, str]:
    """Return the keys of the Secret that hold *role*'s user and password."""
    return f"{role}-user", f"{role}-password"


def secret_of(pipeline: LogPipeline, role: str) -> str:
    """Return the name of the Secret that holds *role*'s user and password."""
    own = {TABLE: names.table_auth, CALLOUT: names.callout_auth}
    return own.get(role, names.nats_auth)(pipeline)


def users(pipeline: LogPipeline) -> tuple[str, ...]:
    """Return the roles that log in to the managed server."""
    return (*USERS, TABLE) if pipeline.spec.table.enabled else USERS


def password_in(held: Mapping[str, str], role: str) -> str:
    """Return *role*'s password in the values of its Secret; empty if there is none, or if it has
    characters that are not allowed.
    """
    password = held.get(keys(role)[1], "")
    if role == ROUTE:
        # The Secret has it in this file only.
        found = _ROUTE_PASSWORD.search(held.get(ROUTES_FILE, ""))
        password = found[1] if found else ""
    return password if _PASSWORD.fullmatch(password) else ""


def users_secret(pipeline: LogPipeline, passwords: Mapping[str, str]) -> Manifest:
    """Return the Secret with a password for each of ROLES.

    Raises:
        ValueError: a password is missing, or has characters that are not allowed.
    """
    for role in ROLES:
        _check(role, passwords.get(role, ""))
    data = _data({role: passwords[role] for role in USERS}, USERS_FILE)
    data[ROUTES_FILE] = _routes(pipeline, passwords[ROUTE])
    return _manifest(pipeline, names.nats_auth(pipeline), data)


def table_secret(pipeline: LogPipeline, password: str) -> Manifest:
    """Return the Secret with the table's *password*.

    Raises:
        ValueError: it has characters that are not allowed.
    """
    _check(TABLE, password)
    data = _data({TABLE: password}, TABLE_FILE)
    return _manifest(pipeline, secret_of(pipeline, TABLE), data)


def audience(pipeline: LogPipeline) -> str:
    """Return the audience of the tokens of *pipeline*'s shippers. A token for another audience,
    such as the API server, is refused.
    """
    return f"{names.nats(pipeline)}.{pipeline.namespace}.nats.logpipeline.dev"


def callout_secret(pipeline: LogPipeline, password: str, seed: str, issuer: str) -> Manifest:
    """Return the Secret with the callout's *password*, and the *seed* of its signing key, whose
    public key is *issuer*.

    Raises:
        ValueError: one has characters that are not allowed.
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
    """Return users and passwords, each under a key, and all together in the server's *file*."""
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
    """Return how servers of a cluster find each other and log in to each other."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialFile:
    """The *key* of the object *owner*, as the file *path* below the folder of credentials; *field*
    of `LocalNats` names it.
    """

    field: str
    owner: str
    key: str
    path: str
    kind: Literal["secret", "configMap"] = "secret"


def trust_files(pipeline: LogPipeline) -> list[CredentialFile]:
    """Return the file with the certificates that clients of a managed server with TLS trust."""
    if not nats_tls.is_on(pipeline):
        return []
    key = nats_tls.CA_FILE
    return [
        CredentialFile(
            field="ca_file",
            owner=names.nats_ca(pipeline),
            key=key,
            path=f"tls/{key}",
            kind="configMap",
        )
    ]


def credential_files(pipeline: LogPipeline, role: str) -> list[CredentialFile]:
    """Return the files that *role* needs: user, password and trusted certificates of the managed
    server, or the credentials that the resource names for the user's servers.
    """
    if not pipeline.spec.nats.servers:
        user, password = keys(role)
        secret = secret_of(pipeline, role)
        return [
            CredentialFile(field="user_file", owner=secret, key=user, path="user/user"),
            CredentialFile(field="password_file", owner=secret, key=password, path="user/password"),
            *trust_files(pipeline),
        ]
    return [
        CredentialFile(field=field, owner=secret, key=key, path=f"{folder}/{key}")
        for field, folder, secret, key in _given(pipeline.spec.nats)
        if key is not None
    ]


def local_nats(pipeline: LogPipeline, role: str, folder: PurePath) -> LocalNats:
    """Return how *role* logs in, with its files below *folder*."""
    files: dict[str, Any] = {
        file.field: str(folder / file.path) for file in credential_files(pipeline, role)
    }
    if pipeline.spec.nats.servers:
        return LocalNats(**files)
    return LocalNats(**files, inbox_prefix=inbox_prefix(role))


def projections(pipeline: LogPipeline, role: str | None, below: str) -> list[Manifest]:
    """Return the sources of a projected volume with the files of *role*, *below* its folder;
    without a role only the trusted certificates.
    """
    wanted = trust_files(pipeline) if role is None else credential_files(pipeline, role)
    by_owner: dict[tuple[str, str], list[CredentialFile]] = {}
    for file in wanted:
        by_owner.setdefault((file.kind, file.owner), []).append(file)
    return [
        {
            kind: {
                "name": owner,
                "items": [{"key": file.key, "path": f"{below}/{file.path}"} for file in files],
            }
        }
        for (kind, owner), files in by_owner.items()
    ]


def _given(nats: Nats) -> list[tuple[str, str, str, str | None]]:
    """Return field, folder, Secret and key of all credentials that a resource names."""
    found: list[tuple[str, str, str, str | None]] = []
    if nats.tls is not None:
        name = nats.tls.secret.name
        found += [
            ("ca_file", "tls", name, nats.tls.ca),
            ("cert_file", "tls", name, nats.tls.cert),
            ("key_file", "tls", name, nats.tls.key),
        ]
    if nats.creds is not None:
        found.append(("creds_file", "creds", nats.creds.secret.name, nats.creds.file))
    if nats.nkey is not None:
        found.append(("nkey_file", "nkey", nats.nkey.secret.name, nats.nkey.seed))
    if nats.token is not None:
        found.append(("token_file", "token", nats.token.secret.name, nats.token.token))
    if nats.user is not None:
        name = nats.user.secret.name
        found += [
            ("user_file", "user", name, nats.user.user),
            ("password_file", "user", name, nats.user.password),
        ]
    return found
