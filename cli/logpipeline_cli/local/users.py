"""The users of a pipeline's nats-server: one for each part, with the permissions that it needs."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logpipeline.authority import (
    COLLECTOR,
    NODES_ACCOUNT,
    OPERATOR,
    SHIPPER,
    STREAMS_ACCOUNT,
    TABLE,
    crossings,
    inbox_prefix,
    permissions,
    shipper_user,
)
from logpipeline.credentials import PASSWORD_FILE, USER_FILE
from logpipeline.layout import Layout
from logpipeline.spec import LogPipeline
from logpipeline.spec.components import LocalShipper
from logpipeline_shipper.config import host_of

PASSWORD_BYTES = 24

User = dict[str, Any]
# The hosts that a shipper may publish for; None means any.
Hosts = tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Logins:
    """The users of *pipeline*'s server, each with its files in a folder of *root*, and the names of
    its two accounts. Missing passwords are created.
    """

    pipeline: LogPipeline
    root: Path
    streams: str = STREAMS_ACCOUNT
    nodes: str = NODES_ACCOUNT

    @property
    def others(self) -> tuple[str, ...]:
        """The users that are not shippers."""
        return (OPERATOR, COLLECTOR, TABLE)

    def folder(self, user: str) -> Path:
        """Return the folder of the files of *user*."""
        return self.root / user

    def inbox(self, user: str) -> str:
        """Return the prefix of the inboxes of *user*."""
        return inbox_prefix(user)

    def accounts(self, shippers: Mapping[str, Hosts]) -> dict[str, dict[str, Any]]:
        """Return the accounts as the server's configuration has them, with a user for each
        shipper.
        """
        crossing = crossings(self.pipeline, streams=self.streams, nodes=self.nodes)
        # The operator may do everything in the account of the streams: it creates them.
        others = [self._login(OPERATOR), *(self._user(r, r) for r in (COLLECTOR, TABLE))]
        nodes = [self._user(SHIPPER, user, hosts) for user, hosts in shippers.items()]
        return {
            self.streams: {"jetstream": "enabled", "users": others, **crossing[self.streams]},
            self.nodes: {"users": nodes, **crossing[self.nodes]},
        }

    def _user(self, role: str, user: str, hosts: Hosts = None) -> User:
        allowed = permissions(self.pipeline, role, user=user, hosts=hosts, may_look=True)
        return {**self._login(user), "permissions": allowed}

    def _login(self, user: str) -> User:
        folder = self.folder(user)
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        if not (folder / USER_FILE).exists():
            private(folder / USER_FILE, user)
        if not (folder / PASSWORD_FILE).exists():
            private(folder / PASSWORD_FILE, secrets.token_urlsafe(PASSWORD_BYTES))
        return {"user": user, "password": (folder / PASSWORD_FILE).read_text().strip()}


def accounts(pipeline: LogPipeline, layout: Layout) -> dict[str, dict[str, Any]]:
    """Return the accounts of the server that runs in *layout*."""
    shippers = {
        shipper_user(shipper.name): _hosts(shipper) for shipper in pipeline.spec.local.shippers
    }
    return Logins(pipeline, layout.logins).accounts(shippers)


def put_back(accounts: Mapping[str, Any] | None, layout: Layout) -> bool:
    """Restore files of the users of *accounts* that are missing or were changed; return whether
    there were any.
    """
    was_changed = False
    for account in (accounts or {}).values():
        for user in account["users"]:
            folder = layout.login(user["user"])
            for name, text in ((USER_FILE, user["user"]), (PASSWORD_FILE, user["password"])):
                path = folder / name
                if not path.is_file() or path.read_bytes() != text.encode():
                    layout.logins.mkdir(mode=0o700, exist_ok=True)
                    folder.mkdir(mode=0o700, exist_ok=True)
                    private(path, text)
                    was_changed = True
    return was_changed


def private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, atomically: a crash must not leave half a
    password.
    """
    temporary = path.with_suffix(".tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _hosts(shipper: LocalShipper) -> Hosts:
    """Return the hosts that *shipper* may publish for: any if each folder is a host."""
    return None if shipper.hosts_below else (host_of(shipper),)
