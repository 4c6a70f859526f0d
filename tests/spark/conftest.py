"""What tests with a Spark have in common: each Java that they start begins with classes kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_classes import VARIABLE, options
from spark_versions import IS_NEWEST

NEWEST = "pytest.mark.spark43"
LONGEST = "test_spark_rounds.py"
# What a client of Spark Connect needs is installed beside the newest Spark alone.
NEWEST_ALONE = "test_spark_connect.py"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Load no file of which this Spark runs no test: what it needs is not installed beside it."""
    if not IS_NEWEST:
        return True if collection_path.name == NEWEST_ALONE else None
    is_file = collection_path.suffix == ".py"
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
