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
from logpipeline.subjects import Subjects
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


class LineTail:
    """Gives lines of *host* and *source* (None: of any) that match *pattern* to *show*, at most
    `LINES_A_SECOND_MAX`, and to *skipped* how many messages were left out.
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
        self._subjects = Subjects(pipeline.names.subject, pipeline.spec.partitions)
        self._show = show
        self._skipped = skipped
        self._room = LINES_A_SECOND_MAX
        streams = 1 if host else max(pipeline.spec.partitions, 1)
        size = int(BYTES_A_SECOND_MAX * look_every_s(streams) / streams)
        self._limits = Limits(
            messages=TAKE_MESSAGES_MAX, bytes=max(size, TAKE_BYTES_MIN), paced=True
        )
        self._full: dict[Follower, int] = {}

    async def run(self) -> None:
        """Follow until cancelled.

        Raises:
            ExceptionGroup: of CliError: a stream cannot be read.
        """
        async with asyncio.TaskGroup() as tasks:
            for follower in followers(self._js, self._pipeline, self._host, None, self._limits):
                tasks.create_task(follower.follow(partial(self._took, follower), self._left_out))
            while True:
                await asyncio.sleep(1.0)
                self._room = LINES_A_SECOND_MAX

    def _left_out(self, messages: int) -> None:
        if messages:
            self._skipped(messages)

    def _took(self, follower: Follower, messages: list[StoredMessage]) -> None:
        for number, message in enumerate(messages):
            if self._room <= 0:
                self._skipped(len(messages) - number)
                follower.skip()
                break
            self._show_lines(message)
        if self._is_full(messages):
            self._full[follower] = self._full.get(follower, 0) + 1
            if self._full[follower] >= FULL_MAX:
                follower.skip()
        else:
            self._full[follower] = 0

    def _is_full(self, messages: list[StoredMessage]) -> bool:
        size = sum(len(message.data) for message in messages)
        return len(messages) >= self._limits.messages or 2 * size >= self._limits.bytes

    def _show_lines(self, message: StoredMessage) -> None:
        for line in self._filter.lines_of(message, self._subjects):
            if self._source is not None and line.source != self._source:
                continue
            if self._room <= 0:
                return
            self._room -= 1
            self._show(line._replace(text=line.text[:SHOWN_BYTES_MAX]))
