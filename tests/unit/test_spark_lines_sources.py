"""What messages hold of which source: enough for the driver to decide by the collectors' rule."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from logpipeline.deduplication import NOTHING, SourceState, decide
from logpipeline.wire import Previous
from logpipeline_spark.lines.messages import Message, Run, Seen, groups, joined, seen_of
from logpipeline_spark.lines.schema import Origin
from tables.messages import HOST, ORIGIN, foreign, lines_of, message

A, B = "a" * 16, "b" * 16


def seen_in(messages: list[Message], origin: Origin) -> Seen:
    """What a task sees of *messages*, however they come to it in groups."""
    return joined([seen_of(group) for group in groups(messages, origin)])


def plain(sequence: int, start: int, size: int = 10, **changes: Any) -> Message:
    """Return a message of *size* bytes."""
    data = b"x" * (size - 1) + b"\n"
    return message(data, sequence, start, **({"format": "plain", "source": "/log"} | changes))


def test_ranges_that_adjoin_are_one_run() -> None:
    """Also where other sources' messages stand between; a gap begins another one."""
    seen = seen_in(
        [plain(1, 0), plain(2, 0, source="/other"), plain(3, 10), plain(5, 30), foreign(b"x", 6)],
        ORIGIN,
    )

    name = (HOST, "/log", "0123456789abcdef")
    assert [run for run in seen.runs if run.source == "/log"] == [
        Run(*name, 0, 20, 1, 3),
        Run(*name, 30, 40, 5, 5),
    ]
    assert seen.marked == ()


def test_a_marked_message_stands_alone_and_parts_its_source() -> None:
    """What is decided about it depends on what came before it."""
    seen = seen_in([plain(1, 0), plain(2, 10, resend=True), plain(3, 10), plain(4, 20)], ORIGIN)

    assert [(run.start, run.end, run.first, run.last) for run in seen.runs] == [
        (0, 10, 1, 1),
        (10, 30, 3, 4),
    ]
    assert [(run.start, run.end, run.first) for run in seen.marked] == [(10, 20, 2)]


def test_what_cannot_be_believed_holds_nothing() -> None:
    """Its bytes may still come."""
    bad = plain(1, 0)._replace(data=b"short")

    assert seen_in([bad], ORIGIN) == Seen()


def test_bytes_that_are_named_as_lost_may_still_turn_up() -> None:
    """They are no bytes of the table: what follows them shows that they are missing."""
    lost = message(b"", 2, 10, format="plain", source="/log", end=30, lines=0, lost="expired")
    seen = seen_in([plain(1, 0), lost, plain(3, 30)], ORIGIN)

    assert [(run.start, run.end) for run in seen.runs] == [(0, 10), (30, 40)]
    assert lines_of([lost], ORIGIN).num_rows == 0


def test_it_travels_as_json() -> None:
    """From tasks to the driver."""
    seen = seen_in([plain(1, 5, previous=Previous(A, 7), begins=True)], ORIGIN)

    assert Seen.decode(json.loads(json.dumps(seen.encode()))) == seen
    assert seen.runs[0].batch.previous == Previous(A, 7)
    assert seen.runs[0].batch.begins


STEPS = st.lists(
    st.tuples(
        st.sampled_from([A, B]),
        st.integers(0, 5),
        st.integers(1, 3),
        st.booleans(),
        st.sampled_from([None, Previous(A, 30), Previous(B, None)]),
        st.booleans(),
    ),
    max_size=12,
)


@given(STEPS, st.integers(1, 4))
def test_the_runs_lead_to_the_same_knowledge_as_the_messages(
    steps: list[tuple[str, int, int, bool, Previous | None, bool]], tasks: int
) -> None:
    """However many tasks the messages are shared among, and whatever order they came in."""
    messages = [
        plain(
            number,
            start * 10,
            size * 10,
            generation=name,
            resend=resend,
            previous=previous,
            begins=begins,
        )
        for number, (name, start, size, resend, previous, begins) in enumerate(steps, 1)
    ]
    each = seen_in([], ORIGIN)
    for one in messages:
        each = Seen(
            each.runs + seen_in([one], ORIGIN).runs, each.marked + seen_in([one], ORIGIN).marked
        )
    size = max(len(messages) // tasks, 1)
    parts = [seen_in(messages[at : at + size], ORIGIN) for at in range(0, len(messages), size)]

    assert known(joined(parts)) == known(each)
    assert known(seen_in(messages, ORIGIN)) == known(each)


def known(seen: Seen) -> SourceState:
    """Return what is known of the source when *seen* is put in the order of sequences."""
    knowledge = NOTHING
    for run in sorted((*seen.runs, *seen.marked), key=lambda run: run.first):
        knowledge = decide(knowledge, run.batch).after
    return knowledge
