"""What was written and not committed for so long that a clean-up may have removed it is not
committed any more: the lines stay in the files, or in the stream, that had them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from logpipeline_spark.errors import Refused
from logpipeline_spark.formats.log import Change, Late, Overtaken
from logpipeline_spark.table import erasure as erasure_module
from logpipeline_spark.table import upkeep as upkeep_module
from logpipeline_spark.table.files import Range
from tables.erased import FORMATS, SLEPT_HOURS, Evening, Lake, in_order
from tables.made import BEGIN, LIFE, STREAM, kept, upkeep

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


def test_a_writer_that_slept_in_its_commit_was_overtaken(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its look and its commit another writer came, and a clean-up took its files: it says
    that there are two writers, and blames no catalogue.
    """
    sleeper = lake.open()
    left = lake.write(sleeper, 41, 60)
    refuse_late = Change.refuse_late

    def sleep(change: Change) -> None:
        monkeypatch.setattr(Change, "refuse_late", refuse_late)
        refuse_late(change)
        lake.batch(lake.open(), 41, 50)
        lake.age(hours=SLEPT_HOURS)
        upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))

    monkeypatch.setattr(Change, "refuse_late", sleep)
    with pytest.raises(Overtaken):
        sleeper.commit_batch("41", {STREAM: Range(LIFE, 41, 60)}, left, kept(sleeper))

    assert lake.problems == ()


def test_a_file_that_went_before_its_commit_is_named(tmp_path: Path) -> None:
    """Iceberg's own library reads each file that it adds, and says that the catalogue failed."""
    lake = FORMATS["iceberg"](tmp_path)
    writer = lake.filled()
    left = lake.write(writer, 41, 60)
    (Path(lake.storage.url) / left[0].path).unlink()

    with pytest.raises(Refused, match=r"is gone .*let no other program remove files"):
        writer.commit_batch("41", {STREAM: Range(LIFE, 41, 60)}, left, kept(writer))
