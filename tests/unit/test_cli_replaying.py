"""What a replay is asked for is checked before anything is read, and its pace is the writing's."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.partition_files import config_of
from logpipeline.checksum import NOTHING
from logpipeline.messages import Read
from logpipeline.nats.pull import Delivered
from logpipeline.nats.session import RawMessage
from logpipeline.origin import Origin
from logpipeline.spec import parse
from logpipeline.spec.model import LogPipeline
from logpipeline.wire import BadMessage, Batch, Checksums
from logpipeline_cli.commands.replay import check_paths
from logpipeline_cli.errors import CliError
from logpipeline_cli.replaying.reading import Pace, Question, Span, span_of
from logpipeline_cli.replaying.sinks import FolderSink, Page, PageSink
from logpipeline_collector.files.partition import FileStorage

SECOND_NS = 1_000_000_000
NOON_NS = 1_795_262_400 * SECOND_NS


def info(first: int = 1, last: int = 9, **state: Any) -> dict[str, Any]:
    """A stream as the server tells it, whose first message is of noon."""
    told = {
        "first_seq": first,
        "last_seq": last,
        "messages": last - first + 1,
        "first_ts": "2026-11-21T12:00:00Z",
        "last_ts": "2026-11-21T13:00:00Z",
    }
    return {"config": {"name": "L"}, "created": "monday", "state": told | state}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"since_ns": 2, "until_ns": 1}, "--since is after --until"),
        ({"from_seq": 2, "to_seq": 1}, "--from-seq is after --to-seq"),
        ({"since_ns": 2, "from_seq": 1}, "give one of them"),
        ({"until_ns": 2, "to_seq": 1}, "give one of them"),
    ],
)
def test_words_that_contradict_each_other_are_refused(words: dict[str, Any], told: str) -> None:
    """Before a server is asked."""
    with pytest.raises(CliError, match=told):
        Question(**words)


@pytest.mark.parametrize(
    ("words", "first", "told"),
    [
        ({"from_seq": 10}, 1, "--from-seq 10 is beyond the end: L ends at 9"),
        ({"to_seq": 10}, 1, "--to-seq 10 is beyond the end"),
        ({"from_seq": 3}, 4, "begins at sequence 3; it still has 4 to 9"),
        ({"to_seq": 3}, 4, "ends at sequence 3; it still has 4 to 9"),
        ({"since_ns": NOON_NS - 1}, 4, "all since 2026-11-21T11:59:59.999999999Z; it still"),
        ({"since_ns": NOON_NS}, 10, "it still has nothing"),
    ],
)
def test_what_is_gone_or_yet_to_come_is_named(words: dict[str, Any], first: int, told: str) -> None:
    """With what is still there."""
    with pytest.raises(CliError, match=told):
        span_of(Question(**words), info(first))


def test_who_is_content_with_a_part_gets_it() -> None:
    """From the first message that is there; who follows may wait for what is yet to come."""
    partial = span_of(Question(from_seq=3, partial=True), info(4))
    follow = span_of(Question(from_seq=12, follow=True), info())

    assert (partial.first, partial.last) == (4, 9)
    assert (follow.first, follow.last) == (12, None)


def test_files_of_partitions_are_not_made_of_one_stream_of_all() -> None:
    """All of them would be those of partition 0."""

    def pipeline(layout: str) -> LogPipeline:
        stream = {"name": "LOGS", "layout": layout}
        spec = {"partitions": 4, "stream": stream, "collectors": {"path": "{partition}/{host}.log"}}
        kind = {"apiVersion": "logpipeline.dev/v1alpha1", "kind": "LogPipeline"}
        return parse({**kind, "metadata": {"name": "shop"}, "spec": spec})

    with pytest.raises(CliError, match="give a resource"):
        check_paths(pipeline("single"))
    check_paths(pipeline("partitions"))


def test_all_that_is_there_needs_no_word() -> None:
    """Without a beginning nothing is missed; where nothing ever went, a time before is whole."""
    assert span_of(Question(), info(4)).first == 4
    assert span_of(Question(since_ns=5), info(1)).since_ns == 5
    assert span_of(Question(), info(1, 0)).last == 0


def test_only_lines_of_what_is_asked_for_are_wanted() -> None:
    """All that is given has to fit."""
    question = Question(namespace="shop", pod="web-1")

    assert question.wants(Origin("h", "shop", "web-1", "any", ""))
    assert not question.wants(Origin("h", "shop", "web-2", "any", ""))
    assert not question.wants(Origin("h", "", "", "", "/var/log/x"))


def test_messages_are_as_far_apart_as_they_were() -> None:
    """Or so many times nearer; who is late waits for nothing."""
    pace = Pace([0], speed=10.0)

    assert pace.due_in_s(NOON_NS, 100.0) == 0.0
    assert pace.due_in_s(NOON_NS + 20 * SECOND_NS, 101.0) == 1.0
    assert pace.due_in_s(NOON_NS + 20 * SECOND_NS, 103.0) == 0.0


async def test_a_message_waits_for_earlier_ones_of_other_partitions() -> None:
    """Also for those that are not known yet, but not for one that has nothing."""
    pace, order = Pace([0, 1, 2], speed=1e9), []

    async def take(partition: int, *times_s: int) -> None:
        for time_s in times_s:
            await pace.turn(partition, time_s * SECOND_NS)
            order.append(time_s)
        await pace.done(partition)

    async with asyncio.timeout(10):
        await pace.idle(2)
        await asyncio.gather(take(0, 1, 4, 5), take(1, 2, 3, 6))

    assert order == [1, 2, 3, 4, 5, 6]


def replayed(sink: FolderSink | PageSink) -> tuple[list[str], int]:
    """Return why messages of a replay were refused, and how many lines were written."""
    refused = []
    for number, (batch, payload) in enumerate(MESSAGES, 1):
        message = RawMessage(b"logs.p0.h", b"", b"", payload)
        try:
            sink.take(Read("h", batch, {}), Delivered(message, number, number, NOON_NS, 0))
        except BadMessage as error:
            refused.append(error.reason)
    return refused, sink.lines


PLAIN = Batch(source="/a", generation="0" * 16, start=0, end=2, lines=1, format="plain")
FIRST = replace(PLAIN, checksums=Checksums.around(b"a\n", NOTHING))
LOSS = replace(PLAIN, start=9, end=20, lost="rotated")
MESSAGES = [
    (FIRST, b"a\n"),
    (replace(PLAIN, start=2, end=4), b"x\n"),  # without a checksum: of another sender
    (replace(FIRST, start=2, end=4), b"x\n"),  # with that of another place
    (replace(FIRST, end=4, resend=True), b"a\nb\n"),  # with that of other bytes
    (LOSS, b"a payload"),
    (LOSS, b""),
    (replace(PLAIN, start=2, end=5), b"x\n"),
]


def test_a_page_and_a_folder_leave_out_the_same_messages_and_count_them(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Those that collectors refuse."""
    storage = FileStorage(config_of(tmp_path))
    folder = FolderSink(storage, 0, Span("L", "monday", 1, None, 9, None))
    page = PageSink(Page("raw"))

    assert replayed(page) == replayed(folder)
    refused, lines = replayed(PageSink(Page("raw")))
    assert len(refused) == 5
    assert "misfit" in refused
    assert lines == 1
    assert capsysbinary.readouterr().out == b"a\na\n"
    folder.close()
