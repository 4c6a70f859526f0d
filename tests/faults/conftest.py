"""Gives each test of faults its seed: one in CI, more where it runs for hours."""

from __future__ import annotations

import pytest

import fault_settings


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test that asks for a *seed* with each seed of this run."""
    if "seed" in metafunc.fixturenames:
        # The name says how to run the very test again.
        metafunc.parametrize("seed", fault_settings.seeds(), ids=lambda seed: f"SEED={seed}")
