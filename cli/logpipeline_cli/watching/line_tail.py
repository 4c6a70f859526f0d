"""Lines as they pass, for a person who watches them: never more than a person could follow, however
many pass.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial

from logpipeline.nats.jetstream import JetStream, StoredMessage
from logpipeline.spec import LogPipeline
from logpipeline_cli.errors import explain
from logpipeline_cli.following import Filter, Follower, Limits, Line, followers, look_every_s

# Lines shown a second; of what comes beyond, the rest is skipped, and its number said.
LINES_A_SECOND_MAX = 200
# What all streams together send a second, but that a message is never divided.
BYTES_A_SECOND_MAX = 2 * 1024 * 1024
TAKE_BYTES_MIN = 16 * 1024
TAKE_MESSAGES_MAX = 100
# After so many full looks in a row the messages that are left are skipped, so that the lines on
# the screen stay new.
FULL_MAX = 4
# A longer line is cut: a screen shows no more of it.
SHOWN_BYTES_MAX = 4096
CUT = " …".encode()
# A stream that cannot be read may be there again: `apply` is making it, or a right was given.
AGAIN_AFTER_S = 5.0


def skipped_text(messages: int) -> str:
    """Return what a person reads where lines of so many messages are left out."""
    of = "1 message" if messages == 1 else f"{messages} messages"
    return f"… lines of {of} were skipped: too many pass"


class LineTail:
    """Gives lines of *host* and *source* (None: of any) that match *pattern* to *show*, at most
    `LINES_A_SECOND_MAX`, and to *skipped* how many messages were left out, wholly or in part. Why a
    stream cannot be read is shown as a damaged line, and reading it is tried again.
    """

    def __init__(
        self,
        js: JetStream,
        pipeline: LogPipeline,
        *,
        host: str | None,
        source: str | None,
        pattern: re.Pattern[bytes] | None,
        show: Callable[[Line], None],
        skipped: Callable[[int], None],
    ) -> None:
        self._js = js
        self._pipeline = pipeline
        self._host = host
        self._source = source
        self._filter = Filter(pattern=pattern)
        self._subjects = pipeline.subjects
        self._show = show
        self._skipped = skipped
        self._room = LINES_A_SECOND_MAX
        streams = 1 if host else pipeline.stream_count
        size = int(BYTES_A_SECOND_MAX * look_every_s(streams) / streams)
        self._limits = Limits(
            messages=TAKE_MESSAGES_MAX, bytes=max(size, TAKE_BYTES_MIN), paced=True
        )
        self._full: dict[Follower, int] = {}
        self._trouble: dict[Follower, str] = {}

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for follower in followers(self._js, self._pipeline, self._host, None, self._limits):
                tasks.create_task(self._follow(follower))
            while True:
                await asyncio.sleep(1.0)
                self._room = LINES_A_SECOND_MAX

    async def _follow(self, follower: Follower) -> None:
        while True:
            try:
                await follower.follow(partial(self._took, follower), self._left_out)
            except Exception as error:
                if (why := explain(error)) is None:
                    raise
                if self._trouble.get(follower) != why:
                    self._trouble[follower] = why
                    self._show(Line("", "", why.encode(), is_damaged=True))
            await asyncio.sleep(AGAIN_AFTER_S)

    def _left_out(self, messages: int) -> None:
        if messages:
            self._skipped(messages)

    def _took(self, follower: Follower, messages: list[StoredMessage]) -> None:
        self._trouble.pop(follower, None)
        for number, message in enumerate(messages):
            if self._room <= 0 or not self._show_lines(message):
                self._skipped(len(messages) - number)
                follower.skip()
                break
        if self._is_full(messages):
            self._full[follower] = self._full.get(follower, 0) + 1
            if self._full[follower] >= FULL_MAX:
                follower.skip()
        else:
            self._full[follower] = 0

    def _is_full(self, messages: list[StoredMessage]) -> bool:
        size = sum(len(message.data) for message in messages)
        return len(messages) >= self._limits.messages or 2 * size >= self._limits.bytes

    def _show_lines(self, message: StoredMessage) -> bool:
        """Show the wanted lines of *message*, and return whether there was room for all."""
        for line in self._filter.lines_of(message, self._subjects):
            if self._source is not None and line.source != self._source:
                continue
            if self._room <= 0:
                return False
            self._room -= 1
            is_long = len(line.text) > SHOWN_BYTES_MAX
            self._show(line._replace(text=line.text[:SHOWN_BYTES_MAX] + CUT) if is_long else line)
        return True
