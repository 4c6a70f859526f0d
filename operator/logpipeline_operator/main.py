"""The operator's process: it waits for the Lease, watches, reconciles what changed, and answers
probes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from kubernetes.aio.client import ApiClient

from logpipeline.observe import logs
from logpipeline.observe.http import serve
from logpipeline_operator.cluster import kinds
from logpipeline_operator.cluster.client import (
    Cluster,
    ClusterAway,
    ClusterError,
    Fence,
    NotFound,
    configuration,
)
from logpipeline_operator.cluster.lease import Lease, lead
from logpipeline_operator.metrics import OperatorMetrics
from logpipeline_operator.queue import Key, Queue
from logpipeline_operator.reconcile import Reconciler
from logpipeline_operator.settings import Settings, read
from logpipeline_operator.watches import watch

log = logging.getLogger(__name__)

RETRY_S = 5.0
# After so many missed rounds over all pipelines the liveness probe restarts the process.
MISSED_ROUNDS_MAX = 4
CODE_LOST_LEASE = 3
# Rounds over all pipelines begin so far apart, in their period: operators that were started
# together do not stay together.
ROUNDS_APART = (0.9, 1.1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM, or until another operator leads; return the process's exit code."""
    settings = read(sys.argv[1:] if arguments is None else arguments)
    if settings.kubeconfig:
        # kopf reads it there.
        os.environ["KUBECONFIG"] = settings.kubeconfig
    logs.setup("operator", format="text" if sys.stderr.isatty() else "json")
    # kopf logs each event that a handler took.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    # It warns that it does not handle signals: main handles them.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
    try:
        return asyncio.run(_run(settings))
    except ClusterAway as error:
        log.error("%s", error)
        return 1


async def _run(settings: Settings) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with ApiClient(await configuration(settings.kubeconfig, settings.context)) as api:
        fence = Fence(clock=loop.time)
        operator = Operator(settings, Cluster(api, fence), fence, OperatorMetrics())
        http = await serve(
            settings.http_host,
            settings.http_port,
            operator.metrics,
            live=operator.live,
            ready=operator.ready,
        )
        working = asyncio.create_task(_lead(settings, Cluster(api), fence, operator.run))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                return 0
            working.result()
            return CODE_LOST_LEASE
        finally:
            working.cancel()
            stopping.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)
            await operator.close()
            await http.close()


async def _lead(
    settings: Settings, cluster: Cluster, fence: Fence, work: Callable[[], Awaitable[None]]
) -> None:
    if settings.is_read_only or not settings.has_lease:
        # An operator that writes nothing need not be the only one.
        await work()
        return
    lease = Lease(
        cluster,
        settings.lease_namespace,
        settings.lease_name,
        settings.identity,
        fence.clock,
        settings.lease_s,
    )
    await lead(lease, fence, work)


@dataclass(slots=True)
class Operator:
    """The leading operator's tasks."""

    settings: Settings
    cluster: Cluster
    fence: Fence
    metrics: OperatorMetrics
    queue: Queue = field(init=False)
    reconciler: Reconciler = field(init=False)
    _is_leading: bool = False
    _last_round: float = 0.0
    # The pipelines by namespace, as it was listed last; by the empty text, if all are watched.
    _found: dict[str, list[Key]] = field(default_factory=dict)
    # Set when an object changed that any pipeline may depend on.
    _is_asked: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.queue = Queue(clock=lambda: asyncio.get_running_loop().time())
        self.reconciler = Reconciler(self.settings, self.cluster, self.fence, self.metrics)

    async def run(self) -> None:
        """Watch and reconcile pipelines, until cancelled."""
        self._is_leading = True
        self._last_round = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.queue.run(self.reconciler.reconcile))
            group.create_task(self._resync())
            group.create_task(watch(self.settings, self.queue.add, self._is_asked.set))

    async def close(self) -> None:
        """End the reconciler's connections."""
        await self.reconciler.close()

    def live(self) -> str | None:
        """Return the problem that a restart of this process would mend, if there is one."""
        if not self._is_leading:
            return None
        silent_s = asyncio.get_running_loop().time() - self._last_round
        if silent_s > MISSED_ROUNDS_MAX * max(self.settings.resync_s, RETRY_S):
            return f"no round over all pipelines has begun for {silent_s:.0f} s"
        return None

    def ready(self) -> str | None:
        """Return None: an operator that waits for the Lease is ready, too."""
        return None

    async def _resync(self) -> None:
        """Reconcile every pipeline in each period, and when a class changed. Watches only make it
        sooner.
        """
        loop = asyncio.get_running_loop()
        while True:
            spread_s = 0.0 if self._is_asked.is_set() else self.settings.resync_s
            self._is_asked.clear()
            self._last_round = loop.time()
            try:
                listed = await self._list()
                keys = [key for found in self._found.values() for key in found]
                await self.reconciler.keep_only(keys, listed)
            except (ClusterError, ClusterAway) as error:
                log.warning("pipelines cannot be listed", extra={"why": _why(error)})
                await asyncio.sleep(RETRY_S)
                continue
            for key in keys:
                # Spread over the period: a thousand pipelines at once would be a burst.
                self.queue.add(key, after_s=random.random() * spread_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.settings.resync_s * random.uniform(*ROUNDS_APART)):
                    await self._is_asked.wait()

    async def _list(self) -> list[str]:
        """List the pipelines, and return the namespaces that were listed (none: all of them). What
        is known of a namespace that refuses stays: it may be gone, with the operator's rights in
        it, and the others have their rounds all the same.

        Raises:
            ClusterError: no namespace could be listed.
            ClusterAway: the API server did not answer.
        """
        refusals: dict[str, ClusterError] = {}
        namespaces = self.settings.namespaces or ("",)
        for namespace in namespaces:
            try:
                objects, _ = await self.cluster.list(kinds.kind("LogPipeline"), namespace or None)
            except ClusterError as error:
                refusals[namespace] = error
            else:
                names = [each["metadata"] for each in objects]
                self._found[namespace] = [Key(each["namespace"], each["name"]) for each in names]
        self.metrics.namespaces_unlisted.labels().set(len(refusals))
        if len(refusals) == len(namespaces):
            raise next(iter(refusals.values()))
        for namespace, refusal in refusals.items():
            said = {"namespace": namespace, "why": _why(refusal)}
            log.warning("pipelines of a namespace cannot be listed", extra=said)
        return [each for each in self.settings.namespaces if each not in refusals]


def _why(error: Exception) -> str:
    if isinstance(error, NotFound):
        return "the definition of LogPipeline is not installed; apply deploy/crd.yaml"
    return str(error)
