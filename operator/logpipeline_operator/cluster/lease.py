"""Leader election by a Lease: one operator leads, the others wait until it stops renewing.

The clients' library has an election too, which in its version 37 cannot create a Lease (it gives
``pretty`` a type that its own check refuses) and loses it at the first answer that does not come.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, auto
from http import HTTPStatus
from typing import Any

from logpipeline_operator.children.model import Manifest
from logpipeline_operator.cluster.client import Cluster, ClusterAway, ClusterError, Fence
from logpipeline_operator.cluster.kinds import kind
from logpipeline_operator.settings import LEASE_S

log = logging.getLogger(__name__)

# Shares of a Lease's duration. A leader stops writing when it could not renew for this long. Others
# wait for the whole duration after the last renewal that they saw, by their own clocks. So two
# never lead at once.
RENEW_WITHIN_SHARE = 2 / 3
RETRY_SHARE = 2 / 15
RELEASE_WITHIN_S = 2.0


class Holder(Enum):
    """The holder of the Lease, as far as it is known."""

    WE = auto()
    OTHERS = auto()
    UNKNOWN = auto()


@dataclass(slots=True)
class Lease:
    """The Lease *namespace*/*name*, wanted by *identity* for *duration_s* after each renewal;
    *clock* is monotonic, in seconds.

    Its *cluster* has no fence: an operator that may not write must still be able to take the Lease.
    """

    cluster: Cluster
    namespace: str
    name: str
    identity: str
    clock: Callable[[], float]
    duration_s: float = LEASE_S
    _seen: tuple[Any, Any] | None = None
    _seen_at: float = field(default=0.0)

    @property
    def renew_within_s(self) -> float:
        """The time for which a leader may write after a renewal."""
        return self.duration_s * RENEW_WITHIN_SHARE

    @property
    def retry_s(self) -> float:
        """The time between two requests for the Lease."""
        return self.duration_s * RETRY_SHARE

    async def hold(self) -> Holder:
        """Renew the Lease, or take it if it is free, and return its holder."""
        try:
            there = await self.cluster.get(kind("Lease"), self.namespace, self.name)
            if there is None:
                await self.cluster.create(self._manifest())
                return Holder.WE
            if not self._may_take(there["spec"]):
                return Holder.OTHERS
            await self._write(there, self._spec(there["spec"]))
        except ClusterError as error:
            # A conflict: another operator was faster; the next request shows which.
            if error.status != HTTPStatus.CONFLICT:
                log.warning("Kubernetes refused the Lease", extra={"why": str(error)})
            return Holder.UNKNOWN
        except ClusterAway as error:
            log.warning("the Lease cannot be reached", extra={"why": str(error)})
            return Holder.UNKNOWN
        return Holder.WE

    async def release(self) -> None:
        """Give the Lease up, if this operator holds it, so that another one leads at once."""
        with contextlib.suppress(ClusterError, ClusterAway):
            there = await self.cluster.get(kind("Lease"), self.namespace, self.name)
            if there is not None and there["spec"].get("holderIdentity") == self.identity:
                await self._write(there, {"holderIdentity": "", "leaseDurationSeconds": 1})

    def _may_take(self, spec: Manifest) -> bool:
        holder = spec.get("holderIdentity") or ""
        if holder in ("", self.identity):
            return True
        now, seen = self.clock(), (holder, spec.get("renewTime"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        # The holder may use another duration.
        held_s = float(spec.get("leaseDurationSeconds") or 0)
        return now - self._seen_at > max(self.duration_s, held_s)

    async def _write(self, there: Manifest, spec: Manifest) -> None:
        # If another operator was faster, the version has changed, and this patch is refused.
        metadata = {"resourceVersion": there["metadata"]["resourceVersion"]}
        change = {"metadata": metadata, "spec": spec}
        await self.cluster.merge(kind("Lease"), self.namespace, self.name, change)

    def _manifest(self) -> Manifest:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": self._spec({}),
        }

    def _spec(self, former: Manifest) -> Manifest:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: Manifest = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self.duration_s),
            "renewTime": now,
        }
        if former.get("holderIdentity") != self.identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(former.get("leaseTransitions") or 0) + 1
        return spec


async def lead(lease: Lease, fence: Fence, work: Callable[[], Awaitable[None]]) -> None:
    """Wait for the *lease*, then do *work* while this operator holds it. The *fence* is open only
    while that is certain. The work is cancelled when the Lease is lost; return when it has ended.
    """
    fence.until = -math.inf
    while await _renewed(lease, fence, lease.renew_within_s) is not Holder.WE:  # noqa: ASYNC110 - a poll
        await asyncio.sleep(lease.retry_s)
    log.info("leading from now on", extra={"as": lease.identity})
    working = asyncio.ensure_future(work())
    try:
        while not working.done():
            await asyncio.wait([working], timeout=lease.retry_s)
            holder = await _renewed(lease, fence, fence.until - lease.clock())
            if holder is Holder.OTHERS or lease.clock() >= fence.until:
                log.error("the Lease is lost, another operator may lead now")
                return
        working.result()
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        fence.until = -math.inf
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RELEASE_WITHIN_S):
                await lease.release()


async def _renewed(lease: Lease, fence: Fence, within_s: float) -> Holder:
    # Counted from before the request: others count from when they see the renewal, which is later.
    asked = lease.clock()
    holder = Holder.UNKNOWN
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(within_s, 0.0)):
            holder = await lease.hold()
    if holder is Holder.WE:
        fence.until = asked + lease.renew_within_s
    elif holder is Holder.OTHERS:
        fence.until = -math.inf
    return holder
