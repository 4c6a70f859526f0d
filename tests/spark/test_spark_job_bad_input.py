"""What a user or a fault does to a job: one sentence says what to do, and when that is done nothing
is lost and nothing is doubled.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from faults.small_disk import small_disk
from logpipeline_spark.errors import Refused
from logpipeline_spark.job import service
from logpipeline_spark.job.service import logs_for, storage_for
from logpipeline_spark.table.verify import Report, verify
from tables.jobs import Table, one_sentence
from tables.made import opened
from tables.streams import STREAMS, Streams, running_streams

pytest_plugins = ["tables.table_fixtures"]

DISK_BYTES = 8_000_000
# What a job may write itself, and half of what tasks need.
ROOM_BYTES = 1_000_000
LINE_BYTES = 100_000
LONG_LINE = 64 * 2**20
PIECE = 900_000


def refused(table: Table, said: str) -> None:
    """See that a run ends with *said*, in one sentence that the bucket has as well."""
    with pytest.raises(Refused, match=said) as told:
        table.keep()
    assert "\n" not in str(told.value)
    assert "Traceback" not in str(told.value)
    assert table.told().problem == str(told.value)


def test_a_full_disk(streams: Streams, table: Table, tmp_path: Path) -> None:
    """A task of Spark finds it full, and says so as the driver would; with room again all is
    there.
    """
    with small_disk(tmp_path / "disk", size_bytes=DISK_BYTES) as disk:
        table.change(path=str(disk.path / "table"))
        streams.send("node-a", "before")
        table.keep()
        ballast = disk.path / "ballast"
        ballast.write_bytes(bytes(disk.free_bytes - ROOM_BYTES))
        for number in range(2 * ROOM_BYTES // LINE_BYTES):
            streams.send("node-a", noise(number))
        refused(table, r"disk/table is full: make room there")
        told = table.lines()
        ballast.unlink()
        table.keep()

        assert told == [("node-a", "before")]
        assert len(table.lines()) == 1 + 2 * ROOM_BYTES // LINE_BYTES
        assert verified(table).is_well


def verified(table: Table) -> Report:
    """What reading the whole table says."""
    storage = storage_for(table.settings)
    return verify(storage, logs_for(table.settings, storage))


def noise(seed: int) -> str:
    """Return a text that no compression makes small."""
    return Random(seed).randbytes(LINE_BYTES // 2).hex()


@pytest.mark.smoke
def test_a_stream_that_is_not_there(streams: Streams, table: Table) -> None:
    """Nothing of the others is read either; once it is made again, all that both have comes."""
    streams.send("node-a", "one")
    table.keep()
    streams.send("node-a", "two")
    streams.call("STREAM.DELETE.LOGS_0")
    refused(table, r"stream LOGS_0 does not exist .* `logpipeline apply`")
    streams.create("LOGS_0")
    streams.send("node-b", "three")
    table.keep()

    assert table.lines() == [("node-a", "one"), ("node-a", "two"), ("node-b", "three")]
    assert table.told().problem == ""


def test_what_was_purged_unread_is_gone_on_without_and_counted(
    streams: Streams, table: Table
) -> None:
    """Stopping would lose more; the table, its numbers and `verify` name what is lost."""
    streams.send("node-a", "one")
    table.keep()
    streams.send("node-a", "two")
    streams.send("node-a", "three")
    streams.call("STREAM.PURGE.LOGS_1")
    streams.send("node-a", "four")
    kept = table.keep()

    assert table.lines() == [("node-a", "one"), ("node-a", "four")]
    ((stream, lost),) = verified(table).skipped
    assert (stream, lost.first, lost.last) == ("LOGS_1", 2, 3)
    assert kept.numbers.metrics.value("lost_messages_total") == 2


def test_who_wants_to_decide_about_loss_is_asked(streams: Streams, table: Table) -> None:
    """The job ends, and says how to go on; then it does."""
    streams.send("node-a", "one")
    table.keep()
    streams.send("node-a", "two")
    streams.call("STREAM.PURGE.LOGS_1")
    streams.send("node-a", "three")
    table.change(stops_on_loss=True)
    refused(table, r"messages 2 to 2 of stream LOGS_1 .* without --stop-on-loss")
    refused(table, r"messages 2 to 2 of stream LOGS_1 .* without --stop-on-loss")
    table.change(stops_on_loss=False)
    table.keep()
    table.change(stops_on_loss=True)
    table.keep()

    assert table.lines() == [("node-a", "one"), ("node-a", "three")]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"streams": STREAMS[:1]}, r"pipeline lacks LOGS_1 now: .* another path"),
        ({"subject": "other"}, r"is a table of subjects logs, and this is other: .* of its own"),
        ({"format": "iceberg", "catalog": {"table": "t", "type": "in-memory"}}, r"format delta"),
        ({"pipeline": "default/other"}, r"pipeline default/test, and this is default/other: give"),
    ],
)
def test_an_old_table_with_other_options(
    streams: Streams, table: Table, change: dict[str, object], said: str
) -> None:
    """What was kept under the old ones is not mixed up; with these back, it goes on."""
    streams.send("node-a", "one")
    table.keep()
    streams.send("node-a", "two")
    former = table.settings
    table.change(**change)
    refused(table, said)
    table.settings = former
    table.keep()

    assert table.lines() == [("node-a", "one"), ("node-a", "two")]


@pytest.mark.smoke
def test_a_partition_more_is_read_as_well(streams: Streams, table: Table) -> None:
    """From the new stream's beginning."""
    table.change(streams=STREAMS[:1], partitions=1)
    streams.send("node-b", "one")
    table.keep()
    streams.send("node-a", "two")
    table.change(streams=STREAMS, partitions=2)
    table.keep()

    assert table.lines() == [("node-a", "two"), ("node-b", "one")]


def test_bytes_that_are_no_text(streams: Streams, table: Table) -> None:
    """The line is shown as text, and its very bytes stand beside it."""
    streams.publish("logs.p1.node-a", b"caf\xe9 \xff\x00 end")
    table.keep()
    (row,) = table.rows()

    assert row["raw"] == b"caf\xe9 \xff\x00 end"
    assert row["line"] == row["raw"].decode("utf-8", "replace")


def test_what_is_no_line_of_a_runtime(streams: Streams, table: Table) -> None:
    """It is a line as it stands, among others that are."""
    good = "2026-11-21T10:00:00.5Z stdout F good"
    broken = ["yesterday", "2026-11-21T10:00:00.5Z stdin F x", "", "stdout"]
    streams.send("node-a", good, *broken, good, format="cri", source="ns/pod/uid/app/0")
    table.keep()

    assert [line for _, line in table.lines()] == ["good", *broken, "good"]


def test_a_line_of_64_megabytes(streams: Streams, table: Table) -> None:
    """Its pieces are rows, marked, and together they are the line."""
    letters = "0123456789abcdef" * (LONG_LINE // 16)
    pieces = [letters[start : start + PIECE] for start in range(0, LONG_LINE, PIECE)]
    for piece in pieces:
        streams.send_piece(
            "node-a", piece, is_first=piece is pieces[0], is_last=piece is pieces[-1]
        )
    table.keep()
    rows = table.rows()

    assert {row["piece"] for row in rows} == {"begin", "middle", "end"}
    assert "".join(row["line"] for row in rows) == letters


def test_a_path_that_another_pipeline_writes_as_a_command_says_it(
    streams: Streams, table: Table
) -> None:
    """One sentence, no trace, and status 1; nothing there is touched."""
    storage = storage_for(table.settings)
    opened(storage, pipeline="default/other").close()

    said = one_sentence(table.command("run", "--once"))

    assert "of pipeline default/other, and this is default/test: give it a path of its own" in said


def test_wrong_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence says what the server says, never a secret; with the right ones it goes on."""
    monkeypatch.setattr(service, "PATIENCE_S", 2)
    with running_streams(tmp_path / "nats", token="right") as streams:
        table = Table(streams, tmp_path / "table")
        streams.send("node-a", "one")
        (tmp_path / "wrong").write_text("not-this-one")
        right = replace(table.settings.nats, token_file=tmp_path / "nats" / "token")
        table.change(nats=replace(right, token_file=tmp_path / "wrong"))
        with pytest.raises(Refused, match="Authorization Violation") as told:
            table.keep()
        table.change(nats=right)
        table.keep()

        assert "not-this-one" not in str(told.value)
        assert table.lines() == [("node-a", "one")]


def test_a_java_that_does_not_start(streams: Streams, table: Table, tmp_path: Path) -> None:
    """The sentence is printed, and told in the bucket."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho no memory >&2\nexit 1\n")
    java.chmod(0o755)
    streams.send("node-a", "one")
    home = {"JAVA_HOME": str(java.parents[1])}

    said = one_sentence(table.command("run", "--once", environment=home))

    assert "Spark could not be started: [JAVA_GATEWAY_EXITED]" in said
    assert table.told().problem in said
