"""What can happen to a collector and a shipper, to their folders, and to the resource."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from faults.healing.faults import Fault
from faults.healing.one_machine import COLLECTOR, LOUD, SERVER, SHIPPER, Machine, empty, remove
from waiting import eventually

AGAIN = "a part ended, starting it again"


async def _kill(machine: Machine, part: str) -> None:
    machine.kill(part)


async def _freeze(machine: Machine, part: str) -> None:
    # One that never answered is given minutes to start.
    await eventually(
        lambda: f"a part answers part={part}" in machine.up.full_log(), what="it answers"
    )
    machine.freeze(part)


async def _remove_folder(machine: Machine, part: str) -> None:
    remove(_folder(machine, part))


async def _remove_folder_and_kill(machine: Machine, part: str) -> None:
    machine.freeze(part)
    remove(_folder(machine, part))
    machine.kill(part)


async def _take_folder_away(machine: Machine) -> None:
    machine.freeze(COLLECTOR)
    _folder(machine, COLLECTOR).rename(machine.aside)
    before = machine.up.pids()[COLLECTOR]
    machine.kill(COLLECTOR)
    await eventually(lambda: machine.up.pids()[COLLECTOR] not in (0, before), what="it is back")
    await eventually(_folder(machine, COLLECTOR).is_dir, what="it has a folder again")


async def _bring_folder_back(machine: Machine) -> None:
    machine.freeze(COLLECTOR)
    remove(_folder(machine, COLLECTOR))
    machine.aside.rename(_folder(machine, COLLECTOR))
    machine.kill(COLLECTOR)


async def _garble(machine: Machine) -> None:
    machine.freeze(SHIPPER)
    for path in _positions(machine):
        path.write_bytes(b"\0garbage" * 64)
    machine.kill(SHIPPER)


async def _cut(machine: Machine) -> None:
    machine.freeze(SHIPPER)
    for path in _positions(machine):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    machine.kill(SHIPPER)


async def _copy(machine: Machine, part: str) -> None:
    machine.freeze(part)
    machine.set_aside(_folder(machine, part))
    machine.up.thaw(part)
    machine.write(LOUD, 300)
    await machine.collected()


async def _roll_back(machine: Machine, part: str) -> None:
    machine.freeze(part)
    machine.put_back(_folder(machine, part))
    machine.kill(part)


async def _fill(machine: Machine) -> None:
    await asyncio.to_thread(machine.disk.fill)


async def _free(machine: Machine) -> None:
    machine.disk.free()


async def _nonsense(machine: Machine) -> None:
    machine.aside.write_text(machine.up.file.read_text())
    machine.up.file.write_text("spec: [this is: no resource")
    machine.kill(SHIPPER, COLLECTOR)
    await eventually(lambda: "was not applied" in machine.said(), what="`up` says so")


async def _sense(machine: Machine) -> None:
    machine.up.file.write_text(machine.aside.read_text())


async def _remove_applied(machine: Machine) -> None:
    machine.layout.pipeline.unlink()
    machine.layout.run_file.unlink()
    await eventually(machine.layout.run_file.exists, what="the record is back")
    machine.kill(SHIPPER, COLLECTOR)


async def _crash(machine: Machine) -> None:
    machine.up.crash()
    machine.write(LOUD, 100)
    machine.up.start()


async def _kill_all(machine: Machine) -> None:
    machine.kill(SHIPPER, COLLECTOR, SERVER)


async def _everything(machine: Machine) -> None:
    machine.freeze(SHIPPER, COLLECTOR, SERVER)
    remove(machine.layout.logins)
    machine.layout.pipeline.unlink()
    empty(machine.layout.server / "store")
    machine.kill(SHIPPER, COLLECTOR, SERVER)


def _folder(machine: Machine, part: str) -> Path:
    if part == COLLECTOR:
        return machine.layout.collector(COLLECTOR)
    return machine.layout.shipper(part.removeprefix("shipper-"))


def _positions(machine: Machine) -> list[Path]:
    root = _folder(machine, SHIPPER)
    found = [path for path in root.rglob("*") if path.is_file() and path.stat().st_size]
    assert found, f"{root} holds no state"
    return found


FAULTS = [
    Fault(name="all processes killed at once", begin=_kill_all, says="nats-server ended"),
    Fault(name="`up` killed, and started again", begin=_crash),
    *(
        fault
        for word, part, data, gone in (
            ("collector", COLLECTOR, f"collectors/{COLLECTOR}", ""),
            ("shipper", SHIPPER, "shippers/web", "it is made anew"),
        )
        for fault in (
            Fault(name=f"{word} killed", begin=partial(_kill, part=part), says=AGAIN),
            Fault(
                name=f"{word} frozen for ever",
                begin=partial(_freeze, part=part),
                says="does not answer",
            ),
            Fault(
                name=f"{word}'s folder removed while it runs",
                begin=partial(_remove_folder, part=part),
                says=gone,
            ),
            Fault(
                name=f"{word} killed, its folder removed",
                begin=partial(_remove_folder_and_kill, part=part),
                says=AGAIN,
            ),
            Fault(
                name=f"{word}'s folder put back to an older copy",
                before=partial(_copy, part=part),
                begin=partial(_roll_back, part=part),
                says=AGAIN,
            ),
            Fault(
                name=f"{word}'s disk full for a while",
                begin=_fill,
                end=_free,
                disk=data,
                status="No space left",
            ),
        )
    ),
    Fault(name="shipper's state garbled", begin=_garble, says=AGAIN),
    Fault(name="shipper's state cut in half", begin=_cut, says=AGAIN),
    Fault(
        name="collector's folder away, and back",
        begin=_take_folder_away,
        end=_bring_folder_back,
        says=AGAIN,
    ),
    Fault(
        name="the resource's file nonsense for a while, parts killed",
        begin=_nonsense,
        end=_sense,
        says="was not applied",
    ),
    Fault(
        name="what `up` keeps of the resource removed, parts killed",
        begin=_remove_applied,
        says=AGAIN,
    ),
    Fault(
        name="the store and all own files removed, all processes killed",
        begin=_everything,
        # `up` may see the files away before it sees the process away.
        says="starting nats-server again",
    ),
]
