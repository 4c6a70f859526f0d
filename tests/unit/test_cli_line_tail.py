"""Lines as they pass: what is left out is said, and a stream that failed is read again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from logpipeline.nats.jetstream import JetStream, StoredMessage
from logpipeline.spec import LogPipeline, parse
from logpipeline.subjects import Subjects
from logpipeline_cli.errors import CliError
from logpipeline_cli.following import Follower, Line
from logpipeline_cli.watching.line_tail import LINES_A_SECOND_MAX, SHOWN_BYTES_MAX, LineTail

RESOURCE = {
    "apiVersion": "logpipeline.dev/v1alpha1",
    "kind": "LogPipeline",
    "metadata": {"name": "prod"},
    "spec": {"partitions": 1},
}
Show = Callable[[list[StoredMessage]], None]
Skipped = Callable[[int], None]


def message(pipeline: LogPipeline, sequence: int, lines: int, text: bytes = b"x") -> StoredMessage:
    """Return a message of host web1 with so many lines."""
    subject = Subjects(pipeline.names.subject, pipeline.spec.partitions).of_host("web1")
    return StoredMessage(subject, sequence, 0, b"", b"\n".join([text] * lines))


class Tailed:
    """A tail of one stream, of which a test says what is found there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pipeline = parse(RESOURCE)
        self.lines: list[Line] = []
        self.skipped: list[int] = []
        self._patch = monkeypatch
        self._tail = LineTail(
            cast(JetStream, None),
            self.pipeline,
            host=None,
            source=None,
            pattern=None,
            show=self.lines.append,
            skipped=self.skipped.append,
        )

    async def look(self, *looks: list[StoredMessage] | CliError) -> bool:
        """Have the stream give *looks*, of which an error ends the reading; return whether the
        stream was skipped to its end.
        """
        left, is_done, skips = list(looks), asyncio.Event(), []

        async def follow(self: Follower, show: Show, skipped: Skipped) -> None:
            while left:
                found = left.pop(0)
                if isinstance(found, CliError):
                    raise found
                show(found)
            is_done.set()
            await asyncio.Event().wait()

        self._patch.setattr(Follower, "follow", follow)
        self._patch.setattr(Follower, "skip", lambda _: skips.append(True))
        self._patch.setattr("logpipeline_cli.watching.line_tail.AGAIN_AFTER_S", 0.0)
        running = asyncio.create_task(self._tail.run())
        try:
            async with asyncio.timeout(30):
                await is_done.wait()
        finally:
            running.cancel()
        return bool(skips)


async def test_lines_that_are_left_out_of_one_message_are_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch may hold thousands of lines; the rest of it counts as the messages behind it do."""
    tailed = Tailed(monkeypatch)
    many = message(tailed.pipeline, 1, LINES_A_SECOND_MAX + 100)

    assert await tailed.look([many, message(tailed.pipeline, 2, 1)])

    assert len(tailed.lines) == LINES_A_SECOND_MAX
    assert tailed.skipped == [2]


async def test_what_there_is_room_for_is_shown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many lines as may be shown are no reason to skip any."""
    tailed = Tailed(monkeypatch)

    assert not await tailed.look([message(tailed.pipeline, 1, LINES_A_SECOND_MAX)])

    assert (len(tailed.lines), tailed.skipped) == (LINES_A_SECOND_MAX, [])


async def test_a_long_line_shows_that_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A screen shows no more of it."""
    tailed = Tailed(monkeypatch)
    texts = [b"a" * SHOWN_BYTES_MAX, b"a" * (SHOWN_BYTES_MAX + 1)]

    await tailed.look([message(tailed.pipeline, 1, 1, text) for text in texts])

    assert [line.text for line in tailed.lines] == [texts[0], texts[0] + " …".encode()]


async def test_a_stream_that_failed_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reason stands there once, and once more when it fails after it was read."""
    tailed = Tailed(monkeypatch)
    gone = CliError("stream not found")

    await tailed.look(gone, gone, [message(tailed.pipeline, 1, 1)], gone, [])

    assert [line.text for line in tailed.lines] == [b"stream not found", b"x", b"stream not found"]
    assert [line.is_damaged for line in tailed.lines] == [True, False, True]
