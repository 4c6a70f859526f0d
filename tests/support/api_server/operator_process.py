"""An operator as a process of this machine, to be killed, frozen and started again within
milliseconds: processes are forked from one that has its modules already.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from log_tails import tail_of
from waiting import WITHIN_S

LOG_TAIL_BYTES = 8000
PR_SET_PDEATHSIG = 1

IMAGES = {
    "LOGPIPELINE_IMAGE_COLLECTOR": "images.invalid/collector:1",
    "LOGPIPELINE_IMAGE_SHIPPER": "images.invalid/shipper:1",
    "LOGPIPELINE_IMAGE_NATS": "images.invalid/nats:1",
    "LOGPIPELINE_IMAGE_TABLE": "images.invalid/table:1",
    "LOGPIPELINE_IMAGE_CALLOUT": "images.invalid/operator:1",
}
# No machine is too busy to renew this one in time. With the product's own of 15 s the leader ends
# where it waits long for a processor, and no kubelet is here that starts it again.
LONG_LEASE_S = 90.0


def run(
    arguments: Sequence[str], environment: Mapping[str, str], log: str, has_rounds: bool
) -> None:
    """Be the operator: what `python -m logpipeline_operator` does, with its output in *log*."""
    # Whoever kills the tests leaves no operator behind.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(environment)
    # A killed operator leaves its folder of credentials: here it goes with that of the test.
    tempfile.tempdir = os.path.dirname(log)
    from logpipeline_operator import settings
    from logpipeline_operator.main import main

    if not has_rounds:
        settings.RESYNC_MAX_S = settings.RESYNC_S = settings.PERIOD_MAX_S
    sys.exit(main(arguments))


@dataclass(eq=False)
class OperatorProcess:
    """``python -m logpipeline_operator *arguments*``, again and again. Without rounds, what it does
    is for what its watches say.
    """

    arguments: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    has_rounds: bool = True
    _process: BaseProcess | None = None

    def start(self) -> None:
        """Start it, and return at once."""
        assert not self.is_running
        arguments = [*self.arguments, "--http", "127.0.0.1:0"]
        lease_s = str(LONG_LEASE_S)
        environment = {**IMAGES, "LOGPIPELINE_LEASE_SECONDS": lease_s, **self.environment}
        self._process = _context().Process(
            target=run, args=(arguments, environment, str(self.log), self.has_rounds), daemon=True
        )
        self._process.start()

    @property
    def is_running(self) -> bool:
        """Whether it is there, be it frozen."""
        return self._process is not None and self._process.is_alive()

    def kill(self) -> None:
        """End it as a crash would, and return when it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.join()

    def signal_death(self) -> None:
        """End it as a crash would, from any thread, and return at once."""
        if self._process is not None and self._process.pid is not None:
            os.kill(self._process.pid, signal.SIGKILL)

    def stop(self) -> int | None:
        """Ask it to stop, and return its exit code once it has."""
        assert self._process is not None
        self._process.terminate()
        return self.ended()

    def ended(self) -> int | None:
        """Return its exit code once it has ended by itself, None where it does not."""
        assert self._process is not None
        self._process.join(WITHIN_S)
        return self._process.exitcode

    def freeze(self) -> None:
        """Stop it where it stands."""
        assert self._process is not None
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def log_tail(self) -> str:
        """Return the end of its log."""
        if not self.log.exists():
            return "the operator logged nothing"
        return tail_of(self.log, LOG_TAIL_BYTES)


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    # The first call starts it; __main__ too, or each child would import pytest anew.
    context.set_forkserver_preload(["__main__", "logpipeline_operator.main"])
    return context
