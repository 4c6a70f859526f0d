"""Ends the parts of this machine that run and do nothing, as the kubelet does with containers that
fail their liveness probe: who started them starts them again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from logpipeline_cli.local.parts import Part

log = logging.getLogger(__name__)

PROBE_EVERY_S = 2.0
ANSWER_DEADLINE_S = 5.0
# Far beyond what a loaded machine delays an answer by.
SILENT_S_MAX = 30.0
# One that never answered may still read the positions of very many files.
STARTING_S_MAX = 300.0


@dataclass(slots=True)
class Prober:
    """Asks what *parts* returns, each with the address where it serves its probes."""

    parts: Callable[[], Iterable[tuple[Part, str]]]
    # By process, when it answered last, and when those were seen first that never did.
    _answered: dict[int, float] = field(default_factory=dict)
    _starting: dict[int, float] = field(default_factory=dict)

    async def run(self) -> None:
        """Probe, until cancelled."""
        while True:
            await asyncio.sleep(PROBE_EVERY_S)
            asked = [(part, part.pid, http) for part, http in self.parts() if part.pid]
            answers = await asyncio.gather(*(_answers(http) for _, _, http in asked))
            now = asyncio.get_running_loop().time()
            known = {pid: self._answered[pid] for _, pid, _ in asked if pid in self._answered}
            known |= {
                pid: now for (_, pid, _), is_there in zip(asked, answers, strict=True) if is_there
            }
            for part, pid, _ in asked:
                if pid in known and pid not in self._answered:
                    log.info("a part answers", extra={"part": part.name})
            self._answered = known
            self._starting = {
                pid: self._starting.get(pid, now) for _, pid, _ in asked if pid not in known
            }
            for part, pid, _ in asked:
                if self._is_dead(pid, now) and part.pid == pid:
                    log.warning("a part does not answer, ending it", extra={"part": part.name})
                    part.kill()

    def _is_dead(self, pid: int, now: float) -> bool:
        if pid in self._answered:
            return now - self._answered[pid] > SILENT_S_MAX
        return now - self._starting[pid] > STARTING_S_MAX


async def _answers(http: str) -> bool:
    """Return whether anybody answers at *http*, whatever the answer is."""
    host, _, port = http.rpartition(":")
    try:
        async with asyncio.timeout(ANSWER_DEADLINE_S):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(b"GET /livez HTTP/1.0\r\n\r\n")
                return bool(await reader.readline())
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError, ValueError):
        return False
