"""Refused logins are told by what was shown, seldom, and however many there are."""

from __future__ import annotations

import json

import pytest

from logpipeline_operator.callout.refusals import (
    ADDRESS_CHARS_MAX,
    REPORT_EVERY_S,
    Cause,
    Refusals,
    RefusedLogins,
)
from logpipeline_operator.queue import Key

KEY = Key("logging", "prod")


class Callout:
    """A callout that refuses."""

    def __init__(self, name: str = "a") -> None:
        self.refusals = Refusals(name)

    def refuse(self, cause: Cause, times: int = 1, address: str = "10.0.0.7") -> None:
        for _ in range(times):
            self.refusals.note(cause, address)

    def answer(self) -> Refusals:
        found = Refusals.decode(self.refusals.encode())
        assert found is not None
        return found


def test_many_refusals_are_told_together_and_seldom() -> None:
    """By cause, the most frequent first; what comes meanwhile is told with the next news."""
    now_s = [0.0]
    logins, callout, other = RefusedLogins(clock=lambda: now_s[0]), Callout(), Callout("b")

    def news() -> str:
        return logins.news(KEY, [callout.answer(), other.answer()])

    at_first = news()
    callout.refuse(Cause.OTHER_AUDIENCE, 2)
    other.refuse(Cause.OTHER_AUDIENCE, 1, "10.0.0.9")
    callout.refuse(Cause.NO_TOKEN, 1)
    first = news()
    callout.refuse(Cause.NO_TOKEN, 1000)
    now_s[0] += REPORT_EVERY_S - 1
    soon = news()
    now_s[0] += 1
    second, third = news(), news()

    assert (at_first, soon, third) == ("", "", "")
    assert first == (
        "3 with a token for another audience (last from 10.0.0.9); "
        "1 without a token (last from 10.0.0.7)"
    )
    assert second == "1000 without a token (last from 10.0.0.7)"


def test_what_was_refused_before_an_operator_came_is_old() -> None:
    """A new operator tells of what is new; a callout that began anew counts from nothing."""
    logins, callout = RefusedLogins(clock=lambda: 0.0), Callout()
    callout.refuse(Cause.UNKNOWN_KEY, 5)
    before = logins.news(KEY, [callout.answer()])
    again = Callout("another")
    again.refuse(Cause.UNKNOWN_KEY, 2)

    assert before == ""
    assert logins.news(KEY, [again.answer()]).startswith("2 with a token that this cluster")
    logins.forget(KEY)
    assert logins.news(KEY, [again.answer()]) == ""


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b"x" * 10_000, b'{"callout": "a", "refused": {"no-token": 1}}',
     b'{"callout": "a", "refused": []}'],
)  # fmt: skip
def test_what_is_no_answer_is_nothing(data: bytes) -> None:
    """Whoever may answer there may answer anything."""
    assert Refusals.decode(data) is None


def test_an_answer_holds_causes_that_are_known_and_no_long_words() -> None:
    """One of another version may know more, and an address is no place for a text."""
    callout = Callout()
    callout.refuse(Cause.MALFORMED, address="x" * 500)
    answer = json.loads(callout.refusals.encode())
    answer["refused"]["of-a-later-version"] = [3, ""]
    found = Refusals.decode(json.dumps(answer).encode())

    assert found is not None
    assert dict(found.counts) == {Cause.MALFORMED: 1}
    assert found.addresses == {Cause.MALFORMED: "x" * ADDRESS_CHARS_MAX}
