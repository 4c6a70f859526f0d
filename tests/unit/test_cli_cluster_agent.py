"""What runs beside a collector's files: it lists them, and sends them by what they are."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.partition_files import PLACE, Writer, opened
from logpipeline_cli import committed
from logpipeline_cli.cluster import remote_agent
from logpipeline_cli.cluster.remote_agent import Kind, StreamCut, read_frame
from logpipeline_cli.file_entries import Entry, in_order
from logpipeline_collector.files.committed import CommittedFile

BLOCK = b"".join(b"line %05d\n" % number for number in range(20_000))


class Collector:
    """A collector's folder with a packed, a rotated and an active file of one place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.partition = opened(folder, rotate_bytes=len(BLOCK), compression="zstd")
        self.writer = Writer(self.partition)
        self.written = b""
        self.append(BLOCK)
        self.upkeep()
        self.append(BLOCK)
        self.partition.sink.rotate(time.time())
        self.append(b"the last\n")

    def append(self, data: bytes) -> None:
        """Commit *data*, and leave more behind it that is not committed."""
        self.writer.take(data)
        self.writer.commit()
        self.written += data

    def upkeep(self) -> None:
        """Rotate and pack what is due."""
        self.partition.sink.maintain(time.time())
        self.partition.sink.maintain(time.time())


@pytest.fixture
def collector(tmp_path: Path) -> Collector:
    """A collector, and its files."""
    return Collector(tmp_path / "c-0")


def asked(folder: Path, **more: Any) -> bytes:
    """What is answered to a request."""
    request = {"folders": {"c-0": str(folder)}, "group": "main", **more}
    answer = io.BytesIO()
    remote_agent.main(io.BytesIO(json.dumps(request).encode() + b"\n"), answer)
    return answer.getvalue()


def listed(folder: Path, **more: Any) -> list[Entry]:
    """The files that are listed, in order."""
    *rows, last = map(json.loads, asked(folder, **more).splitlines())
    assert last == {"done": True}
    return in_order(map(Entry.decode, rows))


def sent(folder: Path, pieces: list[list[Any]]) -> list[bytes | None]:
    """The contents that are sent, None for one that is gone."""
    stream = io.BytesIO(asked(folder, pieces=pieces))
    contents: list[bytes | None] = []
    data = b""
    while True:
        kind, more = read_frame(stream)
        if kind is Kind.DONE:
            with pytest.raises(StreamCut):
                read_frame(stream)
            return contents
        assert kind is not Kind.FAILED, more
        if kind is Kind.DATA:
            data += more
        else:
            contents.append(None if kind is Kind.LOST else data)
            data = b""


def test_files_are_listed_and_sent_oldest_first(collector: Collector) -> None:
    """Packed, rotated and active ones, and together they are what was committed."""
    files = listed(collector.folder)

    assert [(f.is_rotated, f.is_compressed) for f in files] == [
        (True, True), (True, False), (False, False),
    ]  # fmt: skip
    assert {f.place for f in files} == {PLACE}
    contents = sent(collector.folder, [[*f.key, 0] for f in files])
    assert b"".join(c or b"" for c in contents) == collector.written


@pytest.mark.parametrize("offset", [1, 65536, 65537, len(BLOCK)])
def test_sending_goes_on_from_any_byte(collector: Collector, offset: int) -> None:
    """A stream that broke off is taken up where it ended, in packed files too."""
    packed, rotated, _ = listed(collector.folder)

    pieces = [[*packed.key, offset], [*rotated.key, offset]]
    assert sent(collector.folder, pieces) == [BLOCK[offset:], BLOCK[offset:]]


def test_a_file_is_found_under_the_name_that_it_has_by_now(collector: Collector) -> None:
    """Between the list and the sending it may be rotated and packed: it is the same file."""
    *_, active = listed(collector.folder)
    collector.append(BLOCK)
    collector.upkeep()
    collector.append(b"of the next file\n")

    assert sent(collector.folder, [[*active.key, 0]]) == [b"the last\n" + BLOCK]


def test_a_file_that_rotates_while_it_is_opened_is_not_mixed_up(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is another file's by then: nothing of that one is sent in its place."""
    *_, active = listed(collector.folder)
    collector.append(BLOCK)
    real: Callable[..., Any] = remote_agent._open
    opened_before: list[Entry] = []

    def slow(entry: Entry, stack: Any) -> Any:
        if not opened_before:
            collector.upkeep()
            collector.append(b"of the next file\n")
        opened_before.append(entry)
        return real(entry, stack)

    monkeypatch.setattr(remote_agent, "_open", slow)

    assert sent(collector.folder, [[*active.key, 0]]) == [b"the last\n" + BLOCK]


def test_a_removed_file_is_told_and_the_others_come(collector: Collector) -> None:
    """Retention removes files while others are read."""
    packed, _, active = listed(collector.folder)
    gone = [*packed.key[:3], packed.begun_ns + 1]

    assert sent(collector.folder, [[*gone, 0], [*active.key, 0]]) == [None, b"the last\n"]


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("number", [1, 2], ids=["rotated", "active"])
def test_a_file_that_is_gone_or_cut_is_not_passed_for_complete(
    collector: Collector, number: int, is_cut: bool
) -> None:
    """Whether or not it is written still; the others come."""
    found = listed(collector.folder)
    path = Path(found[number].file)
    os.truncate(path, 3) if is_cut else path.unlink()

    others = [0, 3 - number]
    pieces = [[*found[n].key, 0] for n in (number, *others)]
    contents = sent(collector.folder, pieces)

    whole = {0: BLOCK, 1: BLOCK, 2: b"the last\n"}
    assert contents == [None, *(whole[n] for n in others)]


def test_what_is_not_committed_is_never_sent(collector: Collector) -> None:
    """Bytes behind the last commit may be taken back."""
    collector.writer.take(b"not yet\n")
    collector.writer.partition.write(collector.writer.prepare())
    with (collector.folder / "logs" / PLACE).open("ab") as file:
        file.write(b"of nobody\n")
    *_, active = listed(collector.folder)

    [content] = sent(collector.folder, [[*active.key, 0]])
    assert content is not None
    assert b"of nobody" not in content


def test_folders_that_collectors_share_are_found_by_name(
    collector: Collector, tmp_path: Path
) -> None:
    """Those of running collectors, which are read elsewhere, and of strangers are left out."""
    for name in ("p-collector-0", "p-collector-1", "p-collector-x", "q-collector-0"):
        (tmp_path / name).symlink_to(collector.folder)
    shared = {"folder": str(tmp_path), "prefix": "p-collector-", "without": ["p-collector-0"]}

    files = listed(collector.folder, folders={}, shared=shared)

    assert {file.member for file in files} == {"p-collector-1"}


def test_hosts_paths_and_groups_are_chosen_there(collector: Collector) -> None:
    """Lists of all hosts need not travel for one."""
    folder = collector.folder

    assert len(listed(folder, host="h", glob="*/app.log")) == 3
    assert listed(folder, host="other") == []
    assert listed(folder, glob="*/other.log") == []
    assert listed(folder, group="other") == []


def test_a_rotated_file_is_chosen_by_the_name_that_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another file had its place already, so that it was written under another name."""
    name = "h/app-1.log.20261121-100000.000000"
    file = CommittedFile(
        path=Path("/logs") / name, name=name, place="h/app.log", host="h", group="main",
        partition=0, length=1, size=1, begun_ns=1, rotated_ns=2, is_rotated=True,
        is_compressed=False,
    )  # fmt: skip
    monkeypatch.setattr(committed, "read_folder", lambda folder, group: folder)
    monkeypatch.setattr(committed, "settled_files", lambda stored: [(stored[0], file)])

    def chosen(glob: str) -> bool:
        return bool(listed(Path("/"), glob=glob))

    assert chosen("*/app-1.log")
    assert chosen("*/app.log")
    assert chosen(name)
    assert not chosen("*/app-2.log")


def test_a_damaged_state_is_told_and_named(collector: Collector) -> None:
    """In a list as in a stream; neither ends as if it were whole."""
    *_, active = listed(collector.folder)
    [state] = (collector.folder / "state" / "main").glob("*.sqlite")
    collector.partition.close()
    state.write_bytes(b"no database" * 1000)

    *_, last = asked(collector.folder).splitlines()
    kind, why = read_frame(io.BytesIO(asked(collector.folder, pieces=[[*active.key, 0]])))

    assert str(collector.folder) in json.loads(last)["failed"]
    assert kind is Kind.FAILED
    assert b"cannot be read" in why
