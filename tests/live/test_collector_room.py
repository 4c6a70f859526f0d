"""A disk without room costs rotated files, and says so to whoever looks."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from pathlib import Path

from components.pipeline_up import PipelineUp
from faults.small_disk import small_disk
from waiting import eventually

DISK_BYTES = 2 << 30
REMOVED = re.compile(r'removed_bytes_total\{.*reason="disk"\} ([0-9.e+]+)')


async def test_files_that_are_deleted_for_room_are_named(tmp_path: Path) -> None:
    """By `status --check` and by a metric: they go before the age for which a user asked."""
    room = {"rotation": {"maxBytes": "64Ki"}, "retention": {"minFreePercent": 90}}
    up = PipelineUp(tmp_path, collectors={"replicas": 1, **room}, stream={"maxBytes": "16Mi"})
    with small_disk(up.layout.data, size_bytes=DISK_BYTES) as disk:
        async with up:
            # Another program's file.
            (disk.path / "other").write_bytes(bytes(DISK_BYTES * 15 // 100))
            up.append([f"line {number} {'x' * 1000}" for number in range(400)])

            async def is_told() -> bool:
                status = await up.run("status", "--check")
                assert "of rotated files were deleted before their age" in status.stdout, status
                return True

            async def is_counted() -> bool:
                part = next(part for part in up.record().components if part.name == "collector-0")
                page = await asyncio.to_thread(_read, f"http://{part.http}/metrics")
                return sum(float(value) for value in REMOVED.findall(page)) > 0

            await eventually(is_told, within_s=60)
            await eventually(is_counted, what="the metric")


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())
