"""Which keys of which objects a component needs to log in to NATS, and the files that they become:
Secrets, and what it trusts a managed server by.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from logpipeline.authority import inbox_prefix
from logpipeline.spec import LogPipeline
from logpipeline.spec.components import LocalNats
from logpipeline.spec.streams import Nats
from logpipeline_operator.children import names, nats_auth, nats_tls
from logpipeline_operator.children.model import Manifest


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
    """Return the file by which everybody trusts a managed server that speaks TLS."""
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
    """Return the files that *role* needs: its own two of the managed server and what it trusts that
    by, or what the resource says about the user's servers.
    """
    if not pipeline.spec.nats.servers:
        user, password = nats_auth.keys(role)
        secret = nats_auth.secret_of(pipeline, role)
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
    files = {file.field: str(folder / file.path) for file in credential_files(pipeline, role)}
    if pipeline.spec.nats.servers:
        return LocalNats(**files)
    return LocalNats(**files, inbox_prefix=inbox_prefix(role))


def projections(pipeline: LogPipeline, role: str | None, below: str) -> list[Manifest]:
    """Return the sources of a projected volume that make the files of *role* *below* its folder;
    without a role, what it trusts the server by.
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
    """Return field, folder, Secret and key of all that a resource may give."""
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
