"""One look at one pipeline: observe, decide, do, and say how it is. It may be cut anywhere, and
begins from what it sees, not from what it remembers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from logpipeline.nats.connection import ConnectFailed, NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.plan.observe import JetStreamOff
from logpipeline.spec import LogPipeline, SpecError, parse
from logpipeline.spec.api import ADOPT_ANNOTATION, DATA_LOSS_ANNOTATION, PAUSED_ANNOTATION
from logpipeline.spec.components import Local
from logpipeline_operator import (
    child_objects,
    classes,
    deletion,
    differences,
    membership,
    pod_namespaces,
    volume_claims,
)
from logpipeline_operator.access import Access, Links, Login, ServerTls
from logpipeline_operator.children import ChildSettings, NoImage, build, kinds, names
from logpipeline_operator.children.model import Manifest
from logpipeline_operator.children.nats_conf import managed_storage_bytes
from logpipeline_operator.cluster.client import Cluster, ClusterError, Fence, NotFound
from logpipeline_operator.cluster.features import Features
from logpipeline_operator.cluster.kinds import kind
from logpipeline_operator.differences import Contests
from logpipeline_operator.jetstream import Permission, look, remove, sync_of
from logpipeline_operator.logins import Logins
from logpipeline_operator.metrics import OperatorMetrics
from logpipeline_operator.ownership import Charge
from logpipeline_operator.queue import Key, Patience
from logpipeline_operator.report import News, Reporter, Seen
from logpipeline_operator.secret_files import SecretProblem
from logpipeline_operator.settings import Settings
from logpipeline_operator.status import errors

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Reconciler:
    """Looks after pipelines; what it keeps between looks are connections and hints."""

    settings: Settings
    cluster: Cluster
    fence: Fence
    metrics: OperatorMetrics
    _folder: tempfile.TemporaryDirectory[str] = field(init=False)
    _access: Access = field(init=False)
    _reporter: Reporter = field(init=False)
    _features: Features = field(init=False)
    _patience: Patience = field(init=False)
    _charge: Charge = field(init=False)
    _contests: Contests = field(default_factory=Contests)
    _logins: Logins = field(default_factory=Logins)
    # Kept until an event has told it: a look may fail before its report.
    _news: dict[Key, News] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="logpipeline-operator-")
        self._access = Access(self.cluster, Links(Path(self._folder.name), self.fence))
        self._features = Features(self.cluster)
        self._reporter = Reporter(self.cluster, self.settings, self.metrics)
        self._charge = Charge(self.cluster, self.settings.operator, self.metrics)
        self._patience = Patience(
            first_s=self.settings.look_again_s, longest_s=self.settings.resync_s
        )

    async def close(self) -> None:
        """End the connections, and remove their credentials."""
        await self._access.close()
        self._folder.cleanup()

    async def keep_only(self, keys: Sequence[Key]) -> None:
        """Forget pipelines that are no longer there.

        Raises:
            ClusterAway, ClusterError: what they left could not be looked for.
        """
        self._patience.keep_only(keys)
        self._news = {key: news for key, news in self._news.items() if key in keys}
        self._charge.keep_only(keys)
        for key in await self._access.keep_only(keys):
            self.metrics.forget_pipeline(key.namespace, key.name)
        if not self.settings.is_read_only:
            await child_objects.sweep_bindings(self.cluster, set(keys), self.settings.namespaces)

    async def look(self, key: Key) -> float | None:
        """Bring the pipeline to what it asks for, and report; return after how many seconds to look
        again, None for when something changes.

        Raises:
            ClusterAway, ClusterError: Kubernetes could not be asked, or did not take the report.
        """
        resource = await self.cluster.get(kind("LogPipeline"), key.namespace, key.name)
        if resource is None:
            self._charge.forget(key)
            self._contests.forget(key)
            self._logins.forget(key)
            self._news.pop(key, None)
            await self._access.drop(key)
            self.metrics.forget_pipeline(key.namespace, key.name)
            if not self.settings.is_read_only:
                await child_objects.forget_bindings(self.cluster, key)
            return None
        turn = await self._charge.take(key, resource)
        if not turn.is_ours:
            # Who looks after it has its numbers, too.
            await self._access.drop(key)
            self.metrics.forget_pipeline(key.namespace, key.name)
            return turn.again_s
        async with asyncio.timeout(turn.within_s):
            if "deletionTimestamp" in resource["metadata"]:
                return await self._end(key, turn.resource)
            return await self._look_at(key, turn.resource)

    async def _look_at(
        self, key: Key, resource: Manifest, *, is_again: bool = False
    ) -> float | None:
        started = time.monotonic()
        seen = self._begin(key, resource)
        if seen.pipeline is not None:
            try:
                await self._judge(seen, seen.pipeline)
                if seen.pipeline is not None:
                    await self._go(key, seen, seen.pipeline)
            except ClusterError as error:
                if isinstance(error, NotFound) and not is_again:
                    # A kind that was there may have gone with its definition: all pipelines would
                    # stand still until the next time at which this is looked up.
                    self._features.forget()
                    return await self._look_at(key, seen.resource, is_again=True)
                found = errors.of_kubernetes(
                    differences.title(resource),
                    status=error.status,
                    reason=error.reason,
                    message=error.message,
                )
                seen.findings.append(found)
        is_settled = await self._reporter.report(seen)
        self._news.pop(key, None)
        self.metrics.looks.labels("settled" if is_settled else "unsettled").inc()
        self.metrics.look_seconds.labels().observe(time.monotonic() - started)
        if is_settled:
            return None
        return self._patience.wait_s(key, str(resource["metadata"]["resourceVersion"]))

    def _begin(self, key: Key, resource: Manifest) -> Seen:
        annotations = resource["metadata"].get("annotations") or {}
        seen = Seen(
            resource=resource,
            is_paused=annotations.get(PAUSED_ANNOTATION) == "true",
            is_read_only=self.settings.is_read_only,
            news=self._news.setdefault(key, News()),
        )
        try:
            seen.pipeline = parse(resource)
        except SpecError as error:
            seen.mistakes = error
        else:
            seen.is_unmanaged = seen.pipeline.spec.management_state == "Unmanaged"
            # The API server fills the defaults in, so that it is there even where nobody wrote it.
            seen.has_local = seen.pipeline.spec.local != Local()
        if seen.has_local:
            seen.pipeline = None
        return seen

    async def _judge(self, seen: Seen, pipeline: LogPipeline) -> None:
        """Have the look go on with what of *pipeline* its class allows."""
        # Until that is known, nothing is.
        seen.pipeline = None
        judgement = await classes.judge(self.cluster, pipeline, may_write=seen.may_write)
        seen.pipeline = judgement.pipeline
        if judgement.finding is not None:
            seen.findings.append(judgement.finding)

    async def _go(self, key: Key, seen: Seen, pipeline: LogPipeline) -> None:
        if seen.may_write:
            kept = deletion.keep_finalizer(self.cluster, seen.resource, pipeline)
            seen.resource = await kept
        pipeline = seen.pipeline = await self._access.decided(pipeline)
        try:
            await self._features.refresh(pipeline.namespace)
            login = await self._access.login(
                pipeline, may_write=seen.may_write, has_callout=self._has_callout
            )
        except SecretProblem as error:
            seen.secret_problem = str(error)
            # Pods without their Secret would only hang; those that run go on with what they have.
            await self._observe(seen, pipeline, Login({}))
            return
        self._note_tls(key, seen, login.tls)
        seen.news.drifted += login.put_right
        await self._observe(seen, pipeline, login)
        collectors = names.collector(pipeline)
        for name in (collectors, names.table(pipeline)):
            stateful_set = seen.child("StatefulSet", name)
            if stateful_set is not None and seen.may_write:
                stuck = membership.pods_in_the_way(stateful_set, seen.pods, now=time.time())
                await child_objects.delete_pods(self.cluster, stuck)
        if seen.may_write:
            growths = volume_claims.to_grow(seen.desired, seen.claims)
            seen.failures += await child_objects.grow(self.cluster, pipeline.namespace, growths)
        others = [m for m in seen.desired if differences.place(m) != ("StatefulSet", collectors)]
        await self._apply(seen, pipeline, others, keep={("StatefulSet", collectors)})
        await self._bind(seen, pipeline)
        if seen.may_write:
            apart = membership.servers_apart(
                seen.pods, pipeline, users=login.users, certificate=login.tls.mark
            )
            await child_objects.delete_pods(self.cluster, apart)
        await self._ask_jetstream(key, seen, pipeline, login.files)
        wanted = [m for m in seen.desired if differences.place(m) == ("StatefulSet", collectors)]
        await self._apply_collectors(seen, pipeline, wanted)

    def _note_tls(self, key: Key, seen: Seen, tls: ServerTls) -> None:
        seen.news.renewed = tls.made or seen.news.renewed
        if tls.ends is None:
            self.metrics.certificate_ends.forget(key.namespace, key.name)
        else:
            self.metrics.certificate_ends.labels(key.namespace, key.name).set(tls.ends)

    async def _observe(self, seen: Seen, pipeline: LogPipeline, login: Login) -> None:
        settings = self._child_settings(login)
        key = Key(pipeline.namespace, pipeline.name)
        seen.reach = await pod_namespaces.look(self.cluster, pipeline)
        settings = replace(settings, pod_namespaces=seen.reach.told)
        if seen.reach.finding is not None:
            seen.findings.append(seen.reach.finding)
        try:
            seen.desired = tuple(build(pipeline, settings))
        except NoImage as error:
            seen.findings.append(errors.of_no_image(error))
        table = pipeline.spec.table
        if table.enabled and table.runner == "sparkApplication" and not settings.spark_api:
            seen.findings.append(errors.of_no_spark_operator())
        found = await child_objects.children(self.cluster, pipeline, seen.desired, kinds(settings))
        seen.children = {differences.place(manifest): manifest for manifest in found}
        seen.pods = await child_objects.pods(self.cluster, key)
        seen.claims = await child_objects.claims(self.cluster, key)
        seen.slices = await child_objects.endpoint_slices(self.cluster, key)
        server = seen.child("StatefulSet", names.nats(pipeline))
        if seen.desired:
            began = replace(
                settings,
                nats_has_accounts=volume_claims.may_have_accounts(pipeline, server, seen.claims),
                nats_began_with_tls=volume_claims.began_with_tls(server, seen.claims),
            )
            seen.desired = tuple(build(pipeline, began))
        lacking = [there for there in found if child_objects.lacks_pods(there)]
        seen.refusals = await child_objects.refusals(self.cluster, lacking)
        seen.sync = await sync_of(pipeline)

    async def _apply(
        self,
        seen: Seen,
        pipeline: LogPipeline,
        desired: Sequence[Manifest],
        keep: set[differences.Place],
    ) -> None:
        """Make children as *desired*; those in *keep* are decided on elsewhere."""
        changes = differences.changes(
            desired,
            [there for place, there in seen.children.items() if place not in keep],
            owner_uid=pipeline.uid,
            pipeline=pipeline.name,
            may_adopt=pipeline.annotations.get(ADOPT_ANNOTATION) == "true",
        )
        seen.foreign += changes.foreign
        changes = differences.without_strangers(changes, seen.foreign)
        key = Key(pipeline.namespace, pipeline.name)
        if not seen.may_write:
            seen.pending += [differences.title(wanted.manifest) for wanted in changes.apply]
            seen.pending += [f"delete {differences.title(m)}" for m in changes.delete]
            return
        changes, contests = self._contests.settle(key, changes)
        seen.findings += [
            errors.of_contest(each.child, each.path, each.manager) for each in contests
        ]
        done = await child_objects.carry_out(self.cluster, changes, seen.news.drifted)
        seen.failures += done.failures
        if done.written:
            self.metrics.writes.labels("child").inc(done.written)

    async def _bind(self, seen: Seen, pipeline: LogPipeline) -> None:
        """Let shippers see the pods of the namespaces that labels select, and of no others."""
        if self.settings.namespaces:
            return  # It has no right beyond these, and bound nobody in another.
        settings = self._child_settings(Login({}))
        done, pending = await pod_namespaces.bind(
            self.cluster,
            pipeline,
            settings,
            seen.reach,
            may_write=seen.may_write,
            drifted=seen.news.drifted,
        )
        seen.failures += done.failures
        seen.pending += pending
        if done.written:
            self.metrics.writes.labels("child").inc(done.written)

    async def _ask_jetstream(
        self, key: Key, seen: Seen, pipeline: LogPipeline, files: dict[str, bytes]
    ) -> None:
        stateful_set = names.collector(pipeline)
        pods = membership.collector_pods(seen.pods, stateful_set, now=time.time())

        def members(assigned: Sequence[str]) -> list[str]:
            return membership.members(
                pods,
                replicas=pipeline.spec.collectors.replicas,
                assigned=assigned,
                stateful_set=stateful_set,
            )

        loss = pipeline.annotations.get(DATA_LOSS_ANNOTATION)
        permission = Permission(
            may_write=seen.may_write,
            allow_data_loss=loss == str(pipeline.generation),
            installation=await self._access.installation(),
            storage_bytes=managed_storage_bytes(pipeline),
        )
        js: JetStream | None = None
        try:
            js = await self._access.connect(key, pipeline, files)
            seen.jetstream = await look(js, pipeline, permission, members)
            refused = self._logins.news(key, seen.jetstream.refused_logins)
            seen.news.refused_logins = refused or seen.news.refused_logins
        except (ConnectFailed, JetStreamOff, NotSent, OutcomeUnknown, ApiError) as error:
            seen.nats_error = error
            seen.denied = (js.connection.problem if js else None) or ""

    async def _apply_collectors(
        self, seen: Seen, pipeline: LogPipeline, desired: Sequence[Manifest]
    ) -> None:
        there = seen.child("StatefulSet", names.collector(pipeline))
        current = int((there or {}).get("spec", {}).get("replicas", 0))
        wanted = pipeline.spec.collectors.replicas
        seen.replicas = self._replicas(seen, pipeline, current=current, wanted=wanted)
        manifests = [
            {**manifest, "spec": {**manifest["spec"], "replicas": seen.replicas}}
            for manifest in desired
        ]
        others = {place for place in seen.children if place not in map(differences.place, desired)}
        await self._apply(seen, pipeline, manifests, keep=others)

    def _replicas(self, seen: Seen, pipeline: LogPipeline, *, current: int, wanted: int) -> int:
        if seen.jetstream is None:
            # Who holds what is not known: nobody is sent away.
            return max(current, wanted)
        waited_s = time.time() - seen.jetstream.assigned_ns / 1e9
        return membership.replicas_to_keep(
            wanted=wanted,
            current=current,
            survey=seen.jetstream.partitions,
            stateful_set=names.collector(pipeline),
            is_patient=waited_s < pipeline.spec.collectors.drain_timeout_seconds,
        )

    async def _end(self, key: Key, resource: Manifest) -> float | None:
        pipeline: LogPipeline | None = None
        with contextlib.suppress(SpecError):
            # Also at its end nothing is asked of servers, or shown to them, that was not allowed.
            judged = await classes.judge(self.cluster, parse(resource), may_write=False)
            pipeline = judged.pipeline
        if pipeline is not None:
            pipeline = await self._access.decided(pipeline)

        async def remove_all() -> list[str]:
            assert pipeline is not None
            login = await self._access.login(pipeline, may_write=False)
            js = await self._access.connect(key, pipeline, login.files)
            return await remove(js, pipeline, installation=await self._access.installation())

        seen = Seen(resource=resource, findings=[errors.of_ending(resource)])
        await self._reporter.report(seen)
        resource = seen.resource
        if self.settings.is_read_only:
            return None
        after_s, note = await deletion.finish(
            self.cluster, resource, pipeline, remove_all, now=time.time()
        )
        if note:
            await self._reporter.tell(resource, note)
        if after_s is None:
            await self._access.drop(key)
        return after_s

    @property
    def _has_callout(self) -> bool:
        return bool(self.settings.image_callout and self._features.token_keys)

    def _child_settings(self, login: Login) -> ChildSettings:
        return ChildSettings(
            image_collector=self.settings.image_collector,
            image_shipper=self.settings.image_shipper,
            image_nats=self.settings.image_nats,
            image_table=self.settings.image_table,
            image_callout=self.settings.image_callout,
            image_pull_policy=self.settings.image_pull_policy,
            image_pull_secrets=self.settings.image_pull_secrets,
            shipper_cluster_role=self.settings.shipper_cluster_role,
            shipper_role=self.settings.shipper_role,
            spark_role=self.settings.spark_role,
            spark_api=self._features.spark_api,
            has_pod_monitors=self._features.has_pod_monitors,
            has_max_unavailable=self._features.has_max_unavailable,
            nats_users=login.users,
            nats_table_user=login.table_user,
            nats_callout_user=login.callout_user,
            nats_ca=login.tls.bundle,
            nats_certificate=login.tls.mark,
            token_keys=self._features.token_keys,
        )
