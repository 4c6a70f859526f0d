"""What every test may ask for, and the rule that a skipped test is not a passed one."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Generator
from pathlib import Path

import hypothesis
import pytest

from alone import command_for
from faults import settings
from log_tails import tails_below
from logpipeline.embedded import EmbeddedServer, ServerOptions
from tiers.affected import QUICK
from tiers.part import Part

# Fixtures of tests on a real Kubernetes.
pytest_plugins = ["cluster.fixtures"]

SAID = "said"
# Of a failed test so many logs, and the end of each.
LOGS_SHOWN_MAX = 20
LOG_TAIL_BYTES = 6_000
TIERS = ("unit", "tables", "protocol", "live", "faults", "operator", "cluster", "spark")
TESTS = Path(__file__).parent
# Each keeps a cluster busy for minutes.
LONGEST_FILES = ("test_e2e_table.py", "test_cli_plugin.py", "test_e2e_faults.py")
# Streams reserve their greatest size: with this limit no test depends on how much disk is free.
PLENTY = ServerOptions(max_file_store_bytes=1 << 40)

# The same examples in each run: a red run is red again when somebody looks at it.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, database=None)
# Many more, and new ones each time; a failure prints how to reproduce it.
hypothesis.settings.register_profile(
    "soak", deadline=None, max_examples=5_000, database=None, print_blob=True
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture
async def nats_server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    """A running nats-server of this test alone: a port and a store of its own."""
    async with EmbeddedServer(tmp_path / "nats", PLENTY) as server:
        yield server


@pytest.fixture
def say(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """A function that has a line printed at the end of the run, though the test passes."""
    return lambda text: record_property(SAID, text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests had to say: counts that a reader wants to see, not only that they hold."""
    for report in terminalreporter.getreports("passed"):
        for name, text in report.user_properties:
            if name == SAID:
                terminalreporter.write_line(f"{report.nodeid}: {text}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test of faults that asks for a *seed* with each seed of this run."""
    is_fault = _tier_of(metafunc.definition.path) == "faults"
    if is_fault and "seed" in metafunc.fixturenames:
        # The name says how to run the very test again.
        metafunc.parametrize("seed", settings.seeds(), ids=lambda seed: f"SEED={seed}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its tier, which is its folder, leave out the long ones that are not asked
    for, and begin with the longest files: what runs beside them then ends at about the same time.
    """
    _leave_out(config, items)
    items.sort(key=lambda item: item.path.name not in LONGEST_FILES)
    for item in items:
        tier = _tier_of(item.path)
        if tier in TIERS:
            item.add_marker(tier)


def _leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long tests that are not in the part of them that is to be run."""
    try:
        part = Part.wanted()
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    if part is None:
        return
    long_ones = {item.nodeid: _tier_of(item.path) for item in items if _is_long(item)}
    chosen = set[str]()
    for tier in set(long_ones.values()):
        chosen |= part.chosen(tier, [test for test, its in long_ones.items() if its == tier])
    others = long_ones.keys() - chosen
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in others])
    items[:] = [item for item in items if item.nodeid not in others]


def _is_long(item: pytest.Item) -> bool:
    """Return whether `make test` leaves *item* out. Those of the newest Spark are few."""
    if item.get_closest_marker("long"):
        return True
    is_short = item.get_closest_marker("smoke") or item.get_closest_marker("spark43")
    return _tier_of(item.path) not in QUICK and not is_short


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the server's log with a failure; count a skip as one where nothing may be missing."""
    report = yield
    if report.failed:
        _add_logs(item, report)
        report.sections.append(("run it alone", command_for(item.nodeid)))
    is_expected = hasattr(report, "wasxfail") or item.get_closest_marker("optional_elsewhere")
    if report.skipped and not is_expected and _is_everything_required():
        report.outcome = "failed"
        report.longrepr = f"REQUIRE_ALL=1, and this was skipped: {_reason_of(report)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Count a whole file that skips itself as a failure where nothing may be missing."""
    report = yield
    if report.skipped and _is_everything_required():
        report.outcome = "failed"
        report.longrepr = f"REQUIRE_ALL=1, and this was skipped: {_reason_of(report)}"
    return report


def _tier_of(path: Path) -> str:
    return path.relative_to(TESTS).parts[0]


def _is_everything_required() -> bool:
    return os.environ.get("REQUIRE_ALL") == "1"


def _reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


def _add_logs(item: pytest.Item, report: pytest.TestReport) -> None:
    """Show what the processes of a failed test logged: their logs lie in the test's own folder."""
    given = getattr(item, "funcargs", {})
    for name, value in given.items():
        if isinstance(value, EmbeddedServer):
            report.sections.append((f"log of {name}", value.log_tail()))
    folder = given.get("tmp_path")
    if isinstance(folder, Path):
        tails = tails_below(folder, logs_max=LOGS_SHOWN_MAX, bytes_max=LOG_TAIL_BYTES)
        for file, text in tails:
            report.sections.append((f"end of {file.relative_to(folder)}", text))
