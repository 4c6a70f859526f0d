"""What looks after a pipeline goes on after a failure, which is logged."""

from __future__ import annotations

import asyncio

import pytest

from logpipeline_cli.local import running as lasting_module
from logpipeline_cli.local.running import lasting


async def test_what_fails_is_logged_and_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lasting_module, "AGAIN_AFTER_S", 0.0)
    started = 0

    async def fails_twice() -> None:
        nonlocal started
        started += 1
        if started < 3:
            raise ZeroDivisionError

    await lasting("healing", fails_twice)

    assert started == 3
    assert [record.exc_info is not None for record in caplog.records] == [True, True]
    assert {getattr(record, "what", "") for record in caplog.records} == {"healing"}


async def test_what_is_cancelled_ends() -> None:
    async def waits() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(lasting("healing", waits))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
