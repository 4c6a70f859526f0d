"""What rotators pack is read at any offset, in little memory, up to where it is damaged."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zstandard

from components.log_chain import GRACE_S, HEADER, Folder, append, joined, pack
from logpipeline.codecs import CODECS
from logpipeline_shipper.files.file_identity import Resemblance
from logpipeline_shipper.files.generation import PATIENCE_S
from logpipeline_shipper.files.generations import PACKING_MAX_S
from logpipeline_shipper.files.reader import INPUT_BYTES, PackedReader, PlainReader

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda data: gzip.compress(data, 1),
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
}
BY_ENDING = {codec.suffix.removeprefix("."): codec for codec in CODECS}


@pytest.fixture
def content() -> bytes:
    return b"".join(b"%07d\n" % number for number in range(50_000))


@contextmanager
def reading(folder: Path, ending: str, packed: bytes) -> Iterator[PackedReader]:
    path = folder / f"app.log.{ending}"
    path.write_bytes(packed)
    reader = PackedReader(os.open(path, os.O_RDONLY), BY_ENDING[ending])
    try:
        yield reader
    finally:
        reader.close()


@pytest.mark.parametrize("ending", PACK)
def test_a_packed_file_is_read_at_any_offset(tmp_path: Path, content: bytes, ending: str) -> None:
    """Forwards, backwards, over the end, and across the members of a file."""
    pack = PACK[ending]
    with reading(tmp_path, ending, pack(content[:100_000]) + pack(content[100_000:])) as reader:
        for offset, size in [(0, 10), (99_990, 20), (300_000, 4096), (8, 8), (399_990, 100)]:
            assert reader.read(offset, size) == content[offset : offset + size]
        assert reader.read(500_000, 1) == b""
        assert reader.broken == ""


@pytest.mark.parametrize("ending", PACK)
@pytest.mark.parametrize("damage", ["cut-short", "damaged"])
def test_a_broken_packed_file_is_read_up_to_the_damage(
    tmp_path: Path, content: bytes, ending: str, damage: str
) -> None:
    """What can be unpacked is returned, and the reader says what is wrong with the rest."""
    packed = bytearray(PACK[ending](content))
    if damage == "cut-short":
        del packed[len(packed) // 2 :]
    else:
        packed[-8 if ending == "gz" else len(packed) // 2] ^= 0x55
    with reading(tmp_path, ending, bytes(packed)) as reader:
        data = reader.read(0, 2 * len(content))

        assert reader.broken == f"{BY_ENDING[ending].name}-{damage}"
        # bzip2 tells of a damage only behind the block in which it is.
        assert data == content[: len(data)] or (ending, damage) == ("bz2", "damaged")


@pytest.mark.parametrize("ending", PACK)
def test_unpacking_a_bomb_takes_little_memory(tmp_path: Path, ending: str) -> None:
    """What is skipped is not kept."""
    with reading(tmp_path, ending, PACK[ending](b"\0" * 30_000_000 + b"end\n")) as reader:
        assert reader.read(30_000_000, 100) == b"end\n"
        assert len(reader._buffer) < 10_000_000


@pytest.mark.parametrize("ending", PACK)
def test_a_long_packed_file_is_unpacked_from_many_inputs(tmp_path: Path, ending: str) -> None:
    """Noise does not get shorter by packing."""
    noise = os.urandom(3 * INPUT_BYTES)
    with reading(tmp_path, ending, PACK[ending](noise)) as reader:
        assert reader.read(0, len(noise) + 1) == noise
        assert reader.broken == ""


def test_a_packed_file_that_a_thread_may_be_reading_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of an unknown file is searched elsewhere; its reader has a state for one thread."""
    folder = Folder(tmp_path / "logs")
    pack(folder.live.with_name("app.log.1.gz"), HEADER + b"1\n")
    append(folder.live, HEADER + b"2\n")
    folder.look()
    folder.chain.hold(folder.now_s)
    other = tmp_path / "other"
    other.write_bytes(b"something else\n")
    with monkeypatch.context() as patched:
        patched.setattr(PackedReader, "read", _read_by_two)
        content = PlainReader(os.open(other, os.O_RDONLY))
        found = folder.chain.resemblance(content, folder.now_s)
        content.close()

    assert found is Resemblance.NONE
    assert joined(folder.drain()) == HEADER + b"1\n" + HEADER + b"2\n"


def _read_by_two(reader: PackedReader, offset: int, size: int) -> bytes:
    raise AssertionError("two threads would read one packed file through one reader")


@pytest.mark.parametrize("ending", PACK)
def test_members_that_are_appended_to_a_packed_log_are_read(tmp_path: Path, ending: str) -> None:
    """As nginx (`access_log … gzip`) and `gzip -c >>` write; also by a new process."""
    folder, arrived = Folder(tmp_path), b""
    packed = tmp_path / f"app.log.{ending}"
    for run in range(3):
        append(packed, PACK[ending](b"%d\n" % run))
        arrived += joined(folder.drain())
        folder.chain.close_idle(folder.now_s + 60 * (run == 1))
    saved = folder.chain.saved()
    append(packed, PACK[ending](b"3\n"))
    arrived += joined(Folder(tmp_path, saved=saved).drain())

    assert arrived == b"0\n1\n2\n3\n"
    assert folder.chain.take_losses() == []


@pytest.mark.parametrize("ending", PACK)
def test_what_a_cut_packed_file_lacks_is_told_and_read_if_it_comes(
    tmp_path: Path, ending: str
) -> None:
    """How many bytes it lacks is not known, and not invented."""
    # Noise in its digits: packers write in large blocks.
    lines = b"".join(b"%07d\n" % (number * 7919 % 10**7) for number in range(200_000))
    data = PACK[ending](lines)
    packed = tmp_path / f"app.log.1.{ending}"
    packed.write_bytes(data[: len(data) // 2])
    folder = Folder(tmp_path, batch_bytes=1 << 20, line_bytes=1 << 20)
    append(folder.live, b"next\n")
    arrived = folder.drain()
    [lost] = folder.chain.take_losses()
    assert (lost.start, lost.end - lost.start) == (len(joined(arrived)) - len(b"next\n"), 1)
    assert folder.chain.unseen_generations == 1

    append(packed, data[len(data) // 2 :])
    arrived += folder.drain()
    parts = [chunk.data for chunk in arrived if chunk.generation == lost.generation]
    assert b"".join(parts) == lines


def test_a_cut_packed_file_that_goes_before_its_tries_are_over_is_told(tmp_path: Path) -> None:
    """Its rest was in no other file."""
    packed = tmp_path / "app.log.1.gz"
    data = gzip.compress(os.urandom(9_000).hex().encode() + b"\n" + b"two\n" * 9)
    packed.write_bytes(data[: len(data) // 2])
    folder = Folder(tmp_path)
    append(folder.live, b"next\n")
    folder.read()
    assert folder.chain.failing() == [(packed, "gzip-cut-short")]
    packed.unlink()
    folder.drain()

    [lost] = folder.chain.take_losses()
    assert lost.end - lost.start == 1
    assert folder.chain.unseen_generations == 1


def test_a_packed_file_that_may_not_be_read_and_goes_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that it was seen to hold."""
    packed, lines = tmp_path / "app.log.1.gz", b"".join(b"%05d\n" % n for n in range(2_000))
    packed.write_bytes(gzip.compress(lines))
    folder = Folder(tmp_path)
    append(folder.live, b"next\n")
    folder.look()
    first = folder.chain.read(folder.now_s)
    assert first is not None
    folder.chain.acknowledge(first)

    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as broken:
        broken.setattr(PackedReader, "read", fail)
        folder.read()
        packed.unlink()
        folder.drain()

    [lost] = folder.chain.take_losses()
    assert (lost.start, lost.end) == (first.end, len(lines))


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("share", [0, 0.5, 1])
@pytest.mark.parametrize("ending", PACK)
@pytest.mark.parametrize("name", ["app.log17.tmp", "logs/app.2026-11-20.log8123456789.tmp"])
def test_a_log_that_is_packed_slowly_from_another_name_is_read_once(
    tmp_path: Path, ending: str, share: float, name: str, is_restarted: bool
) -> None:
    """As logback does it, in the log's folder; in another one nothing shows the file meanwhile.
    *share* of it was read before.
    """
    folder = Folder(tmp_path / "logs")
    lines, place = _noise_and_place(share)
    append(folder.live, lines[:place])
    arrived = folder.drain()
    append(folder.live, lines[place:])
    if is_restarted:
        folder.restart()
    hidden = folder.live.rename(tmp_path / name)
    append(folder.live, b"next\n")
    data, packed = PACK[ending](lines), folder.live.with_name(f"app.2026-11-20.log.{ending}")
    for end in (0, 10, len(data) // 2, len(data) - 5, len(data)):
        packed.write_bytes(data[:0]) if not end else append(packed, data[_size(packed) : end])
        folder.now_s += GRACE_S
        arrived += folder.read()
    hidden.unlink()

    assert joined(arrived + folder.drain()) == lines + b"next\n"
    assert folder.chain.take_losses() == []
    assert folder.chain.unseen_generations == 0


@pytest.mark.parametrize("is_ending", [False, True])
def test_a_packed_file_whose_end_does_not_come_is_read_at_last(
    tmp_path: Path, is_ending: bool
) -> None:
    """Its packer was killed, or is killed with all that runs in this container."""
    folder = Folder(tmp_path / "logs")
    lines, place = _noise_and_place(0.5)
    append(folder.live, lines)
    folder.drain()
    folder.live.rename(tmp_path / "elsewhere")
    data = gzip.compress(lines)
    packed = folder.live.with_name("app.log.1.gz")
    packed.write_bytes(data[: len(data) // 2])
    folder.restart()
    assert folder.read() == []
    if is_ending:
        folder.chain.end()
    else:
        folder.now_s += PATIENCE_S
    arrived = joined(folder.drain())

    assert len(arrived) > place // 2
    assert lines.startswith(arrived)
    assert folder.chain.unseen_generations > 0


@pytest.mark.parametrize("mebibytes", [0, 2])
def test_a_large_packed_file_that_lacks_its_end_is_looked_at_in_a_thread(
    tmp_path: Path, mebibytes: int
) -> None:
    """At each further look, too: all of it is unpacked again."""
    folder = Folder(tmp_path / "logs", batch_bytes=1 << 20)
    lines = _noise_and_place(1)[0] + os.urandom(mebibytes << 20).hex().encode() + b"\n"
    append(folder.live, lines)
    folder.drain()
    folder.live.unlink()
    folder.drain()
    data = gzip.compress(lines)
    folder.live.with_name("app.log.1.gz").write_bytes(data[: len(data) * 2 // 3])

    assert folder.read() == []
    assert folder.chain.takes_long() is bool(mebibytes)


def test_a_packed_file_that_begins_otherwise_is_not_waited_for(tmp_path: Path) -> None:
    """Its first bytes show that it is no copy of the log whose file is gone."""
    folder = Folder(tmp_path / "logs")
    append(folder.live, _noise_and_place(1)[0])
    folder.drain()
    folder.live.unlink()
    lines, _ = _noise_and_place(1)
    data = gzip.compress(lines)
    folder.live.with_name("app.log.1.gz").write_bytes(data[: len(data) // 2])

    assert lines.startswith(joined(folder.read()) or b"nothing")


def test_a_log_that_is_written_packed_is_not_waited_for_as_for_a_copy(tmp_path: Path) -> None:
    """It lacks its end all day, and begins like the log before it, whose file is gone."""
    folder = Folder(tmp_path / "logs")
    banner = os.urandom(1024).hex().encode() + b"\n"
    append(folder.live, banner + b"1\n" * 30_000)
    folder.drain()
    folder.live.unlink()
    folder.drain()
    stream = zlib.compressobj(wbits=31)
    packed = folder.live.with_name("app.log.1.gz")
    append(packed, stream.compress(banner) + stream.flush(zlib.Z_SYNC_FLUSH))
    arrived, began_s = b"", folder.now_s
    while not arrived and folder.now_s < began_s + 2 * PACKING_MAX_S:
        append(packed, stream.compress(b"2\n") + stream.flush(zlib.Z_SYNC_FLUSH))
        folder.now_s += PATIENCE_S / 2
        arrived = joined(folder.read())

    assert arrived.startswith(banner)
    assert folder.now_s - began_s <= PACKING_MAX_S + PATIENCE_S


def _noise_and_place(share: float) -> tuple[bytes, int]:
    """Return lines that do not get much shorter by packing, and the end of so many of them."""
    lines = [os.urandom(40).hex().encode() + b"\n" for _ in range(400)]
    return b"".join(lines), len(b"".join(lines[: int(share * len(lines))]))


def _size(path: Path) -> int:
    return path.stat().st_size
