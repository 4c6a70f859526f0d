"""Whether lines of one side stand on the other is said exactly, wherever they stand there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.origin import Origin
from logpipeline.redaction import NOTHING_REDACTED
from logpipeline_cli.auditing import line_blocks
from logpipeline_cli.auditing.line_blocks import (
    Block,
    Missing,
    blocks_of,
    count,
    count_left,
    left,
)
from logpipeline_cli.auditing.sides import NoLine, Part, Source, lines_of
from logpipeline_collector.files.naming import Template
from logpipeline_shipper.files.discovery import Discovery
from logpipeline_shipper.files.listing import HostSources

# Few different lines, so that equal ones are the rule; many blocks, since one in 256 ends one.
LINES = st.lists(st.integers(0, 2000).map(lambda n: b"%d" % (n * n % 700)), max_size=1500)


def missing_of(
    here: Callable[[], Iterator[Block]], there: Callable[[], Iterator[Block]]
) -> Missing:
    """Return which lines of *here* are not *there*, by the steps that an audit takes."""
    blocks = count(here())
    same = blocks & count(there(), blocks)
    lines = left(here(), same)
    return lines.missing(count_left(there(), same, lines.lines))


@given(LINES, LINES, st.data())
def test_what_is_missing_is_the_difference_of_both_sides(
    here: list[bytes], there: list[bytes], data: st.DataObject
) -> None:
    """Whatever stands before and between, and however the other side is cut into files."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(here)), max_size=3)))
    pieces = [here[a:b] for a, b in zip([0, *cuts], [*cuts, len(here)], strict=True)]
    dropped = data.draw(st.sampled_from(range(len(pieces))))
    kept = data.draw(st.permutations([*pieces[:dropped], *pieces[dropped + 1 :], there]))

    def other() -> Iterator[Block]:
        for piece in kept:
            yield from blocks_of(piece)

    missing = missing_of(lambda: blocks_of(here), other)

    expected = Counter(here) - Counter(line for piece in kept for line in piece)
    assert missing.lines == expected.total()
    assert missing.size == sum(count * (len(line) + 1) for line, count in expected.items())
    assert (missing.first in expected) == bool(expected)


def test_a_line_is_missing_though_equal_ones_stand_elsewhere() -> None:
    """Each of them stands for itself only."""
    lines = [b"always" if number % 10 == 0 else b"%d" % number for number in range(20_000)]
    there = [*lines[:10_000], *lines[10_001:]]

    missing = missing_of(lambda: blocks_of(lines), lambda: blocks_of(there))

    assert missing == (1, len(b"always\n"), b"always", 0)
    assert missing_of(lambda: blocks_of(there), lambda: blocks_of(lines)) == (0, 0, b"", 0)


def test_blocks_fall_into_step_again_behind_lines_that_one_side_has_alone() -> None:
    """So the second pass looks at few lines only."""
    lines = [b"line %d" % number for number in range(20_000)]
    first = {block.key for block in blocks_of(lines)}
    second = {block.key for block in blocks_of([b"another", *lines[7:]])}

    assert len(first) > 40
    assert len(first - second) == 1


def test_lines_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, and that is said."""
    monkeypatch.setattr(line_blocks, "LEFT_LINES_MAX", 10)
    lines = [b"line %d" % number for number in range(30)]

    missing = missing_of(lambda: blocks_of(lines), lambda: blocks_of([]))

    assert (missing.lines, missing.untold) == (10, 20)


def test_a_file_that_became_shorter_is_told_and_not_counted_as_compared(tmp_path: Path) -> None:
    """A rotator may cut it between the look at its length and the reading."""
    path = tmp_path / "app.log"
    path.write_bytes(b"one\ntwo\n")
    hosts = [HostSources(host="h", include=(f"{tmp_path}/*.log",))]
    (listing,) = Discovery(hosts, skipped=lambda path, reason: None).scan()
    (file,) = listing.files
    whole = Source(listing.id, [Part(file, 8, ((0, 8),))], NOTHING_REDACTED)
    cut = Source(listing.id, [Part(file, 20, ((0, 20),))], NOTHING_REDACTED)

    assert list(whole.lines(lambda size: None)) == list(cut.lines(lambda size: None))
    assert (whole.compared, whole.troubles) == (8, {})
    assert (cut.compared, cut.troubles) == (0, {path: "it became shorter while it was read"})


def test_lines_of_json_are_the_programs_own() -> None:
    """Bytes that are no text come back as well, and what was too long for one line."""
    rows = [
        {"source": "a", "stream": "", "message": "x", "partial": True},
        {"source": "b", "stream": "", "message": "between"},
        {"source": "a", "stream": "", "message": "y"},
        {"source": "a", "message": "?", "message_base64": "/w=="},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    chunks = [text[:50], text[50:51], text[51:]]

    assert list(lines_of("json", chunks, is_cri=False)) == [b"between", b"xy", b"\xff"]
    with pytest.raises(NoLine, match="is not a line of JSON output"):
        list(lines_of("json", [b"plain\n"], is_cri=False))


def test_lines_of_a_runtimes_form_are_the_programs_own() -> None:
    """What is collected as it was is joined here."""
    text = b"t stdout P a\nt stdout F b\nt stderr F c\n"

    assert list(lines_of("cri", [text[:20], text[20:]], is_cri=True)) == [b"ab", b"c"]
    assert list(lines_of("cri", [text], is_cri=False)) == text.splitlines()


def test_a_pattern_finds_the_places_of_all_times() -> None:
    """Characters of patterns stand for themselves."""
    template = Template("{host}/[x]/%Y-%m-%d/%%d{pod}.log", cluster="", partition=0)
    origin = Origin("h", "n", "p*", "c", "")

    assert template.glob(origin) == "h/[[]x]/*-*-*/%dp%2A.log"
