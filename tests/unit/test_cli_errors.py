"""What a command says of an error when the process has nothing left to say it with."""

from __future__ import annotations

import subprocess
import sys

# No further file can be opened, neither that of a module.
EXHAUSTED = """
import resource, sys
from logpipeline_cli.main import main
import logpipeline_cli.commands.components

def collect(args):
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    open("/dev/null")

logpipeline_cli.commands.components.collect = collect
sys.exit(main(["collect", "-f", "logpipeline.yaml", "--member", "collector-0"]))
"""


def test_a_process_that_may_open_no_further_file_ends_with_one_sentence() -> None:
    """Its reason stands in its log, not a traceback of how the reason could not be found."""
    done = subprocess.run(
        [sys.executable, "-c", EXHAUSTED], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 1
    assert done.stderr == "logpipeline: Too many open files: /dev/null\n"
