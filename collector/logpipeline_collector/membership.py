"""A collector as a member of its group: its heartbeat under a name that no other process may use,
and how long other members have been silent.
"""

from __future__ import annotations

import asyncio
import logging

from logpipeline.group.membership import LEFT, Heartbeat, Sightings
from logpipeline.nats.bucket import Bucket, Conflict, Entry
from logpipeline.nats.connection import Connection, NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError
from logpipeline.records import member_key
from logpipeline_collector.config import CollectorConfig
from logpipeline_collector.folder import Folder

log = logging.getLogger(__name__)

# A header of heartbeats: where the member's lock is.
PLACE_HEADER = "Log-Place"
# The bucket of a deployment that is just being made may come later than its collectors.
RETRY_S = 0.2


class MemberTaken(Exception):
    """Another living process runs under our member's name."""

    def __init__(self, member: str) -> None:
        super().__init__(
            f"another process runs as {member} with another folder, or with an image of this one; "
            "stop it, or give this one another name and an empty folder"
        )


class Membership:
    """Our own heartbeat, and how long others have been silent."""

    def __init__(
        self,
        bucket: Bucket,
        connection: Connection,
        *,
        group: str,
        member: str,
        folder: Folder,
        takeover_after_s: float,
    ) -> None:
        self._bucket = bucket
        self._group = group
        self._member = member
        self._key = member_key(group, member)
        self._value = folder.incarnation.encode()
        self._folder = folder
        self._takeover_after_s = takeover_after_s
        self._revision = 0
        self._heartbeat = Heartbeat(self._beat, takeover_after_s=takeover_after_s)
        self._sightings = Sightings(connection)

    async def enter(self) -> None:
        """Show that we are alive, as soon as no other process does so under our name. A predecessor
        that held our lock is gone.

        Raises:
            MemberTaken: another process runs under our name.
        """
        first_revision: int | None = None
        while True:
            try:
                entry = await self._bucket.get(self._key)
                if entry is not None and first_revision not in (None, entry.revision):
                    raise MemberTaken(self._member)
                if await self._may_replace(entry):
                    await self._write(entry.revision if entry else 0)
                    return
                first_revision = entry.revision if entry else None
            except (NotSent, OutcomeUnknown, ApiError, Conflict) as error:
                log.debug("member not entered yet", extra={"reason": str(error)})
            await asyncio.sleep(RETRY_S)

    async def run(self) -> None:
        """Show that we are alive, until `leave`.

        Raises:
            MemberTaken: another process has taken our name.
        """
        await self._heartbeat.run()

    async def leave(self) -> None:
        """Show that we end, so that a successor with another folder need not wait."""
        await self._heartbeat.stop()
        try:
            await self._bucket.swap(self._key, LEFT, revision=self._revision)
        except (NotSent, OutcomeUnknown, ApiError, Conflict) as error:
            log.debug("leaving was not written", extra={"reason": str(error)})

    async def silent_s(self, member: str, incarnation: str) -> float:
        """Return for how many seconds, as far as we saw, *incarnation* of *member* has been silent.

        Raises:
            NotSent, OutcomeUnknown, ApiError: the bucket could not be read.
        """
        entry = await self._bucket.get(member_key(self._group, member))
        sighting = self._sightings.note(member, entry)
        now_s = asyncio.get_running_loop().time()
        if sighting.value == incarnation.encode():
            return now_s - sighting.revision_since_s
        return now_s - sighting.value_since_s

    async def _may_replace(self, entry: Entry | None) -> bool:
        if entry is None or entry.value == LEFT:
            return True
        former = entry.value.decode("utf-8", "replace")
        is_here = entry.header(PLACE_HEADER) == self._folder.place
        if is_here and self._folder.is_ours(former):
            return True
        return await self.silent_s(self._member, former) >= self._takeover_after_s

    async def _beat(self) -> None:
        try:
            await self._write(self._revision)
        except Conflict:
            # No rival: an own write whose answer was lost, or a bucket that was restored. What
            # began after us in an image of our folder is one.
            entry = await self._bucket.get(self._key)
            former = entry.value.decode("utf-8", "replace") if entry else ""
            if former and not self._folder.is_ours(former):
                raise MemberTaken(self._member) from None
            self._revision = entry.revision if entry else 0

    async def _write(self, revision: int) -> None:
        headers = {PLACE_HEADER: self._folder.place}
        self._revision = await self._bucket.swap(
            self._key, self._value, revision=revision, headers=headers
        )


def membership_of(
    config: CollectorConfig, bucket: Bucket, connection: Connection, folder: Folder
) -> Membership:
    """Return the membership of the collector that *config* describes."""
    return Membership(
        bucket,
        connection,
        group=config.group,
        member=config.member,
        folder=folder,
        takeover_after_s=config.takeover_after_s,
    )
