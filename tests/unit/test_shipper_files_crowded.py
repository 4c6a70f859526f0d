"""A tree with more folders than are scanned is named, and keeps no other tree from being read."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from logpipeline_shipper.files import directory_scan, discovery
from logpipeline_shipper.files.discovery import TOO_MANY_FOLDERS, Discovery
from logpipeline_shipper.files.listing import HostSources
from waiting import eventually

# Watched folders are looked at because of events alone.
RESCANS_S = {True: 3600.0, False: 0.05}


@pytest.mark.parametrize("is_watching", [True, False])
async def test_a_tree_with_too_many_folders_is_named_and_stops_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_watching: bool
) -> None:
    """Whoever may make folders in one tree decides nothing about pods. With room, all is read."""
    monkeypatch.setattr(discovery, "_FOLDERS_MAX", 3)
    jobs, pods = tmp_path / "jobs", tmp_path / "pods"
    pods.mkdir()
    for job in ("a/0", "b/0", "b/1"):
        (jobs / job).mkdir(parents=True)
        (jobs / job / "job.log").write_text("a line\n")
    found: set[str] = set()
    skipped: dict[Path, str] = {}
    troubles: dict[Path, str] = {}
    task = asyncio.create_task(
        Discovery(
            [HostSources(host="h", pods_dir=pods, include=(f"{jobs}/**",))],
            rescan_s=RESCANS_S[is_watching],
            skipped=skipped.__setitem__,
            on_trouble=troubles.__setitem__,
            is_watching=is_watching,
        ).run(lambda listing: found.add(listing.id.source), lambda source: None)
    )
    try:
        await eventually(lambda: troubles == skipped == {jobs: TOO_MANY_FOLDERS})
        assert found == {f"{jobs}/a/0/job.log"}

        (pods / "ns_pod_uid" / "box").mkdir(parents=True)
        (pods / "ns_pod_uid" / "box" / "0.log").write_text("2026-11-23T10:00:00Z stdout F x\n")
        await eventually(lambda: "ns/pod/uid/box/0" in found)
        assert troubles == {jobs: TOO_MANY_FOLDERS}

        shutil.rmtree(jobs / "a")
        await eventually(lambda: troubles == {jobs: ""})
        await eventually(lambda: {f"{jobs}/b/0/job.log", f"{jobs}/b/1/job.log"} <= found)
    finally:
        task.cancel()
        await asyncio.wait([task])


def test_a_folder_that_is_too_deep_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logs above it are found."""
    monkeypatch.setattr(directory_scan, "_DEPTH_MAX", 1)
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "deep.log").write_text("a line\n")
    (deep.parent / "app.log").write_text("a line\n")
    skipped: dict[Path, str] = {}
    host = HostSources(host="h", include=(f"{tmp_path}/**",))
    [listing] = Discovery([host], skipped=skipped.__setitem__).scan()

    assert listing.id.source == str(deep.parent / "app.log")
    assert skipped == {deep: "too-deep"}
