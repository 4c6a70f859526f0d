"""What can happen to the server of this machine, and to the files that it keeps."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from pathlib import Path

from faults.healing.faults import Fault
from faults.healing.one_machine import LOUD, SERVER, Machine, empty, remove
from waiting import eventually

LOCK = "owner.lock"


async def _kill(machine: Machine) -> None:
    machine.kill(SERVER)


async def _freeze(machine: Machine) -> None:
    machine.freeze(SERVER)


async def _thaw(machine: Machine) -> None:
    # Shorter than what `up` waits before it takes the server for frozen.
    await eventually(lambda: "does not answer" in machine.up.record().trouble, what="noticed")
    machine.up.thaw(SERVER)


async def _take_port(machine: Machine) -> None:
    port = int(machine.up.record().nats.rpartition(":")[2])
    stranger = socket.socket()
    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    machine.held = stranger
    machine.kill(SERVER)

    def is_taken() -> bool:
        try:
            stranger.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True

    await eventually(is_taken, what="the port is a stranger's")
    stranger.listen()


async def _give_port(machine: Machine) -> None:
    assert isinstance(machine.held, socket.socket)
    machine.held.close()


async def _fill(machine: Machine) -> None:
    await asyncio.to_thread(machine.disk.fill)


async def _free(machine: Machine) -> None:
    machine.disk.free()


async def _empty_store(machine: Machine) -> None:
    empty(_store(machine))


async def _remove_folder(machine: Machine) -> None:
    remove(machine.layout.server)


async def _empty_while_down(machine: Machine) -> None:
    machine.freeze(SERVER)
    empty(_store(machine), but=LOCK)
    machine.kill(SERVER)


async def _empty_while_all_is_down(machine: Machine) -> None:
    await machine.up.stop()
    machine.write(LOUD, 100)
    empty(_store(machine))
    machine.up.start()


async def _remove_stream_files(machine: Machine) -> None:
    names = await machine.streams("logs")
    for path in _store(machine).glob(f"jetstream/*/streams/{names[0]}"):
        remove(path)
    for path in _store(machine).glob(f"jetstream/*/streams/{names[1]}"):
        remove(path)


async def _cut_blocks(machine: Machine) -> None:
    machine.freeze(SERVER)
    for path in _log_files(machine, "*.blk", await machine.streams("logs")):
        os.truncate(path, path.stat().st_size // 2)
    machine.kill(SERVER)


async def _garble_blocks(machine: Machine) -> None:
    machine.freeze(SERVER)
    for path in _log_files(machine, "*.blk", await machine.streams("logs")):
        data = bytearray(path.read_bytes())
        for place in range(len(data) // 3, len(data), max(len(data) // 7, 1)):
            data[place] ^= 0xFF
        path.write_bytes(data)
    machine.kill(SERVER)


async def _remove_indexes(machine: Machine) -> None:
    machine.freeze(SERVER)
    for path in _store(machine).rglob("index.db"):
        path.unlink()
    machine.kill(SERVER)


async def _cut_descriptions(machine: Machine) -> None:
    machine.freeze(SERVER)
    for path in _log_files(machine, "meta.inf", await machine.streams("logs")):
        os.truncate(path, 0)
    machine.kill(SERVER)


async def _copy_store(machine: Machine) -> None:
    machine.freeze(SERVER)
    machine.set_aside(_store(machine))
    machine.up.thaw(SERVER)
    machine.write(LOUD, 300)
    await machine.collected()


async def _roll_back(machine: Machine) -> None:
    machine.freeze(SERVER)
    empty(_store(machine), but=LOCK)
    (machine.aside / LOCK).unlink(missing_ok=True)
    shutil.copytree(machine.aside, _store(machine), dirs_exist_ok=True)
    machine.kill(SERVER)


def _store(machine: Machine) -> Path:
    return machine.layout.server / "store"


def _log_files(machine: Machine, pattern: str, streams: list[str]) -> list[Path]:
    found = [path for path in _store(machine).rglob(pattern) if set(path.parts) & set(streams)]
    assert found, f"no {pattern} of {streams}"
    return found


ENDED, GONE = "nats-server ended", "were removed"
FAULTS = [
    Fault(name="nats-server killed", begin=_kill, says=ENDED),
    Fault(name="nats-server frozen for seconds", begin=_freeze, end=_thaw, says="does not answer"),
    Fault(name="nats-server frozen for ever", begin=_freeze, says="did not answer for"),
    Fault(
        name="nats-server killed, its port taken by another program for a while",
        begin=_take_port,
        end=_give_port,
        says="does not start",
        status="is in use",
    ),
    Fault(
        name="the server's disk full for a while",
        begin=_fill,
        end=_free,
        disk="nats",
        says="no space left on device",
        status="No space left",
    ),
    Fault(name="the store emptied while it runs", begin=_empty_store, says=GONE),
    Fault(name="the server's whole folder removed while it runs", begin=_remove_folder, says=GONE),
    Fault(name="the store emptied, nats-server killed", begin=_empty_while_down, says=ENDED),
    Fault(name="the store emptied while `up` is stopped", begin=_empty_while_all_is_down),
    Fault(
        name="the files of the log streams removed while it runs",
        begin=_remove_stream_files,
        says=GONE,
    ),
    Fault(name="blocks of the store cut in half", begin=_cut_blocks, says=ENDED),
    Fault(name="blocks of the store garbled", begin=_garble_blocks, says=ENDED),
    Fault(name="indexes of the store removed", begin=_remove_indexes, says=ENDED),
    Fault(name="descriptions of the streams cut to nothing", begin=_cut_descriptions, says=ENDED),
    Fault(
        name="the store put back to an older copy", before=_copy_store, begin=_roll_back, says=ENDED
    ),
]
