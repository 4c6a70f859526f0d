"""How often the operator looks at what is not settled."""

from __future__ import annotations

from logpipeline_operator.queue import Backoff, Key
from logpipeline_operator.settings import LOOK_AGAIN_S as FIRST_WAIT_S

KEY = Key("logging", "prod")
OTHER = Key("logging", "other")


def test_what_does_not_change_is_looked_at_ever_later() -> None:
    """Twice as late each time, and at last as seldom as everything else."""
    patience = Backoff(first_s=FIRST_WAIT_S, longest_s=30.0)

    assert [patience.wait_s(KEY, "7") for _ in range(6)] == [3.0, 6.0, 12.0, 24.0, 30.0, 30.0]


def test_anything_new_is_followed_closely_again() -> None:
    """Of one pipeline; another one goes on to wait."""
    patience = Backoff(first_s=FIRST_WAIT_S, longest_s=30.0)
    for key in (KEY, OTHER, KEY, OTHER):
        patience.wait_s(key, "7")

    assert patience.wait_s(KEY, "8") == FIRST_WAIT_S
    assert patience.wait_s(OTHER, "7") == 12.0


def test_a_short_period_makes_nobody_hurry() -> None:
    """The first wait is also the shortest."""
    patience = Backoff(first_s=FIRST_WAIT_S, longest_s=1.0)

    assert [patience.wait_s(KEY, "7") for _ in range(3)] == [FIRST_WAIT_S] * 3


def test_a_pipeline_that_went_and_came_back_is_a_new_one() -> None:
    """Nothing is kept of those that are gone."""
    patience = Backoff(first_s=FIRST_WAIT_S, longest_s=30.0)
    for _ in range(3):
        patience.wait_s(KEY, "7")
    patience.keep_only([OTHER])

    assert patience.wait_s(KEY, "7") == FIRST_WAIT_S
