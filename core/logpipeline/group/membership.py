"""Heartbeats of a group's members, and the silence of those that stopped.

A heartbeat is a write of the member's own key in the state bucket. Others see that the key's
revision rises, and measure silence by their own monotonic clock: no two machines' clocks are ever
compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from logpipeline.nats.bucket import Bucket, Entry
from logpipeline.nats.connection import Connection, NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError

log = logging.getLogger(__name__)

# Four heartbeats may be lost before a successor takes over.
HEARTBEATS_PER_TAKEOVER = 4
# The value of a member that ended in an orderly way.
LEFT = b""


class Heartbeat:
    """Calls *beat* several times in each take-over time, until it is stopped."""

    def __init__(self, beat: Callable[[], Awaitable[None]], *, takeover_after_s: float) -> None:
        self._beat = beat
        self._every_s = takeover_after_s / HEARTBEATS_PER_TAKEOVER
        self._stopping = asyncio.Event()
        self._beating = asyncio.Lock()

    async def run(self) -> None:
        """Beat until `stop`; a beat that the server does not answer is left to the next one.

        Raises: whatever else *beat* raises.
        """
        while not await self._stops_within(self._every_s):
            async with self._beating:
                if self._stopping.is_set():
                    return
                try:
                    await self._beat()
                except (NotSent, OutcomeUnknown, ApiError) as error:
                    log.debug("no heartbeat", extra={"reason": str(error)})

    async def stop(self) -> None:
        """End `run`. A beat under way is waited for, not cancelled: it could arrive at the server
        behind the write by which the member leaves.
        """
        self._stopping.set()
        async with self._beating:
            pass

    async def _stops_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        return self._stopping.is_set()


@dataclass(slots=True)
class Sighting:
    """The last heartbeat of a member that we saw, and since when value and revision are these."""

    value: bytes
    revision: int
    value_since_s: float
    revision_since_s: float

    @property
    def has_left(self) -> bool:
        """Whether the member ended in an orderly way, or never was there."""
        return self.value == LEFT


class Sightings:
    """The heartbeats that this process saw of other members."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._seen: dict[str, Sighting] = {}
        self._session = 0

    def note(self, member: str, entry: Entry | None) -> Sighting:
        """Note the *entry* of *member* in the bucket, and return what was seen of it so far."""
        if self._session != self._connection.sessions:
            # Without a connection no heartbeat could be seen: silence counts from here.
            self._seen.clear()
            self._session = self._connection.sessions
        value, revision = (entry.value, entry.revision) if entry else (LEFT, 0)
        now_s = asyncio.get_running_loop().time()
        sighting = self._seen.setdefault(member, Sighting(value, revision, now_s, now_s))
        if sighting.value != value:
            sighting.value, sighting.value_since_s = value, now_s
        if sighting.revision != revision:
            sighting.revision, sighting.revision_since_s = revision, now_s
        return sighting

    def note_all(self, entries: dict[str, Entry]) -> dict[str, Sighting]:
        """Note the *entries* of all members that there are, and return what was seen so far."""
        for name in self._seen.keys() - entries.keys():
            del self._seen[name]
        return {name: self.note(name, entry) for name, entry in entries.items()}


async def shows_life(bucket: Bucket, key: str, entry: Entry, *, takeover_after_s: float) -> bool:
    """Return whether the member whose heartbeat at *key* was *entry* beats again before a take-over
    would be due; False at once where it leaves.

    Raises:
        NotSent, OutcomeUnknown, ApiError: the bucket could not be read.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + takeover_after_s
    while loop.time() < until_s:
        await asyncio.sleep(takeover_after_s / (2 * HEARTBEATS_PER_TAKEOVER))
        now = await bucket.get(key)
        if now is None or now.value == LEFT:
            return False
        if now.revision != entry.revision:
            return True
    return False
