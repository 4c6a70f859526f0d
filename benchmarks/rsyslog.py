"""rsyslog on the same file: imfile to omfile, in one process."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

from processes import stop
from trial import Trial, measure, size_below

START_DEADLINE_S = 10

CONFIG = """
global(workDirectory="{folder}/work" maxMessageSize="64k")
module(load="imfile" mode="inotify")
template(name="line" type="string" string="%msg%\\n")
input(type="imfile" File="{folder}/in/*.log" Tag="bench" ruleset="out" reopenOnTruncate="on")
ruleset(name="out" queue.type="LinkedList" queue.size="100000" queue.dequeueBatchSize="2048") {{
  action(type="omfile" file="{folder}/out/all.log" template="line" asyncWriting="off"
         ioBufferSize="256k")
}}
"""


def find() -> str | None:
    """Return rsyslog's binary, or None where it is not installed."""
    return shutil.which("rsyslogd") or shutil.which("rsyslogd", path="/usr/sbin:/sbin")


def run(binary: str, folder: Path, source: Path, lines: int) -> Trial:
    """Move *source* with rsyslog, below the empty *folder*."""
    for name in ("work", "in", "out"):
        (folder / name).mkdir(parents=True)
    (folder / "rsyslog.conf").write_text(CONFIG.format(folder=folder))
    words = [binary, "-n", "-f", "rsyslog.conf", "-i", str(folder / "pid"), "-C"]
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL)
    try:
        _await_start(folder / "pid", process)
        return measure(
            source=source,
            lines=lines,
            place=folder / "in" / "bench.log",
            arrived=lambda: size_below(folder / "out"),
            pids={"rsyslog": process.pid},
        )
    finally:
        stop(process)


def _await_start(pid_file: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while not pid_file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"rsyslogd did not start; exit code {process.poll()}")
        time.sleep(0.05)
