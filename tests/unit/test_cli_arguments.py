"""The words of the command line: help, reference, exit codes, and a start without heavy modules."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logpipeline_cli.arguments import COMMANDS
from logpipeline_cli.main import main

ROOT = Path(__file__).parents[2]
NAMES = [(command.name,) for command in COMMANDS] + [("files", "ls"), ("files", "cat")]
HEAVY = ("nats", "yaml", "prometheus_client", "backports", "sqlite3")


def run(*words: str) -> int:
    """Run a command in this process, and return its exit code however it ends."""
    try:
        return main(words)
    except SystemExit as end:
        return int(end.code or 0)


@pytest.mark.parametrize("words", NAMES, ids=" ".join)
def test_every_command_explains_itself(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """`--help` ends with an example, and the reference has the command."""
    code = run(*words, "--help")

    assert code == 0
    assert f"example:\n  {'' if words == ('completion',) else 'logpipeline'}" in (
        capsys.readouterr().out
    )
    assert f"`logpipeline {' '.join(words)}`" in (ROOT / "docs" / "cli.md").read_text()


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("frobnicate",),
        ("up",),
        ("files",),
        ("tail", "--lines", "0"),
        ("tail", "--lines", "many"),
        ("demo", "--seconds", "-1"),
        ("status", "-o", "xml"),
    ],
)
def test_wrong_words_exit_64_and_name_the_help(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """A script can tell wrong words from a failure, and 2 stays with `plan`."""
    assert run(*words) == 64
    assert "--help`" in capsys.readouterr().err


WRONG = """
apiVersion: logpipeline.dev/v1alpha1
kind: LogPipeline
metadata:
  name: wrong
spec:
  partitions: -1
  colectors: {}
  stream: {maxAge: 24 hours, maxBytes: 10Q}
"""


def test_every_mistake_of_a_resource_is_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong values, unknown fields and wrong units are told with their paths."""
    path = tmp_path / "wrong.yaml"
    path.write_text(WRONG)

    assert run("plan", "-f", str(path)) == 1
    told = capsys.readouterr().err
    for field in (
        "spec.partitions",
        "spec.colectors",
        "spec.stream.maxAge",
        "spec.stream.maxBytes",
    ):
        assert field in told


@pytest.mark.parametrize("content", ["a: [", "- 1\n", "", "a: 1\na: 2\n", "a: \x1b[2J"])
def test_a_file_that_is_no_resource_is_told_so(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong YAML never ends in a traceback, nor acts on the terminal."""
    path = tmp_path / "wrong.yaml"
    path.write_text(content)

    assert run("up", "-f", str(path)) == 1
    told = capsys.readouterr().err
    assert str(path) in told or "apiVersion" in told
    assert "\x1b" not in told


def test_a_field_of_a_stranger_cannot_act_on_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A message quotes what it found, escaped."""
    path = tmp_path / "wrong.yaml"
    path.write_text(f'{WRONG}  "\\e[2J": 1\n')

    assert run("plan", "-f", str(path)) == 1
    assert "\\x1b[2J" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("status",), "logpipeline up -f FILE"),
        (("tail", "web1"), "logpipeline up -f FILE"),
        (("files", "ls"), "logpipeline up -f FILE"),
        (("up", "-f", "/nonexistent/file.yaml"), "/nonexistent/file.yaml"),
    ],
)
def test_an_error_says_what_to_do(
    words: tuple[str, ...],
    advice: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where nothing runs, or a file is missing, the message leads on."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    assert run(*words) == 1
    assert advice in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--help"], ["status", "--help"], ["version"]], ids=" ".join)
def test_help_and_version_start_without_heavy_modules(words: list[str]) -> None:
    """What a person waits for at the prompt loads neither NATS nor YAML nor metrics."""
    script = (
        "import sys; from logpipeline_cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print(sorted(sys.modules), file=sys.stderr)"
    )
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=True
    )
    print(f"{' '.join(words)}: {(time.monotonic() - started) * 1000:.0f} ms")

    assert "'logpipeline_cli.main'" in done.stderr
    assert list(_loaded(done.stderr)) == []


def _loaded(modules: str) -> Iterator[str]:
    return (name for name in HEAVY if f"'{name}'" in modules)


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_knows_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A shell's completion script names each command."""
    assert run("completion", shell) == 0
    script = capsys.readouterr().out
    assert [command.name for command in COMMANDS if command.name not in script] == []
