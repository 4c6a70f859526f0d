"""What a collector knows of the sources of a partition, as read and as committed."""

from __future__ import annotations

import logging
import zlib

import pytest

from components.source_states import known_after
from logpipeline import zstd
from logpipeline.deduplication import SourceState
from logpipeline.records import Committed, Named, Question, StreamPosition
from logpipeline.source_room import FORGOTTEN
from logpipeline.wire import Batch
from logpipeline_collector import sources as module
from logpipeline_collector.sink import LocalCommit
from logpipeline_collector.sources import (
    COMMITS_LISTED_MAX,
    CONTRADICTED,
    HOLE,
    NAMED_MAX,
    BadSnapshot,
    Sources,
    decode_snapshot,
    encode_snapshot,
)

G, H = "a" * 16, "b" * 16


def batch(source: str, start: int, end: int, generation: str = G, lost: str = "") -> Batch:
    """Return a batch, or the message of a loss."""
    return Batch(
        source=source,
        generation=generation,
        start=start,
        end=end,
        lines=1,
        format="plain",
        lost=lost,
    )


def learn(sources: Sources, host: str, each: Batch) -> None:
    """Take *each* as written."""
    sources.learn(host, each, sources.decide(host, each), sequence=7)


def commit(number: int) -> LocalCommit:
    """Return a commit of this number."""
    return LocalCommit(number, 1, StreamPosition("monday", 1, 1), 0, None)


def test_what_is_read_is_committed_later() -> None:
    """Sums are of what is read, and answers of what is committed."""
    sources = Sources()
    learn(sources, "a", batch("/x", 3, 10))
    learn(sources, "a", batch("/x", 10, 14, lost="rotated"))
    learn(sources, "b", batch("/y", 0, 5))
    before = sources.changed_since(0)
    changed = dict(sources.take_changes())
    sources.commit(1, changed)

    assert (sources.missing_bytes, sources.lost_bytes) == (3, 4)
    assert before == (0, [])
    assert changed == {
        ("a", "/x"): known_after(batch("/x", 3, 10), batch("/x", 10, 14, lost="rotated")),
        ("b", "/y"): known_after(batch("/y", 0, 5)),
    }
    assert sources.committed == changed
    assert sources.take_changes() == {}
    assert list(sources.missing()) == [("a", "/x", 3)]
    assert [(host, source, loss.end) for host, source, loss in sources.losses()] == [
        ("a", "/x", 14)
    ]


def test_bytes_of_a_hole_that_is_filled_are_missing_no_more() -> None:
    """Nor lost, where they had been named so."""
    sources = Sources()
    learn(sources, "a", batch("/x", 3, 10))
    learn(sources, "a", batch("/x", 10, 14, lost="rotated"))
    learn(sources, "a", batch("/x", 0, 12))

    assert (sources.missing_bytes, sources.lost_bytes) == (0, 2)


def test_who_asks_for_changes_gets_those_behind_a_commit() -> None:
    """All of them where it has none, or one of before the start."""
    sources = Sources()
    sources.load({("a", "/old"): known_after(batch("/old", 0, 5))}, commit(10))
    for number, source in ((11, "/x"), (12, "/y"), (13, "/x")):
        learn(sources, "a", batch(source, number, number + 1))
        sources.commit(number, sources.take_changes())

    def names(since: int) -> list[str]:
        last, changed = sources.changed_since(since)
        assert last == 13
        return [committed.source for _, committed in changed]

    assert [names(since) for since in (0, 9)] == [["/old", "/x", "/y"]] * 2
    assert [names(since) for since in (10, 11, 12, 13)] == [["/x", "/y"], ["/y", "/x"], ["/x"], []]


def test_what_is_loaded_is_all_that_is_known() -> None:
    """A commit that was taken back is no change any more, nor is what was read behind it."""
    sources = Sources()
    for number in (11, 12):
        learn(sources, "a", batch("/x", number, number + 1))
        sources.commit(number, sources.take_changes())
    learn(sources, "a", batch("/y", 0, 5))
    sources.load({("a", "/z"): known_after(batch("/z", 0, 5))}, commit(10))

    assert sources.take_changes() == {}
    assert sources.changed_since(10) == (10, [])
    assert [each.source for _, each in sources.changed_since(0)[1]] == ["/z"]


def test_changes_are_listed_of_so_many_commits() -> None:
    """Of older ones, all that is known."""
    sources = Sources()
    sources.load({("a", "/old"): known_after(batch("/old", 0, 5))}, None)
    for number in range(1, COMMITS_LISTED_MAX + 1):
        sources.commit(number, {("a", "/x"): known_after(batch("/x", 0, number))})
    listed = sources.changed_since(1)[1]
    sources.commit(COMMITS_LISTED_MAX + 1, {})
    just, more = sources.changed_since(1)[1], sources.changed_since(2)[1]
    sources.commit(COMMITS_LISTED_MAX + 2, {})
    older = sources.changed_since(1)[1]

    assert [len(found) for found in (listed, just, more, older)] == [1, 1, 1, 2]


def test_what_is_loaded_is_reported_to_whoever_asks_from_before() -> None:
    """Commits of before say nothing of it, however many they were."""
    sources = Sources()
    for number in range(1, COMMITS_LISTED_MAX + 1):
        sources.commit(number, {})
    loaded = {("a", "/x"): known_after(batch("/x", 0, 5))}
    sources.load(loaded, commit(COMMITS_LISTED_MAX))
    sources.commit(COMMITS_LISTED_MAX + 1, {})

    _, found = sources.changed_since(COMMITS_LISTED_MAX - 1)
    assert [(host, each.source) for host, each in found] == [("a", "/x")]


def test_a_source_that_is_forgotten_is_committed_as_gone() -> None:
    """And is in no answer."""
    sources = Sources()
    sources.load(
        {("a", "/x"): known_after(batch("/x", 3, 5)), ("a", "/y"): SourceState()}, commit(4)
    )
    sources.replace({("a", "/z"): known_after(batch("/z", 2, 5))})
    changed = dict(sources.take_changes())
    sources.commit(5, changed)

    assert changed == {
        ("a", "/x"): None,
        ("a", "/y"): None,
        ("a", "/z"): known_after(batch("/z", 2, 5)),
    }
    assert list(sources.committed) == [("a", "/z")]
    assert sources.missing_bytes == 2
    assert [each.source for _, each in sources.changed_since(4)[1]] == ["/z"]


def test_an_answer_names_the_generations_that_are_asked_for() -> None:
    """Or all of the host."""
    sources = Sources()
    for each in (batch("/x", 0, 10), batch("/x", 0, 4, H), batch("/y", 2, 5)):
        learn(sources, "a", each)
    learn(sources, "b", batch("/x", 0, 7))
    sources.commit(1, sources.take_changes())

    def told(question: Question) -> list[tuple[str, str, int]]:
        return [
            (each.source, each.generation, each.offset) for each in sources.asked("a", question)
        ]

    assert told(Question()) == [("/x", G, 10), ("/x", H, 4), ("/y", G, 5)]
    some = Question((Named("/x", H), Named("/y", H), Named("/none", G)))
    assert told(some) == [("/x", H, 4)]


def test_the_sums_of_forgotten_sources_are_no_source() -> None:
    """They stand beside the sources, since former versions can read them there."""
    sources = Sources()
    sources.load({FORGOTTEN: known_after(batch("", 5, 9))}, commit(1))

    assert sources.missing_bytes == 5
    assert list(sources.missing()) == []
    assert sources.changed_since(0) == (1, [])
    assert sources.stored_bytes == 0


def test_a_host_with_too_many_sources_has_the_oldest_forgotten(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was missing of them stays in the sum, and it is said once."""
    monkeypatch.setattr(module, "SOURCES_MAX", 3)
    sources = Sources()
    for number in range(4):
        learn(sources, "a", batch(f"/{number}", 1, 5))

    assert sources.forgotten == 1
    assert sources.missing_bytes == 4
    assert [source for _, source, _ in sources.missing()] == ["/1", "/2", "/3"]
    said = [vars(record) for record in caplog.records if "forgotten" in record.message]
    assert [(each["host"], each["sources"]) for each in said] == [("a", 1)]


@pytest.mark.parametrize(
    ("first", "sums"),
    [
        pytest.param(batch("/0", 0, 5), None, id="all of it came"),
        pytest.param(batch("/0", 0, 5, lost="rotated"), (0, 5), id="lost"),
        pytest.param(batch("/0", 2, 5), (2, 0), id="missing"),
    ],
)
def test_what_is_loaded_beyond_the_limit_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, first: Batch, sums: tuple[int, int] | None
) -> None:
    """Its sums stay, where it has any."""
    monkeypatch.setattr(module, "SOURCES_MAX", 1)
    sources = Sources()
    known = {("a", "/0"): known_after(first), ("a", "/1"): known_after(batch("/1", 0, 5))}
    sources.load(known, commit(1))
    sources.load(known, commit(1))
    changed = sources.take_changes()
    left = changed.get(FORGOTTEN)

    assert sources.forgotten == 2
    assert changed[("a", "/0")] is None
    assert (None if left is None else (left.missing, left.lost)) == sums


def test_the_bytes_of_what_is_loaded_are_counted_once() -> None:
    """However often it is."""
    sources = Sources()
    known = {("a", "/0"): known_after(batch("/0", 0, 5))}
    sources.load(known, commit(1))
    once = sources.stored_bytes
    sources.load(known, commit(1))

    assert sources.stored_bytes == once > 0


def test_what_is_missing_is_said_up_to_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    """Between two commits."""
    sources = Sources()
    with caplog.at_level(logging.WARNING):
        for number in range(NAMED_MAX + 5):
            learn(sources, "a", batch(f"/{number}", 3, 5))
        first = len(caplog.records)
        sources.take_changes()
        learn(sources, "a", batch("/0", 15, 20))
        contradicting = sources.decide("a", batch("/0", 20, 25))._replace(contradicted=4)
        sources.learn("a", batch("/0", 20, 25), contradicting, sequence=8)

    assert first == NAMED_MAX
    said = [
        (record.message, *(vars(record)[name] for name in ("host", "source", "generation")))
        for record in caplog.records[NAMED_MAX:]
    ]
    assert said == [(HOLE, "a", "/0", G), (CONTRADICTED, "a", "/0", G)]
    for number in range(NAMED_MAX):
        learn(sources, "a", batch(f"/again{number}", 3, 5))
    assert len(caplog.records) == 2 * NAMED_MAX
    named = [vars(record) for record in caplog.records[NAMED_MAX : NAMED_MAX + 2]]
    sizes = [(each["bytes"], each["sequence"]) for each in named]
    assert sizes == [(10, 7), (4, 8)]


def test_a_group_from_midway_takes_a_source_from_where_it_sees_it_first() -> None:
    """Until something of it is known."""
    sources = Sources()
    first = batch("/x", 3, 5)
    assert not sources.is_begun_by("a", first)
    sources.is_from_midway = True

    assert sources.is_begun_by("a", first)
    learn(sources, "a", first)
    assert not sources.is_begun_by("a", first)
    assert sources.missing_bytes == 0


ROW = ('["a","/x"]', '{"strands":[],"given_up":3,"written":0,"lost":0,"losses":[]}')


def test_a_snapshot_is_read_as_it_was_written() -> None:
    """The empty one is of a partition without sources."""
    known = decode_snapshot(encode_snapshot([ROW]))

    assert known == {("a", "/x"): SourceState(given_up=3)}
    assert decode_snapshot(b"") == {}
    assert decode_snapshot(encode_snapshot([])) == {}


def packed(text: bytes) -> bytes:
    """Return *text* as a snapshot with its checksum."""
    return zlib.crc32(text).to_bytes(4, "big") + zstd.Compressor(1).compress(text)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(b"\0\0\0\0" + encode_snapshot([ROW])[4:], "checksum", id="other bytes"),
        pytest.param(packed(b'{"version":2,"sources":[]}'), "version 2", id="newer"),
        pytest.param(packed(b"{}"), "not a snapshot", id="no fields"),
        pytest.param(b"\0\0\0\0nonsense", "not a snapshot", id="not packed"),
    ],
)
def test_what_is_no_snapshot_is_refused(data: bytes, said: str) -> None:
    """Its reader then learns from the stream."""
    with pytest.raises(BadSnapshot, match=said):
        decode_snapshot(data)


def test_a_snapshot_that_no_reader_would_take_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is measured before it is packed."""
    size = len(zstd.decompress(encode_snapshot([ROW])[4:], 1000))
    monkeypatch.setattr(module, "SNAPSHOT_BYTES_MAX", size)
    encode_snapshot([ROW])
    monkeypatch.setattr(module, "SNAPSHOT_BYTES_MAX", size - 1)

    with pytest.raises(BadSnapshot, match=f"{size} bytes"):
        encode_snapshot([ROW])


def test_what_is_reported_of_a_source_is_of_its_newest_generation() -> None:
    """With the holes of all."""
    sources = Sources()
    for each in (batch("/x", 2, 10), batch("/x", 0, 4, H)):
        learn(sources, "a", each)
    sources.commit(1, sources.take_changes())

    assert sources.changed_since(0) == (1, [("a", Committed("/x", H, 4, ((G, 0, 2),), 0, None))])
