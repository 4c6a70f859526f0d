"""A command that is ended is ended with all that it started, before its batch is tried again."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from pathlib import Path

import pytest

from components.consuming import HOSTS, streams_on
from logpipeline.consuming.message import Outcome
from logpipeline.embedded import EmbeddedServer
from logpipeline_cli.commands import consume
from logpipeline_cli.commands.consume import Command
from waiting import eventually

# A child that SIGTERM does not end, and that is not waited for.
STUBBORN = '(trap \'\' TERM; exec sleep 600) & echo $! > "$DIR/child"; touch "$DIR/begun"; '
SHORT_S = 0.3
WORK_S = 60.0


async def ran(text: str, folder: Path, *, timeout_s: float) -> Outcome:
    """What became of a batch by the command *text*, run in *folder*."""
    command = Command(text=text, timeout_s=timeout_s)
    with closing(command.keeper):
        return await command.run(b"", {"DIR": str(folder)})


def lives(folder: Path) -> bool:
    """Whether the child that a command in *folder* started is there."""
    try:
        os.kill(int((folder / "child").read_text()), 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("wait", "did not end in"),
        ("trap '' TERM; while :; do sleep 1; done", "did not end in"),
        ("exit 75", "asks for another try"),
        ("kill -9 $$", "ended by SIGKILL"),
        ("exit 3", "ended with 3"),
    ],
)
async def test_nothing_of_a_command_that_failed_works_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rest: str, said: str
) -> None:
    """Whatever ended it: another try, or message by message, works on the same."""
    monkeypatch.setattr(consume, "GRACE_S", SHORT_S)
    outcome = await ran(
        STUBBORN + rest, tmp_path, timeout_s=SHORT_S if "did not" in said else WORK_S
    )

    assert said in outcome.reason
    # One that was ended is there until its new parent takes notice.
    await eventually(lambda: not lives(tmp_path))


async def test_a_child_has_time_to_finish_after_a_timeout(tmp_path: Path) -> None:
    """Though its shell ended at once."""
    done = """trap 'touch "$DIR/finished"; exit' TERM; touch "$DIR/begun"; """
    outcome = await ran(f"({done} while :; do sleep 0.1; done) & wait", tmp_path, timeout_s=SHORT_S)

    assert "did not end in" in outcome.reason
    assert (tmp_path / "begun").exists() == (tmp_path / "finished").exists()


async def test_what_a_command_leaves_behind_in_success_stays(tmp_path: Path) -> None:
    """It is the user's, and the batch is done."""
    outcome = await ran(STUBBORN + "exit 0", tmp_path, timeout_s=WORK_S)
    child = int((tmp_path / "child").read_text())

    assert outcome.kind == "processed"
    assert lives(tmp_path)
    os.kill(child, signal.SIGKILL)


async def test_a_reader_that_is_killed_takes_all_with_it(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Not its shell only: the next reader hands out the same batch."""
    async with streams_on(nats_server, tmp_path / "pipeline") as streams:
        await streams.send(HOSTS[0])
        reading = streams.read("own", "--exec", STUBBORN + "wait", DIR=str(tmp_path))
        await eventually((tmp_path / "begun").exists)
        assert lives(tmp_path)
        os.kill(reading.process.pid, signal.SIGKILL)

        await eventually(lambda: not lives(tmp_path))
