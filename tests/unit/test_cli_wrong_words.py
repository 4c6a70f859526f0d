"""Mistakes on the command line: each is named in one line, with what to give instead."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from logpipeline.observe.logs import text_of
from logpipeline_cli.main import main

# Packages that a plain installation lacks. Modules of ours that import them must not be imported.
BLOCKER = """
import importlib.util, sys
LACKING = {"duckdb", "plotly", "pyarrow", "numpy", "obstore", "deltalake", "pyspark", "orjson",
           "kopf", "kubernetes", "nkeys", "jwt"}
class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in LACKING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Lacking())
found = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name in LACKING else found(name)
from logpipeline_cli.main import main
sys.exit(main(sys.argv[1:]))
"""
MINIMAL = "apiVersion: logpipeline.dev/v1alpha1\nkind: LogPipeline\nmetadata: {name: x}\nspec: {}\n"


def ended(*words: str) -> int:
    """Run a command in this process, and return its exit code however it ends."""
    try:
        return main(words)
    except SystemExit as end:
        return int(end.code or 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("staus",), "there is no command 'staus': did you mean 'status'?"),
        (("table", "compat"), "did you mean 'compact'?"),
        (("status", "-o", "jsn"), "did you mean 'json'?"),
        (("status", "-o", "xml"), "choose from text, json"),
        (("frobnicate",), "there is no command 'frobnicate': the help lists them"),
        (("consume", "x", "--state", "a", "--state", "b"), "argument --state: give it once"),
        (("consume", "x", "--retry-on", "many"), "give exit codes such as 75"),
        (("consume", "x", "--timeout", "soon"), "--timeout"),
        (("consume", "x", "--ack", "often"), "is not an acknowledgement mode"),
        (("consume", "x", "--since", "yesterday"), "give a span such as 10m"),
        (("consume", "bad.name"), "is not a name of a consumer"),
    ],
)
def test_a_wrong_word_ends_with_64_and_names_the_right_one(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the value is understood only by the command itself."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    assert ended(*words) == 64
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) <= 2


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("query", "SELECT 1"), "query"),
        (("report", "--out", "r.html"), "query"),
        (("table", "run"), "spark"),
        (("table", "verify"), "spark"),
        (("table", "erase", "--host", "x"), "spark"),
        (("operator",), "operator"),
        (("sink", "s3", "x", "--url", "s3://logs"), "query"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_a_lacking_package_is_named_with_what_to_install(
    words: tuple[str, ...], extra: str, tmp_path: Path
) -> None:
    """In one line, whichever module imports the package first."""
    file = tmp_path / "x.yaml"
    file.write_text(MINIMAL)
    where = [] if words == ("operator",) else ["-f", str(file), "--data", str(tmp_path / "data")]
    command = [sys.executable, "-c", BLOCKER, *words, *where]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 1, done.stderr
    assert f"pip install 'logpipeline[{extra}]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_versions_are_printed_by_an_option_too(capsys: pytest.CaptureFixture[str]) -> None:
    """As other programs do it, and before any command."""
    assert ended("--version") == 0
    assert capsys.readouterr().out.startswith("logpipeline ")


def test_a_part_of_up_is_shown_as_text() -> None:
    """A record of a part is a line for people; what is none is shown as it is, and harmless."""
    record = '{"time": "T", "level": "info", "component": "shipper", "message": "runs", "port": 7}'

    assert text_of(record) == "T INFO    shipper runs port=7"
    assert text_of("panic: \x1b[31m") == "panic: \\x1b[31m"
    assert text_of("[1, 2]") == "[1, 2]"
