"""Lines come in the order of their writing, however late they are written to a renamed log."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.log_chain import GRACE_S, HEADER, Folder, append, joined, pack
from logpipeline_shipper.files import tail
from logpipeline_shipper.files.generation import PATIENCE_S, Generation
from logpipeline_shipper.files.listing import ChainFile
from logpipeline_shipper.files.open_file import Unreadable, open_reader
from logpipeline_shipper.files.reader import Reader
from logpipeline_shipper.files.tail import Tail


def passed_over(folder: Folder) -> Path:
    """Have the log renamed, and read as far as it goes for longer than newer lines wait for it;
    return its new path.
    """
    append(folder.live, HEADER + b"1\n")
    folder.drain()
    renamed = folder.live.rename(folder.live.with_name("app.log.1"))
    append(folder.live, b"")
    folder.read()
    folder.now_s += 2 * GRACE_S
    assert folder.read() == []
    return renamed


def test_lines_of_a_renamed_log_that_came_late_are_before_those_that_came_later(
    tmp_path: Path,
) -> None:
    """A rotator took long until the program wrote to the new file: what the old one got since then
    is not in the last listing, nor is what the new one got.
    """
    folder = Folder(tmp_path)
    renamed = passed_over(folder)
    append(renamed, b"2\n")
    append(folder.live, HEADER + b"3\n")

    assert joined(folder.read_on()) == b"2\n" + HEADER + b"3\n"


def test_a_renamed_log_that_grows_for_ever_holds_the_new_one_up_for_one_look(
    tmp_path: Path,
) -> None:
    """Two programs write, one to each: both are read, in turns."""
    folder = Folder(tmp_path)
    renamed = passed_over(folder)
    append(folder.live, HEADER)
    chunks = []
    for number in range(8):
        append(renamed, b"old %d\n" % number)
        append(folder.live, b"new %d\n" % number)
        chunk = folder.chain.read(folder.now_s)
        assert chunk is not None
        folder.chain.acknowledge(chunk)
        chunks.append(chunk)

    assert len({chunk.generation for chunk in chunks[:2]}) == 2
    assert joined(chunks).count(b"new") >= 5


def test_nothing_of_the_new_file_passes_what_is_written_to_the_old_one_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines come to both between a look at the old file and the reading of the new one."""
    folder = Folder(tmp_path)
    renamed = passed_over(folder)
    append(folder.live, HEADER)
    looked = Tail.look_again

    def look_again(self: Tail, generation: Generation, now_s: float) -> bool:
        found = looked(self, generation, now_s)
        if renamed.stat().st_size < len(HEADER + b"1\n2\n"):
            append(renamed, b"2\n")
            append(folder.live, b"3\n")
        return found

    monkeypatch.setattr(Tail, "look_again", look_again)

    assert joined(folder.read_on()) == HEADER + b"2\n" + b"3\n"


def test_what_a_renamed_log_got_is_read_though_the_new_one_is_gone(tmp_path: Path) -> None:
    """It had its turn, and waited for that of the new one, which does not come any more."""
    folder = Folder(tmp_path)
    renamed = passed_over(folder)
    append(folder.live, HEADER)
    append(renamed, b"2\n")
    chunk = folder.chain.read(folder.now_s)
    assert chunk is not None
    folder.chain.acknowledge(chunk)
    append(renamed, b"3\n")
    folder.live.unlink()

    assert b"3\n" in joined(folder.drain())


def test_an_older_file_that_is_found_late_comes_before_one_whose_copy_is_not_decided_on(
    tmp_path: Path,
) -> None:
    """The log was rotated twice between two looks, and was not held open."""
    folder = Folder(tmp_path / "logs")
    one, two, three, four = (b"%d\n" % number * 99 for number in range(4))
    older = {name: folder.live.with_name(f"app.log.{name}") for name in ("1", "2.gz", "3.gz")}
    append(older["1"], one)
    append(folder.live, two)
    (listing,) = folder.discovery.scan()
    pack(older["3.gz"], one)
    older["1"].unlink()
    folder.take(listing).release()
    pack(older["2.gz"], two)
    folder.live.unlink()
    append(older["1"], three)
    append(folder.live, four)

    assert joined(folder.drain()) == one + two + three + four


def test_a_log_that_is_put_aside_before_it_was_seen_comes_before_the_next_one(
    tmp_path: Path,
) -> None:
    """As logrotate's `renamecopy` does it, to a log that was begun since the last look."""
    folder = Folder(tmp_path)
    append(folder.live, HEADER + b"1\n")
    read = folder.drain()
    first, second = (folder.live.with_name(f"app.log.{number}") for number in (2, 1))
    folder.live.rename(first)
    append(folder.live, HEADER + b"2\n3\n")
    aside = folder.live.rename(folder.live.with_name("app.log.tmp"))
    append(folder.live, HEADER + b"4\n")
    read += folder.drain()
    append(second, HEADER + b"2\n")
    read += folder.drain()
    second.write_bytes(aside.read_bytes())
    read += folder.drain()
    aside.unlink()

    assert joined(read + folder.drain()) == b"".join(
        HEADER + lines for lines in (b"1\n", b"2\n3\n", b"4\n")
    )
    assert folder.chain.take_losses() == []


@pytest.mark.parametrize("lines", [b"", b"2\n"])
def test_a_log_that_is_packed_before_it_was_seen_comes_before_the_next_one(
    tmp_path: Path, lines: bytes
) -> None:
    """As logback does it, from a name of its own, to a log that was begun since the last look."""
    folder = Folder(tmp_path)
    append(folder.live, HEADER + b"1\n")
    read = folder.drain()
    aside = folder.live.with_name("app.2026-11-20.log8123456789.tmp")
    folder.live.rename(folder.live.with_name("app.2026-11-19.log"))
    append(folder.live, HEADER + lines)
    folder.live.rename(aside)
    append(folder.live, HEADER + b"3\n")
    read += folder.drain()
    packed = folder.live.with_name("app.2026-11-20.log.gz")
    pack(packed, aside.read_bytes())
    read += folder.drain()
    aside.unlink()

    assert joined(read + folder.drain()) == b"".join(
        HEADER + each for each in (b"1\n", lines, b"3\n")
    )
    assert folder.chain.take_losses() == []


def test_a_temporary_file_that_lies_there_holds_one_new_log_up_for_a_while(tmp_path: Path) -> None:
    """No log was put aside. Only time shows that, once for each such file."""
    folder = Folder(tmp_path)
    append(folder.live.with_name("app.log.tmp"), b"no log\n")
    append(folder.live, b"1\n")
    assert folder.read() == []
    folder.now_s += PATIENCE_S
    assert joined(folder.read()) == b"1\n"
    assert folder.read() == []
    folder.live.rename(folder.live.with_name("app.log.1"))
    append(folder.live, b"2\n")
    folder.read()
    folder.now_s += 2 * GRACE_S

    assert joined(folder.read()) == b"2\n"


def test_a_temporary_file_that_is_younger_than_the_log_holds_nothing_up(tmp_path: Path) -> None:
    """It will be the next log."""
    folder = Folder(tmp_path)
    append(folder.live, b"1\n")
    append(folder.live.with_name("app.log.tmp"), b"2\n")

    assert joined(folder.read()) == b"1\n"


def test_a_log_that_can_never_be_read_uses_up_no_patience_with_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them is for ever another user's; another one, later, for a moment."""
    folder = Folder(tmp_path)
    second, first = (folder.live.with_name(f"app.log.{number}") for number in (2, 1))
    locked = {second, first}

    def open_allowed(file: ChainFile, *, follow_link: bool) -> Reader:
        if file.path in locked:
            raise Unreadable("EACCES")
        return open_reader(file, follow_link=follow_link)

    monkeypatch.setattr(tail, "open_reader", open_allowed)
    append(second, b"secret\n")
    append(folder.live, b"1\n")
    assert folder.read() == []
    folder.now_s += PATIENCE_S
    assert joined(folder.read()) == b"1\n"
    append(first, b"2\n")
    append(folder.live, b"3\n")
    assert folder.read() == []
    locked.remove(first)

    assert joined(folder.drain()) == b"2\n3\n"
