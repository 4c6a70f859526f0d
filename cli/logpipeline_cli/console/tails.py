"""Lines as they pass, for pages that ask again and again: pages with the same wish share one tail,
which ends when none asks any more.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from logpipeline.nats.jetstream import JetStream
from logpipeline.spec import LogPipeline
from logpipeline_cli.console.answers import line_json
from logpipeline_cli.errors import CliError
from logpipeline_cli.following import Line
from logpipeline_cli.watching.line_tail import LineTail, skipped_text

# Different wishes at once. Each reads 2 MB a second of the streams at most.
TAILS_MAX = 4
# Lines that are kept for pages that ask late.
KEPT_MAX = 1000
# A page asks each second; one that was closed does not say so.
IDLE_S = 10.0
TEXT_MAX = 200
# A page in a hidden tab asks nothing.
UNSEEN = "… lines passed while this page did not ask"


class TooMany(CliError):
    """There are as many different tails as there may be."""


class Wish(NamedTuple):
    """The lines that a page wants: of one host and source (None: any), that hold *text*."""

    host: str | None
    source: str | None
    text: str


class _Tail:
    """The last lines of one wish, each with its number, which is above *number*."""

    def __init__(self, number: int) -> None:
        self.task: asyncio.Task[None] | None = None
        # Ends it, unless it is asked before.
        self.timer: asyncio.Handle | None = None
        self._kept: deque[dict[str, Any]] = deque(maxlen=KEPT_MAX)
        self.number = number

    def add(self, line: Line) -> None:
        self.number += 1
        self._kept.append(line_json(self.number, line))

    def skipped(self, messages: int) -> None:
        self.add(Line("", "", skipped_text(messages).encode(), is_damaged=True))

    def behind(self, number: int) -> dict[str, Any]:
        # A page that asked another process before has higher numbers than there are.
        after = number if number <= self.number else 0
        lines = [each for each in self._kept if each["number"] > after]
        # What came meanwhile is kept no longer, or the tail had ended.
        oldest = self._kept[0]["number"] if self._kept else self.number + 1
        if number and oldest > after + 1:
            unseen = Line("", "", UNSEEN.encode(), is_damaged=True)
            lines.insert(0, line_json(after, unseen))
        return {"lines": lines, "next": self.number}


class Tails:
    """All tails of one console. *call_later* is that of an event loop.

    Each ends by itself, whatever else pages ask for: a page that was closed does not say so.
    """

    def __init__(
        self,
        js: JetStream,
        pipeline: LogPipeline,
        tasks: asyncio.TaskGroup,
        call_later: Callable[[float, Callable[[], object]], asyncio.Handle],
    ) -> None:
        self._js = js
        self._pipeline = pipeline
        self._tasks = tasks
        self._call_later = call_later
        self._tails: dict[Wish, _Tail] = {}
        # What any tail had: a page that returns to a wish is to see that lines passed meanwhile.
        self._number = 0

    def ask(self, wish: Wish, after: int) -> dict[str, Any]:
        """Return the lines of *wish* behind the number *after*, as JSON.

        Raises:
            TooMany: other pages follow as many other wishes as there may be.
        """
        tail = self._tails.get(wish)
        if tail is None:
            if len(self._tails) >= TAILS_MAX:
                raise TooMany(
                    f"{TAILS_MAX} different filters are followed already: close another page"
                )
            tail = self._tails[wish] = _Tail(self._number + 1)
            tail.task = self._tasks.create_task(self._lines_of(wish, tail).run())
        if tail.timer is not None:
            tail.timer.cancel()
        tail.timer = self._call_later(IDLE_S, partial(self._end, wish))
        return tail.behind(after)

    def close(self) -> None:
        """End all tails."""
        for wish in list(self._tails):
            self._end(wish)

    def _end(self, wish: Wish) -> None:
        tail = self._tails.pop(wish)
        self._number = max(self._number, tail.number)
        for each in (tail.task, tail.timer):
            if each is not None:
                each.cancel()

    def _lines_of(self, wish: Wish, tail: _Tail) -> LineTail:
        pattern = re.compile(re.escape(wish.text.encode()), re.IGNORECASE) if wish.text else None
        return LineTail(
            self._js,
            self._pipeline,
            host=wish.host,
            source=wish.source,
            pattern=pattern,
            show=tail.add,
            skipped=tail.skipped,
        )
