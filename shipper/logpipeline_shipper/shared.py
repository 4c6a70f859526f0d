"""What all sources of one shipper have in common, handed to each of them as one value."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from logpipeline_shipper.budget import ByteBudget
from logpipeline_shipper.config import BatchOptions
from logpipeline_shipper.intents import IntentLog
from logpipeline_shipper.quarantine import Quarantine
from logpipeline_shipper.sending import Sender

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


@dataclass(slots=True)
class Totals:
    """What all sources together did; sources that are gone stay counted."""

    progress: int = 0
    lines: int = 0
    filled_bytes: int = 0
    unhealed_bytes: int = 0
    unnamed_bytes: int = 0
    doubts: int = 0
    failures: int = 0


@dataclass(slots=True, kw_only=True)
class Shared:
    """The means of every pump. *changed* is called when there is something to save."""

    sender: Sender
    budget: ByteBudget
    intents: IntentLog
    quarantine: Quarantine
    options: BatchOptions
    threads: ThreadPoolExecutor
    spawn: Spawn
    changed: Callable[[], None]
    clock: Callable[[], float]
    is_stopping: bool = False
    totals: Totals = field(default_factory=Totals)
