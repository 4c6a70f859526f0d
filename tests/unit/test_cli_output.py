"""What is printed: nothing that a terminal acts on, columns that line up, numbers for people."""

from __future__ import annotations

import io
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline_cli.output import bytes_text, escaped, seconds_text, table, write_content

# Orders of writing; a terminal also acts on controls, and on what ends a line.
BIDIRECTIONAL = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
ACTING = ("Cc", "Zl", "Zp")
HARMLESS = "\t"


def acts(text: str) -> list[str]:
    """Return the characters of *text* that a terminal could act on."""
    return [
        character
        for character in text
        if character not in HARMLESS
        and (unicodedata.category(character) in ACTING or character in BIDIRECTIONAL)
    ]


@given(st.one_of(st.binary(), st.text().map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_no_control_character_leaves_a_line(line: bytes) -> None:
    """Whatever was logged, a terminal only shows it."""
    assert acts(escaped(line)) == []


@given(st.binary())
def test_a_name_is_shown_whatever_its_bytes_are(name: bytes) -> None:
    """A file's name need not be text."""
    assert table(["NAME"], [[name.decode("utf-8", "surrogateescape")]]).encode()


@given(st.text(st.characters(exclude_categories=("C", "Zl", "Zp"))))
def test_a_harmless_line_is_shown_as_it_is(text: str) -> None:
    """Letters of any language, and what is not acted on, are not touched."""
    assert escaped(text.encode()) == text


@given(st.binary(), st.lists(st.integers(min_value=0, max_value=200)))
def test_content_is_escaped_as_if_it_came_at_once(content: bytes, cuts: list[int]) -> None:
    """Where a file is cut into chunks cannot be seen, not even within a character."""
    ends = sorted(min(cut, len(content)) for cut in cuts)
    starts = [0, *ends]
    chunks = [content[a:b] for a, b in zip(starts, [*ends, len(content)], strict=True)]
    whole = "".join(f"{escaped(line)}\n" for line in content.split(b"\n"))
    if content.endswith(b"\n") or not content:
        whole = whole[:-1]

    assert written([chunk for chunk in chunks if chunk]) == whole


def test_a_file_without_last_newline_does_not_swallow_the_next(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    """Each file begins on a line of its own, but raw bytes stay what they are."""
    for raw in (False, True):
        write_content([b"one\ntwo"], raw=raw)
        write_content([b"three\n"], raw=raw)
        sys.stdout.flush()

        shown = capsysbinary.readouterr().out
        assert shown == (b"one\ntwothree\n" if raw else b"one\ntwo\nthree\n")


def written(chunks: list[bytes]) -> str:
    """Return what is printed of *chunks*."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        write_content(chunks, raw=False)
    return out.getvalue()


def test_a_table_lines_up_and_stays_a_table() -> None:
    """Cells stand below their headers, and none can break out of its row."""
    lines = table(("HOST", "LAG"), [("a\n\x1b[2Jb", 1), ("c", 22)]).split("\n")

    assert lines == ["HOST           LAG", "a\\x0a\\x1b[2Jb  1", "c              22"]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (5 * 2**30, "5.0 GiB"),
        (2**50, "1024.0 TiB"),
    ],
)
def test_bytes_are_told_in_units(count: int, text: str) -> None:
    """A size is a short number with a unit."""
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.12, "120 ms"), (3.21, "3.2 s"), (300, "5 m"), (7200, "2.0 h")]
)
def test_times_are_told_in_units(seconds: float, text: str) -> None:
    """A time span is a short number with a unit."""
    assert seconds_text(seconds) == text
