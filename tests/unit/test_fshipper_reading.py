"""What a reader in fshipper's way does with lines and files when something is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from logpipeline.nats.session import RawMessage
from logpipeline.wire import Batch, encode_headers
from logpipeline_collector.fshipper import service
from logpipeline_collector.fshipper.config import Pattern, midnight
from logpipeline_collector.fshipper.files import DayFiles
from logpipeline_collector.fshipper.service import Intake

NOON_S = 1_795_262_400.0  # 2026-11-21 12:00:00 UTC
DAY_S = 24 * 3600.0
OUTPUT = "app.log"
OPEN_FILES_MAX = 4


def message(data: bytes, *, host: str = "h", reply: str = "", headers: bytes = b"") -> RawMessage:
    return RawMessage(f"s.p0.{host}".encode(), reply.encode(), headers, data)


def delivery(number: int, *, consumer: str = "S.c") -> str:
    return f"$JS.ACK.{consumer}.1.{number + 100}.{number}.1700000000000000000.0"


def files(folder: Path) -> DayFiles:
    return DayFiles(folder, Pattern.of(OUTPUT), open_files_max=OPEN_FILES_MAX)


def name(time_s: float) -> str:
    return Pattern.of(OUTPUT).name(midnight(time_s))


def test_what_does_not_fit_into_memory_is_dropped_and_counted() -> None:
    """The reader never grows without bounds, and the count is exact."""
    intake = Intake("s", bytes_max=1000)

    for _ in range(100):
        intake.take(message(b"x" * 79))

    assert intake.size <= 1000
    assert intake.lines + intake.dropped == 100
    assert intake.give() == {"h": (b"x" * 79 + b"\n") * intake.lines}
    assert intake.size == 0


def test_what_the_server_sent_in_vain_is_counted() -> None:
    """A consumer numbers its deliveries; one that was made anew begins at 1 and missed nothing."""
    intake = Intake("s", bytes_max=10_000)
    for number in (5, 6, 9, 10, 1, 2):
        intake.take(message(b"x", reply=delivery(number)))
    intake.take(message(b"x", reply=delivery(40, consumer="T.c")))
    intake.take(message(b"x", reply="$JS.ACK.forged"))

    assert intake.undelivered == 2
    assert intake.lines == 8


def test_a_consumer_that_asks_whether_we_listen_is_answered() -> None:
    """Flow control wants a word, an idle heartbeat none; neither is a line."""
    intake = Intake("s", bytes_max=10_000)
    asks = message(b"", reply="$JS.FC.x", headers=b"NATS/1.0 100 FlowControl Request\r\n\r\n")
    idle = message(b"", headers=b"NATS/1.0 100 Idle Heartbeat\r\n\r\n")

    assert intake.take(asks) == b"$JS.FC.x"
    assert intake.take(idle) is None
    assert intake.give() == {}


def test_a_batch_of_ours_is_written_as_its_lines() -> None:
    """Whoever points the reader at a pipeline's usual messages gets lines, and not their frame."""
    batch = Batch(source="/a", generation="0" * 16, start=0, end=4, lines=2, format="plain")
    fields = "".join(f"{key}: {value}\r\n" for key, value in encode_headers(batch, "id").items())
    intake = Intake("s", bytes_max=10_000)

    intake.take(message(b"a\nb\n", headers=f"NATS/1.0\r\n{fields}\r\n".encode()))

    assert intake.give() == {"h": b"a\nb\n"}


def test_what_names_bytes_as_lost_has_no_line() -> None:
    """Not even an empty one."""
    batch = Batch(
        source="/a", generation="0" * 16, start=0, end=9, lines=0, format="plain", lost="expired"
    )
    block = "".join(f"{key}: {value}\r\n" for key, value in encode_headers(batch, "id").items())
    intake = Intake("s", bytes_max=1000)
    intake.take(message(b"", headers=f"NATS/1.0\r\n{block}\r\n".encode()))

    assert b"".join(intake.give().values()) == b""


def test_hosts_beyond_the_limit_are_refused_for_a_day_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nodes come and go under new names; those of former days take no place."""
    monkeypatch.setattr(service, "HOSTS_MAX", 2)
    now_s = [NOON_S]
    intake = Intake("s", bytes_max=10_000, clock=lambda: now_s[0])
    for host in ("a", "b", "c", "a"):
        intake.take(message(b"x", host=host))
    assert set(intake.give()) == {"a", "b"}
    assert intake.refused == {"too-many-hosts": 1}

    now_s[0] += DAY_S
    intake.take(message(b"x", host="c"))
    assert set(intake.give()) == {"c"}


def test_a_line_that_was_torn_is_not_continued(tmp_path: Path) -> None:
    """After a power cut the next line begins on a line of its own."""
    (tmp_path / "h").mkdir()
    (tmp_path / "h" / name(NOON_S)).write_bytes(b"whole\nto")
    out = files(tmp_path)

    out.append("h", b"next\n", NOON_S)
    out.close()

    assert (tmp_path / "h" / name(NOON_S)).read_bytes() == b"whole\nto\nnext\n"


def test_many_hosts_share_few_descriptors(tmp_path: Path) -> None:
    """Each host's lines are in its file, and no more files are open than may be, beside the folder
    itself.
    """
    before = len(os.listdir("/proc/self/fd"))
    out = files(tmp_path)

    for turn in range(3):
        for host in range(100):
            out.append(f"h{host}", b"%d\n" % turn, NOON_S)
    is_open = len(os.listdir("/proc/self/fd")) - before
    out.sync()
    out.close()

    assert is_open <= OPEN_FILES_MAX + 1
    assert len(os.listdir("/proc/self/fd")) == before
    for host in range(100):
        assert (tmp_path / f"h{host}" / name(NOON_S)).read_bytes() == b"0\n1\n2\n"


def test_a_day_later_another_file_is_begun_and_files_of_a_week_ago_go(tmp_path: Path) -> None:
    """Only those of our names in the folders of hosts that we write to."""
    out = files(tmp_path)
    out.append("h", b"first\n", NOON_S)
    old = ["app.log-202611010000", "app.log-202611020000"]
    kept = ["app.log", "other.log-202611010000", "app.log-202611200000"]
    for entry in (*old, *kept):
        (tmp_path / "h" / entry).write_text("x\n")
        is_old = entry != "app.log-202611200000"
        os.utime(tmp_path / "h" / entry, (0, NOON_S - (8 * DAY_S if is_old else DAY_S)))
    (tmp_path / "h" / "app.log-link").symlink_to("/etc/passwd")
    os.utime(tmp_path / "h" / "app.log-link", (0, 0), follow_symlinks=False)
    os.utime(tmp_path / "h" / name(NOON_S), (0, NOON_S))

    out.append("h", b"second\n", NOON_S + DAY_S)
    out.close()

    found = {path.name for path in (tmp_path / "h").iterdir()}
    assert found == {*kept, "app.log-link", name(NOON_S), name(NOON_S + DAY_S)}
    assert out.removed == 2


def test_no_link_is_followed(tmp_path: Path) -> None:
    """Whoever may write into the folder cannot lead us out of it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "root"
    (root / "file").mkdir(parents=True)
    (root / "host").symlink_to(outside)
    (root / "file" / name(NOON_S)).symlink_to(outside / "target")
    out = files(root)

    for host in ("host", "file"):
        with pytest.raises(OSError, match=r"not a folder|not a regular file|Too many"):
            out.append(host, b"evil\n", NOON_S)

    assert list(outside.iterdir()) == []
