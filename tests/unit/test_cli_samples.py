"""`logpipeline samples`: an installed command has something to start from."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from logpipeline.spec import load
from logpipeline_cli.commands.samples import samples
from logpipeline_cli.main import main

SAMPLES = Path(__file__).parents[2] / "deploy" / "samples"


def test_every_sample_is_listed_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """All resources of deploy/samples are there, and each says what it shows."""
    assert main(["samples"]) == 0
    listed = capsys.readouterr().out

    names = {path.stem for path in SAMPLES.glob("*.yaml")}
    names |= {path.name for path in (SAMPLES / "use-cases").iterdir()}
    assert {sample.name for sample in samples()} == names
    assert [name for name in names if name not in listed] == []
    assert [sample.name for sample in samples() if len(sample.about) < 5] == []


@pytest.mark.parametrize("name", [sample.name for sample in samples()])
def test_a_printed_sample_is_a_good_resource(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is printed can be given to `-f` as it is."""
    assert main(["samples", name]) == 0
    file = tmp_path / "logpipeline.yaml"
    file.write_text(capsys.readouterr().out)

    assert load(file).name == yaml.safe_load(file.read_text())["metadata"]["name"]


def test_a_file_of_a_use_case_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The scripts beside a use case's resource can be had as well."""
    assert main(["samples", "in-order/run.sh"]) == 0

    assert capsys.readouterr().out == (SAMPLES / "use-cases" / "in-order" / "run.sh").read_text()


@pytest.mark.parametrize("name", ["nothing", "../demo", "in-order/../minimal", "/etc/hostname"])
def test_another_name_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A name is one of the list, and never a path."""
    assert main(["samples", name]) == 1

    assert "`logpipeline samples` lists them" in capsys.readouterr().err
