"""What tests with a Spark have in common: each Java that they start begins with classes kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_classes import VARIABLE, options
from spark_versions import IS_NEWEST

NEWEST = "pytest.mark.spark43"
LONGEST = "test_spark_rounds.py"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Load no file of which the newest Spark runs no test: what it needs is not installed there."""
    is_file = IS_NEWEST and collection_path.suffix == ".py"
    return True if is_file and NEWEST not in collection_path.read_text() else None


@pytest.fixture(scope="session", autouse=True)
def quick_java() -> Iterator[None]:
    """Tell the processes of this run where the classes are."""
    with pytest.MonkeyPatch.context() as patch:
        if told := options():
            patch.setenv(VARIABLE, told)
        yield


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest test: beside it another process does all others."""
    items.sort(key=lambda item: item.path.name != LONGEST)
