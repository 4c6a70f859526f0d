"""An API server that refuses, answers late or loses its answers, and NATS that is away: the
operator goes on when it can, does not storm, and says meanwhile what is wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from api_server.recording_proxy import Asked, Fault, Lose, Refuse
from api_server.world import FORMER, LATTER, World
from logpipeline.embedded import EmbeddedServer
from waiting import eventually

pytest_plugins = ["api_server.world_fixture"]

# A look has some 15 requests, and is tried again after a pause that doubles.
REQUESTS_PER_S_MAX = 60
WATCHED_S = 3.0


# Without an answer a look ends, and the pause before the next one doubles: two are enough.
LOST = ("/statefulsets/", "/status")


def once_each(fault: Fault) -> Callable[[Asked], Fault | None]:
    """Do *fault* to the first request of each kind that writes."""
    seen: set[tuple[str, str]] = set()

    def judge(asked: Asked) -> Fault | None:
        request = asked.method, asked.path
        if not asked.write or request in seen:
            return None
        seen.add(request)
        is_spared = isinstance(fault, Lose) and not any(part in asked.path for part in LOST)
        return None if is_spared else fault

    return judge


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Refuse(409, "Conflict"), marks=pytest.mark.smoke),
        Refuse(429, "TooManyRequests", retry_after_s=1),
        Refuse(500, "InternalError"),
        Refuse(503, "ServiceUnavailable"),
        Lose(),
    ],
    ids=lambda fault: str(getattr(fault, "status", "lost")),
)
async def test_operator_whose_every_write_fails_once_gets_there(here: World, fault: Fault) -> None:
    """Create, update and delete, with each write refused or its answer lost when it is new."""
    operator = here.operator("--no-lease")
    here.proxy.judge = once_each(fault)
    await here.apply(FORMER)
    operator.start()
    await here.settles()
    here.proxy.judge = once_each(fault)
    here.writes.forget()
    await here.apply(LATTER)
    state = await here.settles()
    operator.kill()
    await here.has_nothing_to_do()
    operator.start()
    here.proxy.judge = once_each(fault)
    await here.delete()

    assert set(state["children"]) >= {"StatefulSet p-collector", "DaemonSet p-shipper"}
    parts = ("resource", "binding", "jetstream")
    await here.until(lambda state: [f"there is {part}" for part in parts if state[part]])


@pytest.mark.parametrize("status", [409, 429, 500, 503])
async def test_operator_says_what_is_refused_and_does_not_storm(here: World, status: int) -> None:
    """A child that is refused for a while keeps none of the others back, and shows as the reason;
    requests stay few.
    """

    def judge(asked: Asked) -> Fault | None:
        return Refuse(status, "Refused", 0) if asked.write and "/services/" in asked.path else None

    here.proxy.judge = judge
    operator = here.operator("--no-lease")
    await here.apply(FORMER)
    operator.start()

    async def is_said() -> bool:
        ready = await here.condition("Ready")
        return ready.get("status") == "False" and "Service p-collector" in ready["message"]

    await eventually(is_said, what="the refusal is said")
    here.proxy.asked.clear()
    since = time.monotonic()
    await eventually(lambda: time.monotonic() - since > WATCHED_S, within_s=WATCHED_S + 5)
    rate = len(here.proxy.asked) / (time.monotonic() - since)
    here.writes.forget()
    here.proxy.judge = lambda asked: None
    state = await here.settles()
    operator.kill()

    assert rate < REQUESTS_PER_S_MAX
    assert "Service p-collector" in state["children"]
    assert "Service" not in (await here.condition("Ready"))["message"]
    await here.has_nothing_to_do()


async def test_operator_says_that_nats_is_away_and_goes_on_when_it_is_back(
    here: World, nats_server: EmbeddedServer
) -> None:
    """A change made meanwhile reaches JetStream then, and nobody is sent away before."""
    operator = here.operator("--no-lease")
    await here.apply(FORMER)
    operator.start()
    await here.settles()
    nats_server.kill()

    async def is_said() -> bool:
        streams = await here.condition("StreamsReady")
        return bool(streams["reason"] == "NatsUnreachable")

    await here.apply(LATTER)
    await eventually(is_said, what="NATS is said to be away")
    here.writes.forget()
    await nats_server.start()

    async def is_back() -> bool:
        return bool((await here.condition("StreamsReady"))["status"] == "True")

    await eventually(is_back, what="NATS is said to be back")
    state = await here.settles()
    operator.kill()

    assert (await here.condition("StreamsReady"))["status"] == "True"
    consumers = state["jetstream"]["LP_NAMESPACE_p_0"]["consumers"]
    assert consumers["audit"]["max_ack_pending"] == LATTER["consumers"][0]["maxAckPending"]
    await here.has_nothing_to_do()
