"""Credentials as files: small, and there only while the operator connects, so that those of one
pipeline leave room for all others.
"""

from __future__ import annotations

import base64
import math
import time
from pathlib import Path

import pytest

from logpipeline.nats.connection import ConnectFailed, NatsOptions
from logpipeline_operator import access
from logpipeline_operator.access import Links
from logpipeline_operator.children.credentials import CredentialFile
from logpipeline_operator.cluster.client import Fence
from logpipeline_operator.queue import Key
from logpipeline_operator.secret_files import (
    CA_BYTES_MAX,
    FILE_BYTES_MAX,
    SecretProblem,
    contents,
    written,
)

KEY = Key("shop", "web")
NOWHERE = ("nats://127.0.0.1:1",)
FILES = {"user/password": b"secret"}


@pytest.fixture(autouse=True)
def _is_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing answers there, however long one waits."""
    monkeypatch.setattr(access, "CONNECT_WAIT_S", 0.1)


def links(folder: Path) -> Links:
    """Connections of an operator that leads."""
    return Links(folder, Fence(time.monotonic, math.inf))


def login(folder: Path) -> NatsOptions:
    """How to connect with the files in *folder*."""
    return NatsOptions(servers=NOWHERE, password_file=folder / "user" / "password")


@pytest.mark.parametrize(
    ("field", "size_max"), [("password_file", FILE_BYTES_MAX), ("ca_file", CA_BYTES_MAX)]
)
def test_a_credential_that_is_too_large_is_named(field: str, size_max: int) -> None:
    """It would take the room of others; one that just fits is taken."""
    file = CredentialFile(field=field, owner="s", key="k", path="a/k")
    fits, large = (
        {"s": {"data": {"k": base64.b64encode(bytes(size)).decode()}}}
        for size in (size_max, size_max + 1)
    )

    assert len(contents([file], fits)["a/k"]) == size_max
    with pytest.raises(SecretProblem, match=f"k of the Secret s has {size_max + 1} bytes; at most"):
        contents([file], large)


async def test_credentials_for_a_server_that_does_not_answer_are_not_kept(tmp_path: Path) -> None:
    """Not even their folder; while it connects, they are there."""
    seen: list[bytes] = []

    with written(FILES, tmp_path / "shop_web"):
        seen.append((tmp_path / "shop_web" / "user" / "password").read_bytes())
    with pytest.raises(ConnectFailed, match="no server answers there"):
        await links(tmp_path).get(KEY, FILES, NOWHERE, login)

    assert seen == [b"secret"]
    assert list(tmp_path.iterdir()) == []


async def test_a_full_disk_is_a_reason_why_one_pipeline_is_not_connected(tmp_path: Path) -> None:
    """It is reported like any other, and the reconciliation goes on."""
    no_folder = tmp_path / "file"
    no_folder.write_bytes(b"")

    with pytest.raises(ConnectFailed, match="cannot write the files of its login: Not a directory"):
        await links(no_folder).get(KEY, FILES, NOWHERE, login)


def test_files_that_could_not_be_written_leave_nothing_behind(tmp_path: Path) -> None:
    """What of them was written is removed."""
    files = {"a/x": b"1", "a/x/y": b"2"}

    with pytest.raises(OSError, match="cannot write"), written(files, tmp_path / "f"):
        pytest.fail("entered")
    assert list(tmp_path.iterdir()) == []
