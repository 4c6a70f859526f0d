"""Waiting for a condition, as the tests of all tiers do."""

from __future__ import annotations

import os
import time

import pytest

from waiting import eventually

WITHIN_S = 0.05


def make_busy(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    """Let each processor have *share* processes that could run."""
    load = share * (os.cpu_count() or 1)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))


@pytest.mark.parametrize("share", [0.1, 3.0])
async def test_wait_for_what_never_comes_says_what_was_seen_last(
    monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """However busy the machine is, it ends."""
    make_busy(monkeypatch, share)

    with pytest.raises(AssertionError, match=r"not within 0\.05 s: a line; last: 0"):
        await eventually(lambda: 0, within_s=WITHIN_S, what="a line")


async def test_wait_is_as_much_longer_as_the_machine_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is waited for gets a share of the processors alone."""
    make_busy(monkeypatch, 5.0)
    began_s = time.monotonic()

    assert await eventually(lambda: time.monotonic() - began_s > 3 * WITHIN_S, within_s=WITHIN_S)
