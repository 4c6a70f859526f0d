"""An operator that is killed right after any single write, to Kubernetes or to JetStream: the next
one finishes the work, and what there is then is what an undisturbed operator leaves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count

import pytest

from cluster_states import State, differences
from cluster_world import FORMER, LATTER, SETTLED_S, World

pytest_plugins = ["cluster_world_fixture"]

# Fewer would mean that the writes are not counted.
CREATE_WRITES_MIN = 20
UPDATE_WRITES_MIN = 10
DELETE_WRITES_MIN = 6


async def undisturbed(here: World, change: Callable[[], Awaitable[None]]) -> State:
    """What an operator that nobody kills makes of *change*."""
    operator = here.operator("--no-lease")
    here.writes.forget()
    await change()
    operator.start()
    state = await here.settles(SETTLED_S)
    operator.kill()
    return state


async def cut(
    here: World, change: Callable[[], Awaitable[None]], wanted: State, *, after: int
) -> bool:
    """Have *change* made while the operator is killed after so many writes; return whether it came
    to that, once what there is is *wanted*.
    """
    operator = here.operator("--no-lease")

    def kill(number: int) -> None:
        if number == after:
            operator.signal_death()

    here.writes.forget()
    here.writes.on_write = kill
    await change()
    operator.start()
    await here.until(
        lambda state: differences(state, wanted), unless=lambda: not operator.is_running
    )
    here.writes.on_write = lambda number: None
    was_killed = not operator.is_running
    if was_killed:
        operator.start()
        await here.becomes(wanted)
    operator.kill()
    return was_killed


@pytest.mark.timeout(480)
async def test_operator_killed_after_any_write_of_a_create_or_delete(
    here: World, say: Callable[[str], None]
) -> None:
    """Whichever write it was, the pipeline is then made, and unmade, as by an undisturbed one."""
    made = await undisturbed(here, lambda: here.apply(FORMER))
    gone = await undisturbed(here, here.delete)
    assert gone["resource"] is None
    assert gone["binding"] is None
    assert gone["jetstream"] == {}
    assert made["binding"] is not None

    creates, deletes, is_deleting = 0, 0, True
    for after in count(1):
        async with here.another_namespace():
            was_cut = await cut(here, lambda: here.apply(FORMER), made, after=after)
            creates += was_cut
            if is_deleting:
                is_deleting = await cut(here, here.delete, gone, after=after)
                deletes += is_deleting
        if not was_cut:
            break

    say(f"{creates} kills in creates, {deletes} in deletes")
    assert creates >= CREATE_WRITES_MIN
    assert deletes >= DELETE_WRITES_MIN


@pytest.mark.timeout(480)
async def test_operator_killed_after_any_write_of_an_update(
    here: World, say: Callable[[str], None]
) -> None:
    """There and back, with collectors and children becoming fewer and more: what there is then is
    what the resource says.
    """
    await undisturbed(here, lambda: here.apply(FORMER))
    latter = await undisturbed(here, lambda: here.apply(LATTER))
    former = await undisturbed(here, lambda: here.apply(FORMER))

    kills = 0
    for after in count(1):
        there = await cut(here, lambda: here.apply(LATTER), latter, after=after)
        back = await cut(here, lambda: here.apply(FORMER), former, after=after)
        kills += there + back
        if not there and not back:
            break

    say(f"{kills} kills in updates")
    assert kills >= 2 * UPDATE_WRITES_MIN
