"""``logpipeline demo``: watch the logs of a busy machine arrive, and check every line."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import shutil
import signal
import socket
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from logpipeline.layout import Layout
from logpipeline.observe import logs
from logpipeline.spec import LogPipeline, load
from logpipeline_cli.commands.samples import folder as samples_folder
from logpipeline_cli.demonstration.check import Origins, Written, check_files, check_table
from logpipeline_cli.demonstration.rehearsal import BusyApplication, Probe, Rehearsal
from logpipeline_cli.demonstration.screen import Progress, Screen
from logpipeline_cli.errors import EXIT_FAILED, EXIT_OK, CliError
from logpipeline_cli.local.data_folder import make
from logpipeline_cli.local.running import running
from logpipeline_demo.expected import Expected
from logpipeline_demo.outputs import CollectedCounter
from logpipeline_demo.realfiles import Found, RealFile, default_place, look_below
from logpipeline_demo.verdict import Verdict

REAL_LOGS = Path("/var/log")
# A run with a time limit counts as a check only if it had enough to do.
LINES_MIN = 50_000
ROTATIONS_MIN = 3


def run(args: argparse.Namespace) -> int:
    """Run the demo and return 0 if every line arrived once and in order."""
    logs.setup("demo", format="text", level="WARNING")
    seconds = args.seconds if args.seconds is not None else _seconds_of_environment()
    data = Path(args.data) if args.data else Path(tempfile.mkdtemp(prefix="logpipeline-demo-"))
    source = Path(args.file) if args.file else samples_folder() / "demo.yaml"
    if not source.is_file():
        raise CliError(f"{source} does not exist; give the demo's resource with -f FILE")
    code = asyncio.run(_Demo(load(source), Layout(data), seconds, args.seed).run())
    if code == EXIT_OK and args.data is None:
        shutil.rmtree(data, ignore_errors=True)
    return code


@dataclass(slots=True)
class _Demo:
    """One run of the demo; without *seconds* it writes until Ctrl-C."""

    pipeline: LogPipeline
    layout: Layout
    seconds: float | None
    seed: int

    async def run(self) -> int:
        """Run, check, and return the exit code."""
        data, progress = self.layout.data, Progress()
        # This machine's logs are copied into it.
        make(self.layout)
        (data / "busy").mkdir(parents=True, exist_ok=True)
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        probe = Probe(data / "probe" / "probe.log", data / "collectors")
        probe.prepare()
        real, origins = self._machine(probe)
        application = BusyApplication(data / "busy", data / "ledger", self.seed)
        print(f"data and files: {data}", flush=True)
        async with running(self.pipeline, self.layout) as supervisor:
            counter = CollectedCounter(data / "collectors")
            rehearsal = Rehearsal(supervisor, application, probe, counter)
            screen = Screen()
            await rehearsal.run(screen, lambda: self._is_over(stop, rehearsal.started_s))
            for file in real:
                file.freeze()
            expected = await asyncio.to_thread(Expected.read, data / "ledger")
            written = Written(expected, real, origins)
            due = await asyncio.to_thread(written.due)
            progress.begin(f"writing has ended; expected: {due}")
            is_settled = await rehearsal.settle(screen, lambda seen: written.holds_all(seen, due))
            has_table = False
            if supervisor.pipeline.spec.table.enabled and _can_check_table():
                progress.begin("waiting until the table has all of them, too")
                has_table, _ = await asyncio.gather(
                    rehearsal.settle_table(progress),
                    # The check needs it, and loading it takes a second or two.
                    asyncio.to_thread(_load_table_reader),
                )
                is_settled = is_settled and has_table
            progress.begin("stopping the pipeline")
        verdict = check_files(written, self.layout, progress)
        code = _conclude(
            verdict, expected, is_settled=is_settled, is_timed=self.seconds is not None
        )
        if probe.first_s is not None:
            print(f"the first line arrived {probe.first_s:.1f} s after all parts were started")
        if has_table and not check_table(written, self.layout, progress):
            code = EXIT_FAILED
        print(verdict.summary(), flush=True)
        return code

    def _is_over(self, stop: asyncio.Event, started_s: float) -> bool:
        is_late = self.seconds is not None and time.monotonic() - started_s >= self.seconds
        return is_late or stop.is_set()

    def _machine(self, probe: Probe) -> tuple[list[RealFile], Origins]:
        """Find this machine's log files, print which are left out, and watch the others."""
        local = self.pipeline.spec.local
        machine = next((s for s in local.shippers if s.hosts_below is None), None)
        exclude = [glob for files in machine.files for glob in files.exclude] if machine else []
        found, host = look_below(REAL_LOGS, exclude), socket.gethostname()
        _print_left_out(found)
        real = [
            RealFile.observe(entry.path, host=host, older=entry.older)
            for entry in found
            if not entry.reason
        ]
        of_probe = RealFile.observe(probe.path, host=host)
        left_out = {default_place(host, entry.collected_as) for entry in found if entry.reason}
        origins = Origins({file.place for file in real}, of_probe.place, left_out)
        return [*real, of_probe], origins


def _print_left_out(found: list[Found]) -> None:
    shipped = [entry for entry in found if not entry.reason]
    print(f"{len(shipped)} log files of this machine are shipped; left out are:")
    for entry in found:
        if entry.reason:
            print(f"  {logs.printable(str(entry.path))}: {entry.reason}")


def _can_check_table() -> bool:
    """Return whether the table can be read here; print a remark where it cannot."""
    if find_spec("duckdb") is not None:
        return True
    print("the table is written, but not checked: pip install 'logpipeline[query]'")
    return False


def _load_table_reader() -> None:
    importlib.import_module("logpipeline_cli.tables.duck")


def _conclude(verdict: Verdict, expected: Expected, *, is_settled: bool, is_timed: bool) -> int:
    real = verdict.real_files - 1  # without the probe
    shortfalls = []
    if not is_settled:
        shortfalls.append("not all lines arrived in time")
    if is_timed and verdict.lines < LINES_MIN:
        shortfalls.append(f"only {verdict.lines} lines were written, {LINES_MIN} are needed")
    if is_timed and expected.rotations < ROTATIONS_MIN:
        shortfalls.append(f"only {expected.rotations} rotations, {ROTATIONS_MIN} are needed")
    if is_timed and real < 1:
        shortfalls.append(f"no log file of this machine could be read below {REAL_LOGS}")
    for shortfall in shortfalls:
        print(f"failed: {shortfall}")
    print(
        f"{len(expected.sources)} sources of the application, {real} files of this machine, "
        f"{expected.rotations} rotations"
    )
    return EXIT_OK if verdict.is_clean and not shortfalls else EXIT_FAILED


def _seconds_of_environment() -> float | None:
    text = os.environ.get("DEMO_SECONDS", "")
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise CliError(f"DEMO_SECONDS={text!r}: give a number of seconds, such as 20") from None
