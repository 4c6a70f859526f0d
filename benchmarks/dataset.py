"""The file that is moved: lines like a web server's, generated from a seed."""

from __future__ import annotations

import random
from pathlib import Path

BLOCK_LINES = 20_000
PATHS = (
    "/",
    "/login",
    "/cart",
    "/api/v1/items",
    "/api/v1/items/{}",
    "/static/app.{}.js",
    "/healthz",
)
AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64)",
    "curl/8.5.0",
    "kube-probe/1.34",
    "python-requests/2.32",
)


def make_log(path: Path, *, size: int, seed: int = 1) -> int:
    """Write at least *size* bytes of different lines to *path*, and return the number of lines."""
    pick = random.Random(seed)
    lines = written = 0
    with path.open("wb") as file:
        while written < size:
            block = "".join(_line(pick, lines + number) for number in range(BLOCK_LINES)).encode()
            file.write(block)
            lines += BLOCK_LINES
            written += len(block)
    return lines


def _line(pick: random.Random, number: int) -> str:
    address = f"10.{pick.randrange(256)}.{pick.randrange(256)}.{pick.randrange(256)}"
    path = pick.choice(PATHS).format(pick.randrange(100_000))
    moment = (
        f"21/Nov/2026:{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d} +0000"
    )
    status = pick.choices((200, 304, 404, 500), (90, 6, 3, 1))[0]
    return (
        f'{address} - - [{moment}] "GET {path} HTTP/1.1" {status} {pick.randrange(50_000)} '
        f'"-" "{pick.choice(AGENTS)}" rt={pick.random():.4f} id={number:010d}\n'
    )
