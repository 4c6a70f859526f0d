"""Receives the systemd journal, each entry once: the position is kept in the same durable step as
the lines.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Literal

from logpipeline.observe.metrics import Metrics
from logpipeline.process import end_with_parent
from logpipeline_cli.receiving.committer import Committer
from logpipeline_cli.receiving.journal_entries import Entry, EntryReader, text_line

FILE = "journal.log"
PROGRAM = "journalctl"
READ_BYTES = 256 * 1024
AGAIN_AFTER_S = 1.0
STOP_S = 5.0
ERROR_BYTES_MAX = 2000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalConfig:
    """Which journal: *options* are further words of journalctl, as `-D FOLDER` or `-u UNIT`. *root*
    is the folder of the system whose journalctl it is; None: of this one.
    """

    options: tuple[str, ...] = ()
    root: str | None = None
    output: Literal["raw", "json"] = "json"


class Journal:
    """The entries of a journal, as a `Source`. The state of its files is `{"cursor": …}`."""

    def __init__(self, config: JournalConfig, metrics: Metrics) -> None:
        self.config = config
        self._cursor = ""
        self._is_following = False
        self._gaps = metrics.counter(
            "journal_gaps",
            "Times that the entry of the position was gone: an unknown number of entries is lost.",
        ).labels()
        self._cut = metrics.counter("cut_messages", "Entries that were too long.").labels()
        self._starts = metrics.counter("journalctl_starts", "Starts of journalctl.").labels()

    def why_not_ready(self) -> str | None:
        """Return why nothing can be received, or None."""
        return None if self._is_following else f"{PROGRAM} does not run"

    async def run(self, committer: Committer, stop: asyncio.Event) -> None:
        """Follow the journal until *stop* is set.

        Raises:
            FileNotFoundError: there is no journalctl.
        """
        state = committer.spool.state
        self._cursor = str(state.get("cursor", "")) if isinstance(state, dict) else ""
        following = asyncio.create_task(self._follow_always(committer))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait((following, stopped), return_when=asyncio.FIRST_COMPLETED)
        for task in (following, stopped):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await following

    async def _follow_always(self, committer: Committer) -> None:
        while True:
            start = await self._start()
            if start is not None:
                await self._follow(committer, start)
            await asyncio.sleep(AGAIN_AFTER_S)

    async def _start(self) -> str | None:
        """Return the option of journalctl by which reading begins; None while there is no entry to
        begin at.
        """
        if not self._cursor:
            return ""
        async with self._journalctl(f"--cursor={self._cursor}", "--lines=1") as process:
            assert process.stdout is not None
            # In pieces: an entry may be a core dump.
            reader = EntryReader()
            entries: list[Entry] = []
            while not entries and (data := await process.stdout.read(READ_BYTES)):
                entries = reader.feed(data)
        if not entries:
            return None
        first = entries[0].cursor
        if first == self._cursor:
            return f"--after-cursor={self._cursor}"
        # journalctl goes on at the next entry that there is, without a word.
        self._gaps.inc()
        log.error(
            "the journal no longer holds the entry of the position: entries between are lost",
            extra={"position": self._cursor, "next": first},
        )
        return f"--cursor={first}"

    async def _follow(self, committer: Committer, start: str) -> None:
        words = ("--follow", "--no-tail", *([start] if start else []))
        reader = EntryReader()
        self._starts.inc()
        async with self._journalctl(*words) as process:
            assert process.stdout is not None
            self._is_following = True
            try:
                while data := await process.stdout.read(READ_BYTES):
                    await self._give(committer, reader, data)
            finally:
                self._is_following = False
        log.warning("journalctl ended: it is started again", extra={"code": process.returncode})

    async def _give(self, committer: Committer, reader: EntryReader, data: bytes) -> None:
        entries = reader.feed(data)
        if not entries:
            return
        is_raw = self.config.output == "raw"
        lines = [text_line(each.line) if is_raw else each.line for each in entries]
        self._cut.inc(sum(each.cut_bytes > 0 for each in entries))
        self._cursor = entries[-1].cursor
        committer.give({FILE: b"".join(lines)}, len(lines), {"cursor": self._cursor})
        await committer.room()

    def _enter(self) -> None:
        end_with_parent()
        if self.config.root is not None:
            os.chroot(self.config.root)
            os.chdir("/")

    @asynccontextmanager
    async def _journalctl(self, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(
            PROGRAM, "--output=json", "--all", "--quiet", "--no-pager",
            *self.config.options, *words,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            preexec_fn=self._enter,
        )  # fmt: skip
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(STOP_S):
                    # Until its pipe is read, it may be unable to end.
                    await process.communicate()
            except TimeoutError:
                process.kill()
                await process.wait()
