"""Which lines are certainly no fragments: looked at by their heads alone, and never wrong about one
that is.
"""

from __future__ import annotations

import numpy as np
import pytest

from logpipeline_spark.lines.crilines import NO_FD, parse_usual
from logpipeline_spark.lines.layout import PADDING
from tables.messages import ORIGIN, lines_of, message

TIME = b"2026-11-21T10:00:00.123456789Z"
SHORT = b"2026-11-21T10:00:00.1Z"


def whole(*lines: bytes) -> list[bool]:
    """Return which of *lines* are certainly whole."""
    data = b"".join(line + b"\n" for line in lines)
    starts = np.cumsum([0, *(len(line) + 1 for line in lines[:-1])], dtype=np.int64)
    are_cri = np.ones(len(lines), np.bool_)
    found = parse_usual(np.frombuffer(data + PADDING, np.uint8), starts, are_cri)
    return [fd != NO_FD for fd in found.fds.tolist()]


def test_usual_lines_are_whole() -> None:
    """Of both streams, with times of any width and zone, and with no text: nothing is searched."""
    heads = [TIME, SHORT, TIME[:-1] + b"+01:00"]

    assert all(
        whole(*(head + b" " + rest for head in heads for rest in (b"stdout F x", b"stderr F ")))
    )


@pytest.mark.parametrize(
    "line",
    [
        TIME + b" stdout P first",
        TIME + b" stderr P:more first",
        SHORT + b" stdout P aZ stdout F",
        b"t stdout P 2026-11-21T10:0 stdout F",
        b"no line of CRI",
    ],
)
def test_no_fragment_passes_for_a_whole_line(line: bytes) -> None:
    """Also where its text goes on as a whole line would, at a place where a usual one has it."""
    usual = TIME + b" stdout F x"
    lines = [usual, line, usual]
    for text in range(14):
        lines.append(SHORT + b" stdout P" + b" " + b"x" * text + b" stdout F")
        lines.append(b"t" * text + b" stdout P " + b"y" * (20 - text) + b" stdout F")

    assert whole(*lines) == [True, False, True] + [False] * 28


def test_fragments_between_whole_lines_are_joined() -> None:
    """Messages of a group that hold fragments are put together, the others stay as they are."""
    plain = b"".join(b"%b stdout F line %d\n" % (TIME, number) for number in range(3))
    broken = b"%b stdout P one \n%b stderr F other\n%b stdout F line\n" % (TIME, SHORT, TIME)
    found = lines_of([message(plain, 1), message(broken, 2), message(plain, 3)], ORIGIN)

    lines = ["line 0", "line 1", "line 2"]
    assert found["line"].to_pylist() == [*lines, "other", "one line", *lines]
    second = len(TIME + b" stdout P one \n")
    assert found["offset"].to_pylist()[3:5] == [second, 0]
