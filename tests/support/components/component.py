"""One real process of the pipeline, started by the command that users start it by, to be killed,
frozen and started again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

import warm
from log_tails import tail_of
from logpipeline_cli.local.parts import PARENT_VARIABLE
from ports import free_port
from waiting import WITHIN_S, eventually

HTTP_TIMEOUT_S = 2.0
LOG_TAIL_BYTES = 6000
POLL_S = 0.02


@dataclass(eq=False)
class Component:
    """The process of the command ``logpipeline *words*``, as the function *target* runs it; it logs
    to *log*.
    """

    name: str
    words: Sequence[str]
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    target: str = warm.COMMAND
    port: int = field(default_factory=free_port)
    starts: int = 0
    _process: warm.AnyProcess | None = None

    def start(self, **environment: str) -> None:
        """Start the process, with *environment* for this one start."""
        assert not self.is_running, f"{self.name} runs already"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.starts += 1
        with self.log.open("ab") as log:
            self._process = warm.start(
                [*self.words, "--http", f"127.0.0.1:{self.port}"],
                stdout=log,
                stderr=log,
                # It dies with this process: a test that is killed leaves nothing behind.
                env={
                    **os.environ,
                    PARENT_VARIABLE: str(os.getpid()),
                    **self.environment,
                    **environment,
                },
                target=self.target,
            )

    @property
    def is_running(self) -> bool:
        """Whether the process is there, be it frozen."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process of the last start."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How the process ended; None while it runs."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.poll()

    def kill(self) -> None:
        """End it as a crash would, and return when it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def freeze(self) -> None:
        """Stop it where it stands, and return once it does stand."""
        assert self._process is not None
        assert self.is_running, f"{self.name} ended with {self.exit_code}:\n{self.log_tail()}"
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Ask it to stop, and return at once."""
        assert self._process is not None
        self._process.terminate()

    async def stop(self, deadline_s: float = WITHIN_S) -> int:
        """Ask it to stop, and return its exit code."""
        self.terminate()
        return await self.wait(deadline_s)

    async def wait(self, deadline_s: float = WITHIN_S) -> int:
        """Return the exit code once it has ended.

        Raises:
            AssertionError: it still ran after *deadline_s*.
        """
        try:
            async with asyncio.timeout(deadline_s):
                while (code := self.exit_code) is None:  # noqa: ASYNC110  no event to await
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise AssertionError(f"{self.name} did not end:\n{self.log_tail()}") from None
        return code

    async def ready(self, deadline_s: float = WITHIN_S) -> None:
        """Return once it says that it is ready.

        Raises:
            AssertionError: it was not in time.
            RuntimeError: it ended.
        """

        async def is_up() -> bool:
            if not self.is_running:
                raise RuntimeError(f"{self.name} ended with {self.exit_code}\n{self.log_tail()}")
            return await self.is_ready()

        try:
            await eventually(is_up, within_s=deadline_s, what=f"{self.name} is ready")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log_tail()}") from error

    async def is_ready(self) -> bool:
        """Return whether it says so."""
        return await asyncio.to_thread(self._get, "/readyz") is not None

    async def metrics(self) -> dict[str, float]:
        """Return each number it shows, labels summed up, by its name without prefix; empty where
        it does not answer.
        """
        page = await asyncio.to_thread(self._get, "/metrics")
        numbers: dict[str, float] = {}
        for family in text_string_to_metric_families(page or ""):
            for sample in family.samples:
                name = sample.name.removeprefix("logpipeline_").partition("_")[2]
                numbers[name] = numbers.get(name, 0.0) + sample.value
        return numbers

    def log_tail(self) -> str:
        """Return the end of its log."""
        if not self.log.exists():
            return f"--- {self.name} logged nothing"
        return f"--- {self.name}\n{tail_of(self.log, LOG_TAIL_BYTES)}"

    def _get(self, path: str) -> str | None:
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=HTTP_TIMEOUT_S) as answer:
                return str(answer.read().decode())
        except OSError:
            return None
