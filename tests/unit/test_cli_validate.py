"""`logpipeline validate` finds mistakes without a server, and says where they stand."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from logpipeline_cli.main import main

HEAD = "apiVersion: logpipeline.dev/v1alpha1\nkind: LogPipeline\nmetadata: {name: x}\n"
WRONG = HEAD + "spec:\n  partitions: ten\n  local:\n    shippers:\n    - name: a\n      filse: []\n"


def validated(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    """Run the command, and return its exit code and the lines that it prints."""
    code = main(("validate", "-f", *words))
    return code, capsys.readouterr().out.splitlines()


def test_each_mistake_has_its_line_and_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As editors and compilers name them, all at once."""
    file = tmp_path / "x.yaml"
    file.write_text(WRONG)
    code, lines = validated(capsys, str(file))

    assert code == 1
    assert lines == [
        f'{file}:5:3: error: spec.partitions: expected an integer, found "ten"',
        f"{file}:9:7: error: spec.local.shippers[0].filse: unknown field; did you mean files?",
        "1 LogPipelines, 2 mistakes, 0 warnings",
    ]


def test_json_is_read_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where it is indented by tabs, which YAML does not take."""
    file = tmp_path / "x.json"
    resource = {
        "apiVersion": "logpipeline.dev/v1alpha1",
        "kind": "LogPipeline",
        "metadata": {"name": "x"},
        "spec": {"partitions": "ten"},
    }
    file.write_text(json.dumps(resource, indent="\t"))
    code, lines = validated(capsys, str(file), "-o", "json")
    found = json.loads("\n".join(lines))

    assert (code, found["checked"]) == (1, 1)
    (remark,) = found["remarks"]
    assert (remark["line"], remark["column"], remark["path"]) == (8, 3, "spec.partitions")


def test_a_folder_and_standard_input_are_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other resources of a folder are left out; several documents of one file are all checked."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.yml").write_text(f"{HEAD}spec: {{}}\n---\n{HEAD}spec: {{partition: 1}}")
    (tmp_path / "b.yaml").write_text("kind: Deployment\n")
    text = io.TextIOWrapper(io.BytesIO(WRONG.encode()))
    monkeypatch.setattr(sys, "stdin", text)
    code, lines = validated(capsys, str(tmp_path), "-")

    assert code == 1
    assert "a.yml:9:8: error: spec.partition: unknown field; did you mean partitions?" in lines[0]
    assert lines[1].startswith("<stdin>:5:3: error: ")
    assert lines[-1] == "3 LogPipelines, 3 mistakes, 0 warnings"


def test_a_folder_may_hold_what_is_no_plain_yaml(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Charts, and others' files with aliases: only what names a LogPipeline is meant."""
    (tmp_path / "templates.yaml").mkdir()
    (tmp_path / "templates.yaml" / "service.yaml").write_text("{{- if .Values.on }}\nkind: Service")
    (tmp_path / "compose.yml").write_text("base: &base {a: 1}\nother: *base\n")
    (tmp_path / "good.yaml").write_text(f"{HEAD}spec: {{}}\n")
    code, lines = validated(capsys, str(tmp_path))
    assert (code, lines[-1]) == (0, "1 LogPipelines, 0 mistakes, 0 warnings")

    (tmp_path / "broken.yaml").write_text("kind: LogPipeline\nspec: [\n")
    code, lines = validated(capsys, str(tmp_path))
    assert code == 1
    assert lines[0].startswith(f"{tmp_path}/broken.yaml:1:1: error: is not valid YAML")


def test_a_check_whose_output_nobody_reads_has_not_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `... | head -0`: the shell learns of it, if it asks for that (`pipefail`)."""
    file = tmp_path / "x.yaml"
    file.write_text(WRONG)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert main(("validate", "-f", str(file))) == 141
        monkeypatch.undo()


def test_globs_that_are_seldom_meant_are_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are allowed, and end with 0."""
    (tmp_path / "there.log").touch()
    file = tmp_path / "x.yaml"
    file.write_text(
        HEAD
        + "spec:\n  local:\n    shippers:\n    - name: a\n      files:\n      - include:\n"
        + f"        - {tmp_path}/*.log\n        - {tmp_path}/*.nothing\n"
        + "        - ~/no-such-file\n"
        + f"        - '{tmp_path}/there[.]log'\n"
    )
    code, lines = validated(capsys, str(file))

    assert code == 0
    assert [line.removeprefix(f"{file}:").split(": ")[0] for line in lines[:-1]] == [
        "11:11",
        "12:11",
        "12:11",
        "13:11",
    ]
    assert "no file of this machine matches" in lines[0]
    assert "home folder" in lines[1]
    assert "[[]" in lines[3]


@pytest.mark.parametrize(
    ("text", "said"),
    [("a: [", "is not valid YAML: line"), ("", "is empty"), ("a: 1\na: 2", "stands here twice")],
)
def test_what_is_no_resource_is_a_mistake(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the place, where there is one."""
    file = tmp_path / "x.yaml"
    file.write_text(text)
    code, lines = validated(capsys, str(file))

    assert code == 1
    assert said in lines[0]
