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
from logpipeline_cli.receiving.journal_entries import EntryReader, Jump, Numbers, text_line

FILE = "journal.log"
PROGRAM = "journalctl"
READ_BYTES = 256 * 1024
AGAIN_AFTER_S = 1.0
STOP_S = 5.0
ERROR_BYTES_MAX = 2000
# Where entries of the journal are passed over as a rule, each look starts a process.
LOOK_EVERY_S = 60.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalConfig:
    """Which journal: *options* are words of journalctl that say where it is, as `-D FOLDER`, and
    *filters* which of its entries are received, as `-u UNIT`. *root* is the folder of the system
    whose journalctl it is; None: of this one.
    """

    options: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    root: str | None = None
    output: Literal["raw", "json"] = "json"


class Journal:
    """The entries of a journal, as a `Source`. The state of its files is `{"cursor": …}`."""

    def __init__(self, config: JournalConfig, metrics: Metrics) -> None:
        self.config = config
        self._cursor = ""
        self._is_following = False
        self._numbers = Numbers()
        self._no_look_before_s = 0.0
        self._gaps = metrics.counter(
            "journal_gaps",
            "Times that the journal removed entries before they were received.",
        ).labels()
        self._missing = metrics.counter(
            "journal_missing", "Entries that were removed so, where their number is known."
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
        self._numbers.note(self._cursor)
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
        first = await self._first_at(self._cursor)
        if first is None:
            return None
        if first != self._cursor:
            # journalctl goes on at the next entry that there is, without a word.
            self._note_gap(self._numbers.note(first), self._cursor, first)
        # Not `--after-cursor`: with a filter, an older systemd passes over an entry by it.
        return f"--cursor={first}"

    async def _first_at(self, cursor: str) -> str | None:
        """Return the cursor of the first entry from *cursor* on that the journal has."""
        # Without filters: the position is one of the journal, whatever is received of it.
        async with self._journalctl(f"--cursor={cursor}", "--lines=1") as process:
            assert process.stdout is not None
            # In pieces: an entry may be a core dump.
            reader = EntryReader()
            while data := await process.stdout.read(READ_BYTES):
                if entries := reader.feed(data):
                    return entries[0].cursor
        return None

    def _note_gap(self, jump: Jump | None, position: str, following: str) -> None:
        missing = jump.missing if jump is not None and not self.config.filters else None
        self._gaps.inc()
        self._missing.inc(missing or 0)
        log.error(
            "the journal no longer holds entries that were not received: they are lost",
            extra={"position": position, "next": following, "entries": missing or "unknown"},
        )

    async def _follow(self, committer: Committer, start: str) -> None:
        words = ("--follow", "--no-tail", *self.config.filters, *([start] if start else []))
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
        # journalctl is started at the position: what stands there was received.
        entries = [each for each in reader.feed(data) if each.cursor != self._cursor]
        if not entries:
            return
        for each in entries:
            if (jump := self._numbers.note(each.cursor)) is not None:
                await self._judge(jump, each.cursor)
        is_raw = self.config.output == "raw"
        lines = [text_line(each.line) if is_raw else each.line for each in entries]
        self._cut.inc(sum(each.cut_bytes > 0 for each in entries))
        self._cursor = entries[-1].cursor
        committer.give({FILE: b"".join(lines)}, len(lines), {"cursor": self._cursor})
        if not committer.has_room:
            # The journal removes entries meanwhile, most of all where it is the disk that is full.
            self._no_look_before_s = 0.0
        await committer.room()

    async def _judge(self, jump: Jump, following: str) -> None:
        """Find out whether the entries of *jump* were removed, or are not for us to read: other
        units', or of users' files that this user may not read.
        """
        # journalctl reads a file that is removed no further, and goes on with the next one. As the
        # journal removes its oldest files first, the entry before such a gap is gone, too.
        now_s = asyncio.get_running_loop().time()
        if now_s < self._no_look_before_s:
            return
        first = await self._first_at(jump.former)
        if first is None or first == jump.former:
            self._no_look_before_s = now_s + LOOK_EVERY_S
        else:
            self._note_gap(jump, jump.former, following)

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
