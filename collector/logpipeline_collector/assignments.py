"""The assignment, as the operator (or `up`) last wrote it. It is also polled, so that a missed
message of the bucket costs a second, and never a hand-over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import NoResponders, NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError
from logpipeline.nats.session import RawMessage
from logpipeline.records import Assignment, BadRecord, assignment_key

log = logging.getLogger(__name__)

POLL_S = 1.0


class AssignmentWatch:
    """The group's last readable assignment, and *problem*: why there is none, or no newer one."""

    def __init__(
        self,
        bucket: Bucket,
        *,
        group: str,
        partitions: int,
        changed: Callable[[Assignment], None],
    ) -> None:
        self.current: Assignment | None = None
        self.problem: str | None = "no assignment was read yet"
        self._bucket = bucket
        self._key = assignment_key(group)
        self._partitions = partitions
        self._changed = changed
        self._hinted = asyncio.Event()
        self._refused: bytes = b""

    async def run(self) -> None:
        """Follow the assignment until cancelled."""
        listener = await self._bucket.listen(self._key, self._hint)
        try:
            while True:
                self._hinted.clear()
                try:
                    await self._read()
                except NoResponders:
                    self.problem = (
                        f"bucket {self._bucket.name} does not answer; if it does not exist, "
                        "`logpipeline apply` makes it"
                    )
                except (NotSent, OutcomeUnknown, ApiError) as error:
                    # Owned partitions stay ours: epochs decide, not whether the bucket can be
                    # reached.
                    self.problem = f"the assignment cannot be read: {error}"
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_S):
                        await self._hinted.wait()
        finally:
            await self._bucket.unlisten(listener)

    def _hint(self, message: RawMessage) -> None:
        self._hinted.set()

    async def _read(self) -> None:
        entry = await self._bucket.get(self._key)
        if entry is None:
            self.problem = (
                f"no assignment has been written yet (key {self._key} of bucket "
                f"{self._bucket.name}); the operator or `logpipeline up` writes it"
            )
            return
        try:
            found = Assignment.decode(entry.value)
        except BadRecord as error:
            self._refuse(entry.value, str(error))
            return
        if why := self._misfit(found):
            self._refuse(entry.value, why)
            return
        self.problem = None
        self._accept(found)

    def _misfit(self, found: Assignment) -> str | None:
        count = max(self._partitions, 1)
        if max(found.partitions, 1) != count:
            return (
                f"it is for {found.partitions} partitions, and this collector was started for "
                f"{self._partitions}; restart it with the current resource"
            )
        if any(owned.end > count for _, owned in found.members):
            return f"it assigns partitions beyond the last one, {count - 1}"
        return None

    def _accept(self, found: Assignment) -> None:
        if found == self.current:
            return
        if self.current is not None and found.generation < self.current.generation:
            log.warning(
                "the assignment went back; the bucket was restored from a copy, or rewritten",
                extra={"from": self.current.generation, "to": found.generation},
            )
        self.current = found
        log.info("assignment", extra={"generation": found.generation})
        self._changed(found)

    def _refuse(self, value: bytes, why: str) -> None:
        self.problem = f"the assignment cannot be used; the last good one stays: {why}"
        if value != self._refused:
            self._refused = value
            log.error("unusable assignment; the last good one stays", extra={"reason": why})
