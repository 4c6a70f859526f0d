"""Ends a server whose files were removed while it runs, so that its container starts it again.

A nats-server goes on with removed files: it acknowledges messages that it writes into them, and its
health check does not notice. A new server begins with the files that exist, and shippers resend
what no collector has collected.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from logpipeline import json_text

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
    """Compares *store*, the folder of a server's streams, with the streams on the server's *pages*.
    *end* ends the server, and returns the number of processes that it found.
    """

    def __init__(self, store: Path, pages: str, end: Callable[[], int]) -> None:
        self._store = store
        self._pages = pages
        self._end = end
        self._known: set[Stored] | None = None
        self._missing: set[Stored] = set()

    async def run(self) -> None:
        """Compare again and again, for ever."""
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(LOOK_EVERY_S)

    def look(self) -> None:
        """Compare once. Only a stream that is missing twice counts: it may just be deleted."""
        there = self._there()
        if self._known is not None and self._known <= there:
            self._known, self._missing = there, set()
            return
        # Only now the server's page is read, for which it goes through all its streams.
        held = self._held()
        if held is None:
            return
        former, self._missing = self._missing, held - there
        self._known = there | self._missing
        if lost := sorted(former & self._missing):
            names = ", ".join(each.stream for each in lost)
            log.error(
                "files were removed under the running server, ending it", extra={"streams": names}
            )
            if not self._end():
                log.error("the server cannot be ended: its process is not visible from here")
            self._known, self._missing = None, set()

    def _there(self) -> set[Stored]:
        found = self._store.glob("jetstream/*/streams/*/meta.inf")
        return {Stored(path.parts[-4], path.parts[-2]) for path in found}

    def _held(self) -> set[Stored] | None:
        """Return the streams that the server has in files; None if its page cannot be read."""
        url = f"{self._pages}/jsz?accounts=true&streams=true&config=true"
        try:
            with urllib.request.urlopen(url, timeout=ANSWER_DEADLINE_S) as answer:
                return _stored(json_text.parse(answer.read(PAGE_BYTES_MAX)))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.debug(
                "the page with the server's streams cannot be read", extra={"reason": str(error)}
            )
            return None


def _stored(page: dict[str, Any]) -> set[Stored]:
    return {
        Stored(str(account["name"]), str(stream["name"]))
        for account in page.get("account_details") or ()
        for stream in account.get("stream_detail") or ()
        if stream["config"]["storage"] == "file"
    }


def end_servers() -> int:
    """Kill each nats-server that is visible from here, and return their number. They need not end
    cleanly: they would only write into removed files.
    """
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        # It may end meanwhile, and processes of other users cannot be read.
        with suppress(OSError):
            if (process / "comm").read_text().strip() == SERVER:
                os.kill(int(process.name), signal.SIGKILL)
                count += 1
    return count
