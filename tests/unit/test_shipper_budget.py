"""Bytes in flight stay below one limit, and nobody waits for ever."""

from __future__ import annotations

import asyncio

from logpipeline_shipper.shared import ByteBudget


async def test_waiters_are_served_in_their_order() -> None:
    """A small wish does not overtake a large one that came before it."""
    budget, served = ByteBudget(10), []
    await budget.take(10)

    async def want(name: str, size: int) -> None:
        await budget.take(size)
        served.append(name)

    waiting = [asyncio.create_task(want("large", 9)), asyncio.create_task(want("small", 1))]
    await asyncio.sleep(0)
    assert not budget.try_take(1)
    budget.give_back(10)
    await asyncio.gather(*waiting)

    assert served == ["large", "small"]
    assert budget.used == 10


async def test_more_than_the_limit_passes_alone() -> None:
    """A batch larger than the budget must not stand still for ever."""
    budget = ByteBudget(10)

    await budget.take(50)

    assert not budget.try_take(1)


async def test_who_stops_waiting_takes_nothing() -> None:
    """A cancelled source holds no bytes, and the next one is served."""
    budget = ByteBudget(10)
    await budget.take(10)
    first, second = asyncio.create_task(budget.take(5)), asyncio.create_task(budget.take(5))
    await asyncio.sleep(0)

    first.cancel()
    budget.give_back(10)
    first_result = (await asyncio.gather(first, second, return_exceptions=True))[0]

    assert isinstance(first_result, asyncio.CancelledError)
    assert budget.used == 5
