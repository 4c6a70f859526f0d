"""Each fault of docs/faults.md on one machine ends without a human: what was written before, during
and after it is collected.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.healing import part_faults, server_faults, stream_faults
from faults.healing.faults import Fault
from faults.healing.one_machine import HEALED_WITHIN_S, LOUD, QUIET, Machine, Outcome, since
from waiting import eventually

FAULTS = [*server_faults.FAULTS, *stream_faults.FAULTS, *part_faults.FAULTS]
NOTICED_WITHIN_S = 60.0
PAGE = Path(__file__).parents[2] / "docs" / "faults.md"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
async def test_a_fault_on_one_machine_ends_without_a_human(
    tmp_path: Path, fault: Fault, say: Callable[[str], None]
) -> None:
    """Nobody does anything but end what the fault itself is: every line is collected, and once."""
    async with Machine(tmp_path, fault.disk) as machine:
        machine.write(QUIET, 100)
        machine.write(LOUD, 300)
        await machine.collected()
        await machine.snapshot()
        await fault.before(machine)
        outcome = await _endure(machine, fault)

    say(f"| {fault.name} | {outcome.seconds:.1f} | {outcome.lost} | {outcome.twice} |")
    assert outcome.lost == 0
    assert outcome.twice == 0


async def _endure(machine: Machine, fault: Fault) -> Outcome:
    machine.mark()
    await fault.begin(machine)
    started = time.monotonic()
    machine.write(LOUD, 300)
    if fault.status:
        await eventually(
            lambda: _status_names(machine, fault.status),
            within_s=NOTICED_WITHIN_S,
            what=f"status says: {fault.status}",
        )
        started = time.monotonic()
    await fault.end(machine)
    machine.write(LOUD, 300)
    await machine.collected()
    if fault.says:
        await eventually(
            lambda: fault.says in machine.said(),
            within_s=NOTICED_WITHIN_S,
            what=f"up says: {fault.says}",
        )
    await eventually(
        lambda: _balances(machine, fault.leaves), within_s=HEALED_WITHIN_S, what="books balance"
    )
    seconds = since(started)
    # What repeats lines may do it until the very end.
    await machine.up.stop()
    return Outcome(seconds, *machine.count())


async def _status_names(machine: Machine, word: str) -> bool:
    said = await machine.problems()
    assert word in said, said
    return True


async def _balances(machine: Machine, leaves: str) -> bool:
    said = (await machine.problems()).strip()
    lines = [line for line in said.splitlines() if not (leaves and leaves in line)]
    assert lines in ([], ["no problems"]), said
    return True


def test_the_page_has_each_fault_once() -> None:
    """What the page promises is tried, and what is tried is promised."""
    rows = re.findall(r"^\| (.+?) \| [0-9.]+ \| 0 \| 0 \|$", PAGE.read_text(), re.MULTILINE)

    assert sorted(rows) == sorted(fault.name for fault in FAULTS)
