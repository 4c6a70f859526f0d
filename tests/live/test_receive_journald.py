"""What `logpipeline receive journald` promises: each entry once, however often it is killed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.journal import JOURNAL_REMOTE, Journal
from components.pipeline_up import PipelineUp
from components.receiving import Receiver
from waiting import eventually

# Where the process dies: between any two steps of a commit, and at no named place.
PLACES = ("receive.written", "receive.logged", "receive.applied", "receive.synced", "")
KILLS = 25

pytestmark = pytest.mark.skipif(
    not (shutil.which("journalctl") and Path(JOURNAL_REMOTE).exists()),
    reason="journalctl or systemd-journal-remote is missing (tests/faults/packages.txt)",
)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """A journal in a folder of its own."""
    made = Journal(tmp_path / "journal")
    yield made
    made.end()


@pytest.fixture
def receiver(tmp_path: Path, journal: Journal) -> Iterator[Receiver]:
    """A receiver of that journal."""
    made = Receiver(tmp_path, "journald", "--directory", str(journal.folder))
    yield made
    made.kill()


def messages(lines: list[str]) -> list[str]:
    """Return the messages of entries."""
    return [json.loads(line)["MESSAGE"] for line in lines]


async def _one_step(journal: Journal, receiver: Receiver) -> None:
    before = len(receiver.lines())
    journal.write(20)
    await eventually(
        lambda: not receiver.is_running or len(receiver.lines()) > before,
        what="entries arrive, or it dies",
    )


async def killed_often(journal: Journal, receiver: Receiver) -> None:
    """Kill *receiver* while entries are written, at each place, and let it finish."""
    for number in range(KILLS):
        place = PLACES[number % len(PLACES)]
        # Sometimes at once, sometimes in a later commit.
        count = 1 if place == "receive.synced" else 1 + number // len(PLACES) % 3
        receiver.start(**({"LOGPIPELINE_FAILPOINT": f"{place}:{count}"} if place else {}))
        for _ in range(count):
            await _one_step(journal, receiver)
        if place == "receive.synced":
            await eventually(lambda: not receiver.is_running, what="it dies")
        receiver.kill()
    receiver.start()
    journal.write(20)
    await eventually(
        lambda: len(receiver.lines()) >= len(journal.written), what="all entries are there"
    )


@pytest.mark.long
async def test_each_entry_is_there_once_after_many_kills(
    journal: Journal, receiver: Receiver
) -> None:
    """None is lost, none twice, and they are in order."""
    await killed_often(journal, receiver)
    assert await receiver.stop() == 0

    assert messages(receiver.lines()) == journal.written
    assert receiver.starts == KILLS + 1


@pytest.mark.long
async def test_each_entry_is_collected_once_after_many_kills(tmp_path: Path) -> None:
    """A shipper reads the files meanwhile: none becomes shorter, which would ship it again."""
    async with PipelineUp(tmp_path / "up") as up:
        journal = Journal(tmp_path / "journal")
        receiver = Receiver(tmp_path / "up", "journald", "--directory", str(journal.folder))
        receiver.received.parent.mkdir(exist_ok=True)
        receiver.words = [
            str(up.logs) if word == str(receiver.received) else word for word in receiver.words
        ]
        receiver.received = up.logs
        try:
            await killed_often(journal, receiver)
            await eventually(
                lambda: len(up.collected("journal.log")) >= len(journal.written),
                what="all entries are collected",
            )
            assert messages(up.collected("journal.log")) == journal.written
        finally:
            receiver.kill()
            journal.end()


async def test_entries_that_the_journal_no_longer_has_are_told(
    journal: Journal, receiver: Receiver
) -> None:
    """The journal was vacuumed while the receiver was away: what is left arrives, and the gap is
    counted; entries of a new boot arrive like all.
    """
    journal.write(10)
    receiver.start()
    await eventually(lambda: len(receiver.lines()) == 10, what="the first entries")
    assert await receiver.stop() == 0
    journal.end()
    shutil.rmtree(journal.folder)
    journal.folder.mkdir()
    journal.begin("b")
    journal.write(10, boot=2)
    receiver.start()
    await eventually(lambda: len(receiver.lines()) == 20, what="the others")

    assert messages(receiver.lines()) == journal.written
    assert (await receiver.metrics())["journal_gaps_total"] == 1
    assert "no longer holds" in receiver.log_tail()


async def test_the_journalctl_of_another_system_reads_its_journal(
    tmp_path: Path, journal: Journal
) -> None:
    """As that of a node in a pod; a folder without one is refused."""
    for name in ("right", "wrong"):
        (tmp_path / name).mkdir()
    wrong = Receiver(tmp_path / "wrong", "journald", "--chroot", str(tmp_path))
    receiver = Receiver(
        tmp_path / "right", "journald", "--chroot", "/", "--directory", str(journal.folder)
    )
    journal.write(10)
    try:
        wrong.start()
        receiver.start()
        await eventually(lambda: len(receiver.lines()) == 10, what="all entries")
        await eventually(lambda: not wrong.is_running, what="a wrong one ends")
    finally:
        wrong.kill()
        receiver.kill()
    assert messages(receiver.lines()) == journal.written
    assert f"not installed in {tmp_path}/usr/bin" in wrong.log_tail()
