"""Decides which of several operators owns a pipeline, if they belong to different releases.

Replicas of one release share a Lease. Releases share none: they may watch different namespaces, and
there is no namespace that all of them may write to. Each of them can read and write the status of
the pipelines that it watches, so the owner stands there: `checkedBy`, kept fresh by `lastChecked`,
and by `claimedAt` while looks fail. It is taken by a write that is refused if another operator has
written first.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from logpipeline.spec.crd import CHECKED_EVERY_S, UNCHECKED_AFTER_S
from logpipeline_operator.children.model import Manifest
from logpipeline_operator.cluster.client import Cluster, ClusterError
from logpipeline_operator.cluster.kinds import kind
from logpipeline_operator.cluster.objects import TIME_FORMAT, time_text
from logpipeline_operator.metrics import OperatorMetrics
from logpipeline_operator.queue import Key
from logpipeline_operator.settings import READ_ONLY_SUFFIX

log = logging.getLogger(__name__)

# A reconciliation ends this long before another operator may begin one.
MARGIN_S = 60.0
# An older claim is renewed before a reconciliation, so that it has enough time.
RENEW_AFTER_S = 2 * CHECKED_EVERY_S
# An operator that waits for another one lets it take new pipelines first, so that one release owns
# all of them, and not the one that happened to be faster.
HEAD_START_S = 60.0
LOOK_AGAIN_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Whether this operator may reconcile now: *resource*, for *within_s* seconds; if not, after
    how many seconds to try again (None: in the next round).
    """

    is_ours: bool
    resource: Manifest
    within_s: float = 0.0
    again_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Claim:
    """What the status says of its owner; empty texts for what it does not say."""

    holder: str
    claimed: str
    checked: str

    @property
    def at(self) -> float:
        """When it was fresh, in seconds since the epoch."""
        return max(_seconds(self.claimed), _seconds(self.checked))


@dataclass(slots=True)
class Ownership:
    """The pipelines that *operator* (``namespace/release``) owns, and those of other operators."""

    cluster: Cluster
    operator: str
    metrics: OperatorMetrics
    # The monotonic clock and the wall clock, both in seconds.
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    # Claims that others wrote, and since when they are unchanged, by the monotonic clock.
    _seen_owners: dict[Key, tuple[_Claim, float]] = field(default_factory=dict)
    _ours: set[Key] = field(default_factory=set)
    _others: dict[Key, str] = field(default_factory=dict)

    async def take(self, key: Key, resource: Manifest) -> Turn:
        """Return whether this operator may reconcile the pipeline *key*, after it has written or
        renewed its ownership if that is due.

        Raises:
            ClusterAway, ClusterError: the ownership could not be written.
        """
        claim = _claim(resource)
        age_s = self.now() - claim.at
        if claim.holder == self.operator:
            self._is_ours(key)
            if 0 <= age_s < RENEW_AFTER_S:
                left_s = UNCHECKED_AFTER_S - MARGIN_S - age_s
                return Turn(is_ours=True, resource=resource, within_s=left_s)
        elif other := self._other(key, claim, age_s):
            self._wait(key, other)
            return Turn(is_ours=False, resource=resource)
        return await self._write(key, resource)

    def forget(self, key: Key) -> None:
        """Forget a pipeline that is gone."""
        self._seen_owners.pop(key, None)
        self._ours.discard(key)
        self._drop_other(key)

    def keep_only(self, keys: Collection[Key]) -> None:
        """Forget all pipelines but *keys*."""
        for key in {*self._seen_owners, *self._ours, *self._others} - set(keys):
            self.forget(key)

    def _other(self, key: Key, claim: _Claim, age_s: float) -> str:
        """Return the other operator that owns the pipeline; empty if this one may take it."""
        holder = claim.holder
        if holder.endswith(READ_ONLY_SUFFIX) and not self.operator.endswith(READ_ONLY_SUFFIX):
            # A read-only operator only reports; one that acts reports as well.
            return ""
        now = self.clock()
        if key not in self._seen_owners or self._seen_owners[key][0] != claim:
            self._seen_owners[key] = claim, now
        unchanged_s = now - self._seen_owners[key][1]
        if holder:
            # Either clock is enough: the wall clock covers the time before this process began, and
            # the monotonic clock does not depend on how the other operator's clock is set.
            is_fresh = max(age_s, unchanged_s) < UNCHECKED_AFTER_S
            return holder if is_fresh else ""
        rivals = sorted(set(self._others.values()))
        return rivals[0] if rivals and not self._ours and unchanged_s < HEAD_START_S else ""

    async def _write(self, key: Key, resource: Manifest) -> Turn:
        metadata = resource["metadata"]
        stamp = time_text(datetime.fromtimestamp(self.now(), UTC))
        change: Manifest = {
            # If another operator is faster, the version has changed, and this write is refused.
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            # Not `lastChecked`: nothing has been looked at yet, and the look may fail.
            "status": {"checkedBy": self.operator, "claimedAt": stamp},
        }
        try:
            taken = await self.cluster.merge(
                kind("LogPipeline"), key.namespace, key.name, change, subresource="status"
            )
        except ClusterError as error:
            if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise
            # Deleted, changed by its user, or taken by another operator: the next attempt shows
            # which.
            return Turn(is_ours=False, resource=resource, again_s=LOOK_AGAIN_S)
        self._is_ours(key)
        return Turn(is_ours=True, resource=taken, within_s=UNCHECKED_AFTER_S - MARGIN_S)

    def _is_ours(self, key: Key) -> None:
        self._ours.add(key)
        self._seen_owners.pop(key, None)
        if self._drop_other(key):
            log.info("took over a pipeline", extra=_extra(key, self.operator))

    def _wait(self, key: Key, other: str) -> None:
        self._ours.discard(key)
        if self._others.get(key) == other:
            return
        self._drop_other(key)
        self._others[key] = other
        self._count(other)
        log.warning("another operator owns a pipeline, waiting", extra=_extra(key, other))

    def _drop_other(self, key: Key) -> str:
        other = self._others.pop(key, "")
        if other:
            self._count(other)
        return other

    def _count(self, other: str) -> None:
        held = sum(each == other for each in self._others.values())
        if held:
            self.metrics.waiting.labels(other).set(held)
        else:
            self.metrics.waiting.forget(other)


def _claim(resource: Mapping[str, Any]) -> _Claim:
    # Any user with the right to write the status may have written anything.
    status = resource.get("status")
    status = status if isinstance(status, Mapping) else {}
    said = [status.get(name) for name in ("checkedBy", "claimedAt", "lastChecked")]
    return _Claim(*(each if isinstance(each, str) else "" for each in said))


def _seconds(stamp: str) -> float:
    try:
        return datetime.strptime(stamp, TIME_FORMAT).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0


def _extra(key: Key, operator: str) -> dict[str, str]:
    return {"pipeline": f"{key.namespace}/{key.name}", "operator": operator}
