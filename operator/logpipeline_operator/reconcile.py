"""Reconciles one pipeline: observe it, decide, apply the changes, and report the status.

A reconciliation may end at any request. The next one begins from what it observes, and does not
need what this one knew.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from logpipeline.nats.connection import ConnectFailed, NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.plan.observe import JetStreamOff
from logpipeline.plan.removal import remove
from logpipeline.spec import LogPipeline, SpecError, parse
from logpipeline.spec.api import ADOPT_ANNOTATION, DATA_LOSS_ANNOTATION, PAUSED_ANNOTATION
from logpipeline.spec.components import Local
from logpipeline_operator import (
    child_objects,
    classes,
    deletion,
    differences,
    jetstream,
    membership,
    pod_namespaces,
    volume_claims,
)
from logpipeline_operator.access import Access, Links, Login, ServerTls
from logpipeline_operator.callout.refusals import RefusedLogins
from logpipeline_operator.children import ChildSettings, Desired, build, kinds, names
from logpipeline_operator.children.model import Manifest
from logpipeline_operator.children.nats_conf import managed_storage_bytes
from logpipeline_operator.cluster.client import Cluster, ClusterAway, ClusterError, Fence, NotFound
from logpipeline_operator.cluster.features import FeatureDiscovery
from logpipeline_operator.cluster.kinds import kind
from logpipeline_operator.cluster.objects import annotations_of, is_ending
from logpipeline_operator.differences import FieldConflicts
from logpipeline_operator.durations import Durations
from logpipeline_operator.metrics import OperatorMetrics
from logpipeline_operator.observation import Observation
from logpipeline_operator.ownership import Ownership
from logpipeline_operator.queue import LOOK_S_MAX, Backoff, Key
from logpipeline_operator.report import Reporter
from logpipeline_operator.secret_files import SecretProblem
from logpipeline_operator.settings import Settings
from logpipeline_operator.status import Mode, News, errors
from logpipeline_operator.trimming import Trimming

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Reconciler:
    """Reconciles pipelines. Between reconciliations it keeps only connections and hints."""

    settings: Settings
    cluster: Cluster
    fence: Fence
    metrics: OperatorMetrics
    _folder: tempfile.TemporaryDirectory[str] = field(init=False)
    _access: Access = field(init=False)
    _reporter: Reporter = field(init=False)
    _features: FeatureDiscovery = field(init=False)
    _trimming: Trimming = field(init=False)
    _backoff: Backoff = field(init=False)
    _ownership: Ownership = field(init=False)
    # Collectors that are not ready, or have no pod.
    _absences: Durations = field(default_factory=Durations)
    # Assignments, whose former owners have this time to release their partitions.
    _handovers: Durations = field(default_factory=Durations)
    _conflicts: FieldConflicts = field(default_factory=FieldConflicts)
    _logins: RefusedLogins = field(default_factory=RefusedLogins)
    # Kept until an event has reported it: a reconciliation may fail before its report.
    _news: dict[Key, News] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="logpipeline-operator-")
        self._access = Access(self.cluster, Links(Path(self._folder.name), self.fence))
        self._trimming = Trimming(self._access)
        self._features = FeatureDiscovery(self.cluster)
        self._reporter = Reporter(self.cluster, self.settings, self.metrics)
        self._ownership = Ownership(self.cluster, self.settings.operator, self.metrics)
        self._backoff = Backoff(
            first_s=self.settings.look_again_s, longest_s=self.settings.resync_s
        )

    async def close(self) -> None:
        """End the connections, and remove their credentials."""
        await self._access.close()
        self._folder.cleanup()

    async def keep_only(self, keys: Sequence[Key], listed: Collection[str]) -> None:
        """Forget pipelines that are no longer there: *keys* are those that are, or may be, and
        include all that exist in the namespaces *listed* (none: everywhere).

        Raises:
            ClusterAway, ClusterError: what they left could not be looked for.
        """
        self._backoff.keep_only(keys)
        self._news = {key: news for key, news in self._news.items() if key in keys}
        self._ownership.keep_only(keys)
        self._trimming.keep_only(keys)
        self._absences.keep_only(keys)
        self._handovers.keep_only(keys)
        for key in await self._access.keep_only(keys):
            self.metrics.forget_pipeline(key.namespace, key.name)
        if not self.settings.is_read_only:
            await child_objects.sweep_bindings(self.cluster, set(keys), listed)

    async def reconcile(self, key: Key) -> float | None:
        """Make the pipeline as its resource asks, and report its status; return after how many
        seconds to reconcile again, None for when something changes.

        Raises:
            ClusterAway, ClusterError: Kubernetes did not answer, or refused the report.
        """
        resource = await self.cluster.get(kind("LogPipeline"), key.namespace, key.name)
        if resource is None:
            self._ownership.forget(key)
            self._conflicts.forget(key)
            self._logins.forget(key)
            self._news.pop(key, None)
            await self._access.drop(key)
            self.metrics.forget_pipeline(key.namespace, key.name)
            if not self.settings.is_read_only:
                await child_objects.forget_bindings(self.cluster, key)
            return None
        turn = await self._ownership.take(key, resource)
        if not turn.is_ours:
            # The operator that owns it has its metrics, too.
            await self._access.drop(key)
            self.metrics.forget_pipeline(key.namespace, key.name)
            return turn.again_s
        try:
            async with asyncio.timeout(min(turn.within_s, LOOK_S_MAX)):
                if is_ending(resource):
                    return await self._end(key, turn.resource)
                return await self._reconcile(key, turn.resource)
        except (ClusterAway, ClusterError):
            raise  # A report of it would be refused as well.
        except Exception as error:
            await self._report_failure(turn.resource, error)
            raise

    async def _report_failure(self, resource: Manifest, error: Exception) -> None:
        """Say in the status that the look at *resource* ended with *error*: the status of the look
        before would go on saying that all is well.
        """
        seen = self._observation(resource, news=News())
        seen.findings.append(errors.of_failed_look(error))
        try:
            await self._reporter.report(seen)
        except (ClusterAway, ClusterError) as refused:
            log.warning("a failed look could not be reported", extra={"why": str(refused)})

    async def _reconcile(
        self, key: Key, resource: Manifest, *, is_again: bool = False
    ) -> float | None:
        started = time.monotonic()
        seen = self._begin(key, resource)
        if seen.pipeline is not None:
            try:
                await self._apply_class(seen, seen.pipeline)
                if seen.pipeline is not None:
                    await self._bring_about(key, seen, seen.pipeline)
            except ClusterError as error:
                if isinstance(error, NotFound) and not is_again:
                    # The definition of a kind may have been deleted. Without this, no pipeline
                    # would be reconciled until the features are discovered again.
                    self._features.forget()
                    return await self._reconcile(key, seen.resource, is_again=True)
                seen.findings.append(errors.of_kubernetes(differences.title(resource), error))
                # It may be that of one kind only, which the next reconciliation then leaves out.
                self._features.forget()
        await self._trimming.trim(key, seen)
        is_settled = await self._reporter.report(seen)
        self._news.pop(key, None)
        self.metrics.looks.labels("settled" if is_settled else "unsettled").inc()
        self.metrics.look_seconds.labels().observe(time.monotonic() - started)
        if is_settled:
            return None
        return self._backoff.wait_s(key, str(resource["metadata"]["resourceVersion"]))

    def _begin(self, key: Key, resource: Manifest) -> Observation:
        seen = self._observation(resource, news=self._news.setdefault(key, News()))
        is_unmanaged = False
        try:
            pipeline = parse(resource)
        except SpecError as error:
            seen.mistakes = error
        else:
            is_unmanaged = pipeline.spec.management_state == "Unmanaged"
            # The API server fills defaults in: spec.local is there even if the user left it out.
            seen.has_local = pipeline.spec.local != Local()
            seen.pipeline = None if seen.has_local else pipeline
        if self.settings.is_read_only:
            seen.mode = Mode.READ_ONLY
        elif is_unmanaged:
            seen.mode = Mode.UNMANAGED
        elif annotations_of(resource).get(PAUSED_ANNOTATION) == "true":
            seen.mode = Mode.PAUSED
        return seen

    def _observation(self, resource: Manifest, *, news: News) -> Observation:
        metadata = resource["metadata"]
        return Observation(
            resource=resource,
            generation=int(metadata.get("generation", 0)),
            name=str(metadata["name"]),
            version=self.settings.version,
            operator=self.settings.operator,
            news=news,
        )

    async def _apply_class(self, seen: Observation, pipeline: LogPipeline) -> None:
        """Replace *pipeline* by the part of it that its class allows."""
        # If that cannot be read, nothing is allowed.
        seen.pipeline = None
        allowed = await classes.allowed(self.cluster, pipeline, may_write=seen.may_write)
        seen.pipeline = allowed.pipeline
        if allowed.finding is not None:
            seen.findings.append(allowed.finding)

    async def _bring_about(self, key: Key, seen: Observation, pipeline: LogPipeline) -> None:
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
            seen.findings.append(errors.of_secret(str(error)))
            # New pods would only wait for the Secret; those that run go on with what they have.
            await self._observe(seen, pipeline, Login({}))
            return
        self._note_tls(key, seen, login.tls)
        seen.news.drifted += login.put_right
        desired = await self._observe(seen, pipeline, login)
        await self._delete_stuck_pods(seen, pipeline)
        if seen.may_write:
            growths = volume_claims.to_grow(desired.manifests, seen.claims)
            seen.findings += await child_objects.grow(self.cluster, pipeline.namespace, growths)
        collectors = ("StatefulSet", names.collector(pipeline))
        others = [m for m in desired.manifests if differences.place(m) != collectors]
        wanted = replace(desired, manifests=tuple(others))
        await self._apply(seen, pipeline, wanted, keep={collectors})
        await self._bind(seen, pipeline)
        if seen.may_write:
            isolated = membership.isolated_servers(seen.pods, pipeline, login.server)
            await child_objects.delete_pods(self.cluster, isolated)
        await self._reconcile_jetstream(key, seen, pipeline, login.files)
        # Last, since JetStream shows which collectors still hold partitions.
        own = [m for m in desired.manifests if differences.place(m) == collectors]
        wanted = replace(desired, manifests=tuple(own))
        await self._apply_collectors(seen, pipeline, wanted)

    async def _delete_stuck_pods(self, seen: Observation, pipeline: LogPipeline) -> None:
        for name in (names.collector(pipeline), names.table(pipeline)):
            stateful_set = seen.child("StatefulSet", name)
            if stateful_set is not None and seen.may_write:
                stuck = membership.stuck_pods(stateful_set, seen.pods, now=time.time())
                await child_objects.delete_pods(self.cluster, stuck)

    def _note_tls(self, key: Key, seen: Observation, tls: ServerTls) -> None:
        seen.news.renewed = tls.made or seen.news.renewed
        if tls.ends is None:
            self.metrics.certificate_ends.forget(key.namespace, key.name)
        else:
            self.metrics.certificate_ends.labels(key.namespace, key.name).set(tls.ends)

    async def _observe(self, seen: Observation, pipeline: LogPipeline, login: Login) -> Desired:
        key = Key(pipeline.namespace, pipeline.name)
        seen.pod_namespaces = await pod_namespaces.observe(self.cluster, pipeline)
        if seen.pod_namespaces.finding is not None:
            seen.findings.append(seen.pod_namespaces.finding)
        settings = ChildSettings(
            install=self.settings.install,
            features=self._features.found,
            server=login.server,
            pod_namespaces=seen.pod_namespaces.listed,
        )
        wanted = build(pipeline, settings).manifests
        found = await child_objects.children(self.cluster, pipeline, wanted, kinds(settings))
        seen.children = {differences.place(manifest): manifest for manifest in found}
        seen.pods = await child_objects.pods(self.cluster, key)
        seen.claims = await child_objects.claims(self.cluster, key)
        seen.slices = await child_objects.endpoint_slices(self.cluster, key)
        there = seen.child("StatefulSet", names.nats(pipeline))
        server = replace(
            login.server,
            has_accounts=volume_claims.may_have_accounts(pipeline, there, seen.claims),
            began_with_tls=volume_claims.began_with_tls(there, seen.claims),
            claimed_bytes=volume_claims.of_servers_bytes(seen.claims),
        )
        desired = seen.desired = build(pipeline, replace(settings, server=server))
        # Driver and executors are one component to users, and have one reason.
        undecided = dict.fromkeys(desired.undecided.values())
        seen.findings += [errors.of_undecided(why) for why in undecided]
        lacking = [each for each in found if child_objects.lacks_pods(each)]
        seen.refusals = await child_objects.refusals(self.cluster, lacking)
        seen.sync = await jetstream.sync_of(pipeline)
        return desired

    async def _apply(
        self,
        seen: Observation,
        pipeline: LogPipeline,
        desired: Desired,
        keep: set[differences.Place],
    ) -> None:
        """Make children as *desired*; those in *keep* are decided elsewhere."""
        changes = differences.changes(
            desired,
            [there for place, there in seen.children.items() if place not in keep],
            owner_uid=pipeline.uid,
            pipeline=pipeline.name,
            may_adopt=pipeline.annotations.get(ADOPT_ANNOTATION) == "true",
        )
        seen.foreign += changes.foreign
        seen.findings += [errors.of_foreign_child(child) for child in changes.foreign]
        changes = differences.without_strangers(changes, seen.foreign)
        if not seen.may_write:
            seen.pending += [differences.title(wanted.manifest) for wanted in changes.apply]
            seen.pending += [f"delete {differences.title(m)}" for m in changes.delete]
            return
        key = Key(pipeline.namespace, pipeline.name)
        changes, conflicts = self._conflicts.settle(key, changes)
        seen.findings += [
            errors.of_field_conflict(each.child, each.path, each.manager) for each in conflicts
        ]
        drifted = seen.news.drifted
        self._note(seen, await child_objects.apply_changes(self.cluster, changes, drifted))

    async def _bind(self, seen: Observation, pipeline: LogPipeline) -> None:
        """Let shippers read the pods of the namespaces that the selector selects, and no others."""
        if self.settings.namespaces:
            return  # It has no right beyond these, and made no binding in another.
        settings = ChildSettings(install=self.settings.install, features=self._features.found)
        applied, pending = await pod_namespaces.bind(
            self.cluster,
            pipeline,
            settings,
            seen.pod_namespaces,
            foreign=seen.foreign,
            may_write=seen.may_write,
            drifted=seen.news.drifted,
        )
        seen.pending += pending
        self._note(seen, applied)

    def _note(self, seen: Observation, applied: child_objects.Applied) -> None:
        seen.findings += applied.findings
        if applied.written:
            self.metrics.writes.labels("child").inc(applied.written)

    async def _reconcile_jetstream(
        self, key: Key, seen: Observation, pipeline: LogPipeline, files: dict[str, bytes]
    ) -> None:
        stateful_set = names.collector(pipeline)
        replicas = pipeline.spec.collectors.replicas
        pods = membership.collector_pods(seen.pods, stateful_set, now=time.time())
        away = membership.not_ready(pods, replicas=replicas, stateful_set=stateful_set)
        absent_s = self._absences.of(key, away)

        def members(assigned: Sequence[str]) -> list[str]:
            return membership.members(
                pods,
                replicas=replicas,
                assigned=assigned,
                stateful_set=stateful_set,
                absent_s=absent_s,
            )

        loss = pipeline.annotations.get(DATA_LOSS_ANNOTATION)
        permission = jetstream.Permission(
            may_write=seen.may_write,
            allow_data_loss=loss == str(pipeline.generation),
            installation=await self._access.installation(),
            storage_bytes=managed_storage_bytes(pipeline),
        )
        js: JetStream | None = None
        seen.is_nats_asked = True
        try:
            js = await self._access.connect(key, pipeline, files)
            seen.jetstream = await jetstream.reconcile(js, pipeline, permission, members)
            refused = self._logins.news(key, seen.jetstream.refused_logins)
            seen.news.refused_logins = refused or seen.news.refused_logins
        except (ConnectFailed, JetStreamOff, NotSent, OutcomeUnknown, ApiError) as error:
            denied = (js.connection.problem if js else None) or ""
            seen.findings.append(errors.of_nats(error, denied=denied))

    async def _apply_collectors(
        self, seen: Observation, pipeline: LogPipeline, desired: Desired
    ) -> None:
        there = seen.child("StatefulSet", names.collector(pipeline))
        current = int((there or {}).get("spec", {}).get("replicas", 0))
        wanted = pipeline.spec.collectors.replicas
        seen.replicas = self._replicas(seen, pipeline, current=current, wanted=wanted)
        manifests = tuple(
            {**manifest, "spec": {**manifest["spec"], "replicas": seen.replicas}}
            for manifest in desired.manifests
        )
        own = {differences.place(manifest) for manifest in manifests}
        others = {place for place in seen.children if place not in own}
        await self._apply(seen, pipeline, replace(desired, manifests=manifests), keep=others)

    def _replicas(
        self, seen: Observation, pipeline: LogPipeline, *, current: int, wanted: int
    ) -> int:
        assignment = seen.jetstream.assignment if seen.jetstream is not None else None
        if seen.jetstream is None or (assignment is None and wanted > 0):
            # It is not known which collector holds which partition, so none is removed.
            return max(current, wanted)
        key = Key(pipeline.namespace, pipeline.name)
        # Not by the time at which it was written: the server's clock may differ from this one.
        said = f"assignment {assignment.generation}" if assignment is not None else ""
        waited_s = self._handovers.of(key, [said])[said]
        return membership.replicas_to_keep(
            wanted=wanted,
            current=current,
            survey=seen.jetstream.partitions,
            assigned=[name for name, _ in assignment.members] if assignment is not None else [],
            stateful_set=names.collector(pipeline),
            is_patient=waited_s < pipeline.spec.collectors.drain_timeout_seconds,
        )

    async def _end(self, key: Key, resource: Manifest) -> float | None:
        async def remove_all() -> list[str]:
            pipeline = await self._to_remove(resource)
            if pipeline is None:
                return []
            pipeline = await self._access.decided(pipeline)
            login = await self._access.login(pipeline, may_write=False)
            js = await self._access.connect(key, pipeline, login.files)
            installation = await self._access.installation()
            return await remove(js, pipeline, installation=installation)

        seen = self._observation(resource, news=News())
        seen.findings.append(errors.of_ending(resource))
        try:
            await self._reporter.report(seen)
        except ClusterError as error:
            # The rights may be gone with the namespace. The finalizer must go all the same.
            log.warning("the end of a pipeline cannot be reported", extra={"why": str(error)})
        resource = seen.resource
        if self.settings.is_read_only:
            return None
        after_s, note = await deletion.finish(self.cluster, resource, remove_all, now=time.time())
        if note:
            await self._reporter.report_end(resource, note)
        if after_s is None:
            await self._access.drop(key)
        return after_s

    async def _to_remove(self, resource: Manifest) -> LogPipeline | None:
        """Return the pipeline whose streams are to be deleted; None if they stay."""
        with contextlib.suppress(SpecError):
            # A deletion, too, sends servers only requests and credentials that the class allowed.
            allowed = await classes.allowed(self.cluster, parse(resource), may_write=False)
            if allowed.pipeline is not None and deletion.needs_finalizer(allowed.pipeline):
                return allowed.pipeline
        return None

    @property
    def _has_callout(self) -> bool:
        return bool(self.settings.install.image_callout and self._features.found.token_keys)
