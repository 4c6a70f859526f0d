"""Only what is wrong with a message puts it aside; everything else is waited for."""

from __future__ import annotations

import pytest

from logpipeline.nats.connection import NoResponders, NotSent, OutcomeUnknown, TooLarge
from logpipeline.nats.jetstream import ApiError
from logpipeline_shipper.publish import PublishFailure, advice, classify


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (OutcomeUnknown("no answer"), PublishFailure.UNKNOWN),
        (NotSent("not connected"), PublishFailure.NOT_SENT),
        (NoResponders("nobody"), PublishFailure.NO_STREAM),
        (TooLarge(2, 1), PublishFailure.SPLIT),
        (
            ApiError("publish", 400, 10054, "message size exceeds maximum allowed"),
            PublishFailure.SPLIT,
        ),
        (ApiError("publish", 503, 10077, "maximum bytes exceeded"), PublishFailure.FULL),
        (ApiError("publish", 503, 10077, "maximum messages exceeded"), PublishFailure.FULL),
        (ApiError("publish", 500, 10047, "insufficient storage resources"), PublishFailure.FULL),
        (
            ApiError("publish", 400, 10109, "invalid operation on sealed stream"),
            PublishFailure.FULL,
        ),
        (ApiError("publish", 409, 10158, "in process"), PublishFailure.SOON),
        (ApiError("publish", 429, 10167, "too many requests"), PublishFailure.FULL),
        (
            ApiError("publish", 400, 10002, "resource limits exceeded for account"),
            PublishFailure.FULL,
        ),
        (ApiError("publish", 400, 10122, "account resources exceeded"), PublishFailure.FULL),
        (ApiError("publish", 403, 19999, "a refusal of a later server"), PublishFailure.FULL),
        (ApiError("publish", 400, 10097, "header size exceeds maximum"), PublishFailure.REFUSED),
    ],
)
def test_each_answer_has_one_meaning(error: Exception, failure: PublishFailure) -> None:
    """What becomes of the bytes hangs on the server's answer alone."""
    assert classify(error) is failure


def test_a_missing_stream_tells_what_to_do() -> None:
    """The message names the subject and the command."""
    text = advice(PublishFailure.NO_STREAM, "logs.p3.node-a", NoResponders("nobody"))

    assert text == "no stream has the subject logs.p3.node-a; run `logpipeline apply`"
