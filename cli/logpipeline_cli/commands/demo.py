"""``logpipeline demo``: a busy machine's logs arrive, and every line is checked."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path

from logpipeline.observe import logs
from logpipeline.spec import load
from logpipeline_cli.demonstration.application import BusyApplication
from logpipeline_cli.demonstration.probe import Probe
from logpipeline_cli.demonstration.real_files import Found, look_below
from logpipeline_cli.demonstration.rehearsal import Rehearsal
from logpipeline_cli.demonstration.screen import Screen
from logpipeline_cli.errors import CliError
from logpipeline_cli.exits import EXIT_FAILED, EXIT_OK
from logpipeline_cli.local.layout import Layout
from logpipeline_cli.local.running import running
from logpipeline_demo.expected import Expected
from logpipeline_demo.oracle import check
from logpipeline_demo.outputs import count_lines
from logpipeline_demo.realfiles import RealFile, default_place
from logpipeline_demo.verdict import Verdict

SAMPLE = Path(__file__).parents[3] / "deploy" / "samples" / "demo.yaml"
REAL_LOGS = Path("/var/log")
EXPLAINED_MAX = 20
# With a time limit the demo proves something only if it had enough to do.
LINES_MIN = 50_000
ROTATIONS_MIN = 3


def run(args: argparse.Namespace) -> int:
    """Run the demo and return 0 if every line arrived once and in order."""
    logs.setup("demo", format="text", level="WARNING")
    seconds = args.seconds if args.seconds is not None else _seconds_of_environment()
    data = Path(args.data) if args.data else Path(tempfile.mkdtemp(prefix="logpipeline-demo-"))
    source = Path(args.file) if args.file else SAMPLE
    if not source.is_file():
        raise CliError(f"{source} is not there; give the demo's resource with -f FILE")
    code = asyncio.run(_demo(source, data, seconds, args.seed))
    if code == EXIT_OK and args.data is None:
        shutil.rmtree(data, ignore_errors=True)
    return code


async def _demo(source: Path, data: Path, seconds: float | None, seed: int) -> int:
    layout = Layout(data)
    data.mkdir(parents=True, exist_ok=True)
    (data / "busy").mkdir(exist_ok=True)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    pipeline = load(source)
    machine = next((s for s in pipeline.spec.local.shippers if s.hosts_below is None), None)
    exclude = [glob for files in machine.files for glob in files.exclude] if machine else []
    found = look_below(REAL_LOGS, exclude)
    _tell_left_out(found)
    probe = Probe(data / "probe" / "probe.log", data / "collectors")
    probe.prepare()
    real = _observe(found, probe)
    application = BusyApplication(data / "busy", data / "ledger", seed)
    print(f"data and files: {data}", flush=True)
    async with running(pipeline, layout) as supervisor:
        rehearsal = Rehearsal(supervisor, application, probe)
        screen = Screen()
        await rehearsal.run(screen, lambda: _is_over(stop, rehearsal.started_s, seconds))
        for file in real:
            file.freeze()
        is_settled = await rehearsal.settle(screen)
        has_table = supervisor.pipeline.spec.archive.enabled
        is_settled = is_settled and (not has_table or await rehearsal.settle_table())
    ignored = {default_place(socket.gethostname(), entry.path) for entry in found if entry.reason}
    expected = Expected.read(data / "ledger")
    verdict = check(
        expected, layout.collectors(), real_files=real, is_ignored=lambda place: place in ignored
    )
    code = _conclude(verdict, expected, is_settled=is_settled, is_timed=seconds is not None)
    if has_table and not _is_table_good(layout, expected, real, ignored):
        return EXIT_FAILED
    print(verdict.summary(), flush=True)
    return code


def _is_over(stop: asyncio.Event, started_s: float, seconds: float | None) -> bool:
    return stop.is_set() or (seconds is not None and time.monotonic() - started_s >= seconds)


def _observe(found: list[Found], probe: Probe) -> list[RealFile]:
    host = socket.gethostname()
    real = [
        RealFile.observe(entry.path, host=host, older=entry.older)
        for entry in found
        if not entry.reason
    ]
    return [*real, RealFile.observe(probe.path, host=host)]


def _tell_left_out(found: list[Found]) -> None:
    shipped = [entry for entry in found if not entry.reason]
    print(f"{len(shipped)} log files of this machine are shipped; left out are:")
    for entry in found:
        if entry.reason:
            print(f"  {logs.printable(str(entry.path))}: {entry.reason}")


def _conclude(verdict: Verdict, expected: Expected, *, is_settled: bool, is_timed: bool) -> int:
    if explanation := verdict.explain(EXPLAINED_MAX):
        print(explanation)
    real = verdict.real_files - 1  # without the probe
    shortfalls = []
    if not is_settled:
        shortfalls.append("not everything had arrived in time")
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


def _is_table_good(
    layout: Layout, expected: Expected, real: list[RealFile], ignored: set[str]
) -> bool:
    """Check the table as the files were checked, and say how it is."""
    from logpipeline_cli.demonstration.written_out import write_out
    from logpipeline_spark.table.local import LocalStorage

    folder = layout.data / "table-as-files"
    lines = write_out(LocalStorage(layout.archive / "table"), folder)
    # Lines of real files may hold what is no text: how many there are is compared.
    places = {file.place for file in real}
    verdict = check(expected, [folder], is_ignored=lambda place: place in ignored | places)
    unequal = [
        place
        for place in sorted(places - ignored)
        if count_lines([folder], place) != count_lines(layout.collectors(), place)
    ]
    if explanation := verdict.explain(EXPLAINED_MAX):
        print(explanation)
    for place in unequal:
        print(f"the table has not as many lines of {place} as the files")
    print(f"the table: {lines} lines; {verdict.summary()}")
    return verdict.is_clean and not unequal


def _seconds_of_environment() -> float | None:
    text = os.environ.get("DEMO_SECONDS", "")
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise CliError(f"DEMO_SECONDS={text!r}: give a number of seconds, such as 20") from None
