"""What `logpipeline stream options` prints is what the data source reads."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from logpipeline.layout import Layout, RunRecord
from logpipeline_cli.main import main
from logpipeline_spark.source.options import SourceOptions, login_of, parse


def printed(
    capsys: pytest.CaptureFixture[str], folder: Path, *words: str, **spec: Any
) -> dict[str, str]:
    """Return the options that are printed of a resource."""
    file = folder / "pipeline.yaml"
    resource = {
        "apiVersion": "logpipeline.dev/v1alpha1",
        "kind": "LogPipeline",
        "metadata": {"name": "prod", "namespace": "logging"},
        "spec": {"partitions": 3, **spec},
    }
    file.write_text(yaml.safe_dump(resource))
    where = ("-f", str(file), "--data", str(folder))
    assert main(["stream", "options", *where, "-o", "json", *words]) == 0
    found: dict[str, str] = json.loads(capsys.readouterr().out)
    return found


def read(options: dict[str, str]) -> SourceOptions:
    """Return what the data source makes of *options*, which it must print the same way."""
    parsed = parse(options)
    assert login_of(parsed.nats).items() <= options.items()
    return parsed


def test_a_pipeline_with_a_server_of_its_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """By its name, with the files that the resource names."""
    (tmp_path / "token").write_text("secret")
    options = printed(
        capsys,
        tmp_path,
        nats={"servers": ["nats://a:4222", "nats://b:4222"], "jsDomain": "hub"},
        local={"nats": {"tokenFile": str(tmp_path / "token"), "inboxPrefix": "_INBOX_x"}},
    )

    assert options == {
        "servers": "nats://a:4222,nats://b:4222",
        "tokenFile": str(tmp_path / "token"),
        "inboxPrefix": "_INBOX_x",
        "jsDomain": "hub",
        "pipeline": "logging/prod",
    }
    parsed = read(options)
    assert (parsed.base, parsed.nats.js_domain) == ("LP_logging_prod", "hub")


def test_a_pipeline_whose_streams_have_names_of_their_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """They do not follow from its name."""
    names = {"subject": "app.logs", "stream": {"name": "APP"}}
    options = printed(capsys, tmp_path, "--nats", "nats://c:4222", **names)

    assert options == {
        "servers": "nats://c:4222",
        "stream": "APP",
        "partitions": "3",
        "subject": "app.logs",
    }
    assert read(options).streams == ("APP_0", "APP_1", "APP_2")


def test_a_pipeline_that_runs_here(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Not as the operator, who may do everything, but as who reads for a table."""
    layout = Layout(tmp_path)
    for user in ("operator", "table"):
        layout.login(user).mkdir(parents=True)
        for name in ("user", "password"):
            (layout.login(user) / name).write_text(user)
    url = "nats://127.0.0.1:5"
    record = RunRecord("prod", "logging", os.getpid(), url, str(layout.login("operator")))
    record.write(layout)
    options = printed(capsys, tmp_path)

    assert options == {
        "servers": url,
        "userFile": str(layout.login("table") / "user"),
        "passwordFile": str(layout.login("table") / "password"),
        "inboxPrefix": "_INBOX_table",
        "pipeline": "logging/prod",
    }
    assert read(options).nats.user_file == layout.login("table") / "user"
