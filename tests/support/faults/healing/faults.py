"""The faults, by the names that docs/faults.md has them under."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from faults.healing.one_machine import Machine

Action = Callable[[Machine], Awaitable[None]]


async def nothing(machine: Machine) -> None:
    """The fault ends by itself, or never: nobody does anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: *begin* makes it, and *end* takes away what a machine cannot (a stranger's
    process, the lack of room). Lines are written before, between and after. *before* prepares.

    *says* is in what `up` logs; *status* is in what ``status --check`` says while it lasts.
    *disk* names the folder of the data that needs a disk of its own; *leaves* is a problem that
    `status` may go on naming, though each line is collected.
    """

    name: str
    begin: Action
    end: Action = nothing
    before: Action = nothing
    says: str = ""
    status: str = ""
    disk: str = ""
    leaves: str = ""
