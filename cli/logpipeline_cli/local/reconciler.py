"""Keeps JetStream as the running resource asks for: what was deleted, emptied or changed by others
is made again at the next look, without anything that deletes stored messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.plan.apply import Report, Result, apply
from logpipeline.plan.desired import desired
from logpipeline.plan.diff import make_plan
from logpipeline.plan.observe import JetStreamOff, account_of, observe
from logpipeline.spec import LogPipeline
from logpipeline_cli.planning import explain_report

log = logging.getLogger(__name__)

# One look costs some requests for each stream; lines wait in their files meanwhile.
LOOK_EVERY_S = 5.0


@dataclass(slots=True)
class Reconciler:
    """Looks at the streams of what *pipeline* returns, for ever. It changes JetStream with
    *applying* held; *found* is called with the names of the streams on disk that a look found.
    """

    js: JetStream
    pipeline: Callable[[], LogPipeline]
    applying: asyncio.Lock
    found: Callable[[Collection[str]], None] = lambda names: None
    repairs: int = 0
    trouble: str = ""

    async def run(self) -> None:
        """Look and repair, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                async with self.applying:
                    self._note(await self._look())
            except (NotSent, OutcomeUnknown, ApiError, JetStreamOff) as error:
                log.debug("could not look at JetStream", extra={"why": str(error)})

    async def _look(self) -> Report | None:
        wanted = desired(self.pipeline(), account=await account_of(self.js))
        observed = await observe(self.js, wanted)
        self.found(
            [
                name
                for name, stream in observed.streams.items()
                if stream.config.get("storage", "file") == "file"
            ]
        )
        plan = make_plan(wanted, observed)
        if not plan.steps and not plan.blocking:
            return None
        return await apply(self.js, plan, allow_data_loss=False)

    def _note(self, report: Report | None) -> None:
        if report is None:
            self.trouble = ""
            return
        done = [outcome.step for outcome in report.outcomes if outcome.result is Result.DONE]
        if done:
            self.repairs += len(done)
            names = ", ".join(sorted({step.asset for step in done}))
            log.warning("made again what JetStream had lost or others changed", extra={"of": names})
        trouble = "" if report.is_complete else explain_report(report)
        if trouble and trouble != self.trouble:
            log.error("JetStream is not as the resource says", extra={"why": trouble})
        self.trouble = trouble
