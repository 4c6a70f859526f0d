"""The paths of one machine: its data folder, and the user's home."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logpipeline.spec import LogPipeline, dump, expand_local, parse


def pipeline(**local: Any) -> LogPipeline:
    """A pipeline with this local part."""
    return parse(
        {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": "a"},
            "spec": {"local": local},
        }
    )


def test_paths_begin_at_the_data_folder_and_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every place of the local part that holds a path."""
    monkeypatch.setenv("HOME", "/home/me")
    before = pipeline(
        nats={"tokenFile": "${DATA}/token", "caFile": "~/ca.pem"},
        shippers=[
            {
                "name": "a",
                "pods": "${DATA}/pods",
                "hostsBelow": "~/hosts",
                "files": [
                    {
                        "include": ["${DATA}/*.log", "/var/log/*"],
                        "exclude": ["~/x"],
                        "ack": "each",
                    }
                ],
            }
        ],
    )

    local = expand_local(before, tmp_path).spec.local
    (shipper,) = local.shippers
    (files,) = shipper.files

    assert (local.nats.token_file, local.nats.ca_file) == (f"{tmp_path}/token", "/home/me/ca.pem")
    assert (shipper.pods, shipper.hosts_below) == (f"{tmp_path}/pods", "/home/me/hosts")
    assert files.include == (f"{tmp_path}/*.log", "/var/log/*")
    assert files.exclude == ("/home/me/x",)
    assert files.ack == "each"


def test_a_folder_whose_name_looks_like_a_glob_means_itself(tmp_path: Path) -> None:
    """Patterns quote it; plain paths do not."""
    data = tmp_path / "a[1]*"
    before = pipeline(
        shippers=[{"name": "a", "pods": "${DATA}/p", "files": [{"include": ["${DATA}/*"]}]}]
    )

    (shipper,) = expand_local(before, data).spec.local.shippers

    assert shipper.files[0].include == (f"{tmp_path}/a[[]1][*]/*",)
    assert shipper.pods == f"{data}/p"


def test_an_expanded_pipeline_is_a_resource_again(tmp_path: Path) -> None:
    """It can be handed to the parts as a file, and expanding it again changes nothing."""
    before = pipeline(shippers=[{"name": "a", "hostsBelow": "${DATA}/busy"}])

    after = expand_local(before, tmp_path)

    assert parse(dump(after)) == after
    assert expand_local(after, Path("/elsewhere")) == after
