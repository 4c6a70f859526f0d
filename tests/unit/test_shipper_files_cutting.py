"""Where batches end, and how gzipped files are unpacked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logpipeline import cri
from logpipeline_shipper.files.chunk import Cut, cut, times_of

TIME = b"2026-11-21T10:00:00.123456789Z"


def line(stream: str, tag: str, text: str) -> bytes:
    return TIME + f" {stream} {tag} {text}\n".encode()


def test_an_unfinished_line_waits() -> None:
    """What has no newline yet is not sent while the file may grow."""
    assert cut(b"a\nb", "plain", line_bytes_max=100, closed=False) == Cut(2)
    assert cut(b"b", "plain", line_bytes_max=100, closed=False) == Cut(0)
    assert cut(b"b", "plain", line_bytes_max=100, closed=True) == Cut(1)


def test_a_long_plain_line_is_cut_into_pieces() -> None:
    """A piece has exactly the length of the limit, and says that the line goes on."""
    piece = cut(b"x" * 150, "plain", line_bytes_max=100, closed=False)

    assert piece == Cut(100, inside_line=True, forced=True)


def test_a_batch_never_ends_inside_a_run_of_fragments() -> None:
    """It ends before the run, of whichever stream."""
    whole = line("stdout", "F", "one")
    data = whole + line("stderr", "P", "two") + line("stdout", "F", "three")

    assert cut(data, "cri", line_bytes_max=10_000, closed=False) == Cut(len(whole))


def test_a_long_run_is_cut_between_two_fragments() -> None:
    """A run over the limit ends with a whole fragment, and says that it goes on."""
    fragment = line("stdout", "P", "x" * 50)
    found = cut(fragment * 5, "cri", line_bytes_max=3 * len(fragment) + 7, closed=False)

    assert found == Cut(3 * len(fragment), inside_line=True, forced=True)


def test_the_end_of_a_file_ends_a_run() -> None:
    """Fragments that were never closed are sent when their file is complete."""
    run = line("stdout", "P", "x")

    assert cut(run, "cri", line_bytes_max=1000, closed=True) == Cut(len(run), inside_line=True)


@given(
    st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.sampled_from("PF"))),
    st.integers(60, 400),
)
def test_cutting_a_whole_file_loses_nothing(kinds: list[tuple[str, str]], limit: int) -> None:
    """The cuts are adjoining, each within the limit or at a line's end, and come to an end."""
    data = b"".join(line(stream, tag, str(number)) for number, (stream, tag) in enumerate(kinds))
    offset = 0
    while offset < len(data):
        window = data[offset : offset + limit]
        is_end = offset + len(window) == len(data)
        found = cut(window, "cri", line_bytes_max=limit, closed=is_end)
        assert 0 < found.length <= limit
        if not found.inside_line:
            assert all(whole.whole for whole in cri.join(window[: found.length]))
        offset += found.length

    assert offset == len(data)


def test_the_times_are_those_of_the_first_and_last_line() -> None:
    """Lines without a time have none, and plain files neither."""
    later = TIME.replace(b"10:00:00", b"10:00:01")
    data = TIME + b" stdout F a\n" + later + b" stdout F b\n"
    first, last = times_of(data, "cri")

    assert last - first == 1_000_000_000
    assert times_of(b"nonsense\n", "cri") == (0, 0)
    assert times_of(data, "plain") == (0, 0)
