"""What is masked before a line leaves its machine, and what stays as it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.redaction import (
    NOTHING_REDACTED,
    PRESETS,
    BadExpression,
    Redactor,
    compiled,
)

ALL = Redactor(tuple(PRESETS))

# By preset: what is masked, marked by angle brackets, in lines that programs write.
MASKED = {
    "secret": [
        "password=<hunter2> user=ann",
        '{"level":"info","api_key":"<a b\\"c>","n":1}',
        "PASSWORD: '<it is>' next",
        "GET /login?token=<abc123>&next=/home",
        "client_secret = <x>",
        '"password"=\0"<hunter2>", "user"=\0"ann"',
        "{:token =\0 '<abc>', :api_key=\0<x1> }",
        "token: <\0y> next",
        r'{"msg":"{\"password\":\"<hunter2>\",\"n\": 1}","m":2}',
        r'"{\"api_key\": \"<a\\\"b\\\\c>\"}"',
    ],
    "bearer": [
        "Authorization: Bearer <abcdef.123-456_~+/=>",
        "authorization: basic <dXNlcjpwYXNz>",
    ],
    "url-password": [
        "dial postgres://ann:<p4ss>@db:5432/x failed",
        "https://:<tok>@example.net/",
    ],
    "jwt": ["got <eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl> from 10"],
    "aws-key": ["key <AKIAIOSFODNN7EXAMPLE>, then"],
    "card": [
        "paid with <4111 1111 1111 1111>.",
        "pan=<5500000000000004>",
        "<3782-822463-10005>",
        # Other numbers beside it: a quantity, an amount, a time, a date of expiry, a check value.
        "qty 2 <4111111111111111>",
        "<4111111111111111> 25 EUR",
        "10:00:07 <4111111111111111>",
        "amount=10 <4111-1111-1111-1111>",
        "card <4111 1111 1111 1111> 12 28 123",
        "11 22 33 44 55 <3782 822463 10005> <4111 1111 1111 1111> 1795255200000000000",
        # Alone, in whatever groups.
        "<41 11-11 11 11 11 11 11>",
    ],
    "iban": ["to <DE89 3704 0044 0532 0130 00>", "<GB82WEST12345698765432>;"],
    "email": ["mail from=<ann.b+x@mail.example.net>,", "<a@b.co> <c@d.org>"],
    "ipv4": ["connect to <10.0.0.1>:8080 refused"],
}
KEPT = {
    "secret": ["the secret of success", "tokens: ", "password"],
    "bearer": ["the bearer of news"],
    "url-password": ["see https://example.net/a:b@c", "ssh://ann@host"],
    "jwt": ["eyJ is how they begin"],
    "aws-key": ["XAKIAIOSFODNN7EXAMPLE"],
    # The check digit is wrong; a time in nanoseconds; a long number.
    "card": [
        "4111 1111 1111 1112",
        "1795255200000000000 ns",
        "12345678901234567890123",
        "4111 1111 1111 11112 25",
        "load 100 200 300 400 500 600 700 800 900 1000 1100",
    ],
    "iban": ["DE89"],
    "email": ["@mention and a@b"],
    "ipv4": ["version 1.2.3", "10.0.0"],
}


def masked(line: str) -> tuple[str, str]:
    """A line without its brackets, and with what was within them masked."""
    plain, wanted, is_inside = "", "", False
    for letter in line:
        if letter in "<>":
            is_inside = letter == "<"
            continue
        letter = letter.replace("\0", ">")  # one that is no bracket
        plain += letter
        wanted += "*" if is_inside else letter
    return plain, wanted


@pytest.mark.parametrize(
    ("preset", "line"), [(preset, line) for preset, lines in MASKED.items() for line in lines]
)
def test_preset_masks_what_it_is_for(preset: str, line: str) -> None:
    """And nothing else of the line; its length stays."""
    plain, wanted = masked(line)

    assert Redactor([preset]).redact(f"{plain}\n".encode(), "plain").decode() == f"{wanted}\n"


@pytest.mark.parametrize(
    ("preset", "line"), [(preset, line) for preset, lines in KEPT.items() for line in lines]
)
def test_preset_leaves_what_only_looks_alike(preset: str, line: str) -> None:
    """Byte for byte."""
    assert Redactor([preset]).redact(line.encode(), "plain") == line.encode()


NUMBERS = st.lists(st.from_regex(r"[0-9]{1,20}", fullmatch=True), max_size=6)


@given(
    before=NUMBERS,
    after=NUMBERS,
    separator=st.sampled_from([" ", "-"]),
    card=st.sampled_from(["4111 1111 1111 1111", "3782 822463 10005", "5500000000000004"]),
)
def test_number_of_a_card_is_masked_whatever_numbers_are_beside_it(
    before: list[str], after: list[str], separator: str, card: str
) -> None:
    """Though they could be parts of one longer number."""
    line = separator.join([*before, card, *after]).encode()
    start = len(separator.join([*before, ""]))

    found = Redactor(["card"]).redact(line, "plain")[start : start + len(card)]

    assert found == b"*" * len(card)


def test_each_preset_is_tried() -> None:
    """With what it masks, and with what it leaves."""
    assert MASKED.keys() == KEPT.keys() == PRESETS.keys()


def test_groups_are_masked_or_all_that_is_found() -> None:
    """Several groups, too; one that took part in no match is left out."""
    of_groups = Redactor(expressions=["user=([a-z]+)(?: id=([0-9]+))?"], mask="#")

    assert of_groups.redact(b"user=ann id=17 user=bob\n", "plain") == b"user=### id=## user=###\n"
    assert Redactor(expressions=["user=[a-z]+"]).redact(b"user=ann!", "plain") == b"********!"


def test_ends_of_lines_and_bytes_that_are_no_text() -> None:
    """`^` and `$` are those of a line; no match goes beyond it, and each byte is a character."""
    redactor = Redactor(expressions=["^x[^q]*", "end$"])

    assert (
        redactor.redact(b"x\xff\xfe\nax\nthe end\nend of", "plain") == b"***\nax\nthe ***\nend of"
    )


def test_only_the_text_of_a_container_is_looked_at() -> None:
    """What the runtime wrote stays; a fragment and its rest are one line, of each stream."""
    data = (
        b"2026-11-21T10:00:00.123456789Z stdout P card=4111 11\n"
        b"2026-11-21T10:00:00.200000000Z stderr F 10.0.0.1 here\n"
        b"2026-11-21T10:00:00.300000000Z stdout F 11 1111 1111\n"
        b"2026-11-21T10:00:00.400000000Z stdout F \n"
        b"of no format 10.0.0.2\n"
    )
    wanted = data.replace(b"4111 11\n", b"*******\n").replace(b"F 11 1111 1111", b"F ************")
    wanted = wanted.replace(b"10.0.0.1", b"********").replace(b"10.0.0.2", b"********")

    assert Redactor(["card", "ipv4"]).redact(data, "cri") == wanted
    anchored = Redactor(expressions=["^here", "^card", "^2026"])
    assert anchored.redact(data, "cri") == data.replace(b"P card", b"P ****")


def test_order_of_the_rules_is_of_no_matter() -> None:
    """Each looks at the line as it was written."""
    data = b"token=4111111111111111\n"

    assert (
        Redactor(["secret", "card"]).redact(data, "plain")
        == Redactor(["card", "secret"]).redact(data, "plain")
        == b"token=****************\n"
    )


@given(st.lists(st.binary(max_size=60).filter(lambda each: b"\n" not in each), max_size=8))
def test_lines_are_redacted_alone(lines: list[bytes]) -> None:
    """However lines come together in a batch, each has the same length and the same masks."""
    samples = [masked(line)[0].encode() for found in MASKED.values() for line in found]
    given = [each + samples[len(each) % len(samples)] + b"\n" for each in lines]

    whole = ALL.redact(b"".join(given), "plain")

    assert whole == b"".join(ALL.redact(line, "plain") for line in given)
    assert len(whole) == sum(map(len, given))


@given(st.binary(max_size=400))
def test_any_bytes_keep_their_length_and_lines(data: bytes) -> None:
    """In each format."""
    for form in ("plain", "cri"):
        found = ALL.redact(data, form)
        assert [len(line) for line in found.split(b"\n")] == [
            len(line) for line in data.split(b"\n")
        ]


def test_nothing_is_masked_without_a_rule() -> None:
    """The same bytes are returned, not a copy."""
    data = b"password=x\n"

    assert NOTHING_REDACTED.redact(data, "plain") is data
    assert Redactor(["card"]).redact(data, "cri") is data


def test_a_container_without_a_match_costs_one_look() -> None:
    """With all presets, too: nothing is taken apart, or copied."""
    data = b"2026-11-21T10:00:00.5Z stdout F served in 12 ms\n" * 3

    assert ALL.redact(data, "cri") is data


@pytest.mark.parametrize(
    "expression", ["^served", "(?:a|^)served", r"[]^a]*^served", r"\\?^served"]
)
def test_an_anchor_is_seen_beside_classes_and_escapes(expression: str) -> None:
    """It is behind what the runtime wrote."""
    data = b"2026-11-21T10:00:00.5Z stdout F served\n"

    assert Redactor(expressions=[expression]).redact(data, "cri") == data.replace(
        b"served", b"******"
    )


@pytest.mark.parametrize("expression", [r"C:\\A+", r"\(\?-m", "[(?-m)]", "(?i-s)a", "(?m)^a"])
def test_what_only_looks_like_the_end_of_a_text_is_taken(expression: str) -> None:
    """A backslash before a letter, a bracket, a class of characters, another flag."""
    compiled(expression)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("(", "missing )"),
        ("(?=a)", "invalid perl operator"),
        ("a*", "finds something in an empty text"),
        (r"\Aa", "take ^ and $"),
        (r"\\\Aa", "take ^ and $"),
        ("(?-m)^abc", "the flag m stays set"),
        ("(?-m:abc$)", "the flag m stays set"),
        ("(?i-sm)abc$", "the flag m stays set"),
        ("(a{900}){900}", "invalid repetition size"),
    ],
)
def test_bad_expression_is_named(expression: str, why: str) -> None:
    """Before a line is read."""
    with pytest.raises(BadExpression, match=r".*") as caught:
        compiled(expression)

    assert why in str(caught.value)
