"""Only what `up` wrote is replaced or removed, and only for the pipeline that it belongs to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from faults.small_disk import small_disk
from logpipeline.layout import Layout, default_data
from logpipeline.spec import load
from logpipeline_cli.arguments import build_parser
from logpipeline_cli.commands import delete, up
from logpipeline_cli.errors import CliError
from logpipeline_cli.local.data_folder import check_usable, make, only_one
from logpipeline_cli.local.running import write_applied


def resource(folder: Path, name: str = "mine") -> Path:
    """Write the smallest resource."""
    file = folder / "pipeline.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(
        "apiVersion: logpipeline.dev/v1alpha1\n"
        "kind: LogPipeline  # a comment of its writer\n"
        f"metadata: {{name: {name}}}\n"
        "spec: {}\n"
    )
    return file


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The resource of a pipeline that has no server."""
    monkeypatch.delenv("NATS_URL", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    return resource(tmp_path / "resources")


def deleted(file: Path, data: Path | None) -> int:
    """Delete as a person does who is sure."""
    words = ["delete", "-f", str(file), "--with-data", "--yes"]
    words += ["--data", str(data)] if data is not None else []
    return delete.run(build_parser().parse_args(words))


def ran(file: Path, data: Path) -> Layout:
    """Leave in *data* what `up` leaves, of any version."""
    layout = Layout(data)
    data.mkdir(parents=True)
    with only_one(layout):
        write_applied(load(file), layout)
        layout.log("collector-0").parent.mkdir()
        layout.log("collector-0").touch()
    return layout


def test_a_folder_in_which_up_never_ran_is_not_deleted(file: Path) -> None:
    """Such as a checkout whose folders have names that ours have, too."""
    page = file.parent / "components" / "App.vue"
    page.parent.mkdir()
    page.touch()

    with pytest.raises(CliError, match="not a data folder"):
        deleted(file, file.parent)
    assert page.exists()
    assert file.exists()


def test_the_data_of_another_pipeline_is_not_deleted(file: Path, tmp_path: Path) -> None:
    """The question names the one of the resource."""
    layout = ran(resource(tmp_path / "theirs", "other"), tmp_path / "data")

    with pytest.raises(CliError, match=r"has the data of default/other, not of default/mine"):
        deleted(file, layout.data)
    assert layout.log("collector-0").exists()


def test_the_data_of_another_pipeline_is_not_taken_over(file: Path, tmp_path: Path) -> None:
    """Its files would be deleted by the retention of this one."""
    layout = ran(resource(tmp_path / "theirs", "other"), tmp_path / "data")

    with pytest.raises(CliError, match=r"has the data of default/other, not of default/mine"):
        check_usable(layout, load(file))
    check_usable(layout, load(tmp_path / "theirs" / "pipeline.yaml"))
    # A version that knows other fields.
    layout.pipeline.write_text("kind: LogPipeline\nspec: {unknown: 1}\n")
    check_usable(layout, load(file))


def test_data_of_a_pipeline_that_starts_is_not_deleted(file: Path, tmp_path: Path) -> None:
    """It has no record yet, and its streams may be on another server already."""
    layout = ran(file, tmp_path / "data")

    with only_one(layout), pytest.raises(CliError, match="already runs"):
        deleted(file, layout.data)
    assert layout.log("collector-0").exists()


def test_what_up_left_is_deleted(file: Path, tmp_path: Path) -> None:
    """All of it, the folder too."""
    layout = ran(file, tmp_path / "data")

    assert deleted(file, layout.data) == 0
    assert not layout.data.exists()


def test_the_default_folder_is_deleted_where_parts_ran_without_up(file: Path) -> None:
    """`logpipeline collect` alone writes there and locks nothing; the name says whose it is."""
    layout = Layout(default_data("default", "mine"))
    layout.collector("collector-0").mkdir(parents=True)

    assert deleted(file, None) == 0
    assert not layout.data.exists()


@pytest.mark.parametrize("name", ["components/App.vue", "table/a.parquet", "pipeline.yaml"])
def test_up_takes_no_folder_with_files_of_others(file: Path, tmp_path: Path, name: str) -> None:
    """They would be replaced, or removed with its data."""
    there = tmp_path / "checkout" / name
    there.parent.mkdir(parents=True)
    there.touch()

    with pytest.raises(CliError, match=f"{name.partition('/')[0]} would be taken for a part"):
        check_usable(Layout(tmp_path / "checkout"), load(file))


def test_up_takes_an_empty_disk_for_a_part_of_its_data(file: Path, tmp_path: Path) -> None:
    """Mounted before the first start, for the table or the server; and other files beside it."""
    (tmp_path / "data" / "table" / "lost+found").mkdir(parents=True)
    (tmp_path / "data" / "nats").mkdir()
    (tmp_path / "data" / "collectors" / "collector-0").mkdir(parents=True)
    (tmp_path / "data" / "notes.txt").touch()

    check_usable(Layout(tmp_path / "data"), load(file))


def test_what_is_on_a_disk_of_its_own_is_deleted(file: Path, tmp_path: Path) -> None:
    """The disk stays mounted, and all else goes."""
    layout = ran(file, tmp_path / "data")
    with small_disk(layout.data / "nats", size_bytes=1 << 20) as disk:
        (disk.path / "lost+found").mkdir()
        (disk.path / "jetstream" / "store").mkdir(parents=True)
        (disk.path / "jetstream" / "store" / "1.blk").touch()

        assert deleted(file, layout.data) == 0

        assert [path.name for path in layout.data.rglob("*")] == ["nats", "lost+found"]


def test_up_takes_a_folder_in_which_it_ran_before(file: Path, tmp_path: Path) -> None:
    """Also one of a former version."""
    check_usable(ran(file, tmp_path / "data"), load(file))


def test_a_data_folder_is_made_for_its_user_and_group(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the umask is; and nothing needs to be said about it."""
    layout = Layout(tmp_path / "data")
    before = os.umask(0)
    try:
        make(layout)
    finally:
        os.umask(before)

    assert layout.data.stat().st_mode & 0o777 == 0o750
    assert caplog.records == []


def test_a_data_folder_that_is_open_to_others_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays as it is: somebody may have opened it on purpose."""
    layout = Layout(tmp_path / "data")
    layout.data.mkdir()
    layout.data.chmod(0o755)
    make(layout)

    (record,) = caplog.records
    assert "chmod o-rwx" in record.getMessage()
    assert layout.data.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("was_run", [False, True])
def test_up_never_replaces_the_file_that_it_is_given(file: Path, was_run: bool) -> None:
    """`up -f pipeline.yaml --data .` would write its own copy in its place."""
    before = file.read_text()
    if was_run:
        Layout(file.parent).lock_file.touch()

    with pytest.raises(CliError, match="would be replaced"):
        up.run(build_parser().parse_args(["up", "-f", str(file), "--data", str(file.parent)]))
    assert file.read_text() == before
