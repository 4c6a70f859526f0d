"""A reader's file is its own, whole, and of its consumer; anything else is named and left alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from logpipeline.consuming import ordered
from logpipeline.consuming.options import ReaderBusy, StateForeign
from logpipeline.consuming.ordered import KIND, VERSION, StateFile
from logpipeline.consuming.records import ReadProgress
from logpipeline.records import StreamPosition
from logpipeline.statefile import write_state

CREATED = "2026-11-21T10:00:00Z"


def progress(sequence: int, working: int = 0) -> ReadProgress:
    """ReadProgress up to *sequence*."""
    return ReadProgress(StreamPosition(CREATED, sequence, sequence * 1000), working)


def test_what_was_put_is_there_at_the_next_start(tmp_path: Path) -> None:
    """Of each stream; of others nothing is known."""
    first = StateFile(tmp_path / "state", "billing")
    first.put("LOGS_0", progress(5))
    first.put("LOGS_1", progress(7, working=9))
    first.put("LOGS_0", progress(6))
    first.close()
    second = StateFile(tmp_path / "state", "billing")

    assert second.get("LOGS_0") == progress(6)
    assert second.get("LOGS_1") == progress(7, working=9)
    assert second.get("LOGS_2") is None
    assert sorted(second.streams) == ["LOGS_0", "LOGS_1"]
    second.close()


def test_a_file_is_not_given_up_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next reader would read the former state, and lose what is written then."""
    is_writing, may_write = Event(), Event()

    def write(*_: object) -> None:
        is_writing.set()
        may_write.wait()

    monkeypatch.setattr(ordered, "write_state", write)
    file = StateFile(tmp_path / "state", "billing")
    with ThreadPoolExecutor() as threads:
        writing = threads.submit(file.put, "LOGS_0", progress(5))
        is_writing.wait()
        closing = threads.submit(file.close)
        try:
            with pytest.raises(TimeoutError):
                closing.result(timeout=0.2)
        finally:
            may_write.set()
        writing.result()
        closing.result()


def test_a_file_is_one_readers_at_a_time(tmp_path: Path) -> None:
    """The second one is told; once the first has ended it may."""
    path = tmp_path / "state"
    first = StateFile(path, "billing")
    with pytest.raises(ReaderBusy, match="give each reader a file of its own"):
        StateFile(path, "billing")
    first.put("LOGS_0", progress(1))
    first.close()

    StateFile(path, "billing").close()


def test_a_file_of_another_consumer_is_refused(tmp_path: Path) -> None:
    """And is not locked afterwards."""
    path = tmp_path / "state"
    first = StateFile(path, "billing")
    first.put("LOGS_0", progress(1))
    first.close()
    with pytest.raises(StateForeign, match="is the state of consumer billing, not of mailer"):
        StateFile(path, "mailer")

    StateFile(path, "billing").close()


def damaged(path: Path) -> None:
    """Cut its end off."""
    path.write_bytes(path.read_bytes()[:-3])


def emptied(path: Path) -> None:
    """As a power cut may leave what was not synced."""
    path.write_bytes(b"")


def of_another_kind(path: Path) -> None:
    """Another state of ours."""
    write_state(path, "logpipeline-shipper", 1, {})


def of_a_later_version(path: Path) -> None:
    """That a newer program wrote."""
    write_state(path, KIND, VERSION + 1, {})


def without_streams(path: Path) -> None:
    """Well-formed, and not what it should be."""
    write_state(path, KIND, VERSION, {"consumer": "billing"})


def with_odd_streams(path: Path) -> None:
    """A stream without a position."""
    write_state(path, KIND, VERSION, {"consumer": "billing", "streams": {"LOGS_0": 5}})


@pytest.mark.parametrize(
    "spoil",
    [damaged, emptied, of_another_kind, of_a_later_version, without_streams, with_odd_streams],
)
def test_what_cannot_be_read_is_refused_and_left_alone(tmp_path: Path, spoil: object) -> None:
    """Begun anew by itself, it would have everything processed twice."""
    path = tmp_path / "state"
    first = StateFile(path, "billing")
    first.put("LOGS_0", progress(1))
    first.close()
    spoil(path)  # type: ignore[operator]
    before = path.read_bytes()
    with pytest.raises(StateForeign, match="cannot be read as a state"):
        StateFile(path, "billing")

    assert path.read_bytes() == before


def test_partitions_that_write_side_by_side_lose_nothing(tmp_path: Path) -> None:
    """Each of them has its last position in the file."""
    state = StateFile(tmp_path / "state", "billing")

    def write(number: int) -> None:
        for sequence in range(1, 21):
            state.put(f"LOGS_{number}", progress(sequence))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(8)))
    state.close()
    again = StateFile(tmp_path / "state", "billing")

    assert [again.get(f"LOGS_{number}") for number in range(8)] == [progress(20)] * 8
    again.close()


def test_a_file_that_cannot_be_written_keeps_what_it_had(tmp_path: Path) -> None:
    """The folder is gone: the reader is told, and remembers no more than the file does."""
    folder = tmp_path / "folder"
    folder.mkdir()
    state = StateFile(folder / "state", "billing")
    state.put("LOGS_0", progress(1))
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="No such file"):
        state.put("LOGS_0", progress(2))

    assert state.get("LOGS_0") == progress(1)
    state.close()
