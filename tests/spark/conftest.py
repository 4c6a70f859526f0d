"""What tests with a Spark have in common: each Java that they start begins with classes kept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_classes import VARIABLE, options


@pytest.fixture(scope="session", autouse=True)
def quick_java() -> Iterator[None]:
    """Tell the processes of this run where the classes are."""
    with pytest.MonkeyPatch.context() as patch:
        if told := options():
            patch.setenv(VARIABLE, told)
        yield
