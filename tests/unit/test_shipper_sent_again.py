"""What the server lost is sent again exactly as it was sent, whatever part of it is missing, and
without holding up the rest of the shipper.
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.log_chain import GRACE_S, Folder, append, joined
from components.shared_parts import Server, shared_by
from logpipeline.checksum import extend
from logpipeline.redaction import Redactor
from logpipeline_shipper.account import REMOVED, Gap
from logpipeline_shipper.checkpoint import SourceRecord
from logpipeline_shipper.files import reader, sent_again
from logpipeline_shipper.files.chain import Chunk
from logpipeline_shipper.files.open_file import NotNow
from logpipeline_shipper.message import MessageBuilder
from logpipeline_shipper.source import Source

SECRETS = Redactor(["secret"])
SECRET = b"password=hunter2-and-more"


def check_again(folder: Folder, sent: list[Chunk], start: int, end: int) -> None:
    """Fail unless the bytes from *start* to *end* are read as they are in *sent*, their
    generation's chunks.
    """
    again = folder.again(sent[0].generation, start, end)

    first = sent[0].start
    assert joined(again) == joined(sent)[start - first : end - first]
    before = extend(sent[0].checksums.before, joined(sent)[: start - first])
    for part in again:
        assert part.checksums.before == before
        assert part.checksums.after == (before := extend(before, part.data))


@pytest.mark.parametrize("cri", [False, True])
def test_a_line_that_is_longer_than_a_batch_stays_masked(tmp_path: Path, cri: bool) -> None:
    """It was one message; what lies where the batch size ends is found in the whole line alone."""
    folder = Folder(tmp_path, cri=cri, redactor=SECRETS, batch_bytes=4096, line_bytes=8192)
    head = b"2026-11-21T10:00:00.000000001Z stdout " if cri else b""
    tag, rest = (b"P ", head + b"F ") if cri else (b"", b"")
    cut = 4096 - len(head + tag) - 8
    line = head + tag + b"x" * cut + b" " + SECRET[:12] + (b"\n" if cri else b"")
    append(folder.live, line + rest + SECRET[12:] + b"y" * 1500 + b"\n")
    sent = folder.drain()
    assert SECRET[9:12] not in joined(sent)

    check_again(folder, sent, 0, sent[-1].end)


def test_no_part_of_a_line_shows_what_is_masked(tmp_path: Path) -> None:
    """Also where a collector asks for exactly the bytes of a secret."""
    folder = Folder(tmp_path, redactor=SECRETS)
    append(folder.live, b"one\n" + b"user=ann " + SECRET + b" ok\n")
    sent = folder.drain()
    end = sent[-1].end

    for start in range(end):
        for stop in range(start + 1, end + 1):
            check_again(folder, sent, start, stop)


CRI = b"2026-11-21T10:00:00.%09dZ std%s %s %s\n"
LENGTHS = st.sampled_from([0, 5, 40, 90, 130, 300])
TEXTS = st.builds(lambda a, b: b"x" * a + b" " + SECRET + b" " + b"y" * b, LENGTHS, LENGTHS)
FRAGMENTS = st.tuples(st.sampled_from([b"out", b"err"]), st.sampled_from(b"PF"), TEXTS)


@given(
    lines=st.lists(TEXTS, min_size=1, max_size=8),
    fragments=st.one_of(st.none(), st.lists(FRAGMENTS, min_size=1, max_size=8)),
    is_ended=st.booleans(),
    drawn=st.data(),
)
def test_any_range_is_read_again_as_it_was_sent(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[bytes],
    fragments: list[tuple[bytes, int, bytes]] | None,
    is_ended: bool,
    drawn: st.DataObject,
) -> None:
    """Also of lines beyond the limit, which are sent in parts, and of fragments of lines."""
    cri = fragments is not None
    folder = Folder(
        tmp_path_factory.mktemp("logs"), cri=cri, redactor=SECRETS, batch_bytes=100, line_bytes=250
    )
    rows = lines
    if fragments is not None:
        rows = [CRI[:-1] % (at, *each[:1], bytes([each[1]]), each[2]) for at, each in
                enumerate(fragments)]  # fmt: skip
    append(folder.live, b"\n".join(rows) + (b"\n" if is_ended or cri else b""))
    sent = folder.read()
    folder.chain.end()
    sent += folder.drain()
    end = sent[-1].end

    start = drawn.draw(st.integers(0, end - 1))
    check_again(folder, sent, start, drawn.draw(st.integers(start + 1, end)))
    folder.chain.release()


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of all pieces that are unpacked."""
    sizes: list[int] = []
    step = reader.PackedReader._step

    def counted(self: reader.PackedReader) -> bool:
        before = len(self._buffer)
        may_go_on = step(self)
        sizes.append(len(self._buffer) - before)
        return may_go_on

    monkeypatch.setattr(reader.PackedReader, "_step", counted)
    return sizes


def packed_folder(path: Path, size: int) -> tuple[Folder, list[Chunk]]:
    """A log of *size* bytes that was sent, rotated and packed, and what was sent of it."""
    folder = Folder(path, batch_bytes=64 * 1024, line_bytes=128 * 1024)
    line = b"%07d a line of a log that says something or other\n"
    append(folder.live, b"".join(line % number for number in range(size // len(line % 0))))
    sent = folder.drain()
    data = folder.live.read_bytes()
    folder.live.unlink()
    folder.live.write_bytes(b"")
    path.joinpath("app.log.1.gz").write_bytes(gzip.compress(data))
    for _ in range(2):
        folder.now_s += GRACE_S
        folder.read()
    return folder, sent


def test_a_packed_file_is_unpacked_once_for_all_that_is_owed_of_it(
    tmp_path: Path, unpacked: list[int]
) -> None:
    """And once more at the beginning, to see that it is the same file still."""
    folder, sent = packed_folder(tmp_path, 1_500_000)
    end = sent[-1].end
    unpacked.clear()

    for start in range(0, end, end // 5):
        check_again(folder, sent, start, min(start + 100_000, end))
    folder.chain.end_again()

    assert end <= sum(unpacked) < 2.2 * end


def test_what_comes_before_is_read_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two of them other sources are read, and a shipper that is stopped ends."""
    folder, sent = packed_folder(tmp_path, 1_000_000)
    monkeypatch.setattr(sent_again, "STEP_BYTES", 100_000)
    end = sent[-1].end

    asked = [
        folder.chain.read_again(sent[0].generation, 0, end - 1, folder.now_s) for _ in range(5)
    ]

    assert not any(isinstance(each, Chunk) for each in asked)
    check_again(folder, sent, end - 10, end)


def test_a_packed_file_that_is_written_to_is_looked_at_again(tmp_path: Path) -> None:
    """What was seen of it before says nothing about what it holds now."""
    folder, sent = packed_folder(tmp_path, 400_000)
    packed = tmp_path / "app.log.1.gz"
    generation, end = sent[0].generation, sent[-1].end
    assert joined(folder.again(generation, 0, 100)) == joined(sent)[:100]

    with packed.open("r+b") as file:
        file.write(gzip.compress(b"another\n" * 60_000))
        file.truncate()

    with pytest.raises(NotNow):
        folder.again(generation, end - 100, end)


async def test_a_debt_is_read_beside_the_event_loop(tmp_path: Path) -> None:
    """Probes, pings and other sources wait for nothing, however large the file is."""
    folder = Folder(tmp_path)
    append(folder.live, b"one\ntwo\n")
    (chunk,) = folder.read()
    server = Server()
    shared = shared_by(server, tmp_path, lambda: folder.now_s)
    record = SourceRecord(saved=folder.chain.saved())
    record.account.acknowledged(chunk.generation, (0, 8), sequence=1, now_s=0.0)
    builder = MessageBuilder(
        folder.chain.id, subject="logs", installation="i", cluster="", is_compressing=False
    )
    source = Source(folder.chain.id, folder.chain, builder, shared, record, is_in_doubt=False)
    threads = _noted(folder.chain, "read_again")

    source.owe(Gap(chunk.generation, 4, 8, REMOVED))
    await source.finish()
    shared.threads.shutdown()

    assert server.payloads == [b"two\n"]
    assert not source.has_debts
    assert threads
    assert threading.get_ident() not in threads


def _noted(owner: Any, name: str) -> list[int]:
    """Return the list of the threads in which the method *name* of *owner* runs from now on."""
    threads: list[int] = []
    method: Callable[..., Any] = getattr(owner, name)

    def noted(*args: Any) -> Any:
        threads.append(threading.get_ident())
        return method(*args)

    setattr(owner, name, noted)
    return threads
