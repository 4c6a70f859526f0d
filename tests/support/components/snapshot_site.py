"""A partition whose snapshots go nowhere, for schedules of them."""

from __future__ import annotations

from concurrent.futures import Executor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from logpipeline.group.ownership import Fenced
from logpipeline.nats.connection import NotSent
from logpipeline.records import StreamPosition
from logpipeline_collector.metrics import CollectorMetrics
from logpipeline_collector.snapshot_schedule import SnapshotSchedule
from logpipeline_collector.snapshots import SnapshotBroken
from logpipeline_collector.stream_position import Marks

EVERY_S = 100.0
FORMER, STORED = 5, 9


class SnapshotSite:
    """A partition with its store; what is done is noted in *done*, in order. At *broken* the store
    fails, at *away* no server answers; a fake, since no server fails at a chosen step.
    """

    def __init__(self, folder: Path, executor: Executor, *, every_s: float = EVERY_S) -> None:
        self.done: list[str] = []
        self.broken: set[str] = set()
        self.away: set[str] = set()
        self.is_stored = True
        self.is_fenced = False
        self.now_s = 1000.0
        self.executor = executor
        self.metrics = CollectorMetrics()
        self.marks_path = folder / "p0.marks"
        self.record = SimpleNamespace(snapshot=FORMER)
        self.owned: Any = SimpleNamespace(
            partition=0,
            epoch=4,
            held=self,
            marks=Marks(),
            is_snapshot_old=True,
            is_snapshot_urgent=False,
            snapshot_problem=None,
            committed=StreamPosition("monday", 30, 300),
            committed_rollbacks=0,
            snapshot=self._snapshot,
            note_snapshot=lambda snapshot: self._do("note"),
        )
        self.context: Any = SimpleNamespace(
            config=SimpleNamespace(snapshot_every_s=every_s, marks_path=lambda _: self.marks_path),
            executor=executor,
            metrics=self.metrics,
            snapshots=lambda partition: self,
        )

    @property
    def store(self) -> Any:
        """Itself, as what it stands for."""
        return self

    def new_schedule(self) -> SnapshotSchedule:
        """Return a new schedule."""
        return SnapshotSchedule(self.context, self.owned)

    def _do(self, what: str) -> None:
        self.done.append(what)
        if what in self.broken:
            raise SnapshotBroken("it is full")
        if what in self.away:
            raise NotSent("the server is away")

    async def _snapshot(self, executor: Executor) -> Any:
        self._do("make")
        return SimpleNamespace(position=StreamPosition("monday", 30, 300))

    async def remove_unfinished(self, former: int, *, epoch: int) -> None:
        """See `SnapshotStore`, as of the next three."""
        assert (former, epoch) == (FORMER, 4)
        self._do("remove unfinished")

    async def write(self, snapshot: Any) -> int:
        """Return where it is stored."""
        self._do("write")
        return STORED

    async def drop_before(self, former: int) -> None:
        """Remove what is older."""
        assert former == FORMER
        self._do("drop former")

    async def point_to_snapshot(self, sequence: int, at: int) -> None:
        """See `HeldEpoch`, as of the next one."""
        assert (sequence, at) == (STORED, 30)
        self._do("point")

    async def is_there(self, sequence: int) -> bool:
        """Return whether it is stored."""
        assert sequence == FORMER
        return self.is_stored

    async def look(self) -> None:
        """Fail where another owner is found."""
        self._do("look")
        if self.is_fenced:
            raise Fenced("another has it")

    def counted(self, outcome: str) -> float:
        """Return how many snapshots had this outcome."""
        return float(self.metrics.snapshots.labels(0, outcome)._value.get())
