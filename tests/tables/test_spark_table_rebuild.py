"""A state that is lost is made anew: the job goes on with each line once, and what cannot be known
is said.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logpipeline.spans import outside
from logpipeline_spark.errors import Damaged, Refused
from logpipeline_spark.formats import delta as delta_module
from logpipeline_spark.formats.log import Change, Overtaken
from logpipeline_spark.job import knowledge
from logpipeline_spark.job import rebuild as rebuild_module
from logpipeline_spark.job.rebuild import Plan, Rebuild
from logpipeline_spark.source.offsets import Position
from logpipeline_spark.table import state as state_module
from logpipeline_spark.table import writer as table_module
from logpipeline_spark.table.counts import MINUTES
from logpipeline_spark.table.files import ROLLUP_MINUTE
from logpipeline_spark.table.scan import files, tables
from logpipeline_spark.table.state import States
from logpipeline_spark.table.upkeep import Limits
from logpipeline_spark.table.writer import PATIENCE_S, Held
from tables.erased import FORMATS, Lake
from tables.fed import (
    CREATED,
    Job,
    Play,
    Sent,
    head_of,
    lose_state,
    spans_of,
    states,
)
from tables.made import BEGIN, STREAM, upkeep

OVER = BEGIN + timedelta(days=1)
# The state beside a log is the same, whatever that is.
ANY_FORMAT = pytest.mark.parametrize("lake", ["delta"], indirect=True)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(params=sorted(FORMATS))
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return FORMATS[request.param](tmp_path)


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def job(lake: Lake, sent: Sent) -> Job:
    """A job that has committed lines of two files, some sent again in the end."""
    job = Job(lake)
    job.take(sent, sent.lines("one", "two"), sent.lines("aside", source="/b"))
    job.take(sent, sent.lines("three", ""), sent.lines("é\x00"))
    # No line of these is new: the last messages of the stream have no row.
    assert job.take(sent, sent.again(), sent.again("/b")) == 0
    return job


def planned(lake: Lake) -> Plan:
    """Plan, and expect that there is something to do."""
    plan = Rebuild(lake.storage, lake.new_logs()).plan()
    assert plan is not None
    return plan


def rebuilt(lake: Lake) -> Plan:
    """Make the state anew, without waiting."""
    rebuild = Rebuild(lake.storage, lake.new_logs())
    plan = rebuild.plan()
    assert plan is not None
    rebuild.carry_out(plan, wait=lambda seconds: None)
    return plan


def texts(lake: Lake) -> list[str]:
    """Return the text of all lines."""
    return sorted(row["line"] for row in lake.rows())


def is_subset(made: Job, truth: Job) -> bool:
    """Return whether *made* knows no byte that *truth* does not."""
    true = spans_of(truth.known)
    return all(
        not outside(span, true.get(name, []))
        for name, spans in spans_of(made.known).items()
        for span in spans
    )


def test_a_state_that_is_there_is_left_alone(lake: Lake, job: Job) -> None:
    """Also that of a table to which no batch came yet."""
    assert Rebuild(lake.storage, lake.new_logs()).plan() is None


def test_where_there_is_no_table_it_says_so(lake: Lake) -> None:
    """And makes none."""
    with pytest.raises(Refused, match="There is no table"):
        Rebuild(lake.storage, lake.new_logs()).plan()
    assert not Path(lake.storage.url).exists()


def test_without_any_state_a_job_goes_on_where_it_was(lake: Lake, sent: Sent, job: Job) -> None:
    """At the very position, behind messages without rows; what is sent again comes once, what is
    new comes, and counts as well.
    """
    job.table.close()
    lose_state(lake)
    with pytest.raises(Damaged, match="logpipeline table rebuild"):
        lake.open()

    plan = rebuilt(lake)
    after = Job(lake)

    assert head_of(after.state.position) == head_of(job.state.position)
    assert after.table.state.cover == job.table.state.cover
    former, state = job.table.state, after.table.state
    assert (state.batches, state.lines) == (former.batches, former.lines)
    assert is_subset(after, job)
    assert not plan.is_exact
    assert after.take(sent, sent.again(), sent.again("/b")) == 0
    assert after.take(sent, sent.lines("four"), sent.lines("more", source="/b")) == 2
    assert after.take(sent, sent.again(), sent.again("/b")) == 0
    expected = ["one", "two", "three", "", "é\x00", "aside", "four", "more"]
    assert texts(lake) == sorted(expected)
    assert counted(lake) == len(expected)
    assert lake.problems == ()


def counted(lake: Lake) -> int:
    """Return how many lines counts say."""
    logs = lake.new_logs()
    found = tables(lake.storage, files(logs, area=ROLLUP_MINUTE), MINUTES)
    return sum(sum(table["lines"].to_pylist()) for table in found)


def flip(path: Path) -> None:
    """Change a bit in the midst."""
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


@ANY_FORMAT
@pytest.mark.parametrize("damage", [Path.unlink, flip], ids=["gone", "flipped"])
@pytest.mark.parametrize("number", range(5))
def test_each_object_of_a_state_may_be_lost(
    lake: Lake, sent: Sent, job: Job, damage: Callable[[Path], None], number: int
) -> None:
    """Of begin, whole, two differences and end: where others hold all of it, nothing is lost."""
    job.table.close()
    paths = states(lake)
    assert len(paths) == 5
    damage(paths[number])
    if number == 0:
        # Nothing goes back to that: it was before the first batch.
        assert Rebuild(lake.storage, lake.new_logs()).plan() is None
        return

    plan = rebuilt(lake)
    after = Job(lake)

    assert plan.is_exact == (number == 4)
    assert not plan.is_exact or after.known == job.known
    assert head_of(after.state.position) == head_of(job.state.position)
    assert after.table.state.cover == job.table.state.cover
    assert is_subset(after, job)
    assert after.take(sent, sent.again(), sent.lines("four"), sent.again("/b")) == 1
    assert Counter(texts(lake)) == Counter(["one", "two", "three", "", "é\x00", "aside", "four"])
    assert lake.problems == ()


@ANY_FORMAT
def test_the_state_before_the_last_batch_helps(lake: Lake, sent: Sent, job: Job) -> None:
    """Of what it knows and no row proves, nothing is forgotten; the last batch is not believed to
    be missing.
    """
    upkeep(lake.storage, lake.new_logs()).retain(
        OVER + timedelta(days=9), Limits(age=timedelta(days=1))
    )
    assert lake.rows() == []
    job.take(sent, sent.lines("last"))
    states(lake)[-1].unlink()

    rebuilt(lake)
    after = Job(lake)

    assert head_of(after.state.position) == head_of(job.state.position)
    assert is_subset(after, job)
    assert after.take(sent, sent.again(), sent.again("/b")) == 0
    assert texts(lake) == ["last"]


@ANY_FORMAT
def test_what_no_batch_committed_is_not_believed(lake: Lake, sent: Sent, job: Job) -> None:
    """A writer that was overtaken left a state that knows more: its lines are still to come."""
    successor = Job(lake)
    message = sent.lines("new")
    with pytest.raises(Overtaken):
        job.take(sent, message)
    assert states(lake)[-1].name.startswith(f"{successor.table.state.transaction:020d}")
    states(lake)[-1].unlink()

    rebuilt(lake)
    after = Job(lake)

    assert head_of(after.state.position) == head_of(successor.state.position)
    assert is_subset(after, successor)
    assert after.take(sent, message) == 1
    assert lake.problems == ()


def test_a_job_that_commits_meanwhile_is_left_alone(lake: Lake, sent: Sent, job: Job) -> None:
    """While it is waited for, or later: it knows more than could be made anew."""
    lose_state(lake)
    rebuild = Rebuild(lake.storage, lake.new_logs())
    plan = rebuild.plan()
    assert plan is not None
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        job.take(sent, sent.lines("beside"))

    with pytest.raises(Held, match="stop it, and try again"):
        rebuild.carry_out(plan, wait=wait)

    assert waited == [PATIENCE_S]
    job.take(sent, sent.lines("beside too"))
    assert texts(lake)[1:3] == ["aside", "beside"]


def test_a_job_that_commits_at_the_last_moment_keeps_the_table(
    lake: Lake, sent: Sent, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the last look: the log takes one of both."""
    lose_state(lake)
    rebuild = Rebuild(lake.storage, lake.new_logs())
    plan = rebuild.plan()
    assert plan is not None
    save = States.save

    def saved(self: States, *arguments: object) -> object:
        monkeypatch.setattr(States, "save", save)
        job.take(sent, sent.lines("beside"))
        return save(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(States, "save", saved)
    with pytest.raises(Held, match="stop it, and try again"):
        rebuild.carry_out(plan, wait=lambda seconds: None)

    job.take(sent, sent.lines("beside too"))
    lose_state(lake)
    rebuilt(lake)
    assert head_of(Job(lake).state.position) == head_of(job.state.position)


def test_a_silent_job_cannot_commit_afterwards(lake: Lake, sent: Sent, job: Job) -> None:
    """There are no two truths: what it had begun is read again by its successor, once."""
    lose_state(lake)
    rebuilt(lake)
    message = sent.lines("new")

    with pytest.raises(Overtaken):
        job.take(sent, message)

    assert Job(lake).take(sent, message) == 1
    assert texts(lake).count("new") == 1
    assert lake.problems == ()


class Killed(BaseException):
    """What a process sees of its end."""


@ANY_FORMAT
def test_killed_before_it_is_committed_it_can_be_done_again(
    lake: Lake, sent: Sent, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was changed until then."""
    lose_state(lake)

    def killed(*arguments: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(table_module.TableWriter, "_commit_alone", killed)
        with pytest.raises(Killed):
            rebuilt(lake)
    with pytest.raises(Damaged):
        lake.open()

    rebuilt(lake)

    after = Job(lake)
    assert head_of(after.state.position) == head_of(job.state.position)
    assert after.take(sent, sent.again(), sent.lines("four")) == 1


@ANY_FORMAT
def test_counts_that_a_crash_kept_from_a_lost_state_are_named(
    lake: Lake, sent: Sent, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are missing, and none is there twice; a crash that kept none says nothing of them."""
    counts = counted(lake)

    def killed(*arguments: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(table_module.TableWriter, "_count", killed)
        with pytest.raises(Killed):
            job.take(sent, sent.lines("uncounted"))
    lose_state(lake)

    plan = rebuilt(lake)

    assert [note[:20] for note in plan.notes if "lacks the counts" in note] == [
        "rollup/minute lacks ",
        "rollup/source lacks ",
    ]
    after = Job(lake)
    assert counted(lake) == counts
    after.take(sent, sent.lines("counted"))
    assert counted(lake) == counts + 1
    lose_state(lake)
    assert not any("lacks" in note for note in rebuilt(lake).notes)


def test_what_retention_removed_is_not_read_again(lake: Lake, sent: Sent, job: Job) -> None:
    """Of a stream that has no row any more: the log says how far it was read. Its sources are
    forgotten, and that is said.
    """
    upkeep(lake.storage, lake.new_logs()).retain(
        OVER + timedelta(days=9), Limits(age=timedelta(days=1))
    )
    upkeep(lake.storage, lake.new_logs()).compact(OVER)
    lose_state(lake)

    plan = rebuilt(lake)

    after = Job(lake)
    assert head_of(after.state.position) == head_of(job.state.position)
    assert after.known == {}
    assert any("retention or an erasure removed" in note for note in plan.notes)
    assert after.take(sent, sent.lines("four")) == 1
    assert lake.problems == ()


@ANY_FORMAT
def test_lives_of_a_stream_keep_their_order(lake: Lake, sent: Sent, job: Job) -> None:
    """The last one is gone on with, and the former one does not come back."""
    for rollbacks in (9, 10):
        later = Sent(rollbacks=rollbacks, sequence=3, content=sent.content)
        job.take(later, later.lines("again"))
    job.table.close()
    lose_state(lake)

    rebuilt(lake)

    after = Job(lake)
    assert head_of(after.state.position) == head_of(job.state.position)
    assert [each.incarnation[-3:] for each in after.table.state.cover.read[STREAM]] == [
        each.incarnation[-3:] for each in job.table.state.cover.read[STREAM]
    ]
    after.take(later, later.lines("more"))
    assert lake.problems == ()


@pytest.mark.parametrize(
    ("name", "value"), [("_logged", lambda state: {}), ("LOGGED_STREAMS_MAX", 0)]
)
def test_where_the_log_was_not_told_rows_and_names_tell(
    tmp_path: Path, sent: Sent, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    """By a former version, or of too many streams: it is read on behind the last message that a
    file's name holds, and what cannot be known is said.
    """
    monkeypatch.setattr(table_module, name, value)
    lake = FORMATS["delta"](tmp_path)
    job = Job(lake)
    # The second message has no row, but its file's name tells of it.
    job.take(sent, sent.lines("one"), sent.again())
    job.take(sent, sent.again())
    job.table.close()
    lose_state(lake)

    plan = rebuilt(lake)

    position = Job(lake).state.position
    assert position == Position(
        created=CREATED, rollbacks=0, sequence=2, time_ns=0, after=2, message_bytes=1
    )
    assert any("does not say how far streams were read" in note for note in plan.notes)
    # The position says where, and nothing else: the message behind it is read again.
    after = Job(lake)
    assert after.take(sent, sent.again()._replace(sequence=3)) == 0
    assert texts(lake) == ["one"]


@pytest.mark.parametrize("slept", [timedelta(), timedelta(days=2)])
def test_the_log_keeps_what_it_was_told_while_no_batch_comes(
    tmp_path: Path, sent: Sent, monkeypatch: pytest.MonkeyPatch, slept: timedelta
) -> None:
    """A checkpoint does not hold it: so commits stay until a batch comes, also where the clean-up
    *slept* since it was begun.
    """
    monkeypatch.setattr(delta_module, "CHECKPOINT_EVERY", 4)
    lake = FORMATS["delta"](tmp_path)
    job = Job(lake)
    job.take(sent, sent.lines("one"))
    job.take(sent, sent.lines("two"))
    upkeep(lake.storage, lake.new_logs()).compact(OVER)
    upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))
    for path in (Path(lake.storage.url) / "lines" / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        actions[0]["commitInfo"]["timestamp"] -= 48 * 3_600_000
        path.write_text("".join(f"{json.dumps(each)}\n" for each in actions))
    lake.age(hours=48)
    # The next checkpoint comes with another version.
    log = lake.new_logs()["lines"]
    log.transaction()
    log.commit(Change(operation="OPTIMIZE"))

    upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC) - slept)

    checkpoints = (Path(lake.storage.url) / "lines" / "_delta_log").glob("*.checkpoint.parquet")
    assert len(list(checkpoints)) == 2
    assert lake.new_logs()["lines"].state()["heads"] == job.table.state.heads


@ANY_FORMAT
def test_a_file_of_lines_that_is_damaged_is_named(lake: Lake, job: Job) -> None:
    """Nothing is made of half of a table."""
    lose_state(lake)
    entry = lake.new_logs()["lines"].files()[0]
    (Path(lake.storage.url) / entry.path).unlink()

    with pytest.raises(Damaged, match=entry.path):
        planned(lake)


@ANY_FORMAT
@pytest.mark.parametrize("log_format", ["plain", "cri"])
def test_a_line_that_goes_on_is_not_taken_for_read(lake: Lake, sent: Sent, log_format: str) -> None:
    """A file may end without a newline, and be written on: what a row does not hold is not
    claimed.
    """
    job = Job(lake)
    data = b"begun" if log_format == "plain" else b"x stdout F begun"
    job.take(sent, sent.message(sent.append(data), log_format=log_format))
    lose_state(lake)
    rebuilt(lake)
    after = Job(lake)

    rest = sent.message(sent.append(b"and ended\n"), resend=True, log_format=log_format)

    assert is_subset(after, job)
    assert after.take(sent, rest) == 1
    assert texts(lake) == ["and ended", "begun"]


@ANY_FORMAT
@pytest.mark.parametrize(
    ("log_format", "shortest"),
    [("plain", b"\n"), ("cri", b"2026-11-21T10:00:00Z stdout F \n")],
)
def test_the_shortest_line_that_is_missing_may_still_come(
    lake: Lake, sent: Sent, log_format: str, shortest: bytes
) -> None:
    """Messages that follow each other are known as one span; where a line has room between two of
    them, it is missing.
    """
    job = Job(lake)
    lines = [shortest.replace(b"\n", b"text\n"), shortest, shortest, shortest]
    spans = [sent.append(line) for line in lines]
    first, second, lost, last = spans
    job.take(sent, *(sent.message(each, log_format=log_format) for each in (first, second, last)))
    lose_state(lake)
    rebuilt(lake)
    after = Job(lake)

    [known] = spans_of(after.known).values()
    assert [start for start, _ in known] == [0, last[0]]
    whole = (0, last[1])
    assert after.take(sent, sent.message(whole, resend=True, log_format=log_format)) == 1
    assert [row["offset"] for row in lake.rows()] == [
        each[0] for each in (first, second, last, lost)
    ]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "plain",
                "cri",
                "cri",
                "fragments",
                "bytes",
                "empty",
                "again",
                "again",
                "lost",
                "commit",
            ]
        ),
        st.integers(0, 3),
        st.integers(1, 4),
    ),
    min_size=1,
    max_size=30,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(steps=STEPS, further=STEPS)
def test_whatever_was_sent_each_line_is_there_once(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, int, int]],
    further: list[tuple[str, int, int]],
) -> None:
    """Positions are those that were lost, what is known is a part of what was known, and once all
    was sent again no line is missing and none is there twice.
    """
    lake = FORMATS["delta"](tmp_path_factory.mktemp("lake"))
    play = Play(lake)
    for step in steps:
        play.step(*step)
    play.commit()
    truth = play.job
    lose_state(lake)

    rebuilt(lake)
    play.job = Job(lake)
    assert head_of(play.job.state.position) == head_of(truth.state.position)
    assert play.job.table.state.cover == truth.table.state.cover
    assert is_subset(play.job, truth)
    for step in further:
        play.step(*step)
    play.commit()
    play.send_all_again()

    counts = Counter((row["source"], row["generation"], row["offset"]) for row in lake.rows())
    assert {place: count for place, count in counts.items() if count > 1} == {}
    assert len(counts) == play.number
    assert lake.problems == ()


@ANY_FORMAT
def test_many_sources_make_no_state_that_cannot_be_read(
    lake: Lake, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by a job, nor when its state is made anew."""
    monkeypatch.setattr(state_module, "STATE_BYTES_MAX", 16_000)
    monkeypatch.setattr(state_module, "DIFFERENCES_MAX", 3)
    monkeypatch.setattr(knowledge, "SOURCES_BYTES_MAX", 4_000)
    monkeypatch.setattr(rebuild_module, "EVIDENCE_MAX", 100)
    job = Job(lake)
    for batch in range(10):
        messages = [sent.lines("x", source=f'/{batch}/{number}""') for number in range(20)]
        assert job.take(sent, *messages) == 20

    for is_lost in (False, True):
        if is_lost:
            lose_state(lake)
            rebuilt(lake)
        again = Job(lake)
        sources = [source for _, source in again.known]
        assert 5 < len(sources) < 30
        assert sources[-1] == '/9/19""'


@ANY_FORMAT
def test_a_state_that_its_reader_would_refuse_is_not_committed(
    lake: Lake, job: Job, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table stays as it was."""
    with monkeypatch.context() as small:
        small.setattr(state_module, "STATE_BYTES_MAX", 100)
        with pytest.raises(Refused, match="a state has 100 at most: nothing was committed"):
            job.take(sent, sent.lines("four"))

    assert "four" not in texts(lake)
    assert is_subset(Job(lake), job)
