"""What docs/consuming.md tells people to type does what it says. Programs that have a sample are
played with its use case; here are the others, and what ties the page to the samples.
"""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import logpipeline
from components.consuming import HOSTS, Reading, Streams, in_order, streams_on
from components.consuming_page import (
    PAGE,
    PROGRAM,
    README,
    Section,
    other_programs,
    section,
    sections,
)
from components.pipeline_up import PipelineUp
from components.use_cases import FOLDER
from logpipeline.consuming.message import Batch
from logpipeline.consuming.options import BadOption, StateForeign
from logpipeline.embedded import EmbeddedServer
from logpipeline.failpoints import VARIABLE
from logpipeline.layout import Layout
from waiting import WITHIN_S, eventually

SECTIONS = sections()
OWN_DATABASE = next(found for found in SECTIONS if "database" in found.title)
PUSH = {"name": "fshipper", "type": "push", "deliverSubject": "out.logs", "ackPolicy": "none"}


@pytest.fixture
async def streams(nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Streams]:
    """Three streams with lines, and a consumer that pushes."""
    async with streams_on(nats_server, tmp_path / "pipeline", consumers=[PUSH]) as made:
        await made.write(20)
        yield made


def play(streams: Streams, program: str, point: str = "") -> Reading:
    """Run a *program* of the page beside the resource; with *point* it dies there."""
    (streams.folder / PROGRAM).write_text(program)
    return streams.start([sys.executable, PROGRAM], **{VARIABLE: point})


@pytest.mark.parametrize("found", SECTIONS, ids=lambda found: found.title)
def test_each_use_case_is_shown_three_times(found: Section) -> None:
    """As a command, from Python, and by the nats CLI; each Python is a whole program."""
    assert {language: len(each) for language, each in found.snippets.items()} == {
        "sh": 1,
        "python": 1,
        "sh nats": 1,
    }
    assert "nats " in found.snippets["sh nats"][0]
    assert found.program.startswith("import asyncio\n")
    assert found.program.endswith(("asyncio.run(main())\n", "    pass\n"))


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.iterdir()))
def test_a_command_is_its_samples_own(name: str) -> None:
    """Word for word, so that it is tested there."""
    script = (FOLDER / name / "run.sh").read_text().splitlines()
    there = [line.removeprefix("exec ") for line in script]
    shown = section(name).snippets["sh"][0].splitlines()

    assert [line for line in shown if line not in there] == []


def test_each_section_has_a_sample() -> None:
    """But for the one that a command cannot show; and no sample is there twice."""
    named = [found.sample for found in SECTIONS if found is not OWN_DATABASE]

    assert all(named)
    assert len(set(named)) == len(named)


@pytest.mark.parametrize(
    ("sample", "times"),
    [("push-for-fshipper", 1), ("line-per-message", 1), ("audit-mode", 1), ("redundant-groups", 2)],
)
async def test_programs_read_what_was_written(streams: Streams, sample: str, times: int) -> None:
    """Each line, whoever wrote it, and by each of two readers; in order."""
    reading = play(streams, section(sample).program)
    await reading.until(times * len(streams.written))
    found = [line.split()[-2:] for line in reading.lines]

    assert sorted(found) == sorted(line.split() for line in streams.written * times)
    if times == 1:
        assert in_order([" ".join(words) for words in found])


@pytest.mark.parametrize("is_whole", [True, False])
async def test_results_and_position_of_a_database_are_one(streams: Streams, is_whole: bool) -> None:
    """A reader that dies when a batch is in the database, and the server does not know: no row is
    lost, and none is there twice. Without the position one would be.
    """
    program = OWN_DATABASE.program
    if not is_whole:
        assert "positions=kept, " in program
        program = program.replace("positions=kept, ", "")
    for number in (3, 2):
        await play(streams, program, f"consume.processed:{number}").ends(-9)
        await streams.write(3)
    play(streams, program)
    await eventually(lambda: {*rows(streams)} == {*streams.written})

    assert (len(rows(streams)) == len(streams.written)) == is_whole
    assert in_order(rows(streams)) == is_whole


async def test_programs_beside_the_use_cases_read_what_is_there(streams: Streams) -> None:
    """With asyncio, where each line is printed, and without it; and they end by themselves."""
    with_asyncio, without, traces, times = other_programs(PAGE)
    reading = play(streams, with_asyncio)
    await reading.ends(0)
    *lines, read, left = reading.lines

    assert len(lines) == len(streams.written)
    assert read == f"read: {len(lines)} messages of partitions (0, 1, 2)"
    assert left == "left: 0"
    reading = play(streams, without)
    await reading.ends(0)
    assert reading.lines == ["30 lines"]
    trace = "ERROR failed\njava.io.IOException: no\n\tat a.B.c(B.java:1)"
    await streams.store(HOSTS[0], 10_000, f"{trace}\nfine\n".encode())
    reading = play(streams, traces)
    await reading.ends(0)
    assert "\n".join(reading.lines) == f"{HOSTS[0]} {trace}"
    await streams.store(HOSTS[0], 20_000, b"2020-11-20 09:00:00 hot\n")
    reading = play(streams, times)
    await reading.ends(0)
    assert "2020-11-20 09:00:00+00:00 b'2020-11-20 09:00:00 hot'" in reading.lines


async def test_the_program_of_the_readme_finds_the_running_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it stands there, beside `logpipeline up`; the second time nothing is left to read."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NATS_URL", raising=False)
    (program,) = other_programs(README)
    up = PipelineUp(tmp_path, partitions=1)
    up.layout = Layout(tmp_path / "home/logpipeline/default.test")
    async with up:
        up.append(["one", "two"])
        await up.arrived(["one", "two"])
        first, second = [await run(program) for _ in range(2)]

    assert [line.split()[-1] for line in first.splitlines()] == ["one", "two"]
    assert second == ""


async def run(program: str) -> str:
    """Return what *program* prints, which ends well."""
    command = (sys.executable, "-c", program)
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_positions_of_a_stream_that_was_made_anew_are_refused(streams: Streams) -> None:
    """The same number is another message there: nothing is skipped for it."""
    kept = await read_all(streams, len(streams.written))
    await streams.js.call("STREAM.DELETE.LOGS_1")
    streams.run("apply")
    await streams.write(40)

    with pytest.raises(StateForeign, match=r"LOGS_1 was made anew .* without positions"):
        await read_all(streams, 10_000, kept)


async def test_positions_of_a_stranger_are_refused(streams: Streams) -> None:
    """A misspelt stream would be read from its beginning."""
    kept = await read_all(streams, len(streams.written))

    with pytest.raises(BadOption, match="LOG_1 is not a stream of pipeline reading"):
        await read_all(streams, 1, {"LOG_1": kept["LOGS_1"]})


async def test_what_was_said_to_be_processed_is_though_the_loop_ends_there(
    streams: Streams,
) -> None:
    """And what was not, comes again."""
    seen = [await first_batch(streams, is_done=is_done) for is_done in (False, True, False)]

    assert seen[0].id == seen[1].id
    assert (seen[2].stream, seen[2].first) == (seen[1].stream, seen[1].last + 1)


async def test_the_state_of_another_pipeline_is_refused(streams: Streams) -> None:
    """Begun anew, it would look as if nothing had been processed."""
    state = streams.folder / "reader.state"
    await streams.read("reader", "--state", str(state), "--until-caught-up").ends(0)
    before = state.read_text()
    streams.file.write_text(streams.file.read_text().replace("name: LOGS", "name: OTHER"))
    log = await streams.read("reader", "--state", str(state)).ends(1)

    assert "is the state of stream LOGS_0, which is none of this pipeline's" in log
    assert state.read_text() == before


async def first_batch(streams: Streams, *, is_done: bool) -> Batch:
    """Take one batch of the first partition, say whether it is processed, and go."""
    batches = logpipeline.consume(
        "reader", pipeline=streams.file, nats=streams.server.url, partitions="0"
    )
    batch: Batch = await anext(batches)
    if is_done:
        batch.processed()
    await batches.aclose()
    return batch


async def read_all(
    streams: Streams, count: int, positions: dict[str, str] | None = None
) -> dict[str, str]:
    """Read so many lines, and return the positions."""
    kept = dict(positions or {})
    batches = logpipeline.consume(
        "reader", pipeline=streams.file, nats=streams.server.url, positions=kept
    )
    async with asyncio.timeout(WITHIN_S):
        async for batch in batches:
            kept[batch.stream] = batch.position
            count -= len(batch.messages)
            if count <= 0:
                break
    await batches.aclose()
    assert len(kept) <= len(HOSTS)
    return kept


def rows(streams: Streams) -> list[str]:
    """The lines in the program's database."""
    with sqlite3.connect(streams.folder / "billing.db") as database:
        found = database.execute("SELECT line FROM lines ORDER BY rowid").fetchall()
    return [line.decode() for (line,) in found]
