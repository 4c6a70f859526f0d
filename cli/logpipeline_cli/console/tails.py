"""Lines as they pass, for pages that ask again and again: pages with the same wish share one tail,
which ends when none asks any more.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from logpipeline.nats.jetstream import JetStream
from logpipeline.spec import LogPipeline
from logpipeline_cli.console.answers import line_json
from logpipeline_cli.errors import CliError, explain
from logpipeline_cli.following import Line
from logpipeline_cli.watching.line_tail import LineTail

# Different wishes at once. Each reads 2 MB a second of the streams at most.
TAILS_MAX = 4
# Lines that are kept for pages that ask late.
KEPT_MAX = 1000
# A page asks each second; one that was closed does not say so.
IDLE_S = 10.0
TEXT_MAX = 200


class TooMany(CliError):
    """There are as many different tails as there may be."""


class Wish(NamedTuple):
    """The lines that a page wants: of one host and source (None: any), that hold *text*."""

    host: str | None
    source: str | None
    text: str


class _Tail:
    """The last lines of one wish, each with its number."""

    def __init__(self, now_s: float) -> None:
        self.asked_s = now_s
        self.task: asyncio.Task[None] | None = None
        self._kept: deque[dict[str, Any]] = deque(maxlen=KEPT_MAX)
        self._number = 0

    def add(self, line: Line) -> None:
        self._number += 1
        self._kept.append(line_json(self._number, line))

    def skipped(self, messages: int) -> None:
        text = f"… {messages} messages were skipped: too many pass"
        self.add(Line("", "", text.encode(), is_damaged=True))

    def behind(self, number: int) -> dict[str, Any]:
        # A page that asked another process before has higher numbers than there are.
        after = number if number <= self._number else 0
        lines = [each for each in self._kept if each["number"] > after]
        return {"lines": lines, "next": self._number}


class Tails:
    """All tails of one console. *clock* returns seconds."""

    def __init__(
        self,
        js: JetStream,
        pipeline: LogPipeline,
        tasks: asyncio.TaskGroup,
        clock: Callable[[], float],
    ) -> None:
        self._js = js
        self._pipeline = pipeline
        self._tasks = tasks
        self._clock = clock
        self._tails: dict[Wish, _Tail] = {}

    def ask(self, wish: Wish, after: int) -> dict[str, Any]:
        """Return the lines of *wish* behind the number *after*, as JSON.

        Raises:
            TooMany: other pages follow as many other wishes as there may be.
        """
        self.end_idle()
        tail = self._tails.get(wish)
        if tail is None:
            if len(self._tails) >= TAILS_MAX:
                raise TooMany(
                    f"{TAILS_MAX} different filters are followed already: close another page"
                )
            tail = self._tails[wish] = _Tail(self._clock())
            tail.task = self._tasks.create_task(self._run(wish, tail))
        tail.asked_s = self._clock()
        return tail.behind(after)

    def end_idle(self) -> None:
        """End the tails that no page asks for any more."""
        for wish, tail in list(self._tails.items()):
            if self._clock() - tail.asked_s > IDLE_S:
                del self._tails[wish]
                if tail.task is not None:
                    tail.task.cancel()

    def close(self) -> None:
        """End all tails."""
        for tail in self._tails.values():
            if tail.task is not None:
                tail.task.cancel()
        self._tails.clear()

    async def _run(self, wish: Wish, tail: _Tail) -> None:
        pattern = re.compile(re.escape(wish.text.encode()), re.IGNORECASE) if wish.text else None
        lines = LineTail(
            self._js,
            self._pipeline,
            host=wish.host,
            source=wish.source,
            pattern=pattern,
            show=tail.add,
            skipped=tail.skipped,
        )
        try:
            await lines.run()
        except ExceptionGroup as error:
            if (why := explain(error)) is None:
                raise
            tail.add(Line("", "", why.encode(), is_damaged=True))
