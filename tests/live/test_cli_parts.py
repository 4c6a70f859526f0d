"""How one process is kept running: started again after a crash, stopped at any moment."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from logpipeline_cli.local import parts
from logpipeline_cli.local.parts import Part
from waiting import WITHIN_S, eventually

SLEEPS = "import signal; print('up', file=__import__('sys').stderr, flush=True); signal.pause()"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPS}"


def part(folder: Path, script: str, on_line: Callable[[str, str], None] | None = None) -> Part:
    """Return a part that runs *script*."""

    def command() -> list[str]:
        return [sys.executable, "-c", script]

    return Part("part", command, folder / "part.log", on_line or (lambda name, line: None))


def is_up(folder: Path) -> bool:
    """Return whether the part has logged the last that it will."""
    log = folder / "part.log"
    return log.exists() and log.read_text().endswith("up\n")


@asynccontextmanager
async def running(made: Part) -> AsyncIterator[Part]:
    """Run *made* as the supervisor does, and stop it in the end."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(made.run())
        try:
            yield made
        finally:
            async with asyncio.timeout(WITHIN_S):
                await made.stop()
                await task
    assert made.pid == 0


async def test_a_killed_process_is_started_again(tmp_path: Path) -> None:
    """After a crash another process takes the place of the one before."""
    async with running(part(tmp_path, SLEEPS)) as made:
        first = await eventually(lambda: made.pid)
        os.kill(first, signal.SIGKILL)
        second = await eventually(lambda: made.pid not in (0, first) and made.pid)

    assert second != first
    assert made.restarts == 1


async def test_a_process_that_cannot_start_is_tried_again(tmp_path: Path) -> None:
    """What keeps a process from starting may pass, and never keeps the part from being stopped."""
    program = tmp_path / "program"
    async with running(Part("part", lambda: [str(program)], tmp_path / "part.log")) as made:
        await eventually(lambda: made.restarts >= 1)
        program.write_text(f"#!{sys.executable}\n{SLEEPS}\n")
        program.chmod(0o700)
        await eventually(lambda: made.pid)


async def test_a_part_that_waits_to_start_again_is_stopped_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for a back-off to end."""
    monkeypatch.setattr(parts, "BACKOFF_FIRST_S", 3600.0)
    async with running(part(tmp_path, "raise SystemExit(1)")) as made:
        await eventually(lambda: made.restarts == 1)


async def test_a_part_that_is_being_started_is_stopped_too(tmp_path: Path) -> None:
    """A stop that comes while the process is made leaves none behind."""
    for turns in range(12):
        async with running(part(tmp_path, SLEEPS)):
            for _ in range(turns):
                await asyncio.sleep(0)


async def test_a_process_that_does_not_stop_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its deadline a process is ended by force."""
    monkeypatch.setattr(parts, "STOP_DEADLINE_S", 0.2)
    lines: list[str] = []
    async with running(part(tmp_path, STUBBORN, lambda name, line: lines.append(line))):
        await eventually(lambda: lines == ["up"])


async def test_a_process_whose_child_keeps_its_log_open_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a JVM that outlives the process that started it."""
    monkeypatch.setattr(parts, "STOP_DEADLINE_S", 0.2)
    monkeypatch.setattr(parts, "KILLED_DEADLINE_S", 0.2)
    script = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {SLEEPS!r}])\n"
        "print(child.pid, file=sys.stderr, flush=True)\n"
        f"{STUBBORN}"
    )
    lines: list[str] = []
    made = part(tmp_path, script, lambda name, line: lines.append(line))
    try:
        async with running(made):
            await eventually(lambda: len(lines) == 3)
    finally:
        for line in lines:
            if line.isdigit():
                os.kill(int(line), signal.SIGKILL)
    # Its pipe is closed now, before the loop is.
    assert made._process is not None
    stderr = made._process.stderr
    await eventually(lambda: stderr is not None and stderr.at_eof())


async def test_nobody_who_reads_its_log_can_hold_a_part_up(tmp_path: Path) -> None:
    """A terminal that is gone costs nothing but what was shown on it."""

    def gone(name: str, line: str) -> None:
        raise BrokenPipeError

    script = "import sys\nfor n in range(20000): print('x' * 50, file=sys.stderr)\n" + SLEEPS
    async with running(part(tmp_path, script, gone)) as made:
        await eventually(lambda: is_up(tmp_path))

        assert made.restarts == 0


async def test_a_log_never_grows_beyond_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is set aside when it is full, and only one that was set aside is kept."""
    monkeypatch.setattr(parts, "LOG_BYTES_MAX", 10_000)
    script = "import sys\nfor n in range(2000): print('x' * 50, file=sys.stderr)\n" + SLEEPS
    async with running(part(tmp_path, script)):
        await eventually(lambda: is_up(tmp_path))

    files = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert files.keys() == {"part.log", "part.log.1"}
    assert max(files.values()) <= 10_000 + 51


async def test_a_log_that_cannot_be_opened_never_keeps_its_part_from_stopping(
    tmp_path: Path,
) -> None:
    """The part runs on, its lines are shown, and they are in its log once that can be written."""
    log = tmp_path / "part.log"
    log.mkdir()
    script = f"import sys\nfor n in range(20000): print('x' * 50, file=sys.stderr)\n{SLEEPS}"
    shown: list[str] = []
    async with running(part(tmp_path, script, lambda name, line: shown.append(line))) as made:
        await eventually(lambda: shown[-1:] == ["up"])

        assert made.restarts == 0
    log.rmdir()
    async with running(part(tmp_path, SLEEPS)):
        await eventually(lambda: is_up(tmp_path))


async def test_a_log_that_is_removed_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is full, with its folder, by somebody who makes room."""
    monkeypatch.setattr(parts, "LOG_BYTES_MAX", 10)
    folder = tmp_path / "components"
    script = (
        "import os, signal, sys\n"
        "for n in range(2000):\n"
        "    print('a line', n, 'up', file=sys.stderr, flush=True)\n"
        "    signal.sigtimedwait([], 0.01)\n"
    ) + SLEEPS
    async with running(part(folder, script)) as made:
        await eventually((folder / "part.log").exists)
        for path in list(folder.iterdir()):
            path.unlink(missing_ok=True)
        with suppress(OSError):
            folder.rmdir()
        await eventually((folder / "part.log").exists)

        assert made.restarts == 0


async def test_a_failure_while_a_log_is_read_ends_the_process_and_starts_another(
    tmp_path: Path,
) -> None:
    """A process whose log nobody reads would stand still; so there is never one."""
    calls: list[str] = []

    def failing(name: str, line: str) -> None:
        calls.append(line)
        if len(calls) == 1:
            raise RuntimeError("a mistake of ours")

    async with running(part(tmp_path, SLEEPS, failing)) as made:
        await eventually(lambda: len(calls) == 2)

        assert made.restarts == 1
