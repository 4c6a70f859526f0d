"""All short worlds that are played by hand, by their names, and how one is played."""

from __future__ import annotations

from simulated import (
    scripts_commit,
    scripts_files,
    scripts_one_stream,
    scripts_resend,
    scripts_succession,
)
from simulated.oracle import Outcome
from simulated.stage import Script, Stage
from simulated.world import World

MODULES = (
    scripts_succession,
    scripts_commit,
    scripts_resend,
    scripts_files,
    scripts_one_stream,
)

SCRIPTS: dict[str, Script] = {
    script.name: script for module in MODULES for script in module.SCRIPTS
}


async def played(world: World, name: str) -> Outcome:
    """Play the script *name* in *world*.

    Raises:
        WentWrong: something is not as it should be.
    """
    stage = Stage(world)

    async def play() -> None:
        await SCRIPTS[name].play(stage)
        await stage.end()

    return await world.play(play)


def aiming_at(defect: str) -> list[str]:
    """Return the scripts that aim at *defect*."""
    return [name for name, script in SCRIPTS.items() if defect in script.aims]
