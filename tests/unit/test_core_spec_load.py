"""Files that hold a LogPipeline, and files that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from logpipeline.spec import SpecError, load
from logpipeline.spec.documents import FILE_BYTES_MAX

HEAD = "apiVersion: logpipeline.dev/v1alpha1\nkind: LogPipeline\nmetadata: {name: a}\n"
SAMPLES = Path(__file__).parents[2] / "deploy" / "samples"


def told(folder: Path, text: str | bytes) -> str:
    """What is told about a file that holds *text*, without the file's name."""
    file = folder / "pipeline.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SpecError) as error:
        load(file)
    lines = str(error.value).splitlines()
    assert all(line.startswith(f"{file}: ") for line in lines)
    return "\n".join(line.removeprefix(f"{file}: ") for line in lines)


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_every_sample_is_a_good_resource(sample: Path) -> None:
    """What people copy works."""
    assert load(sample).name in ("minimal", "prod", "demo", "audit")


def test_the_samples_are_there() -> None:
    """A renamed folder must not make the test above pass by testing nothing."""
    assert {path.name for path in SAMPLES.glob("*.yaml")} >= {
        "minimal.yaml", "logpipeline.yaml", "demo.yaml", "second-group.yaml",
    }  # fmt: skip


def test_a_name_is_enough(tmp_path: Path) -> None:
    """Everything else has a default."""
    file = tmp_path / "a.yaml"
    file.write_text(HEAD)

    pipeline = load(file)

    assert (pipeline.namespace, pipeline.name, pipeline.spec.partitions) == ("default", "a", 10)


def test_a_syntax_error_is_told_with_its_place(tmp_path: Path) -> None:
    """Line and column, counted from one as editors do."""
    assert told(tmp_path, HEAD + "spec:\n  a: [1\n").startswith(
        "is not valid YAML: line 6, column 1"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; it must hold one LogPipeline"),
        ("# only a comment\n---\n", "is empty; it must hold one LogPipeline"),
        (f"{HEAD}---\n{HEAD}", "holds 2 documents; keep one LogPipeline in a file"),
        ("just words\n", 'expected a mapping, found "just words"; a LogPipeline begins with'),
        ("apiVersion: v1\nkind: Pod\n", 'kind: expected LogPipeline, found "Pod"'),
        (HEAD + "spec: {partitions: 3, partitions: 4}\n", 'key "partitions" stands here twice'),
        (HEAD + "x: &a [1]\nspec: *a\n", "aliases (*name) are not allowed"),
        (HEAD + "spec: !!python/name:os.system\n", "is not valid YAML: line 4"),
        (HEAD + "spec: {partitions: " + "9" * 5000 + "}\n", "is not valid YAML"),
        ("[" * 20_000, "is nested too deeply"),
        (b"\xff\xff", "is not valid YAML"),
        (b"a: \x00\n", "is not valid YAML"),
        ("# " + "x" * FILE_BYTES_MAX, f"is longer than {FILE_BYTES_MAX} bytes"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_resource_is_refused_clearly(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    """Whatever the file holds, one line says what is wrong with it."""
    assert message in told(tmp_path, text)


def test_a_bomb_of_aliases_is_refused_before_it_grows(tmp_path: Path) -> None:
    """Nine lines would become a billion entries."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]

    assert "aliases (*name) are not allowed" in told(tmp_path, "\n".join(lines))


def test_a_time_without_quotes_stays_a_text(tmp_path: Path) -> None:
    """As in Kubernetes; a YAML library would make a date of it."""
    file = tmp_path / "a.yaml"
    consumer = "{name: a, deliverPolicy: byStartTime, optStartTime: 2026-01-31T12:00:00Z}"
    file.write_text(f"{HEAD}spec: {{consumers: [{consumer}]}}\n")

    assert load(file).spec.consumers[0].opt_start_time == "2026-01-31T12:00:00Z"


def test_every_mistake_is_told_with_the_file(tmp_path: Path) -> None:
    """One look at the message is enough to go and mend them all."""
    text = HEAD + 'spec: {partitions: ten, collectors: {replicas: "two"}}\n'

    assert told(tmp_path, text).splitlines() == [
        'spec.partitions: expected an integer, found "ten"',
        'spec.collectors.replicas: expected an integer, found "two"',
    ]


def test_a_file_that_cannot_be_read_is_an_error_of_the_system(tmp_path: Path) -> None:
    """It is no mistake in a resource."""
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing.yaml")
    with pytest.raises(IsADirectoryError):
        load(tmp_path)
