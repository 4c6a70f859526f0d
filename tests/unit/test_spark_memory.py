"""Arrow keeps freed memory for the next table. It reads this setting when it is loaded."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Prints the setting in the moment in which Arrow is loaded.
WATCHED = """
import importlib, os, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "pyarrow":
            print(os.environ.get("MIMALLOC_PURGE_DELAY"))
            sys.meta_path.remove(self)
        return None

sys.meta_path.insert(0, Watch())
importlib.import_module(sys.argv[1])
"""


@pytest.mark.parametrize(
    "module",
    [
        "logpipeline_spark.job.task",
        "logpipeline_spark.job.service",
        "logpipeline_cli.commands.table",
    ],
)
@pytest.mark.parametrize("chosen", [None, "5"])
def test_the_setting_is_there_before_arrow_is(module: str, chosen: str | None) -> None:
    """In the processes that write tables; what a user has chosen stays."""
    environment = {k: v for k, v in os.environ.items() if k != "MIMALLOC_PURGE_DELAY"}
    if chosen is not None:
        environment["MIMALLOC_PURGE_DELAY"] = chosen

    done = subprocess.run(
        [sys.executable, "-c", WATCHED, module],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == [chosen or "10000"]
