"""What an operator hears late, twice, or not at all, and what it reads from the past: it comes to
the state that the resource asks for, and stays there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import count

import pytest

from api_server.recording_proxy import Asked, Cut, Old, Relayed, Wait
from api_server.world import FORMER, LATTER, World
from logpipeline_operator.queue import GAP_S

pytest_plugins = ["api_server.world_fixture"]

LATE_S = 0.7
# Of some 15 requests a look, and four looks a second.
REQUESTS_PER_S_MAX = 80
# So many by the operator's timer, when nothing happens.
LOOKS = 4
GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
EXPIRED = json.dumps({"type": "ERROR", "object": GONE}).encode()


def cut(asked: Asked, event: bytes) -> Relayed:
    """End each watch after its first event."""
    return [event, Cut()]


def late(asked: Asked, event: bytes) -> Relayed:
    """Tell of each event when others have followed."""
    return [Wait(LATE_S), event]


def repeated(asked: Asked, event: bytes) -> Relayed:
    """Tell of each event twice."""
    return [event, event]


def dropped(asked: Asked, event: bytes) -> Relayed:
    """Tell of nothing."""
    return []


def expired() -> Callable[[Asked, bytes], Relayed]:
    """Have every third event be that the version is too old."""
    numbers = count()
    return lambda asked, event: [event] if next(numbers) % 3 else [EXPIRED, Cut()]


@pytest.mark.parametrize("relay", [cut, late, repeated, dropped, expired()])
async def test_operator_gets_there_and_stays_whatever_becomes_of_its_watches(
    here: World, relay: Callable[[Asked, bytes], Relayed]
) -> None:
    """A create and an update through bad watches leave nothing to be done for the next operator."""
    here.proxy.relay = relay
    operator = here.operator("--no-lease")
    await here.apply(FORMER)
    operator.start()
    await here.settles()
    here.proxy.asked.clear()
    here.writes.forget()
    since = time.monotonic()
    await here.apply(LATTER)
    state = await here.settles()
    seconds = time.monotonic() - since
    rate, looks = len(here.proxy.asked) / seconds, here.looks()
    operator.kill()

    assert rate < REQUESTS_PER_S_MAX
    # The first look is free, and one may have begun before.
    assert looks <= 2 + seconds / GAP_S
    assert [row["name"] for row in state["resource"]["status"]["collectors"]["assignments"]] == [
        "p-collector-0"
    ]
    await here.has_nothing_to_do()


async def test_operator_that_is_shown_the_past_ends_in_the_present(here: World) -> None:
    """Old answers to each of its lists and gets, once each, change nothing that lasts."""
    operator = here.operator("--no-lease")
    await here.apply(FORMER)
    operator.start()
    await here.settles()
    here.writes.forget()
    await here.apply(LATTER)
    wanted = await here.settles()
    seen: set[str] = set()

    def judge(asked: Asked) -> Old | None:
        if asked.method != "GET" or asked.is_watch or asked.path in seen:
            return None
        seen.add(asked.path)
        return Old()

    here.proxy.judge = judge
    here.proxy.asked.clear()
    await here.until(lambda _: [] if here.looks() > 2 else ["it has not looked yet"])
    await here.becomes(wanted)
    operator.kill()

    assert any("statefulsets" in path for path in seen)
    await here.has_nothing_to_do()


async def test_operator_of_an_idle_pipeline_writes_nothing(
    here: World, say: Callable[[str], None]
) -> None:
    """Neither to Kubernetes nor to NATS, however often it looks."""
    operator = here.operator("--no-lease")
    await here.apply(FORMER)
    operator.start()
    await here.settles()
    here.proxy.asked.clear()
    here.writes.forget()
    await here.until(lambda _: [] if here.looks() >= LOOKS else ["it has not looked so often yet"])

    say(f"{here.looks()} looks and {len(here.proxy.asked)} requests, no write")
    assert here.writes.names() == []
