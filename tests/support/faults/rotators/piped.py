"""Rotators that write the log themselves: programs that get its lines from a pipe."""

from __future__ import annotations

import math
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from faults.rotators.logrotate import program
from faults.rotators.rotator import LINES, Mode, Quick
from go_programs import built
from waiting import WITHIN_S

POLL_S = 0.001
ASK_AGAIN_S = 2.0
MILLISECOND_S = 0.001


class Piped(Quick):
    """Gives lines to the process of *words*."""

    def __init__(self, folder: Path, words: Callable[[Path], list[str]]) -> None:
        super().__init__(folder)
        self._process = subprocess.Popen(
            words(self.live),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=self.live.parent,
            bufsize=0,
        )

    def write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class Lumberjack(Piped):
    """Rotates when it is told to, and says when it has."""

    def turn(self) -> None:
        assert self._process.stdout is not None
        # It writes over the file that it moved away in the same millisecond.
        now_s = time.time()
        _until(lambda: time.time() > now_s + 2 * MILLISECOND_S)
        self.write(b"rotate\n")
        assert self._process.stdout.readline() == b"rotate\n"


class Alarmed(Piped):
    """svlogd and multilog: `current` is the log, and SIGALRM has it moved away."""

    def __init__(self, folder: Path, words: Callable[[Path], list[str]]) -> None:
        super().__init__(folder, words)
        self._written = 0

    @property
    def live(self) -> Path:
        return self.folder / "logs" / "current"

    def write(self, line: bytes) -> None:
        super().write(line)
        self._written += len(line)

    def turn(self) -> None:
        _until(lambda: self.live.exists() and self.live.stat().st_size == self._written)
        before = len(self._moved())
        asked_s = -math.inf

        def has_turned() -> bool:
            nonlocal asked_s
            if len(self._moved()) > before and self.live.exists():
                return True
            if time.monotonic() - asked_s > ASK_AGAIN_S:
                # svlogd forgets a signal that comes right before it reads. It moves no empty log.
                self._process.send_signal(signal.SIGALRM)
                asked_s = time.monotonic()
            return False

        _until(has_turned)
        self._written = 0

    def _moved(self) -> list[Path]:
        return list(self.live.parent.glob("@*"))


class Clocked(Piped):
    """Begins a file in each second."""

    def turn(self) -> None:
        now_s = int(time.time())
        _until(lambda: int(time.time()) > now_s)


class Saved(Quick):
    """savelog, whose writer opens the new file afterwards."""

    def __init__(self, folder: Path, *options: str) -> None:
        super().__init__(folder)
        self._options = options
        self._file = self.live.open("ab", buffering=0)

    def write(self, line: bytes) -> None:
        self._file.write(line)

    def turn(self) -> None:
        words = [program("savelog"), "-q", "-c", "9", *self._options, str(self.live)]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        self._file.close()
        self._file = self.live.open("ab", buffering=0)

    def close(self) -> None:
        self._file.close()


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, "the rotator did not rotate"
        time.sleep(POLL_S)


def _alarmed(*words: str) -> Callable[[Path], Alarmed]:
    # It looks whether it may write to the folder of the log.
    return lambda folder: Alarmed(folder, lambda live: [program(words[0]), *words[1:], "."])


def _lumberjack(*words: str) -> Callable[[Path], Lumberjack]:
    return lambda folder: Lumberjack(folder, lambda live: [built("lumberjack"), str(live), *words])


CURRENT = ("logs/current", "logs/@*")
# A second goes by for each of their files.
FEW = LINES[:3]
MODES = (
    Mode("lumberjack", "default", _lumberjack()),
    Mode("lumberjack", "`Compress`", _lumberjack("compress")),
    Mode("svlogd", "default", _alarmed("svlogd"), include=CURRENT),
    Mode("multilog", "default", _alarmed("multilog", "n20"), include=CURRENT),
    Mode("savelog", "default", lambda folder: Saved(folder, "-n")),
    Mode("savelog", "`-l`, not compressed", lambda folder: Saved(folder, "-n", "-l")),
    Mode(
        "rotatelogs",
        "every second",
        lambda folder: Clocked(folder, lambda live: [program("rotatelogs"), str(live), "1"]),
        lines=FEW,
    ),
    Mode(
        "cronolog",
        "`app-%Y%m%d%H%M%S.log`",
        lambda folder: Clocked(
            folder, lambda live: [program("cronolog"), f"{live.parent}/app-%Y%m%d%H%M%S.log"]
        ),
        lines=FEW,
    ),
)
