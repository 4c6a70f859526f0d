"""An operator that is killed right after any single write, to Kubernetes or to JetStream: the next
one finishes the work, and what there is then is what an undisturbed operator leaves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count

import pytest

from api_server.states import State, differences
from api_server.world import FORMER, LATTER, World
from faults.settings import is_soak

pytest_plugins = ["api_server.world_fixture"]

# Fewer would mean that the writes are not counted.
CREATE_WRITES_MIN = 20
UPDATE_WRITES_MIN = 10
DELETE_WRITES_MIN = 6
# Processes share the kills: one test has those after the first write, the fifth, and so on. A soak
# has a kill after each write, else every other one is enough.
SHARES = 4
TRIED = range(SHARES) if is_soak() else range(0, SHARES, 2)
GONE: State = {"resource": None, "children": {}, "binding": None, "allowed": [], "jetstream": {}}


def share_of(writes: int, share: int) -> int:
    """How many of the first *writes* are the *share*'s."""
    return len(range(share, writes, SHARES))


async def undisturbed(here: World, change: Callable[[], Awaitable[None]]) -> State:
    """What an operator that nobody kills makes of *change*."""
    operator = here.operator("--no-lease")
    here.writes.forget()
    await change()
    operator.start()
    state = await here.settles()
    operator.kill()
    return state


async def deleted(here: World) -> None:
    """Have an operator that nobody kills clean up, and see that all of the pipeline goes."""
    operator = here.operator("--no-lease")
    await here.delete()
    operator.start()
    await here.becomes(GONE)
    operator.kill()


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


@pytest.mark.parametrize("share", TRIED)
async def test_operator_killed_after_any_write_of_a_create_or_delete(
    here: World, say: Callable[[str], None], share: int
) -> None:
    """Whichever write it was, the pipeline is then made, and unmade, as by an undisturbed one."""
    made = await undisturbed(here, lambda: here.apply(FORMER))
    await deleted(here)
    assert made["binding"] is not None

    creates, deletes, is_deleting = 0, 0, True
    for after in count(1 + share, SHARES):
        async with here.another_namespace():
            was_cut = await cut(here, lambda: here.apply(FORMER), made, after=after)
            creates += was_cut
            if is_deleting:
                is_deleting = await cut(here, here.delete, GONE, after=after)
                deletes += is_deleting
        if not was_cut:
            break

    say(f"{creates} kills in creates, {deletes} in deletes")
    assert creates >= share_of(CREATE_WRITES_MIN, share)
    assert deletes >= share_of(DELETE_WRITES_MIN, share)


@pytest.mark.smoke
async def test_operator_killed_in_the_middle_of_a_create_and_of_a_delete(here: World) -> None:
    """One of those writes each, before all others are tried: the next operator ends the work."""
    made = await undisturbed(here, lambda: here.apply(FORMER))
    await deleted(here)

    async with here.another_namespace():
        was_created = await cut(
            here, lambda: here.apply(FORMER), made, after=CREATE_WRITES_MIN // 2
        )
        was_deleted = await cut(here, here.delete, GONE, after=DELETE_WRITES_MIN // 2)

    assert was_created
    assert was_deleted


@pytest.mark.parametrize("share", TRIED)
async def test_operator_killed_after_any_write_of_an_update(
    here: World, say: Callable[[str], None], share: int
) -> None:
    """There and back, with collectors and children becoming fewer and more: what there is then is
    what the resource says.
    """
    await undisturbed(here, lambda: here.apply(FORMER))
    latter = await undisturbed(here, lambda: here.apply(LATTER))
    former = await undisturbed(here, lambda: here.apply(FORMER))

    kills = 0
    for after in count(1 + share, SHARES):
        there = await cut(here, lambda: here.apply(LATTER), latter, after=after)
        back = await cut(here, lambda: here.apply(FORMER), former, after=after)
        kills += there + back
        if not there and not back:
            break

    say(f"{kills} kills in updates")
    assert kills >= 2 * share_of(UPDATE_WRITES_MIN, share)
