"""Texts of others are made fit to be shown, and the table of reasons says what to do."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline_operator.status import Reason
from logpipeline_operator.status.facts import Finding, Part
from logpipeline_operator.status.reasons import markdown, reason_of
from logpipeline_operator.status.text import bounded, clean, counted, listed, numbered

EVENTS_ALONE = (Reason.DRIFT_CORRECTED, Reason.LOGINS_REFUSED)
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at nats://bob:pw@x.example:4222 and", "at nats://x.example:4222 and"),
        ("at tls://token@x", "at tls://x"),
        ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIi.c2ln!", "jwt (a token)!"),
        (f"seed {SEED} refused", "seed (a seed) refused"),
        ("x -----BEGIN USER NKEY SEED-----\nSUAC\n-----END USER NKEY SEED----- y", "x (a key) y"),
        ('{"password": "geheim", "a": 1}', '{"password": (hidden), "a": 1}'),
        ("token=abc next", "token=(hidden) next"),
        ("a\x1b[31m\nb\u202ec", "a\ufffd[31m b\ufffdc"),
        ("no answer on _INBOX.abc123.4", "no answer on _INBOX.*"),
        ("pod 0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f", "pod (an id)"),
    ],
)
def test_secrets_controls_and_what_changes_each_time_are_left_out(text: str, shown: str) -> None:
    """What remains is the same with each try, and safe on a terminal."""
    assert clean(text) == shown


@given(st.text(max_size=400), st.integers(3, 60))
def test_a_bounded_text_has_its_bytes_and_is_whole_where_it_fits(text: str, most: int) -> None:
    """The limit is in bytes, as Kubernetes counts, and no letter is cut in two."""
    cut = bounded(text, bytes_max=most)
    data = text.encode("utf-8", "replace")

    assert len(cut.encode()) <= most
    if len(data) <= most:
        assert cut.encode() == data
    else:
        assert cut.endswith("…")
        assert data.decode().startswith(cut[:-1])


def test_lists_are_short() -> None:
    """The first names, and how many more there are."""
    assert listed(["a", "b"]) == "a, b"
    assert listed(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert numbered([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert numbered(list(range(0, 40, 2))).endswith("and 12 more")
    assert (counted(1, "pod"), counted(2, "pod")) == ("1 pod", "2 pods")


def test_reasons_are_words_that_kubernetes_takes_and_each_says_what_it_means() -> None:
    """Programs compare reasons: each is there once, in CamelCase."""
    words = [reason.word for reason in Reason]

    assert len(set(words)) == len(words)
    for reason in Reason:
        assert re.fullmatch(r"([A-Z][a-z]+)+", reason.word.replace("NATS", "Nats"))
        assert reason.value.description.endswith(".")
        assert reason_of(reason.word) is reason
        is_bad = reason.rank < Reason.WORKING.rank
        assert bool(reason.value.do) == is_bad or reason in EVENTS_ALONE
        row = f"| `{reason.word}` | {reason.value.description} | {reason.value.do} |"
        assert row in markdown()
    assert reason_of("OfAnotherVersion") is None


def test_a_finding_says_what_is_and_what_to_do() -> None:
    """Two sentences; where the first tells it all, it stands alone."""
    what = "the Secret x does not exist"
    told = Finding(reason=Reason.SECRET_MISSING, part=Part.NATS, what=what)
    alone = Finding(reason=Reason.SECRET_MISSING, part=Part.NATS, what=what, advice="")

    assert told.message == f"{what}. {Reason.SECRET_MISSING.value.do}"
    assert alone.message == f"{what}."
