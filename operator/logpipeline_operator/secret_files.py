"""Credentials in Secrets as files, which the NATS client reads at each connect, as in pods."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from logpipeline_operator.children.credentials import CredentialFile

Manifest = Mapping[str, Any]


# Advice for a Secret of the managed server's users.
MADE_BY_US = "the operator makes it, unless it is away or the pipeline is paused"
TO_DELETE = "delete it: the operator makes a new one, and restarts the server"


# A Secret may have 1 MiB, and the folder for the files of all pipelines has 16 MiB. A server takes
# logins of 4 KiB (`max_control_line`), a chain of certificates has some tens of KiB.
FILE_BYTES_MAX = 64 * 1024
# The authorities that a system trusts are some 250 KiB.
CA_BYTES_MAX = 512 * 1024


class SecretProblem(Exception):
    """A Secret does not exist, lacks a key, or has a value that is too large."""


def contents(
    files: Iterable[CredentialFile],
    secrets: Mapping[str, Manifest | None],
    *,
    is_ours: bool = False,
) -> dict[str, bytes]:
    """Return the content of each of *files* by its path below the folder of credentials. With
    *is_ours* the operator makes the *secrets*, else the user does.

    Raises:
        SecretProblem: a Secret or a key is missing, or a value is too large; the message names it.
    """
    found: dict[str, bytes] = {}
    for file in files:
        secret = secrets.get(file.owner)
        if secret is None:
            raise SecretProblem(
                f"the {_title(file)} does not exist; "
                + (MADE_BY_US if is_ours else "create it, or correct spec.nats")
            )
        data = secret.get("data") or {}
        if file.key not in data:
            there = ", ".join(sorted(data)) or "no keys"
            raise SecretProblem(
                f"the {_title(file)} has no key {file.key} (it has: {there}); "
                + (TO_DELETE if is_ours else "add it, or correct spec.nats")
            )
        try:
            found[file.path] = base64.b64decode(data[file.key], validate=True)
        except (binascii.Error, ValueError) as error:
            raise SecretProblem(f"{file.key} of the {_title(file)}: {error}") from error
        limit = CA_BYTES_MAX if file.field == "ca_file" else FILE_BYTES_MAX
        if (size := len(found[file.path])) > limit:
            raise SecretProblem(
                f"{file.key} of the {_title(file)} has {size} bytes; at most {limit} are read: "
                "leave only what the login needs"
            )
    return found


def encoded(content: bytes) -> str:
    """Return *content* in base64, as a Secret has it."""
    return base64.b64encode(content).decode()


def _title(file: CredentialFile) -> str:
    return f"{'Secret' if file.kind == 'secret' else 'ConfigMap'} {file.owner}"


def fingerprint(contents: Mapping[str, bytes], *more: str) -> str:
    """Return a hash that changes when a file or one of *more* does."""
    digest = hashlib.sha256()
    for part in (*more, *(text for path in sorted(contents) for text in (path, contents[path]))):
        data = part if isinstance(part, bytes) else part.encode()
        digest.update(len(data).to_bytes(8) + data)
    return digest.hexdigest()


@contextmanager
def written(contents: Mapping[str, bytes], folder: Path) -> Iterator[None]:
    """Have exactly these files in *folder* for as long as it is entered.

    Raises:
        OSError: they cannot be written, as where the disk is full.
    """
    try:
        try:
            write(contents, folder)
        except OSError as error:
            why = f"the operator cannot write the files of its login: {error.strerror}"
            raise OSError(error.errno, why) from error
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write(contents: Mapping[str, bytes], folder: Path) -> None:
    """Make *folder* contain exactly these files, readable for this user only."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    for path, content in contents.items():
        target = folder / path
        target.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
