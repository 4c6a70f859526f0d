"""What `logpipeline receive journald` says of entries that were gone before it read them."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from components.journal import JOURNAL_REMOTE, Journal
from components.receiving import Receiver
from logpipeline.observe.metrics import Metrics
from logpipeline_cli.receiving import journal as journals
from logpipeline_cli.receiving import service
from logpipeline_cli.receiving.committer import Committer
from logpipeline_cli.receiving.service import ReceiverConfig
from logpipeline_cli.receiving.spool import Spool, SpoolFull
from waiting import eventually

# A journalctl whose journal is a file: a row is an entry, with its sequence's id, its number in it,
# its unit, and whether the journal still has it. Entries that it no longer has are printed to none
# but, as *read*, to who follows since before they were removed.
FAKE = """\
#!{python}
import json, sys, time
def cursor(entry):
    return "s=%032x;i=%x;b=1" % (entry["s"], entry["i"])
words = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
follows, units, said = "--follow" in sys.argv, words.get("--unit"), 0
while True:
    rows = [json.loads(row) for row in open({journal!r}).read().split("\\n")[:-1]]
    at = 0
    if "--cursor" in words:
        found = [n for n, row in enumerate(rows) if cursor(row) == words["--cursor"]]
        at = found[0] if found else 0
    states = ("kept", "read") if follows else ("kept",)
    wanted = [row for row in rows[at:] if row["state"] in states]
    wanted = [row for row in wanted if units is None or row["unit"] == units]
    if not follows:
        wanted = wanted[:1]
    for row in wanted[said:]:
        entry = {{"__CURSOR": cursor(row), "MESSAGE": "%x %x" % (row["s"], row["i"])}}
        print(json.dumps(entry), flush=True)
    said = len(wanted)
    if not follows:
        break
    time.sleep(0.05)
"""


class FakeJournal:
    """The journal of a fake journalctl in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "entries"
        folder.mkdir()
        self.file.touch()
        program = folder / "journalctl"
        program.write_text(FAKE.format(python=sys.executable, journal=str(self.file)))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def write(self, *numbers: int, sequence: int = 1, state: str = "kept", unit: str = "a") -> None:
        """Add entries of these numbers."""
        rows = [{"s": sequence, "i": each, "state": state, "unit": unit} for each in numbers]
        with self.file.open("a") as file:
            file.write("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.fixture
def journal(tmp_path: Path) -> FakeJournal:
    """An empty journal, whose journalctl is the first on the path."""
    return FakeJournal(tmp_path / "bin")


@pytest.fixture
def receiver(tmp_path: Path, journal: FakeJournal) -> Iterator[Receiver]:
    """A receiver of that journal."""
    made = Receiver(tmp_path, "journald")
    made.environment["PATH"] = f"{journal.folder}:{os.environ['PATH']}"
    yield made
    made.kill()


async def read(receiver: Receiver, count: int) -> list[str]:
    """Return the messages once there are *count* of them."""
    await eventually(lambda: len(receiver.lines()) >= count, what=f"{count} entries")
    return [json.loads(line)["MESSAGE"] for line in receiver.lines()]


async def gaps(receiver: Receiver) -> tuple[float, float]:
    """Return how many gaps were found, and how many entries are known to be lost in them."""
    found = await receiver.metrics()
    return found["journal_gaps_total"], found["journal_missing_total"]


async def test_entries_that_go_while_journalctl_follows_are_counted(
    journal: FakeJournal, receiver: Receiver
) -> None:
    """It goes on with what there is, without a word: the numbers tell."""
    journal.write(*range(1, 11), state="read")
    journal.write(*range(11, 21), state="gone")
    journal.write(*range(21, 31))
    receiver.start()

    assert len(await read(receiver, 20)) == 20
    assert await gaps(receiver) == (1, 10)
    assert "no longer holds" in receiver.log_tail()


async def test_entries_that_are_not_for_this_user_are_no_gap(
    journal: FakeJournal, receiver: Receiver
) -> None:
    """A journal has files for users, which have sequences of their own and share its numbers; of
    some it cannot read the entries.
    """
    journal.write(1, 2)
    journal.write(3, 4, sequence=2)
    journal.write(5, 9)
    receiver.start()

    assert len(await read(receiver, 6)) == 6
    assert await gaps(receiver) == (0, 0)


async def test_a_gap_while_the_receiver_was_away_is_counted(
    journal: FakeJournal, receiver: Receiver
) -> None:
    """And those that followed are there once."""
    journal.write(*range(1, 4))
    receiver.start()
    await read(receiver, 3)
    assert await receiver.stop() == 0
    journal.file.unlink()
    journal.write(*range(1, 6), state="gone")
    journal.write(6, 7)
    receiver.start()

    assert await read(receiver, 5) == [f"1 {number}" for number in (1, 2, 3, 6, 7)]
    assert await gaps(receiver) == (1, 2)


@pytest.mark.parametrize("before", [("--unit=b",), ()])
async def test_another_unit_is_followed_from_the_position_on(
    journal: FakeJournal, receiver: Receiver, before: tuple[str, ...]
) -> None:
    """The entry of the position is another unit's, and still there: nothing is lost."""
    journal.write(1, 3, unit="a")
    journal.write(4, unit="b")
    former = receiver.words
    receiver.words = [*former, *before]
    receiver.start()
    first = await read(receiver, 1 if before else 3)
    assert await receiver.stop() == 0
    receiver.words = [*former, "--unit=a"]
    receiver.start()
    journal.write(5, unit="b")
    journal.write(6, unit="a")

    assert await read(receiver, len(first) + 1) == [*first, "1 6"]
    assert await gaps(receiver) == (0, 0)


@pytest.mark.skipif(
    not (shutil.which("journalctl") and Path(JOURNAL_REMOTE).exists()),
    reason="journalctl or systemd-journal-remote is missing (tests/faults/packages.txt)",
)
async def test_a_file_that_is_removed_while_the_disk_is_full_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real journalctl reads no more of it than it has begun with."""
    written = Journal(tmp_path / "journal")
    written.write(6000)
    first = written.rotate(500)
    commit, has_room = Spool.commit, asyncio.Event()

    def full(spool: Spool, *given: Any) -> None:
        if not has_room.is_set():
            raise SpoolFull("full")
        commit(spool, *given)

    small = functools.partial(Committer, waiting_bytes_max=100_000)
    monkeypatch.setattr(service, "Committer", small)
    monkeypatch.setattr(Spool, "commit", full)
    stop, made = asyncio.Event(), list[Metrics]()
    config = ReceiverConfig(
        folder=tmp_path / "received",
        http=("127.0.0.1", 0),
        waits=True,
        rotate_bytes=1 << 26,
        keep=3,
    )

    def make(metrics: Metrics) -> journals.Journal:
        made.append(metrics)
        options = (f"--directory={written.folder}",)
        return journals.Journal(journals.JournalConfig(options=options), metrics)

    running = asyncio.create_task(service.run(config, make, stop))
    await eventually(
        lambda: bool(made) and (made[0].value("waiting_bytes") or 0) > 100_000, what="it waits"
    )
    first.unlink()
    has_room.set()
    file = config.folder / "journal.log"
    last = f'"MESSAGE":"{written.written[-1]}"'
    await eventually(lambda: file.exists() and last in file.read_text(), what="the last entry")
    stop.set()
    await running

    received = len(file.read_text().splitlines())
    assert 500 < received < len(written.written)
    assert made[0].value("journal_gaps_total") == 1
    assert made[0].value("journal_missing_total") == len(written.written) - received
