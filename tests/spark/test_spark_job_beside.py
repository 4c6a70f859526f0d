"""Another table of the same streams: from a time on, and nobody takes it for the pipeline's own."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from logpipeline_spark.errors import Refused
from logpipeline_spark.source.offsets import Place
from tables.jobs import Table, one_sentence
from tables.streams import Streams

pytest_plugins = ["tables.table_fixtures"]


@pytest.mark.smoke
def test_another_table_begins_at_a_time(streams: Streams, table: Table, tmp_path: Path) -> None:
    """It goes on where it was, also in a stream that had nothing yet, whatever time is said by
    then; the pipeline's own table stays the one that streams wait for.
    """
    streams.send("node-a", "one")
    streams.send("node-b", "one")
    table.keep()
    told = table.told()
    moment = Place("time", time_ns=time.time_ns())
    streams.send("node-a", "two")
    own = table.settings

    table.change(path=str(tmp_path / "other"), own_path=own.path, key="", begin=moment)
    table.keep()
    streams.send("node-b", "three")
    table.change(begin=Place("time", time_ns=time.time_ns()))
    table.keep()

    assert table.lines() == [("node-a", "two"), ("node-b", "three")]
    assert table.told() == told
    table.settings = own
    table.keep()
    assert len(table.lines()) == 4


def test_another_table_does_not_tell_in_place_of_the_own_one(
    streams: Streams, table: Table, tmp_path: Path
) -> None:
    """Streams would be trimmed by what it has read, and the own one miss that."""
    streams.send("node-a", "one")
    table.keep()
    own = table.settings.path
    streams.send("node-a", "two")
    told = table.told()

    table.change(path=str(tmp_path / "other"), own_path=own)
    with pytest.raises(Refused, match="--from earliest"):
        table.keep()

    assert table.told() == told
    # A table that was moved is the own one, at another path.
    table.change(own_path=table.settings.path)
    table.keep()
    assert table.lines() == [("node-a", "one"), ("node-a", "two")]


def test_the_command_keeps_another_table(streams: Streams, table: Table, tmp_path: Path) -> None:
    """Of all that is stored; what it is not told, or wrongly, it says in a sentence."""
    streams.send("node-a", "one", "two")
    other = str(tmp_path / "other")

    said = one_sentence(table.command("run", "--once", "--from", "earliest"))
    done = table.command("run", "--once", "--from", "often", "--path", other)
    wrong = one_sentence(done, codes=(64,))
    done = table.command("run", "--once", "--from", "earliest", "--path", other)

    assert "give its path with --path" in said
    assert "--from 'often': give a span" in wrong
    assert done.returncode == 0, done.stderr
    table.settings = replace(table.settings, path=other)
    assert table.lines() == [("node-a", "one"), ("node-a", "two")]
