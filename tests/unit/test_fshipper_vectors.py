"""fshipper's names and bytes, pinned: its files and its streams go on being used. The values are
what the Go program of 2020 made; the partitions of hosts stand in test_core_partition.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from logpipeline.checksum import NOTHING
from logpipeline.nats.session import RawMessage
from logpipeline.subjects import Subjects
from logpipeline.wire import Checksums
from logpipeline_collector.fshipper.config import BadOutput, Pattern, midnight
from logpipeline_collector.fshipper.service import Intake
from logpipeline_shipper.files.chain import Chunk
from logpipeline_shipper.files.listing import SourceId
from logpipeline_shipper.message import MessageBuilder
from logpipeline_shipper.resend import Piece

# SHIPPER_SUBJECT, SHIPPER_PARTITIONS, HOSTNAME, the subject.
SUBJECTS = [
    ("shipper", 0, "web1.example.net", "shipper.p0.web1.example.net"),
    ("shipper", 1, "web1.example.net", "shipper.p0.web1.example.net"),
    ("shipper", 10, "web1.example.net", "shipper.p5.web1.example.net"),
    ("shipper", 10, "node-a", "shipper.p7.node-a"),
    ("ops.logs", 10, "localhost", "ops.logs.p8.localhost"),
]
# A line in the file, the payload.
PAYLOADS = [
    (b"a line\n", b"a line"),
    (b"\n", b""),
    (b"  spaces \t\n", b"  spaces \t"),
    (b"dos\r\n", b"dos\r"),
    (b"caf\xc3\xa9 \xff\x00\n", b"caf\xc3\xa9 \xff\x00"),
    (b"\x1b[31mred\n", b"\x1b[31mred"),
]
# SHIPPER_SUBJECT, a message's subject, its payload, host and bytes in the file.
MESSAGES = [
    ("shipper", b"shipper.p5.web1.example.net", b"a line", "web1.example.net", b"a line\n"),
    ("shipper", b"shipper.p0.node-a", b"", "node-a", b"\n"),
    ("shipper", b"shipper.p0.node-a", b"two\nlines", "node-a", b"two\nlines\n"),
    ("ops.p1.logs", b"ops.p1.logs.p3.h", b"x", "h", b"x\n"),
    ("shipper", b"shipper.p12.p3.h", b"x", "p3.h", b"x\n"),
]
# SHIPPER_OUTPUT, the file's name below the host's folder on 2026-11-21 at 15:04:05.
OUTPUTS = [
    ("logs", "logs-202611210000"),
    ("app.log", "app.log-202611210000"),
    ("/app.log", "app.log-202611210000"),
    ("app-%Y%m%d.log", "app-20261121.log"),
    ("%Y/%m/%d/app.log", "2026/11/21/app.log"),
    # A day's file is named after its beginning, however fine the pattern is.
    ("app-%H%M%S.log", "app-000000.log"),
    ("app-%F-%j-%a.log", "app-2026-11-21-325-Sat.log"),
    ("100%%-%y", "100%-26"),
    ("app-%v", "app-21-Nov-2026"),
]
BAD_OUTPUTS = ["", "a/", "../x", "a/../../x", "%Y/..", "a\nb", "a%", "a-%L", "a-%n", "/"]


@pytest.fixture(params=["UTC", "Asia/Kolkata", "America/New_York"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A machine's time zone: fshipper's days are local ones."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(("root", "partitions", "host", "subject"), SUBJECTS)
def test_subjects(root: str, partitions: int, host: str, subject: str) -> None:
    """`<subject>.p<N>.<host>`, the host's dots as they are."""
    assert Subjects(root, partitions).of_host(host) == subject


@pytest.mark.parametrize(("line", "payload"), PAYLOADS)
def test_payloads(line: bytes, payload: bytes) -> None:
    """The bytes of the line without its newline, whatever they are."""
    id = SourceId(host="h", source="/a.log", format="plain")
    builder = MessageBuilder(
        id, subject="s.p0.h", installation="i", cluster="c", is_compressing=True, is_line=True
    )
    chunk = Chunk(
        generation="0" * 16, start=0, end=len(line), data=line, lines=1, first_time_ns=0,
        last_time_ns=0, previous=None, checksums=Checksums.around(line, NOTHING),
        starts_inside_line=False, ends_inside_line=False,
    )  # fmt: skip

    assert builder.build(Piece(chunk, "", resend=False)).payload == payload


@pytest.mark.parametrize(("root", "subject", "payload", "host", "written"), MESSAGES)
def test_messages(root: str, subject: bytes, payload: bytes, host: str, written: bytes) -> None:
    """The host is what follows the partition; the reader adds the newline."""
    intake = Intake(root, bytes_max=10_000)

    intake.take(RawMessage(subject, b"", b"", payload))

    assert intake.give() == {host: written}


@pytest.mark.parametrize(("output", "name"), OUTPUTS)
def test_names_of_files(zone: str, output: str, name: str) -> None:
    """A new file begins with each local day; without a percent sign the day is appended."""
    now_s = time.mktime((2026, 11, 21, 15, 4, 5, 0, 0, -1))
    late_s = time.mktime((2026, 11, 21, 23, 59, 59, 0, 0, -1))
    next_s = time.mktime((2026, 11, 22, 0, 0, 0, 0, 0, -1))
    pattern = Pattern.of(output)

    assert pattern.name(midnight(now_s)) == name
    assert pattern.name(midnight(late_s)) == name
    is_dateless = output in ("app-%H%M%S.log", "100%%-%y")
    assert (pattern.name(midnight(next_s)) == name) == is_dateless


@pytest.mark.parametrize("output", BAD_OUTPUTS)
def test_patterns_that_are_refused(output: str) -> None:
    """None leaves the host's folder, and none fails only when the first line comes."""
    with pytest.raises(BadOutput, match="SHIPPER_OUTPUT"):
        Pattern.of(output)


@pytest.mark.parametrize(
    ("output", "old", "others"),
    [
        ("app.log", "app.log-202611010000", ["app.log", "other.log-202611010000"]),
        ("app-%Y%m%d.log", "app-20261101.log", ["app-.log", "xapp-20261101.log", "app-1.log.gz"]),
    ],
)
def test_which_files_are_older_ones(output: str, old: str, others: list[str]) -> None:
    """Those that the pattern names, and no other file in the folder."""
    (name,) = Pattern.of(output).parts()

    assert name.fullmatch(old)
    assert not any(name.fullmatch(other) for other in others)
