"""What a shipper knows of all its sources together."""

from __future__ import annotations

import time
from pathlib import Path

from components.log_chain import Folder, append
from components.shared_parts import Server, shared_by
from logpipeline.subjects import Subjects
from logpipeline_shipper.checkpoint import Key, SourceRecord, State
from logpipeline_shipper.source_manager import SourceManager, SourceOptions


def manager_of(folder: Folder, path: Path, state: State) -> SourceManager:
    """A manager that continues from *state*."""
    options = SourceOptions(
        subjects=Subjects("logs", 1),
        installation="i",
        cluster="",
        read_from="beginning",
        limits=folder.limits,
        watermark=folder.scan_watermark,
        is_compressing=False,
    )
    shared = shared_by(Server(), path, lambda: folder.now_s)
    return SourceManager(options, shared, state, lambda host: None)


async def test_a_file_that_was_never_seen_is_counted_after_a_restart(tmp_path: Path) -> None:
    """No collector is told of it: a check that looks later would know nothing of it."""
    folder = Folder(tmp_path / "logs")
    append(folder.live, b"one\n")
    folder.read()
    saved = folder.chain.saved()
    folder.chain.release()
    folder.live.unlink()
    key = Key("h", str(folder.live))
    folder.scan_watermark.until_s = folder.now_s
    manager = manager_of(folder, tmp_path, State(sources={key: SourceRecord(saved=saved)}))
    manager.note_scanned()
    for _ in range(30):
        folder.now_s += 1.0
        folder.scan_watermark.until_s = folder.now_s
        manager.tick()
        if source := manager.sources.get(key):
            await source.finish()
    rows, unseen = manager.rows(), manager.unseen
    again = manager_of(folder, tmp_path, State(unseen=unseen))

    assert rows
    assert again.unseen.at(time.time()) == unseen.files == 1
