"""The queue of pipelines: each by one worker at a time, soon rather than often."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from logpipeline_operator import queue as subject
from logpipeline_operator.queue import Key, Queue
from waiting import eventually

ONE = Key("default", "one")
TWO = Key("default", "two")


async def test_triggers_at_once_are_one_look() -> None:
    """However often a pipeline is named before it is looked at, it is looked at once."""
    queue, looks = _queue(), []
    for _ in range(100):
        queue.add(ONE)

    async def look(key: Key) -> None:
        looks.append(key)

    await _run(queue, look, until=lambda: bool(looks))
    await _turns()

    assert looks == [ONE]


async def test_a_trigger_during_a_look_causes_another_one_after_it() -> None:
    """What changes while a pipeline is looked at is not lost, and never seen by two at once."""
    queue, running, most, looks = _queue(), 0, 0, 0

    async def look(key: Key) -> None:
        nonlocal running, most, looks
        running += 1
        most = max(most, running)
        looks += 1
        if looks == 1:
            queue.add(key)
        await _turns()
        running -= 1

    queue.add(ONE)
    await _run(queue, look, until=lambda: looks == 2)

    assert most == 1


async def test_an_event_right_after_a_look_waits_for_the_gap() -> None:
    """A rolling update causes an event for every step of a pod, be it after the look's end."""
    clock = Clock()
    queue, looks = Queue(clock=clock), []

    async def look(key: Key) -> None:
        looks.append(clock())

    queue.add(ONE)
    await _run(queue, look, until=lambda: len(looks) == 1)
    await _turns()
    queue.add(ONE)
    task = asyncio.ensure_future(queue.run(look))
    await _turns()
    assert len(looks) == 1
    clock.now += subject.GAP_S
    queue.add(TWO)
    await eventually(lambda: len(looks) == 3)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_failing_pipeline_does_not_stop_another() -> None:
    """An error in one look leaves the others alone, and the failed one is tried again later."""
    queue, looks = _queue(), []

    async def look(key: Key) -> None:
        looks.append(key)
        if key == ONE and looks.count(ONE) == 1:
            raise RuntimeError("a bug")

    queue.add(ONE)
    queue.add(TWO)
    await _run(queue, look, until=lambda: looks.count(ONE) == 2)

    assert TWO in looks


async def test_a_look_that_waits_for_what_another_cancels_has_failed_and_is_repeated() -> None:
    """CancelledError ends a task in silence: the pipeline would never be reconciled again."""
    queue, looks = _queue(), 0

    async def look(key: Key) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            answer.cancel()
            await answer

    queue.add(ONE)
    await _run(queue, look, until=lambda: looks == 2)


async def test_a_look_that_never_ends_is_given_up_and_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a limit it would block its pipeline, and one of the workers, for ever."""
    monkeypatch.setattr(subject, "RECONCILE_S_MAX", 0.01)
    queue, looks = _queue(), 0

    async def look(key: Key) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            await asyncio.Event().wait()

    queue.add(ONE)
    await _run(queue, look, until=lambda: looks == 2)


async def test_events_do_not_hurry_what_keeps_failing() -> None:
    """A pipeline that fails causes events itself; its back-off holds all the same."""
    clock = Clock()
    queue = Queue(clock=clock, jitter=lambda: 0.0)
    looks = 0

    async def look(key: Key) -> None:
        nonlocal looks
        looks += 1
        raise RuntimeError("still broken")

    queue.add(ONE)
    task = asyncio.create_task(queue.run(look))
    for _ in range(50):
        await _turns()
        queue.add(ONE)
        clock.now += 0.01
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    # Half a second has passed: the first look, and at most one more.
    assert looks <= 2


async def test_a_look_is_repeated_when_it_asks_for_it() -> None:
    """A look that says when it wants to look again is called again."""
    queue, looks = _queue(), 0

    async def look(key: Key) -> float | None:
        nonlocal looks
        looks += 1
        return 0.0 if looks < 3 else None

    queue.add(ONE)
    await _run(queue, look, until=lambda: looks == 3)

    assert looks == 3


async def test_slow_looks_of_one_namespace_keep_no_other_waiting() -> None:
    """However many of its pipelines are due, and whatever is due in others later."""
    queue, looks = _queue(), list[Key]()

    async def look(key: Key) -> None:
        looks.append(key)
        if key.namespace == "slow":
            await asyncio.Event().wait()

    for number in range(40):
        queue.add(Key("slow", f"p{number}"))
    queue.add(ONE, after_s=0.05)
    await _run(queue, look, until=lambda: ONE in looks)

    assert len(looks) == subject.NAMESPACE_WORKERS_MAX + 1


async def test_a_worker_that_is_free_serves_the_namespace_with_the_fewest_looks() -> None:
    """Not the one whose pipelines have been due for longest."""
    queue, looks, ends = _queue(), list[Key](), asyncio.Event()

    async def look(key: Key) -> None:
        looks.append(key)
        # The first one alone ever ends.
        await (ends if key == looks[0] else asyncio.Event()).wait()

    for number in range(40):
        queue.add(Key(f"slow-{number % 2}", f"p{number}"))
    task = asyncio.create_task(queue.run(look))
    await _turns()
    queue.add(ONE)
    await _turns()
    at_first = list(looks)
    ends.set()
    await eventually(lambda: len(looks) > len(at_first), what="another look")
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    assert len(at_first) == subject.WORKERS
    assert looks[-1] == ONE


async def test_so_many_at_once_and_no_more() -> None:
    """A thousand pipelines are looked after by a bounded number of workers."""
    queue, running, most, done = _queue(), 0, 0, 0

    async def look(key: Key) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await _turns()
        running -= 1
        done += 1

    for number in range(200):
        queue.add(Key(f"team-{number % 3}", f"p{number}"))
    await _run(queue, look, until=lambda: done == 200)

    assert most == subject.WORKERS


class Clock:
    """Time that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def _queue() -> Queue:
    return Queue(clock=asyncio.get_running_loop().time, jitter=lambda: 0.0)


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def _run(
    queue: Queue, look: Callable[[Key], Awaitable[float | None]], until: Callable[[], bool]
) -> None:
    task = asyncio.create_task(queue.run(look))
    await eventually(until, what="the looks")
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
