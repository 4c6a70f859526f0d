"""Which lines are one event: stack traces as programs write them, and lines that look alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.multiline import (
    AUTO,
    EVENT_LINES_MAX,
    PRESETS,
    Joiner,
    Limits,
    chosen,
    events_of,
)
from tables.traces import ORDINARY, SOME_LINES, TRACES

BEFORE, AFTER = "2026-11-24 10:00:00 INFO before", "2026-11-24 10:00:09 INFO after"
CASES = [(name, trace) for name, traces in TRACES.items() for trace in traces]


def split(text: str, *names: str, begin: str | None = None) -> list[str]:
    """Return the events of *text*, each as one text."""
    rules = chosen(names, begin)
    return ["\n".join(event) for event in events_of(text.split("\n"), rules)]


def test_every_preset_is_tried() -> None:
    """One that is added is given a trace here."""
    assert TRACES.keys() == PRESETS.keys()


@pytest.mark.parametrize("names", ["its own", AUTO])
@pytest.mark.parametrize(("name", "trace"), CASES, ids=range(len(CASES)))
def test_a_trace_is_one_event(name: str, trace: str, names: str) -> None:
    """Whole, with the line that logged it, and without those before and after it."""
    wanted = [BEFORE, trace, AFTER, trace, AFTER]

    assert split("\n".join(wanted), AUTO if names == AUTO else name) == wanted


@pytest.mark.parametrize("name", [*PRESETS, AUTO])
def test_ordinary_lines_are_events_of_their_own(name: str) -> None:
    """Documents over many lines, tables, and prose that begins as frames do."""
    assert split(ORDINARY, name) == ORDINARY.split("\n")


@pytest.mark.parametrize("name", ["java", "python", "go", "dotnet"])
def test_one_trace_after_another_is_two_events(name: str) -> None:
    """With nothing in between."""
    first, second = TRACES[name][1], TRACES[name][0]

    assert split(f"{first}\n{second}\n{first}", AUTO) == [first, second, first]


def test_an_exception_that_nobody_logged_stands_alone() -> None:
    """The line before it told of something else: its level says nothing of the exception."""
    trace = "java.io.IOException: gone\n\tat a.B.c(B.java:1)"

    assert split(f"INFO ready\n{trace}", "java") == ["INFO ready", trace]
    assert split(f"WARN retrying\n{trace}", "java") == [f"WARN retrying\n{trace}"]


def test_the_rest_of_a_trace_is_one_event() -> None:
    """Where its first lines are not there, such as before the time that was asked for."""
    rest = "\tat a.B.c(B.java:1)\n\t... 5 more\nCaused by: a.B: c\n\tat a.B.c(B.java:1)"

    assert split(rest, "java") == [rest]


def test_a_blank_line_between_two_tracebacks_divides_them() -> None:
    """Only what Python writes between them makes a chain of them."""
    trace = 'Traceback (most recent call last):\n  File "x", line 1, in f\nValueError: x'

    assert split(f"{trace}\n\n{trace}", "python") == [f"{trace}\n", trace]


def test_presets_add_up() -> None:
    """A line that one of them joins is joined."""
    java, go = TRACES["java"][1], TRACES["go"][2]

    assert split(f"{java}\n{go}", "java", "go") == [java, go]
    assert split(f"{java}\n{go}", "java") == [java, *go.split("\n")]


def test_an_own_expression_says_where_events_begin() -> None:
    """All lines up to the next such are one event; what is before the first is another."""
    text = "rest\n# one\n  a\nb\n# two\n"

    assert split(text, begin="^# ") == ["rest", "# one\n  a\nb", "# two\n"]


def test_a_wrong_name_or_expression_is_refused() -> None:
    """With a sentence that says what to take."""
    with pytest.raises(ValueError, match="there is no preset 'jave': take java, python, "):
        chosen(["jave"])
    with pytest.raises(ValueError, match="has a mistake, correct it: "):
        Joiner(chosen(begin="("))


def test_an_event_has_so_many_lines_and_bytes_at_most() -> None:
    """What is too much begins another one, which is as long again; the next event counts anew."""
    rules = chosen(begin="^begin")
    lines = ["begin", *["1234"] * 9] * 2

    def sizes(limits: Limits) -> list[int]:
        return [len(event) for event in events_of(lines, rules, limits)]

    assert sizes(Limits(lines=4)) == [4, 4, 2] * 2
    # 6 bytes, then 5 each, newlines included: 16 are more than 15, as are 31 more than 30.
    assert sizes(Limits(bytes=15)) == [3, 3, 3, 1] * 2
    # The number of bytes, not of letters.
    assert len(list(events_of(["begin", "é" * 5, "é"], rules, Limits(bytes=15)))) == 2


def test_a_trace_without_end_is_many_events() -> None:
    """Nothing grows without limit."""
    frames = ["\tat a.B.c(B.java:1)"] * (2 * EVENT_LINES_MAX + 1)

    assert [len(event) for event in events_of(frames, chosen(["java"]))] == [
        EVENT_LINES_MAX,
        EVENT_LINES_MAX,
        1,
    ]


@given(
    SOME_LINES | st.lists(st.text(max_size=20)),
    st.sampled_from([*PRESETS, AUTO]),
    st.integers(1, 9),
    st.integers(1, 200),
)
def test_no_line_is_lost_doubled_or_moved(
    lines: list[str], name: str, lines_max: int, bytes_max: int
) -> None:
    """Events in their order are the lines in theirs, and none is longer than it may be."""
    found = list(events_of(lines, chosen([name]), Limits(lines=lines_max, bytes=bytes_max)))

    assert lines_of_events(found) == lines
    for event in found:
        assert 1 <= len(event) <= lines_max
        assert sum(len(line.encode()) + 1 for line in event[:-1]) <= bytes_max


def lines_of_events(events: list[list[str]]) -> list[str]:
    """Return the lines of *events*."""
    return [line for event in events for line in event]
