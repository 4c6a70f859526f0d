"""What others can do to streams, buckets and credentials, with the rights of the server's owner."""

from __future__ import annotations

from functools import partial

from faults.healing.faults import Fault
from faults.healing.one_machine import COLLECTOR, SERVER, SHIPPER, Machine, remove
from logpipeline.plan.observe import consumers_of

REPAIRED = "repaired streams or consumers"
# Of a partition that has no lines; its owner writes its record again with the next one.
IDLE = "no collector owns partition"


async def _delete(machine: Machine, kind: str) -> None:
    async with machine.jetstream() as js:
        for name in await machine.streams(kind):
            await js.call(f"STREAM.DELETE.{name}")


async def _purge(machine: Machine, kind: str) -> None:
    async with machine.jetstream() as js:
        for name in await machine.streams(kind):
            await js.call(f"STREAM.PURGE.{name}")


async def _delete_consumers(machine: Machine) -> None:
    async with machine.jetstream() as js:
        for name in await machine.streams("logs"):
            for consumer in await consumers_of(js, name):
                await js.consumer_delete(name, consumer["name"])


async def _recreate(machine: Machine) -> None:
    async with machine.jetstream() as js:
        for name in await machine.streams("logs"):
            config = (await js.call(f"STREAM.INFO.{name}"))["config"]
            await js.call(f"STREAM.DELETE.{name}")
            await js.call(f"STREAM.CREATE.{name}", config)


async def _change(machine: Machine) -> None:
    async with machine.jetstream() as js:
        for name in await machine.streams("logs"):
            config = (await js.call(f"STREAM.INFO.{name}"))["config"]
            await js.call(f"STREAM.UPDATE.{name}", config | {"max_msgs": 1, "discard": "new"})


async def _remove_logins(machine: Machine) -> None:
    remove(machine.layout.logins)
    machine.kill(SERVER, SHIPPER, COLLECTOR)


async def _wrong_logins(machine: Machine) -> None:
    for path in machine.layout.logins.glob("*/*"):
        path.write_text("of another server")
    machine.kill(SERVER, SHIPPER, COLLECTOR)


FAULTS = [
    *(
        Fault(name=f"{what} deleted", begin=partial(_delete, kind=kind), says=REPAIRED, leaves=IDLE)
        for what, kind in (
            ("log streams", "logs"),
            ("the bucket of states", "state"),
            ("the stream of snapshots", "snapshots"),
            ("the stream of dead letters", "letters"),
            ("all streams and buckets", "all"),
        )
    ),
    *(
        Fault(name=f"{what} purged", begin=partial(_purge, kind=kind), leaves=IDLE)
        for what, kind in (
            ("log streams", "logs"),
            ("the bucket of states", "state"),
            ("the stream of snapshots", "snapshots"),
            ("all streams and buckets", "all"),
        )
    ),
    Fault(name="log streams deleted and made anew by others", begin=_recreate),
    Fault(name="consumers of collectors deleted", begin=_delete_consumers),
    Fault(name="log streams changed to take no further message", begin=_change, says=REPAIRED),
    Fault(
        name="the logins of all parts removed, all parts killed",
        begin=_remove_logins,
        says="restored credential files",
    ),
    Fault(
        name="the logins of all parts wrong, all parts killed",
        begin=_wrong_logins,
        says="restored credential files",
    ),
]
