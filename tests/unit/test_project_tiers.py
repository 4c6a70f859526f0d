"""The runner of all tiers: what it starts when, what it counts, and what need not run again."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from alone import command_for
from log_tails import tails_below
from tiers import affected
from tiers.part import VARIABLE, Part
from tiers.passed import Passed, state_of_files
from tiers.plans import PLANS
from tiers.results import Case, Result, cases_in
from tiers.runner import Runner
from tiers.schedule import startable, unknown_names
from tiers.screen import Screen
from tiers.steps import ROOT, Step


def step(name: str, *, load: float = 1.0, after: tuple[str, ...] = (), code: str = "") -> Step:
    """A step that runs the Python program *code*."""
    command = (sys.executable, "-c", code)
    return Step(name=name, shows="a test", command=command, load=load, after=after)


def built(name: str) -> Step:
    """A step in the background."""
    return Step(name=name, shows="a test", command=(), load=2.0, is_background=True)


def run(steps: list[Step], folder: Path, *, is_reusing: bool = False) -> tuple[list[Result], str]:
    """Run *steps* and return what they came to, and what was shown."""
    out = io.StringIO()
    screen = Screen("test", out)
    passed = Passed(folder / "passed.json", "these files")
    results = Runner(steps, folder, screen, 2.0, passed).run(is_reusing=is_reusing)
    screen.account(results)
    return results, out.getvalue()


def test_steps_start_as_far_as_there_is_room() -> None:
    """A third step waits for a processor; one in the background does not."""
    first, second, third, behind = step("a"), step("b"), step("c"), built("d")

    chosen = startable([first, second, third, behind], [], [], room=2.0)

    assert [each.name for each in chosen] == ["a", "b", "d"]


def test_what_the_longest_step_waits_for_is_not_built_behind_all_others() -> None:
    """Other builds take what nobody else wants of the processors."""
    steps = {each.name: each for each in PLANS["test-all"]()}
    waited_for = [steps[name] for name in steps["nodes"].after]

    assert {each.nice for each in waited_for} <= {0}
    assert steps["jars"].nice > steps["unit"].nice == 0 > steps["spark"].nice
    waiting = [each for each in steps.values() if each not in waited_for]
    beside = startable(waiting, waited_for[:1], [*steps], room=2.0)
    assert sum(each.load for each in beside if each.takes_room) <= 2.0 - waited_for[0].load


def test_the_longest_step_finds_room_once_what_it_waits_for_has_ended() -> None:
    """Others do not begin in the room that the last one of its builds leaves free."""
    build = replace(built("build"), load=0.4, is_urgent=True)
    long, small = step("long", load=1.2, after=("build",)), step("small", load=0.8)
    later = step("later", load=0.6)

    beside = startable([long, small, later], [build], [], room=2.0)
    assert beside == [small]
    assert startable([long, later], [small], ["build"], room=2.0) == [long]


def test_a_step_larger_than_the_machine_runs_alone() -> None:
    """It is not left waiting for ever."""
    large, small = step("large", load=5.0), step("small")

    assert startable([large, small], [], [], room=2.0) == [large]
    assert startable([large], [small], [], room=2.0) == []


def test_a_step_waits_for_what_it_needs() -> None:
    """It starts once that has ended, well or not."""
    waiting = step("tests", after=("build",))

    assert startable([waiting], [], [], room=2.0) == []
    assert startable([waiting], [], ["build"], room=2.0) == [waiting]


@pytest.mark.parametrize("name", PLANS)
def test_every_plan_can_be_finished(name: str) -> None:
    """No step waits for one that is not before it, and no name stands there twice."""
    steps = PLANS[name]()

    assert unknown_names(steps) == set()
    assert len({each.name for each in steps}) == len(steps)


def test_all_that_test_runs_is_a_part_of_all_tests() -> None:
    """What `make test` has passed need not run again in `make test-all`."""
    commands = [each.command for each in PLANS["test-all"]()]

    assert [each.name for each in PLANS["test"]() if each.command not in commands] == []


def test_a_step_that_fails_fails_the_run_and_shows_what_it_printed(tmp_path: Path) -> None:
    """The others run all the same."""
    bad = step("bad", code="print('the reason'); raise SystemExit(3)")

    results, shown = run([bad, step("good", code="print('hidden')")], tmp_path)

    assert {result.name: result.code for result in results} == {"bad": 3, "good": 0}
    assert "the reason" in shown
    assert "hidden" not in shown
    assert "make test: FAILED" in shown


def test_a_build_that_fails_does_not_fail_the_run(tmp_path: Path) -> None:
    """On a machine without Go or Java the tests that need them say so, and the others count."""
    lacking = Step(name="build", shows="a test", command=("no-such-program",), is_background=True)

    results, shown = run([lacking, step("tests", after=("build",))], tmp_path)

    assert {result.name: result.is_good for result in results} == {"build": False, "tests": True}
    assert "build              going on without it: ended" in shown
    assert "make test: passed" in shown


def test_a_program_that_is_not_there_fails_its_step_alone(tmp_path: Path) -> None:
    """As when a virtual environment could not be made: the others run all the same."""
    absent = Step(name="absent", shows="a test", command=("no-such-program",))

    results, shown = run([absent, step("good")], tmp_path)

    assert {result.name: result.is_good for result in results} == {"absent": False, "good": True}
    assert "make test: FAILED" in shown


def test_a_step_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """Its limit is a net: nothing waits for ever."""
    code = "import signal, subprocess; subprocess.Popen(['cat']); signal.pause()"
    command = (sys.executable, "-c", code)
    hanging = Step(name="hanging", shows="a test", command=command, limit_s=0.5)

    results, shown = run([hanging], tmp_path)

    assert not results[0].is_good
    assert "took longer than" in shown


def test_a_step_in_the_background_waits_behind_others_with_all_that_it_starts(
    tmp_path: Path,
) -> None:
    """Where the kernel shares the processors among sessions, its session waits."""
    group = Path("/proc/self/autogroup")
    code = f"import os, pathlib; g = pathlib.Path('{group}'); print('own nice', os.nice(0)); "
    code += "print(g.read_text() if g.exists() else '/autogroup nice 5')"
    _, text = run(
        [replace(built("low"), command=(sys.executable, "-c", code + "; 1 / 0"))], tmp_path
    )

    # The tests themselves may have been started with `nice`.
    assert f"own nice {min(os.nice(0) + 5, 19)}\n" in text
    assert re.search(r"/autogroup\S* nice 5\n", text)


def test_what_passed_on_the_same_files_is_not_run_again(tmp_path: Path) -> None:
    """One that failed is, and so is one whose command is another one."""
    good, bad = step("good"), step("bad", code="raise SystemExit(1)")
    run([good, bad], tmp_path)

    again, shown = run([good, bad], tmp_path, is_reusing=True)
    other, _ = run([step("good", code="pass")], tmp_path, is_reusing=True)

    assert {result.name: result.is_reused for result in again} == {"good": True, "bad": False}
    assert "passed before on these very files" in shown
    assert not other[0].is_reused


def test_other_files_have_another_state(tmp_path: Path) -> None:
    """A file that git does not know yet counts; one that it ignores does not."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("/ignored\n")
    before = state_of_files(tmp_path)
    (tmp_path / "ignored").write_text("x")
    same = state_of_files(tmp_path)
    (tmp_path / "new.py").write_text("x = 1\n")

    assert before == same != state_of_files(tmp_path)


def test_tests_are_counted_from_the_report(tmp_path: Path) -> None:
    """A test whose clean-up failed has failed, though it passed before."""
    report = tmp_path / "report.xml"
    report.write_text("""<testsuites><testsuite>
        <testcase file="tests/test_a.py" name="test_x" time="1.5"/>
        <testcase file="tests/test_a.py" name="test_x" time="0.5"><error/></testcase>
        <testcase file="tests/test_a.py" name="test_y[1]" time="0"><skipped/></testcase>
        </testsuite></testsuites>""")

    assert {case.name: case.outcome for case in cases_in(report)} == {
        "tests/test_a.py::test_x": "failed",
        "tests/test_a.py::test_y[1]": "skipped",
    }


def test_a_test_of_a_class_has_the_name_that_runs_it(tmp_path: Path) -> None:
    """A state machine's function stands in a library; the test is where its class is."""
    report = tmp_path / "report.xml"
    report.write_text("""<testsuite><testcase classname="tests.unit.test_project_tiers.TestIt"
        file="lib/stateful.py" name="runTest" time="1"/></testsuite>""")

    names = [case.name for case in cases_in(report)]

    assert names == ["tests/unit/test_project_tiers.py::TestIt::runTest"]


def test_a_failure_has_its_reason(tmp_path: Path) -> None:
    """What the error says and its place; of one of pytest's own, the end of the text."""
    report = tmp_path / "report.xml"
    report.write_text("""<testsuite>
<testcase file="a.py" name="test_x"><failure message="assert 1 == 2\n  and more">def test_x():
&gt;       assert 1 == 2
E       assert 1 == 2

a.py:7: AssertionError
-- end of nats.log --
a.py went well</failure></testcase>
<testcase time="0.1"/>
<testcase classname="pytest" name="internal"><error message="internal error">Traceback:
  File "a.py", line 7
FileNotFoundError: gone</error></testcase></testsuite>""")

    reasons = {case.name: case.reason.splitlines() for case in cases_in(report)}

    assert reasons["a.py::test_x"] == ["assert 1 == 2   and more", "a.py:7: AssertionError"]
    assert reasons["::internal"][-1] == "FileNotFoundError: gone"
    assert len(reasons) == 2


def test_the_account_closes_with_the_counts_of_all_tiers() -> None:
    """It names what failed, with the command that runs it alone."""
    out = io.StringIO()
    cases = (
        Case("tests/faults/test_f.py::test_k[SEED=7]", 2.0, "failed", "a line is lost"),
        Case("b", 1.0, "passed"),
    )
    Screen("test", out).account([Result("faults", sys.executable, 1, 3.0, 1.0, cases)])

    assert out.getvalue().rstrip().endswith("1 passed, 1 failed, 0 skipped")
    assert "SEED=7" in out.getvalue()
    assert "a line is lost" in out.getvalue()


def test_the_command_of_one_test_has_its_seed_and_its_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Run as it stands, it runs the very test that failed."""
    monkeypatch.setenv("SOAK", "1")
    monkeypatch.delenv("HYPOTHESIS_PROFILE", raising=False)

    command = command_for("tests/faults/test_f.py::test_k[SEED=7-0]")

    assert command.startswith("SOAK=1 SEED=7 ")
    assert command.endswith("pytest 'tests/faults/test_f.py::test_k[SEED=7-0]'")


def write(root: Path, **files: str) -> None:
    """Write *files*, whose names have two underscores for a slash, below *root*."""
    for name, text in files.items():
        path = root / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_change_touches_the_tests_that_import_it_directly_or_not(tmp_path: Path) -> None:
    """Through a module of the product, a support module, a program's name or a shared fixture."""
    write(
        tmp_path,
        core__thing__low="",
        core__thing__high="from thing import low",
        core__thing__apart="",
        tests__support__helping="PROGRAM = ('-m', 'thing.high')",
        tests__support__plugin="import pytest, helping\n@pytest.fixture\ndef given(): ...",
        tests__conftest="pytest_plugins = ['plugin']",
        tests__unit__test_import="import thing.high",
        tests__unit__test_support="import helping",
        tests__unit__test_fixture="def test_it(given): ...",
        tests__unit__test_apart="import thing.apart",
    )

    touched = affected.touched_tests(["core/thing/low.py"], tmp_path)

    assert touched == [f"tests/unit/test_{name}.py" for name in ("fixture", "import", "support")]


def test_a_file_that_is_no_module_touches_the_tests_that_name_it(tmp_path: Path) -> None:
    """As the tests of a page or of a chart do."""
    write(tmp_path, tests__unit__test_page="PAGE = 'docs/page.md'", tests__unit__test_other="")

    assert affected.touched_tests(["docs/page.md"], tmp_path) == ["tests/unit/test_page.py"]
    assert len(affected.touched_tests(["pyproject.toml"], tmp_path)) == 2


def test_logs_are_shown_of_a_folder_whose_parts_go_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that still runs takes its folders away; the failed test has to be told all the same.
    (A fake: a folder goes just before it is listed.)
    """
    (tmp_path / "going").mkdir()
    (tmp_path / "a.log").write_text("said")
    (tmp_path / "empty.log").touch()
    scandir = os.scandir

    def scan(path: Path | str) -> object:
        if Path(path).name == "going":
            raise FileNotFoundError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)

    tails = list(tails_below(tmp_path, logs_max=9, bytes_max=3))

    assert tails == [(tmp_path / "a.log", "aid")]


@pytest.mark.parametrize("tier", ["faults", "cluster"])
@pytest.mark.parametrize("of", [1, 2, 3, 7])
def test_each_long_test_is_in_one_part(tier: str, of: int) -> None:
    """In a tier that keeps the tests of a file together, each file is in one part."""
    tests = [f"tests/{tier}/test_{file}.py::test_{n}" for file in "abcdefgh" for n in range(20)]

    parts = [Part(number, of).chosen(tier, tests) for number in range(1, of + 1)]

    assert sorted(test for part in parts for test in part) == sorted(tests)
    assert all(parts)
    if tier == "cluster":
        files = [{test.partition("::")[0] for test in part} for part in parts]
        assert sum(map(len, files)) == 8


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "1/0"])
def test_a_part_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """No test would run, and that would look like success."""
    monkeypatch.setenv(VARIABLE, text)

    with pytest.raises(ValueError, match=f"{VARIABLE}={text}: say which part"):
        Part.wanted()


def test_the_parts_of_a_tier_are_the_tier() -> None:
    """Each has what `make test` runs, and of the rest what no other one has."""
    whole = collected("")
    parts = [collected(f"{number}/3") for number in (1, 2, 3)]

    short = parts[0] & parts[1] & parts[2]
    assert short == collected("", "-m", "smoke")
    assert whole == parts[0] | parts[1] | parts[2]
    assert sum(len(part - short) for part in parts) == len(whole - short)


def collected(part: str, *words: str) -> set[str]:
    """Return the tests of one tier that pytest finds where *part* is asked for."""
    command = (sys.executable, "-m", "pytest", "tests/simulation", "--collect-only", "-q")
    done = subprocess.run(
        (*command, *words),
        cwd=ROOT,
        env={**os.environ, VARIABLE: part},
        capture_output=True,
        text=True,
        check=True,
    )
    return {line for line in done.stdout.splitlines() if "::" in line}
