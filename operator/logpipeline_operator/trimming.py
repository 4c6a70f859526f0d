"""Makes room in a pipeline's full streams at each reconciliation, whatever else that could not do.

Without room shippers wait, and what waits on a node is lost when its files are rotated. Only what
every reader has done with is deleted, so no pause and no problem of a pipeline is a reason to wait.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from logpipeline.nats.connection import ConnectFailed, NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.plan.trim import trim_once
from logpipeline.spec import LogPipeline
from logpipeline_operator.access import Access
from logpipeline_operator.cluster.client import ClusterError
from logpipeline_operator.observation import Observation
from logpipeline_operator.queue import Key
from logpipeline_operator.secret_files import SecretProblem
from logpipeline_operator.status import Mode, errors


@dataclass(slots=True)
class Trimming:
    """Trims the streams of all pipelines, over the connections of *access*."""

    access: Access
    # As they were carried out last. It is what runs while a resource cannot be carried out.
    _known: dict[Key, LogPipeline] = field(default_factory=dict)

    async def trim(self, key: Key, seen: Observation) -> None:
        """Trim the pipeline's streams at the end of a reconciliation, and note in *seen* what was
        found. An operator that is read-only leaves it to the one that is not.

        Raises:
            ClusterAway: Kubernetes did not answer, or this operator may not lead any more.
        """
        if seen.pipeline is not None:
            self._known[key] = seen.pipeline
        pipeline = self._known.get(key)
        if pipeline is None or seen.mode is Mode.READ_ONLY:
            return
        js: JetStream | None = None
        try:
            js = self.access.open(key)
            if js is None and not seen.is_nats_asked and seen.pipeline is not None:
                js = await self._reach(key, pipeline)
            if js is not None:
                seen.trimmed = tuple(await trim_once(js, pipeline))
        except (ClusterError, SecretProblem):
            # What ended the reconciliation has kept this from Kubernetes, too, and is reported.
            return
        except (ConnectFailed, NotSent, OutcomeUnknown, ApiError) as error:
            denied = (js.connection.problem if js else None) or ""
            seen.findings.append(errors.of_nats(error, denied=denied))

    def keep_only(self, keys: Collection[Key]) -> None:
        """Forget all pipelines but *keys*."""
        self._known = {key: known for key, known in self._known.items() if key in keys}

    async def _reach(self, key: Key, pipeline: LogPipeline) -> JetStream:
        """Connect, in a reconciliation that ended before it did so."""
        pipeline = await self.access.decided(pipeline)
        login = await self.access.login(pipeline, may_write=False)
        return await self.access.connect(key, pipeline, login.files)
