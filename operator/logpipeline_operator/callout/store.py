"""Ends a server whose files were removed while it runs, so that its container starts it again.

A nats-server goes on with files that are gone, acknowledges what it writes into them, and its
health check says nothing of it. A new one begins with what is there, and shippers send again what
no collector has archived.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

log = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
ANSWER_DEADLINE_S = 5.0
# A page of a server with some thousand streams.
PAGE_BYTES_MAX = 64 * 1024 * 1024
SERVER = "nats-server"


class Stored(NamedTuple):
    """A stream with files, and the account that it belongs to."""

    account: str
    stream: str


class StoreWatch:
    """Looks at *store*, the folder that a server was told to keep its streams in; its *pages* say
    which it has. *end* ends the server, and returns how many processes it found.
    """

    def __init__(self, store: Path, pages: str, end: Callable[[], int]) -> None:
        self._store = store
        self._pages = pages
        self._end = end
        self._known: set[Stored] | None = None
        self._missing: set[Stored] = set()

    async def run(self) -> None:
        """Look, for ever."""
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(LOOK_EVERY_S)

    def look(self) -> None:
        """Look once. Two looks in a row have to show the same: a stream may just be deleted."""
        there = self._there()
        if self._known is not None and self._known <= there:
            self._known, self._missing = there, set()
            return
        # Only now the server is asked, for which it goes through all that it has.
        held = self._held()
        if held is None:
            return
        former, self._missing = self._missing, held - there
        self._known = there | self._missing
        if lost := sorted(former & self._missing):
            names = ", ".join(each.stream for each in lost)
            log.error("files were removed under the server: it is ended", extra={"streams": names})
            if not self._end():
                log.error("the server cannot be ended: no process of it is to be seen from here")
            self._known, self._missing = None, set()

    def _there(self) -> set[Stored]:
        found = self._store.glob("jetstream/*/streams/*/meta.inf")
        return {Stored(path.parts[-4], path.parts[-2]) for path in found}

    def _held(self) -> set[Stored] | None:
        """Return the streams that the server has in files, None where it does not say."""
        url = f"{self._pages}/jsz?accounts=true&streams=true&config=true"
        try:
            with urllib.request.urlopen(url, timeout=ANSWER_DEADLINE_S) as answer:
                return _stored(json.loads(answer.read(PAGE_BYTES_MAX)))
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.debug("the server does not say which streams it has", extra={"reason": str(error)})
            return None


def _stored(page: dict[str, Any]) -> set[Stored]:
    return {
        Stored(str(account["name"]), str(stream["name"]))
        for account in page.get("account_details") or ()
        for stream in account.get("stream_detail") or ()
        if stream["config"]["storage"] == "file"
    }


def end_servers() -> int:
    """End each nats-server that is to be seen from here, by force: what it would still write goes
    into files that are gone. Return how many these were.
    """
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        # It may end meanwhile, and others are not ours to look at.
        with suppress(OSError):
            if (process / "comm").read_text().strip() == SERVER:
                os.kill(int(process.name), signal.SIGKILL)
                count += 1
    return count
