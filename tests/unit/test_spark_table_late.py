"""What upkeep wrote and did not commit for so long that a clean-up may have removed it is not
committed any more: the lines stay in the files that had them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from logpipeline_spark.formats.log import Late
from logpipeline_spark.table import erasure as erasure_module
from logpipeline_spark.table import upkeep as upkeep_module
from tables.erased import FORMATS, SLEPT_HOURS, Evening, Lake, in_order
from tables.made import BEGIN, upkeep

OVER = BEGIN + timedelta(days=1)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(params=sorted(FORMATS))
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    lake = FORMATS[request.param](tmp_path)
    lake.filled()
    return lake


@contextmanager
def _night_at(point: str, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the machine sleep when it gets to *point*, and a clean-up come first when it wakes."""

    def sleep(reached: str) -> None:
        if reached == point:
            lake.age(hours=SLEPT_HOURS)
            upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))

    with monkeypatch.context() as night:
        for module in (erasure_module, upkeep_module):
            night.setattr(module, "datetime", Evening)
            night.setattr(module, "reach", sleep)
        yield


def test_a_merge_that_slept_is_left(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is done anew by the next look."""
    before = in_order(lake.read())
    with _night_at("table.merge-written", lake, monkeypatch):
        slept = upkeep(lake.storage, lake.new_logs()).compact(OVER)

    assert slept == []
    assert (in_order(lake.read()), lake.problems) == (before, ())
    assert upkeep(lake.storage, lake.new_logs()).compact(OVER)
    assert (in_order(lake.read()), lake.problems) == (before, ())


def test_an_erasure_that_slept_changes_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so, and that less at a time can be erased."""
    before = in_order(lake.read())
    with _night_at("table.erasure-written", lake, monkeypatch), pytest.raises(Late, match="less"):
        lake.erasure(host="web1").erase(OVER)

    assert (in_order(lake.read()), lake.problems) == (before, ())
    lake.erasure(host="web1").erase(OVER)
    assert len(lake.read()) < len(before)
    assert lake.problems == ()
