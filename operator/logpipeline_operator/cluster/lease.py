"""One of several operators leads, by a Lease; the others wait and follow when it falls silent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import aiohttp
from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection import electionconfig, leaderelection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

log = logging.getLogger(__name__)

LEASE_S = 15
RENEW_WITHIN_S = 10
RETRY_S = 2


class PatientLease(LeaseLock):
    """A Lease that takes a server which is away for a lost try, not for the end: there is time
    until the renewal's deadline.
    """

    async def get(
        self, name: str, namespace: str
    ) -> tuple[bool, LeaderElectionRecord] | tuple[bool, Exception] | tuple[bool, None]:
        """Return whether the Lease is there, and what it says."""
        try:
            return await super().get(name, namespace)
        except (OSError, TimeoutError, aiohttp.ClientError) as error:
            return False, ApiException(status=0, reason=f"no answer: {error}")

    async def create(
        self, name: str, namespace: str, election_record: LeaderElectionRecord
    ) -> bool:
        """Return whether the Lease could be created."""
        try:
            return await super().create(name, namespace, election_record)
        except (OSError, TimeoutError, aiohttp.ClientError):
            return False

    async def update(
        self, name: str, namespace: str, updated_record: LeaderElectionRecord
    ) -> bool:
        """Return whether the Lease could be written."""
        try:
            return await super().update(name, namespace, updated_record)
        except (OSError, TimeoutError, aiohttp.ClientError):
            return False


async def lead(
    api: ApiClient, *, namespace: str, name: str, identity: str, work: Callable[[], Awaitable[None]]
) -> None:
    """Wait for the Lease *namespace*/*name*, then do *work*; return when it ends or the Lease is
    lost, with the work cancelled.
    """
    working: asyncio.Task[None] | None = None

    async def started() -> None:
        nonlocal working
        log.info("leading from now on", extra={"lease": f"{namespace}/{name}", "as": identity})
        working = asyncio.ensure_future(work())
        await working

    async def stopped() -> None:
        """What has to end is ended below, in every case."""

    election = leaderelection.LeaderElection(
        electionconfig.Config(
            PatientLease(name, namespace, identity, api),
            lease_duration=LEASE_S,
            renew_deadline=RENEW_WITHIN_S,
            retry_period=RETRY_S,
            onstarted_leading=started,
            onstopped_leading=stopped,
        )
    )
    electing = asyncio.create_task(election.run(), name="lease")
    try:
        while not electing.done() and (working is None or not working.done()):
            tasks = [electing] if working is None else [electing, working]
            await asyncio.wait(tasks, timeout=RETRY_S, return_when=asyncio.FIRST_COMPLETED)
        if working is not None and not working.done():
            log.error("the Lease is lost, another operator leads now")
        elif working is not None:
            working.result()
        else:
            electing.result()
    finally:
        for task in (electing, working):
            if task is not None:
                task.cancel()
        await asyncio.gather(electing, *([working] if working else []), return_exceptions=True)
