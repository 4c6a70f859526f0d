"""One operator on this machine, a real API server and a real nats-server, and proxies between them:
all that a test needs to disturb the operator.

The pods of its pipelines find no node: what they would do is not looked at here.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kubernetes.aio.client import ApiClient

from api_server.nats_proxy import NatsProxy
from api_server.operator_process import OperatorProcess
from api_server.recording_proxy import ClusterProxy, as_it_is
from api_server.states import (
    NAME,
    State,
    binding_of,
    differences,
    jetstream_of,
    state_of,
    unfinished,
)
from api_server.writes import Writes
from cluster.handle import Cluster
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.connection import Connection, NatsOptions, NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline_operator.cluster import client
from logpipeline_operator.cluster.kinds import kind
from waiting import WITHIN_S, eventually

# Watches tell of most; what they do not tell is seen so soon, and so is what is not settled.
RESYNC_S = 0.7
LOOK_AGAIN_S = 0.4
QUIET_S = 0.4
# Looks that begin after the last write: the first of them has then ended, and wrote nothing.
LOOKS_TO_SETTLE = 2
POLL_S = 0.05
# A state is a dozen requests. It is asked for after each write, and now and then: Kubernetes' own
# controllers change it as well.
ASK_AGAIN_S = 0.4
SETTLED_WITHIN_S = 90.0
NOWHERE = {"logpipeline.dev/test": "nowhere"}

FORMER: dict[str, Any] = {
    "partitions": 2,
    "deletionPolicy": "Delete",
    "collectors": {
        "replicas": 2,
        "nodeSelector": NOWHERE,
        "persistence": {"emptyDir": {}},
        "podLabels": {"team": "one"},
        "snapshotEvery": "5s",
    },
    "shippers": {"nodeSelector": NOWHERE, "rescan": "2s"},
    "consumers": [{"name": "audit", "maxAckPending": 1000}],
    "networkPolicy": {"enabled": True},
}
# Fewer collectors and children, and changes in what each of them reads and in JetStream.
LATTER: dict[str, Any] = {
    "partitions": 2,
    "deletionPolicy": "Delete",
    "collectors": {
        "replicas": 1,
        "nodeSelector": NOWHERE,
        "persistence": {"emptyDir": {}},
        "podLabels": {"team": "two"},
        "snapshotEvery": "7s",
    },
    "shippers": {"nodeSelector": NOWHERE, "rescan": "3s"},
    "consumers": [{"name": "audit", "maxAckPending": 2000}],
    "networkPolicy": {"enabled": False},
}


@dataclass(slots=True)
class World:
    """What a test looks at and disturbs; *namespace* is where its pipeline lives now."""

    api: ApiClient
    kube: client.Cluster
    js: JetStream
    proxy: ClusterProxy
    nats: NatsProxy
    writes: Writes
    folder: Path
    namespace: str
    operators: list[OperatorProcess] = field(default_factory=list)

    def operator(
        self, *more: str, proxy: ClusterProxy | None = None, **environment: str
    ) -> OperatorProcess:
        """An operator for this namespace alone that is not started yet; *proxy* is its own."""
        made = OperatorProcess(
            (
                f"--kubeconfig={(proxy or self.proxy).kubeconfig_for(self.folder)}",
                f"--namespace={self.namespace}",
                *more,
            ),
            self.folder / f"operator-{len(self.operators)}.log",
            {**PERIODS, **ROLE, **environment},
        )
        self.operators.append(made)
        return made

    @asynccontextmanager
    async def another_namespace(self) -> AsyncIterator[None]:
        """Live in another namespace meanwhile, which goes with all that is in it."""
        former = self.namespace
        # All of one length: names of streams stand in texts that are cut to a length.
        self.namespace = name = f"test-{secrets.token_hex(4)}"
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await self.kube.create(namespace)
        try:
            yield
        finally:
            await self._end_namespace(name)
            self.namespace = former

    async def _end_namespace(self, name: str) -> None:
        for operator in self.operators:
            operator.kill()
        if await self.resource() is not None:
            free = {"metadata": {"finalizers": None}}
            await self.kube.merge(kind("LogPipeline"), name, NAME, free)
        # The server sets room aside for each.
        for stream in await jetstream_of(self.js, name):
            await self.js.call(f"STREAM.DELETE.{stream}")
        for each, found in (("ClusterRoleBinding", binding_of(name)), ("Namespace", name)):
            there = await self.kube.get(kind(each), None, found)
            if there is not None:
                uid = there["metadata"]["uid"]
                await self.kube.delete(kind(each), None, found, uid=uid)

    async def apply(self, spec: dict[str, Any], **metadata: Any) -> None:
        """Write the pipeline as its user does."""
        manifest = {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": NAME, "namespace": self.namespace, **metadata},
            "spec": {**spec, "nats": {"servers": [self.nats.url]}},
        }
        there = await self.resource()
        if there is None:
            await self.kube.create(manifest)
        else:
            await self.kube.merge(kind("LogPipeline"), self.namespace, NAME, manifest)

    async def delete(self) -> None:
        """Delete the pipeline as its user does; the operator is waited for by nobody."""
        there = await self.resource()
        assert there is not None
        uid = there["metadata"]["uid"]
        await self.kube.delete(kind("LogPipeline"), self.namespace, NAME, uid=uid)

    async def resource(self) -> State | None:
        """Return the pipeline, if it is there."""
        return await self.kube.get(kind("LogPipeline"), self.namespace, NAME)

    async def condition(self, name: str) -> State:
        """Return a condition of the pipeline; empty where it has none."""
        there = await self.resource()
        conditions = ((there or {}).get("status") or {}).get("conditions") or []
        return next((each for each in conditions if each["type"] == name), {})

    async def state(self) -> State:
        """Return what there is of the pipeline, to be compared."""
        return await state_of(self.kube, self.js, self.namespace)

    async def until(
        self,
        is_it: Callable[[State], list[str]],
        *,
        within_s: float = SETTLED_WITHIN_S,
        unless: Callable[[], bool] = lambda: False,
    ) -> State:
        """Return the state once nothing was written for a moment and *is_it* finds no fault; or
        nothing, as soon as *unless*. It is asked for when it may have changed.

        Raises:
            AssertionError: it did until the end; it carries them, and the operators' logs.
        """
        faults: list[str] = ["it was never looked at"]
        asked_at = float("-inf")
        try:
            async with asyncio.timeout(within_s):
                while not unless():
                    is_due = time.monotonic() - asked_at > min(ASK_AGAIN_S, self.writes.quiet_s)
                    if is_due and self.writes.quiet_s > QUIET_S:
                        asked_at = time.monotonic()
                        try:
                            state = await self.state()
                        except (ApiError, NotSent, OutcomeUnknown) as error:
                            faults = [str(error)]
                        else:
                            faults = is_it(state)
                            if not faults:
                                return state
                    await asyncio.sleep(POLL_S)
                return {}
        except TimeoutError:
            found = "\n".join(faults)
            raise AssertionError(f"not within {within_s} s:\n{found}\n{self._told()}") from None

    def _told(self) -> str:
        running = sum(operator.is_running for operator in self.operators)
        logs = [operator.log_tail() for operator in self.operators[-2:]]
        said = [f"{running} operators are running", self.proxy.traffic()]
        return "\n".join([*self.writes.names(), *said, *logs])

    async def becomes(self, wanted: State, *, within_s: float = SETTLED_WITHIN_S) -> None:
        """Return once the state is *wanted*."""
        await self.until(lambda state: differences(state, wanted), within_s=within_s)

    async def has_nothing_to_do(self) -> None:
        """Return when a new operator that nobody disturbs has looked twice and written nothing.

        Raises:
            AssertionError: it wrote something.
        """
        self.proxy.judge, self.proxy.relay = (lambda asked: None), as_it_is
        await eventually(self._controllers_are_done, within_s=SETTLED_WITHIN_S)
        self.writes.forget()
        self.proxy.asked.clear()
        operator = self.operator("--no-lease")
        operator.start()
        await eventually(lambda: self.looks() > 1, within_s=SETTLED_WITHIN_S, what="two looks")
        operator.kill()
        written = self.writes.names()
        assert written == [], "\n".join([*written, operator.log_tail()])

    async def _controllers_are_done(self) -> bool:
        """Return True once Kubernetes' own controllers have made what the children say.

        Raises:
            AssertionError: they have not.
        """
        assert await unfinished(self.kube, self.namespace) == []
        return True

    def looks(self, since: float = float("-inf")) -> int:
        """Return how many looks at the pipeline an operator began after *since*, of those requests
        that are remembered.
        """
        path = kind("LogPipeline").path(self.namespace, NAME)
        recent = itertools.takewhile(lambda each: each.at > since, reversed(self.proxy.asked))
        return sum(each.path == path and each.method == "GET" for each in recent)

    async def settles(self) -> State:
        """Return the state once the operator has written something, Kubernetes' controllers have
        done their part, and the operator has looked at all of it again and written nothing.
        """
        finished_at: float | None = None

        async def is_settled() -> bool:
            nonlocal finished_at
            last = self.writes.last_at
            if last is None or self.looks(last) < LOOKS_TO_SETTLE:
                return False
            if finished_at is None:
                await self._controllers_are_done()
                finished_at = time.monotonic()
            return self.looks(max(last, finished_at)) >= LOOKS_TO_SETTLE

        while True:
            try:
                await eventually(is_settled, within_s=SETTLED_WITHIN_S, what="the operator is done")
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self._told()}") from None
            state = await self.until(lambda state: [])
            if await is_settled():
                return state


ROLE = {"LOGPIPELINE_SHIPPER_CLUSTER_ROLE": "view"}
PERIODS = {
    "LOGPIPELINE_RESYNC_SECONDS": str(RESYNC_S),
    "LOGPIPELINE_LOOK_AGAIN_SECONDS": str(LOOK_AGAIN_S),
}


@asynccontextmanager
async def world(
    cluster: Cluster, server: EmbeddedServer, folder: Path, namespace: str
) -> AsyncIterator[World]:
    """Make a world with no operator running yet; the *cluster* knows the resource."""
    async with AsyncExitStack() as stack:
        writes = Writes()
        proxy = stack.enter_context(ClusterProxy(cluster.kubeconfig, writes))
        nats = stack.enter_context(NatsProxy(urlsplit(server.url).port or 0, writes))
        settings = await client.configuration(str(cluster.kubeconfig))
        api = await stack.enter_async_context(ApiClient(settings))
        connection = Connection(NatsOptions(servers=(server.url,)))
        await connection.start(patience_s=WITHIN_S)
        stack.push_async_callback(connection.close)
        made = World(
            api,
            client.Cluster(api),
            JetStream(connection),
            proxy,
            nats,
            writes,
            folder,
            namespace,
        )
        try:
            yield made
        finally:
            for operator in made.operators:
                operator.kill()
