"""What of a letter is sent again, and how letters are counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from logpipeline.dead_letters import RETRY_FOR, RETRY_OF, Letter
from logpipeline.nats.connection import OutcomeUnknown
from logpipeline.nats.jetstream import JetStream
from logpipeline.nats.unanswered import Unanswered
from logpipeline_cli.dead_letters import entries
from logpipeline_cli.dead_letters.entries import OTHERS, Choice, Entry, Groups, room_of
from logpipeline_cli.dead_letters.sending import CannotSend, headers_again

HEADERS = (
    b"NATS/1.0\r\nNats-Msg-Id: x\r\nNats-Rollup: all\r\nLog-Source: /var/log/a%20b\r\n"
    b"Log-Range: 0-4\r\n\r\n"
)
LETTER = Letter(
    reason="max-deliver",
    detail="",
    stream="LOGS_1",
    created="monday",
    sequence=7,
    time_ns=9,
    subject="logs.p1.web1.example.net",
    headers=HEADERS,
    payload=b"one\n",
    payload_bytes=4,
    consumer="audit",
)
ENTRY = Entry(5, 100, 1, LETTER)


def test_a_message_is_sent_again_as_it_was_and_says_that_it_comes_again() -> None:
    """No word to a server is repeated."""
    assert headers_again(LETTER, 5, again=False) == {
        "Log-Source": "/var/log/a%20b",
        "Log-Range": "0-4",
        "Log-Resend": "1",
        RETRY_OF: "5",
        RETRY_FOR: "audit",
    }


def test_lines_that_nobody_could_know_again_need_a_word() -> None:
    """A consumer's message was collected; one that could not be decoded was not."""
    stranger = replace(LETTER, headers=b"")

    with pytest.raises(CannotSend, match="--again"):
        headers_again(stranger, 5, again=False)
    assert "Log-Resend" not in headers_again(stranger, 5, again=True)
    assert headers_again(replace(stranger, consumer=""), 5, again=False) == {RETRY_OF: "5"}


def test_headers_that_are_no_text_are_not_sent() -> None:
    """What cannot be said as it was is not said otherwise."""
    broken = replace(LETTER, headers=b"NATS/1.0\r\nLog-Range: 0-4\r\nX: \xff\r\n\r\n")

    with pytest.raises(CannotSend, match="cannot be sent"):
        headers_again(broken, 5, again=True)


def test_an_entry_names_host_and_source_of_its_message() -> None:
    """As the shipper wrote them; a host may have dots."""
    assert (ENTRY.host, ENTRY.source) == ("web1.example.net", "/var/log/a b")


@pytest.mark.parametrize(
    ("choice", "is_meant"),
    [
        (Choice(), True),
        (Choice(reason="max-deliver", partition=1, host="web1.example.net"), True),
        (Choice(consumer="audit", since_ns=100), True),
        (Choice(reason="terminated"), False),
        (Choice(partition=0), False),
        (Choice(host="web1"), False),
        (Choice(consumer=""), False),
        (Choice(since_ns=101), False),
    ],
)
def test_a_choice_means_what_fits_all_of_it(choice: Choice, is_meant: bool) -> None:
    """What is not given fits everything."""
    assert choice.means(ENTRY) is is_meant


def test_letters_of_one_cause_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the first and the last time; causes beyond the limit are one group."""
    monkeypatch.setattr(entries, "GROUPS_MAX", 1)
    groups = Groups()
    for number, time_ns in enumerate((300, 100, 200)):
        groups.add(replace(ENTRY, number=number, time_ns=time_ns, waits=number == 0))
    groups.add(replace(ENTRY, letter=replace(LETTER, reason="bad-range")))

    (group, count), (others, _) = groups.sorted()
    assert (group.reason, group.host, others.reason) == ("max-deliver", "web1.example.net", OTHERS)
    assert (count.count, count.waiting, count.first_ns, count.last_ns) == (3, 1, 100, 300)


async def test_a_stream_of_letters_that_no_server_answers_for_is_not_taken_for_an_empty_one() -> (
    None
):
    """A server with a full disk has been seen to lead a stream for minutes, and never to answer."""

    class FakeSilentServer:
        async def call(self, api: str, request: dict[str, Any]) -> dict[str, Any]:
            raise OutcomeUnknown(f"no answer on {api} in 5 s")

    unanswered = Unanswered()

    assert await room_of(cast(JetStream, FakeSilentServer()), "LP_dead", unanswered) is None
    assert unanswered.reasons == {"stream LP_dead": "no answer on STREAM.INFO.LP_dead in 5 s"}
