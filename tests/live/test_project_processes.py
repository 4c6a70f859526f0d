"""The processes that tests start: none of them outlives the tests, however those end."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

import warm

STARTS_ONE = """
import subprocess, sys
import warm
with open("/dev/null", "r+b") as nothing:
    process = warm.start([], stdout=nothing, stderr=nothing, target="signal:pause")
print(process.pid, flush=True)
process.wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere they are started in another way")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_ends_with_the_tests_that_started_it(number: signal.Signals) -> None:
    """Also where those are killed: it would go on for ever, and write into the next ones' files."""
    folder = os.path.dirname(warm.__file__)
    tests = subprocess.Popen(
        [sys.executable, "-c", STARTS_ONE], stdout=subprocess.PIPE, cwd=folder, text=True
    )
    with tests:
        assert tests.stdout is not None
        started = os.pidfd_open(int(tests.stdout.readline()))
        tests.send_signal(number)
    try:
        ended = select.poll()
        ended.register(started, select.POLLIN)
        assert ended.poll(30_000), "it still runs"
    finally:
        os.close(started)
