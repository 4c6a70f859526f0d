"""A dead letter says all of its message, and nothing in it can become more than text."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.dead_letters import (
    DETAIL_CHARACTERS_MAX,
    HEADERS_BYTES_MAX,
    Letter,
    NoLetter,
    decode,
    encode,
)

LETTER = Letter(
    reason="bad-range",
    detail="range 9-3",
    stream="LOGS_0",
    created="2026-11-21T10:00:00Z",
    sequence=17,
    time_ns=123,
    subject="logs.p0.node-b",
    headers=b"NATS/1.0\r\nLog-Range: 9-3\r\n\r\n",
    payload=b"\x00\xff\n",
    payload_bytes=3,
)


def read_back(letter: Letter) -> Letter:
    """Return *letter* as it is read from the wire."""
    lines = [f"{name}: {value}" for name, value in encode(letter).items()]
    return decode("\r\n".join(["NATS/1.0", *lines, "", ""]).encode(), letter.payload)


@given(
    headers=st.binary(max_size=200),
    subject=st.binary(max_size=60).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
    consumer=st.sampled_from(["", "audit"]),
    is_gone=st.booleans(),
)
def test_a_letter_reads_back_whatever_its_message_holds(
    headers: bytes, subject: str, consumer: str, is_gone: bool
) -> None:
    """Every byte of subject and headers, so that the message can be sent again as it was."""
    letter = replace(LETTER, headers=headers, subject=subject, consumer=consumer, is_gone=is_gone)

    assert read_back(letter) == letter


@given(st.text(max_size=700))
def test_no_text_of_a_stranger_ends_a_header_or_steers_a_terminal(text: str) -> None:
    """Headers hold printable ASCII only, and a detail is cut."""
    headers = encode(replace(LETTER, detail=text, subject=text, headers=text.encode("utf-8")))

    assert all(value.isascii() and value.isprintable() for value in headers.values())
    assert len(headers["Dead-Detail"]) <= DETAIL_CHARACTERS_MAX


@pytest.mark.parametrize(
    ("change", "is_whole"),
    [
        ({}, True),
        ({"payload_bytes": 4}, False),
        ({"headers": b"x" * HEADERS_BYTES_MAX}, False),
        ({"is_gone": True}, False),
    ],
)
def test_a_letter_knows_whether_it_is_its_whole_message(
    change: dict[str, object], is_whole: bool
) -> None:
    """What was cut, or gone already, cannot be sent again from the letter alone."""
    assert replace(LETTER, **change).is_whole is is_whole  # type: ignore[arg-type]


def test_two_who_give_the_same_message_up_make_two_letters() -> None:
    """And one who does so twice makes one: the subject is the letter's own."""
    mine, other = (replace(LETTER, consumer=name) for name in ("audit", "billing"))

    assert mine.subject_in("dead", 0) == "dead.p0.bad-range.17.123.audit"
    assert len({letter.subject_in("dead", 0) for letter in (LETTER, mine, other)}) == 3
    assert len({letter.identifier for letter in (LETTER, mine, other)}) == 3


@pytest.mark.parametrize(
    "headers", [b"", b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nDead-Reason: x\r\n\r\n"]
)
def test_what_nobody_of_ours_wrote_is_no_letter(headers: bytes) -> None:
    """It is named, not guessed at."""
    with pytest.raises(NoLetter):
        decode(headers, b"")


@pytest.mark.parametrize("field", ["Dead-Subject", "Dead-Headers"])
@pytest.mark.parametrize("text", ["5", "null", "true", "0.5", "[]", "{}", '["a"]', ""])
def test_a_subject_or_headers_that_are_no_text_make_no_letter(field: str, text: str) -> None:
    """Readers may write letters: one such ended each collector that counted it, and `dlq ls`."""
    with pytest.raises(NoLetter):
        changed(field, text)


@pytest.mark.parametrize("field", ["Dead-Sequence", "Dead-Time-Ns", "Dead-Bytes"])
@pytest.mark.parametrize("text", ["\u00b2", "\u0663", "-1", "1_0", "1.0", "9" * 20, "9" * 5000, ""])
def test_a_number_that_no_server_gives_makes_no_letter(field: str, text: str) -> None:
    """It would fail later: as a time, or as a sequence that the server is asked for."""
    with pytest.raises(NoLetter):
        changed(field, text)


def changed(field: str, text: str) -> Letter:
    """Return what is read of a letter whose header *field* says *text*."""
    lines = [f"{name}: {value}" for name, value in (encode(LETTER) | {field: text}).items()]
    return decode("\r\n".join(["NATS/1.0", *lines, "", ""]).encode(), LETTER.payload)
