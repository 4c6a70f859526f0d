"""`kubectl logpipeline` as users run it: kubectl finds the plugin in PATH."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.handle import Cluster

DEADLINE_S = 200.0
_PLUGIN = """#!{python}
import sys
from logpipeline_cli.main import kubectl
sys.exit(kubectl())
"""


@dataclass(frozen=True, slots=True)
class Plugin:
    """The plugin, put where *folder* says, against a cluster."""

    cluster: Cluster
    folder: Path
    kubeconfig: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command, however it ends."""
        return subprocess.run(
            [str(self.cluster.program("kubectl")), "logpipeline", *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_S,
            env=self.environment(),
        )

    def text(self, *words: str) -> str:
        """What a command prints that has to succeed."""
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *words: str) -> Any:
        """The same, as data."""
        return json.loads(self.text(*words, "-o", "json"))

    def environment(self) -> dict[str, str]:
        """The environment in which kubectl finds the plugin, and the plugin its cluster."""
        folders = (self.folder, self.cluster.program("kubectl").parent, os.environ["PATH"])
        return {
            **os.environ,
            "PATH": os.pathsep.join(map(str, folders)),
            "KUBECONFIG": str(self.kubeconfig),
            # What it writes for a moment must not stay.
            "TMPDIR": str(self.folder),
        }


def plugin_in(folder: Path, cluster: Cluster, kubeconfig: Path | None = None) -> Plugin:
    """Put the plugin into *folder*; *kubeconfig* says whom it is for, if not for the tests."""
    program = folder / "kubectl-logpipeline"
    program.write_text(_PLUGIN.format(python=sys.executable))
    program.chmod(0o755)
    return Plugin(cluster, folder, kubeconfig or cluster.kubeconfig)
