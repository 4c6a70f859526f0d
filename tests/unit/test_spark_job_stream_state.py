"""Of lines that were sent again, those are written that never came before."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline_spark.errors import Refused
from logpipeline_spark.job.stream_state import (
    Known,
    Learned,
    StreamState,
    as_written,
    learn,
)
from logpipeline_spark.lines.messages import Run, Seen

GENERATION = "0" * 16


def run(start: int, end: int, sequence: int, **fields: str) -> Run:
    """Bytes of one source, by one message."""
    names = {"host": "h", "source": "/x", "generation": GENERATION, **fields}
    return Run(names["host"], names["source"], names["generation"], start, end, sequence, sequence)


def taught(known: Known, seen: Seen) -> Learned:
    """What is learned of *seen*, taken over into *known*."""
    learned = learn(known, seen)
    known.update(learned.changed)
    return learned


def wanted(known: Known, seen: Seen) -> list[tuple[int, list[tuple[int, int]]]]:
    """The marked messages that bring new bytes, and which."""
    found = taught(known, seen).wanted
    return [(each.sequence, [(part.start, part.end) for part in each.ranges]) for each in found]


def test_what_came_before_is_not_wanted_again() -> None:
    """Whether it came in this batch or an earlier one."""
    known: Known = {}
    assert wanted(known, Seen((run(0, 10, 1),), (run(0, 10, 2),))) == []
    assert wanted(known, Seen((), (run(0, 10, 3), run(10, 20, 4)))) == [(4, [(10, 20)])]


def test_only_the_new_part_of_a_longer_message_is_wanted() -> None:
    """A retry may hold more lines than what it repeats."""
    known: Known = {}
    taught(known, Seen((run(0, 10, 1),)))

    assert wanted(known, Seen((), (run(5, 30, 2),))) == [(2, [(10, 30)])]


def test_a_hole_is_filled_by_what_comes_late() -> None:
    """It is missing until then."""
    known: Known = {}
    missing = taught(known, Seen((run(0, 10, 1), run(20, 30, 2)))).missing_bytes
    learned = taught(known, Seen((), (run(5, 25, 3),)))

    assert missing == 10
    assert [tuple(part)[:2] for part in learned.wanted[0].ranges] == [(10, 20)]
    assert learned.missing_bytes == -10


def test_bytes_that_come_twice_without_a_mark_are_told() -> None:
    """They stand in the table twice: somebody publishes what no shipper would."""
    known: Known = {}
    learned = taught(known, Seen((run(0, 10, 1), run(0, 10, 2))))

    assert learned.unmarked_bytes == 10


def test_sources_of_other_hosts_are_others() -> None:
    """Two hosts have a file of the same name, as all hosts do."""
    known: Known = {}
    taught(known, Seen((run(0, 10, 1),)))

    assert wanted(known, Seen((), (run(0, 10, 2, host="other"),))) == [(2, [(0, 10)])]


def test_what_was_not_written_is_not_known() -> None:
    """Of three messages that were sent again the first was deleted before it was written: what the
    second had that was new then is known, and the third is wanted for the rest.
    """
    seen = Seen((), (run(0, 10, 1), run(0, 20, 2), run(5, 15, 3)))
    written = {each.sequence: each.ranges for each in learn({}, seen).wanted}

    left = as_written(seen, written, {1})

    assert [(each.first, each.start, each.end) for each in left.marked] == [(2, 10, 20), (3, 5, 15)]
    assert wanted({}, left) == [(2, [(10, 20)]), (3, [(5, 10)])]
    assert as_written(seen, {}, ()) == seen


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5), st.booleans()), max_size=20))
def test_each_byte_is_written_once_or_told(messages: list[tuple[int, int, bool]]) -> None:
    """Whatever is sent, in any order, marked or not; and knowledge survives being stored."""
    known: Known = {}
    written: list[int] = []
    told = 0
    for sequence, (start, length, is_marked) in enumerate(messages, start=1):
        one = run(start, start + length, sequence)
        learned = taught(known, Seen((), (one,)) if is_marked else Seen((one,)))
        ranges = [range(*part[:2]) for each in learned.wanted for part in each.ranges]
        ranges = ranges if is_marked else [range(start, start + length)]
        written += [byte for part in ranges for byte in part]
        told += learned.unmarked_bytes
        kept = StreamState(None, known).kept(learned.changed)
        assert kept.changed == kept.all()
        rows = json.loads(json.dumps(kept.changed))
        known = StreamState.of(None, rows, where="here").known

    everything = {b for start, length, _ in messages for b in range(start, start + length)}
    assert set(written) == everything
    assert len(written) - len(everything) == told


@pytest.mark.parametrize("rows", [{"x": []}, {'["h", "s"]': "no knowledge"}, {'["h"]': None}])
def test_damaged_knowledge_is_told(rows: dict[str, object]) -> None:
    """With where it lies, and what to do."""
    with pytest.raises(Refused, match="the state of the table of a is damaged"):
        StreamState.of(None, rows, where="the table of a")
