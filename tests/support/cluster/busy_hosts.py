"""The small busy application of the demo, writing from a thread of the test, so that the test knows
at each moment what was written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from logpipeline_demo.application import Application, Habits, Pace
from logpipeline_demo.ledger import Ledger
from logpipeline_demo.sources import LogSource, host_names, sources_of

STEP_S = 0.01
# So many times as fast is written while a test waits for lines.
HURRY = 4
BURST_EVERY_S = 3.0


class BusyHosts:
    """Writes the sources of *roots* (folder → hosts) at *lines_per_second* until it is closed."""

    def __init__(
        self,
        roots: Mapping[Path, Sequence[str]],
        ledger: Path,
        *,
        seed: int,
        lines_per_second: float,
        rotate_bytes: int,
        has_banners: bool = False,
    ) -> None:
        self.ledger_path = ledger
        self.last_write = 0.0
        self._ledger = Ledger(ledger, seed=seed)
        self.sources: list[LogSource] = []
        self.applications: list[Application] = []
        habits = Habits(rotate_bytes=rotate_bytes, files_max=None, has_banners=has_banners)
        for root, hosts in roots.items():
            sources = sources_of(hosts, seed=seed)
            self.sources += sources
            self.applications.append(Application(sources, root, self._ledger, habits))
        self.resting: set[int] = set()  # numbers of the applications that write nothing now
        self._lines_per_second = lines_per_second
        self._is_hurried = False
        self._lock = threading.Lock()
        self._is_ending = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="busy hosts")

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    @property
    def banners(self) -> int:
        """How many files were begun with a line that all of them begin with."""
        return sum(application.banners for application in self.applications)

    @property
    def lines(self) -> int:
        """How many lines were written, or are being written now."""
        return sum(application.lines for application in self.applications)

    def is_writing(self, within_s: float = 0.25) -> bool:
        """Return whether a line was written in the last moment."""
        return time.monotonic() - self.last_write < within_s

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let nothing be written inside the block, so that it may handle the files itself."""
        with self._lock:
            yield

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """Write much faster inside the block: nothing but lines is waited for."""
        self._is_hurried = True
        try:
            yield
        finally:
            self._is_hurried = False

    def rotate(self, times: int = 1) -> None:
        """Rotate every file, with a few lines between."""
        for _ in range(times):
            with self._lock:
                for application in self.applications:
                    application.step(200)
                    application.rotate()

    def close(self) -> None:
        """Finish every line and file; a second time does nothing.

        Raises:
            RuntimeError: the writing thread had failed.
        """
        if not self._is_ending.is_set():
            self._is_ending.set()
            if self._thread.ident is not None:
                self._thread.join()
            for application in self.applications:
                application.close()
            self._ledger.close()
        if self._failure is not None:
            raise RuntimeError("the writers failed") from self._failure

    def _run(self) -> None:
        try:
            self._write()
        except BaseException as error:  # noqa: BLE001  it is raised again where it can be seen
            self._failure = error

    def _write(self) -> None:
        pace = Pace(self._lines_per_second, time.monotonic())
        next_burst = time.monotonic() + BURST_EVERY_S
        while not self._is_ending.wait(STEP_S):
            now = time.monotonic()
            with self._lock:
                due = pace.due(now)
                if due > 0:
                    pace.spend(self._step(due))
                    if self._is_hurried:
                        self._step(due * (HURRY - 1))
                if now > next_burst:
                    self.applications[0].burst()
                    next_burst = now + BURST_EVERY_S

    def _step(self, due: int) -> int:
        awake = [a for number, a in enumerate(self.applications) if number not in self.resting]
        share = max(1, due // len(self.applications))
        written = sum(application.step(share) for application in awake)
        if awake:
            self.last_write = time.monotonic()
        return max(written, due if not awake else 0)


def hosts_of(count: int, *, seed: int, partitions: int) -> list[str]:
    """Return *count* hosts that keep every partition busy."""
    return host_names(count, seed=seed, partitions=partitions)
