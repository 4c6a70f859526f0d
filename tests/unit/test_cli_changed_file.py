"""A file that `up` cannot apply is tried again, and others can see that it waits."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from logpipeline_cli.commands import up
from logpipeline_cli.errors import CliError
from waiting import eventually


class Noted:
    """What a supervisor writes down for other commands."""

    def __init__(self) -> None:
        self.held: list[str] = []

    def hold(self, why: str) -> None:
        """Take it."""
        self.held.append(why)


async def test_a_file_that_was_refused_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stood in its way may pass, while the file stays as it is since the start."""
    monkeypatch.setattr(up, "WATCH_EVERY_S", 0.001)
    monkeypatch.setattr(up, "AGAIN_AFTER_S", 0.0)
    file = tmp_path / "pipeline.yaml"
    file.write_text("as it was")
    supervisor, tries = Noted(), []

    async def change(file: Path, of: Any) -> None:
        tries.append(file.read_text())
        if len(tries) < 3:
            raise CliError("no room")

    monkeypatch.setattr(up, "_change", change)
    read = up.Read(file, up._digest(file), cast("Any", None))
    # Saved while the pipeline starts.
    file.write_text("changed")
    watching = asyncio.create_task(up._watch(read, cast("Any", supervisor)))
    await eventually(lambda: len(tries) == 3, what="the third try")
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching

    assert tries == ["changed"] * 3
    assert supervisor.held == ["the changed file is not applied: no room"] * 2
