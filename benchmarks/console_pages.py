"""What open pages of the console cost: CPU seconds of the pipeline and of the console, without a
page, with one, and with ten that ask once a second, in one run.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from logpipeline.layout import Layout, RunRecord
from logpipeline_cli.console.access import TOKEN_HEADER
from processes import cpu_of_tree, stop

PAGES = (0, 1, 10)
TABLES = ("sources", "hosts", "partitions", "collectors", "shippers", "readers")
FILES = 100
LINES_PER_S = 500
START_WITHIN_S = 90.0
POLL_S = 0.1
# The console goes on gathering for so long after the last page asked.
CALM_S = 12.0
LINE = "a line of a log of some usual length, which a program writes when it has done something"
RESOURCE = """
apiVersion: logpipeline.dev/v1alpha1
kind: LogPipeline
metadata: {{name: bench}}
spec:
  partitions: 10
  collectors: {{replicas: 1}}
  table: {{enabled: false}}
  local:
    shippers:
    - name: bench
      host: bench
      files: [{{include: ["{folder}/*.log"]}}]
"""


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU seconds within one span of time, with so many *pages*."""

    pages: int
    pipeline_s: float
    console_s: float
    answers: int


class Page:
    """One open page: asks for a table once a second, as the page in a browser does."""

    def __init__(self, address: str, table: str) -> None:
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._root, _, self._token = address.partition("#token=")
        self._table = table
        self._get(self._root)
        self.answers = 0

    def ask_until(self, end: threading.Event) -> None:
        """Ask, until *end* is set."""
        while not end.wait(1.0):
            self._get(f"{self._root}api/view?table={self._table}")
            self.answers += 1

    def _get(self, address: str) -> None:
        request = urllib.request.Request(address, headers={TOKEN_HEADER: self._token})
        with self._opener.open(request, timeout=20) as answer:
            answer.read()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--calm", type=float, default=CALM_S, help="seconds between two spans")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="logpipeline-bench-") as name, ExitStack() as open_:
        folder = Path(name)
        up = open_.enter_context(_pipeline(folder))
        open_.enter_context(_writing(folder / "logs"))
        console, address = open_.enter_context(_console(folder))
        found = []
        for pages in PAGES:
            time.sleep(args.calm)
            found.append(_span(up, console, address, pages=pages, seconds=args.seconds))
    _print(found, args.seconds)


def _span(up: int, console: int, address: str, *, pages: int, seconds: float) -> Costs:
    opened = [Page(address, TABLES[number % len(TABLES)]) for number in range(pages)]
    end = threading.Event()
    threads = [threading.Thread(target=each.ask_until, args=(end,)) for each in opened]
    before = cpu_of_tree(up), cpu_of_tree(console)
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    after = cpu_of_tree(up), cpu_of_tree(console)
    end.set()
    for thread in threads:
        thread.join()
    answers = sum(each.answers for each in opened)
    return Costs(pages, after[0] - before[0], after[1] - before[1], answers)


def _print(found: list[Costs], seconds: float) -> None:
    print(f"CPU s in {seconds:.0f} s, {FILES} files with {LINES_PER_S} lines/s in all")
    for each in found:
        ratio = each.pipeline_s / found[0].pipeline_s
        print(
            f"{each.pages:3} pages: pipeline {each.pipeline_s:6.2f} ({ratio:.2f} x without), "
            f"console {each.console_s:6.2f}, {each.answers} answers"
        )


@contextmanager
def _pipeline(folder: Path) -> Iterator[int]:
    """Run `up`, and yield its process id once all parts run."""
    logs, layout = folder / "logs", Layout(folder / "data")
    logs.mkdir()
    resource = folder / "pipeline.yaml"
    resource.write_text(RESOURCE.format(folder=logs))
    words = ["up", "-f", str(resource), "--data", str(layout.data)]
    with _command(words, folder / "up.log") as process:

        def runs() -> bool:
            record = RunRecord.read(layout)
            return record is not None and len(record.components) >= 3

        _wait_for(runs, process, "up")
        yield process.pid


@contextmanager
def _console(folder: Path) -> Iterator[tuple[int, str]]:
    """Run the console, and yield its process id and its address with the token."""
    log = folder / "console.log"
    words = ["console", "--data", str(folder / "data"), "--http", "127.0.0.1:0"]
    with _command(words, log) as process:
        _wait_for(lambda: "token=" in log.read_text(), process, "the console")
        address = re.search(r"http://\S+", log.read_text())
        assert address is not None
        yield process.pid, address.group()


@contextmanager
def _command(words: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "logpipeline_cli", *words], stdout=out, stderr=out
        )
    try:
        yield process
    finally:
        stop(process)


def _wait_for(is_so: Callable[[], bool], process: subprocess.Popen[bytes], what: str) -> None:
    until_s = time.monotonic() + START_WITHIN_S
    while not is_so():
        if process.poll() is not None or time.monotonic() > until_s:
            raise TimeoutError(f"{what} did not start within {START_WITHIN_S:.0f} s")
        time.sleep(POLL_S)


@contextmanager
def _writing(logs: Path) -> Iterator[None]:
    """Append lines to the files, each in its turn, while the context is open."""
    end = threading.Event()

    def write() -> None:
        number = 0
        while not end.wait(POLL_S):
            for _ in range(int(LINES_PER_S * POLL_S)):
                with (logs / f"app-{number % FILES}.log").open("a") as file:
                    file.write(f"{number} {LINE}\n")
                number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


if __name__ == "__main__":
    main()
