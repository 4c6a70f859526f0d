"""What a user or a fault does to a job: one sentence says what to do, and when that is done nothing
is lost and nothing is doubled.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from logpipeline_spark.errors import Refused
from logpipeline_spark.running import job
from logpipeline_spark.running.job import logs_for, storage_for
from logpipeline_spark.table.verify import Report, verify
from small_disk import small_disk
from spark_jobs import Archive, one_sentence
from spark_streams import STREAMS, Streams, running_streams
from tables_made import opened

pytest_plugins = ["spark_archive_fixtures"]

pytestmark = pytest.mark.timeout(300)
DISK_BYTES = 8_000_000
# What a job may write itself, and half of what tasks need.
ROOM_BYTES = 1_000_000
LINE_BYTES = 100_000
LONG_LINE = 64 * 2**20
PIECE = 900_000


def refused(archive: Archive, said: str) -> None:
    """See that a run ends with *said*, in one sentence that the bucket has as well."""
    with pytest.raises(Refused, match=said) as told:
        archive.keep()
    assert "\n" not in str(told.value)
    assert "Traceback" not in str(told.value)
    assert archive.told().problem == str(told.value)


def test_a_full_disk(streams: Streams, archive: Archive, tmp_path: Path) -> None:
    """A task of Spark finds it full, and says so as the driver would; with room again all is
    there.
    """
    with small_disk(tmp_path / "disk", size_bytes=DISK_BYTES) as disk:
        archive.change(path=str(disk.path / "table"))
        streams.send("node-a", "before")
        archive.keep()
        ballast = disk.path / "ballast"
        ballast.write_bytes(bytes(disk.free_bytes - ROOM_BYTES))
        for number in range(2 * ROOM_BYTES // LINE_BYTES):
            streams.send("node-a", noise(number))
        refused(archive, r"disk/table is full: make room there")
        told = archive.lines()
        ballast.unlink()
        archive.keep()

        assert told == [("node-a", "before")]
        assert len(archive.lines()) == 1 + 2 * ROOM_BYTES // LINE_BYTES
        assert verified(archive).is_well


def verified(archive: Archive) -> Report:
    """What reading the whole table says."""
    storage = storage_for(archive.settings)
    return verify(storage, logs_for(archive.settings, storage))


def noise(seed: int) -> str:
    """Return a text that no compression makes small."""
    return Random(seed).randbytes(LINE_BYTES // 2).hex()


@pytest.mark.smoke
def test_a_stream_that_is_not_there(streams: Streams, archive: Archive) -> None:
    """Nothing of the others is read either; once it is made again, all that both have comes."""
    streams.send("node-a", "one")
    archive.keep()
    streams.send("node-a", "two")
    streams.call("STREAM.DELETE.LOGS_0")
    refused(archive, r"stream LOGS_0 does not exist .* `logpipeline apply`")
    streams.create("LOGS_0")
    streams.send("node-b", "three")
    archive.keep()

    assert archive.lines() == [("node-a", "one"), ("node-a", "two"), ("node-b", "three")]
    assert archive.told().problem == ""


def test_what_was_purged_unread_is_gone_on_without_and_counted(
    streams: Streams, archive: Archive
) -> None:
    """Stopping would lose more; the table, its numbers and `verify` name what is lost."""
    streams.send("node-a", "one")
    archive.keep()
    streams.send("node-a", "two")
    streams.send("node-a", "three")
    streams.call("STREAM.PURGE.LOGS_1")
    streams.send("node-a", "four")
    kept = archive.keep()

    assert archive.lines() == [("node-a", "one"), ("node-a", "four")]
    ((stream, lost),) = verified(archive).skipped
    assert (stream, lost.first, lost.last) == ("LOGS_1", 2, 3)
    assert kept.numbers.metrics.value("lost_messages_total") == 2


def test_who_wants_to_decide_about_loss_is_asked(streams: Streams, archive: Archive) -> None:
    """The job ends, and says how to go on; then it does."""
    streams.send("node-a", "one")
    archive.keep()
    streams.send("node-a", "two")
    streams.call("STREAM.PURGE.LOGS_1")
    streams.send("node-a", "three")
    archive.change(stops_on_loss=True)
    refused(archive, r"LOGS_1 lost its messages 2 to 2 .* without --stop-on-loss")
    refused(archive, r"LOGS_1 lost its messages 2 to 2 .* without --stop-on-loss")
    archive.change(stops_on_loss=False)
    archive.keep()
    archive.change(stops_on_loss=True)
    archive.keep()

    assert archive.lines() == [("node-a", "one"), ("node-a", "three")]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"streams": STREAMS[:1]}, r"LOGS_1 would not be read any more: .* another path"),
        ({"subject": "other"}, r"is a table of subjects logs, and this is other: .* of its own"),
        ({"format": "iceberg", "catalog": {"table": "t", "type": "in-memory"}}, r"format delta"),
        ({"pipeline": "default/other"}, r"pipeline default/test, and this is default/other: give"),
    ],
)
def test_an_old_table_with_other_options(
    streams: Streams, archive: Archive, change: dict[str, object], said: str
) -> None:
    """What was kept under the old ones is not mixed up; with these back, it goes on."""
    streams.send("node-a", "one")
    archive.keep()
    streams.send("node-a", "two")
    former = archive.settings
    archive.change(**change)
    refused(archive, said)
    archive.settings = former
    archive.keep()

    assert archive.lines() == [("node-a", "one"), ("node-a", "two")]


@pytest.mark.smoke
def test_a_partition_more_is_read_as_well(streams: Streams, archive: Archive) -> None:
    """From the new stream's beginning."""
    archive.change(streams=STREAMS[:1], partitions=1)
    streams.send("node-b", "one")
    archive.keep()
    streams.send("node-a", "two")
    archive.change(streams=STREAMS, partitions=2)
    archive.keep()

    assert archive.lines() == [("node-a", "two"), ("node-b", "one")]


def test_bytes_that_are_no_text(streams: Streams, archive: Archive) -> None:
    """The line is shown as text, and its very bytes stand beside it."""
    streams.publish("logs.p1.node-a", b"caf\xe9 \xff\x00 end")
    archive.keep()
    (row,) = archive.rows()

    assert row["raw"] == b"caf\xe9 \xff\x00 end"
    assert row["line"] == row["raw"].decode("utf-8", "replace")


def test_what_is_no_line_of_a_runtime(streams: Streams, archive: Archive) -> None:
    """It is a line as it stands, among others that are."""
    good = "2026-11-21T10:00:00.5Z stdout F good"
    broken = ["yesterday", "2026-11-21T10:00:00.5Z stdin F x", "", "stdout"]
    streams.send("node-a", good, *broken, good, format="cri", source="ns/pod/uid/app/0")
    archive.keep()

    assert [line for _, line in archive.lines()] == ["good", *broken, "good"]


def test_a_line_of_64_megabytes(streams: Streams, archive: Archive) -> None:
    """Its pieces are rows, marked, and together they are the line."""
    letters = "0123456789abcdef" * (LONG_LINE // 16)
    pieces = [letters[start : start + PIECE] for start in range(0, LONG_LINE, PIECE)]
    for piece in pieces:
        streams.send_piece(
            "node-a", piece, is_first=piece is pieces[0], is_last=piece is pieces[-1]
        )
    archive.keep()
    rows = archive.rows()

    assert {row["piece"] for row in rows} == {"begin", "middle", "end"}
    assert "".join(row["line"] for row in rows) == letters


def test_a_path_that_another_pipeline_writes_as_a_command_says_it(
    streams: Streams, archive: Archive
) -> None:
    """One sentence, no trace, and status 1; nothing there is touched."""
    storage = storage_for(archive.settings)
    opened(storage, pipeline="default/other").close()

    said = one_sentence(archive.command("run", "--once"))

    assert "of pipeline default/other, and this is default/test: give it a path of its own" in said


def test_wrong_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence says what the server says, never a secret; with the right ones it goes on."""
    monkeypatch.setattr(job, "PATIENCE_S", 2)
    with running_streams(tmp_path / "nats", token="right") as streams:
        archive = Archive(streams, tmp_path / "archive")
        streams.send("node-a", "one")
        (tmp_path / "wrong").write_text("not-this-one")
        right = replace(archive.settings.nats, token_file=tmp_path / "nats" / "token")
        archive.change(nats=replace(right, token_file=tmp_path / "wrong"))
        with pytest.raises(Refused, match="Authorization Violation") as told:
            archive.keep()
        archive.change(nats=right)
        archive.keep()

        assert "not-this-one" not in str(told.value)
        assert archive.lines() == [("node-a", "one")]
