"""What no server answers for is noted by its name, and hides nothing else."""

from __future__ import annotations

import pytest

from logpipeline.nats.connection import Denied, NoResponders, NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import STREAM_NOT_FOUND, ApiError, NoStream
from logpipeline.nats.unanswered import AllAnswered, Unanswered

SILENT = OutcomeUnknown("no answer on STREAM.INFO.LP_0 in 5 s")
# nats-server's answer for a stream whose servers are all away.
LEADERLESS = ApiError("STREAM.INFO.LP_0", 503, 10008, "JetStream system temporarily unavailable")
# The answer to a direct get from a stream whose only server is down.
NO_RESPONDERS = NoResponders("nothing answers on $JS.API.DIRECT.GET.KV_LP_state")
NO_STREAM = ApiError("STREAM.INFO.LP_0", 404, STREAM_NOT_FOUND, "stream not found")


class FakeServer:
    """A server with parts. It answers with the name of the part that is asked for, or raises the
    error that *errors* has for this part.
    """

    def __init__(self, **errors: Exception) -> None:
        self.errors = errors
        self.asked: list[str] = []

    async def ask(self, unanswered: Unanswered, part: str) -> str:
        return await unanswered.ask(part, lambda: self._answer(part), "nothing")

    async def _answer(self, part: str) -> str:
        self.asked.append(part)
        if part in self.errors:
            raise self.errors[part]
        return part


@pytest.mark.parametrize(
    "error", [SILENT, LEADERLESS, NO_RESPONDERS], ids=["silent", "leaderless", "no-responders"]
)
async def test_a_part_that_does_not_answer_is_noted_and_not_asked_again(error: Exception) -> None:
    """Each time would take as long as the first one; the others answer."""
    server, unanswered = FakeServer(a=error), Unanswered()
    answers = [await server.ask(unanswered, part) for part in ("a", "b", "a")]

    assert answers == ["nothing", "b", "nothing"]
    assert server.asked == ["a", "b"]
    assert unanswered.reasons == {"a": str(error)}


@pytest.mark.parametrize(
    "error",
    [
        NO_STREAM,
        NotSent("not connected"),
        Denied("$JS.API.STREAM.INFO.LP_0"),
        NoStream("the stream KV_LP_state does not exist"),
    ],
    ids=["refused", "not-connected", "denied", "not-there"],
)
async def test_what_is_wrong_with_all_parts_or_with_the_request_is_no_silence(
    error: Exception,
) -> None:
    """It is raised."""
    unanswered = Unanswered()
    with pytest.raises(type(error)):
        await FakeServer(a=error).ask(unanswered, "a")

    assert unanswered.reasons == {}


async def test_a_server_that_answers_for_nothing_is_silent_as_a_whole() -> None:
    """There is no rest to show."""
    server, unanswered = FakeServer(a=SILENT, b=SILENT), Unanswered()
    for part in ("a", "b", "c"):
        await server.ask(unanswered, part)

    unanswered.check(["a", "b", "c"])
    with pytest.raises(OutcomeUnknown, match="no answer"):
        unanswered.check(["a", "b"])


async def test_where_all_have_to_answer_a_silent_part_raises() -> None:
    """Who waits for lines to be collected must not take silence for "nothing to do"."""
    with pytest.raises(OutcomeUnknown):
        await FakeServer(a=SILENT).ask(AllAnswered(), "a")
