"""What `deploy/local` has for one machine fits to the program, and to systemd and Prometheus."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from logpipeline.layout import TARGETS_FILE, Component, Layout, RunRecord
from logpipeline.quantity import parse_duration
from logpipeline_cli.arguments import build_parser
from logpipeline_cli.local import parts, supervisor

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "local" / "logpipeline.service"
SCRAPE = ROOT / "deploy" / "local" / "prometheus.yml"
PAGE = ROOT / "docs" / "one-machine.md"
NS = 10**9


def service() -> configparser.SectionProxy:
    """The unit's section about the process."""
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)
    return unit["Service"]


def command() -> list[str]:
    """The words behind the program."""
    program, *words = shlex.split(service()["ExecStart"])
    assert program.endswith("/bin/logpipeline")
    return words


def test_service_runs_a_command_that_there_is() -> None:
    """With a folder that systemd makes for it, and in which it may write."""
    args = build_parser().parse_args(command())

    assert args.command == "up"
    assert args.data == f"/var/lib/{service()['StateDirectory']}"
    assert args.file in PAGE.read_text()


def test_service_is_given_the_time_to_drain() -> None:
    """The sum of what `up` waits for, one after the other."""
    given_s = parse_duration(f"{service()['TimeoutStopSec']}s") / NS
    deadlines_s = (
        supervisor.SHIP_DEADLINE_S
        + supervisor.DRAIN_DEADLINE_S
        + supervisor.RELEASE_DEADLINE_S
        + 2 * parts.STOP_DEADLINE_S
    )

    assert given_s > deadlines_s


@pytest.mark.optional_elsewhere("needs systemd")
def test_systemd_finds_no_mistake_in_the_service(tmp_path: Path) -> None:
    """Its own check, where this machine has systemd."""
    if (program := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd-analyze is not installed")
    copied = tmp_path / UNIT.name
    text = UNIT.read_text().replace("/opt/logpipeline/bin/logpipeline", "/bin/true")
    copied.write_text(text)

    done = subprocess.run(
        [program, "verify", "--man=no", str(copied)], capture_output=True, text=True, check=False
    )

    assert [line for line in done.stderr.splitlines() if UNIT.name in line] == []


def test_prometheus_reads_the_file_that_up_writes() -> None:
    """In the service's folder."""
    (job,) = yaml.safe_load(SCRAPE.read_text())["scrape_configs"]
    args = build_parser().parse_args(command())

    assert job["file_sd_configs"] == [{"files": [str(Layout(Path(args.data)).targets_file)]}]
    assert TARGETS_FILE in PAGE.read_text()


def test_targets_are_the_parts_that_run(tmp_path: Path) -> None:
    """Labelled as a cluster's pods are; the server's pages are not Prometheus'."""
    components = [
        Component("collector-0", 10, "127.0.0.1:20001"),
        Component("shipper-web", 0, "127.0.0.1:20002"),
        Component("nats-server", 12, "http://127.0.0.1:20003"),
    ]
    record = RunRecord(name="mine", namespace="default", pid=1, nats="", components=components)
    layout = Layout(tmp_path)

    record.write(layout)

    assert yaml.safe_load(layout.targets_file.read_text()) == [
        {
            "targets": ["127.0.0.1:20001"],
            "labels": {"namespace": "default", "pod": "mine-collector-0"},
        }
    ]
    assert layout.targets_file.stat().st_mode & 0o777 == 0o644
    RunRecord.remove(layout)
    assert list(tmp_path.iterdir()) == []


def test_prometheus_finds_the_alerts_beside_its_settings() -> None:
    """Those about parts that run on one machine, with no word left that the chart replaces."""
    (name,) = yaml.safe_load(SCRAPE.read_text())["rule_files"]
    text = (SCRAPE.parent / name).read_text()
    chart = yaml.safe_load((ROOT / "charts/logpipeline/files/alerts.yaml").read_text())
    wanted = [each["alert"] for each in chart if "_operator_" not in each["expr"]]
    wanted.remove("LogPipelineLoginsRefused")

    (group,) = yaml.safe_load(text)["groups"]
    assert [each["alert"] for each in group["rules"]] == wanted
    assert re.findall(r"\b[A-Z]{3,}(?:_[A-Z]+)+\b|kubectl", text.partition("groups:")[2]) == []
    assert all("for" not in each or each["for"][-1] in "smh" for each in group["rules"])
