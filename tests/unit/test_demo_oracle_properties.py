"""Whatever happens to the files: the oracle is content exactly if not a byte of it changed, and
it counts lost and repeated lines exactly.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo_collected import CONTAINER, PLACES, PLAIN, collect, lines_of, run_of
from logpipeline_demo.expected import Expected
from logpipeline_demo.lines import SourceKey
from logpipeline_demo.oracle import check
from logpipeline_demo.verdict import Verdict

LINES = 300
places = st.integers(0, LINES - 1)
sizes = st.integers(0, 30)
KEYS = st.sampled_from([PLAIN.key, CONTAINER.key])


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Expected:
    run = run_of(tmp_path_factory.mktemp("run"), lines=LINES)
    blanks = [seq for seq in range(LINES) if run.sources[PLAIN.key].is_blank(seq)]
    assert blanks, "without empty lines this would prove less than it says"
    return run


def verdict_of(expected: Expected, changed: dict[str, list[bytes]]) -> Verdict:
    with tempfile.TemporaryDirectory() as folder:
        for key, place in PLACES.items():
            collect(Path(folder), place, changed.get(place, lines_of(expected, key)))
        return check(expected, [Path(folder)])


@given(data=st.data(), key=KEYS)
def test_no_change_of_a_line_goes_unnoticed(
    expected: Expected, data: st.DataObject, key: SourceKey
) -> None:
    """Lines moved, removed, repeated and exchanged in any way: clean means equal."""
    original = lines_of(expected, key)
    lines = list(original)
    for _ in range(data.draw(st.integers(1, 4))):
        start, size, target = data.draw(places), data.draw(sizes), data.draw(places)
        piece = lines[start : start + size]
        if data.draw(st.booleans()):
            del lines[start : start + size]
        if data.draw(st.booleans()):
            lines[target:target] = piece
    verdict = verdict_of(expected, {PLACES[key]: lines})

    assert verdict.is_clean == (lines == original), verdict.explain()


@given(data=st.data(), key=KEYS)
def test_no_change_of_a_byte_goes_unnoticed(
    expected: Expected, data: st.DataObject, key: SourceKey
) -> None:
    """Bytes removed, inserted and exchanged anywhere, also newlines: clean means equal."""
    original = b"".join(lines_of(expected, key))
    changed = original
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(original)))
        removed = data.draw(st.integers(0, 300))
        inserted = data.draw(st.binary(max_size=4) | st.just(b"\n") | st.just(b"\n\n"))
        changed = changed[:start] + inserted + changed[start + removed :]
    verdict = verdict_of(expected, {PLACES[key]: [changed]})

    assert verdict.is_clean == (changed == original), verdict.explain()


@given(lost=st.sets(places), repeated=st.sets(places), key=KEYS)
def test_lost_and_repeated_lines_are_counted_exactly(
    expected: Expected, lost: set[int], repeated: set[int], key: SourceKey
) -> None:
    """Any lines lost and any others repeated in place: the numbers are those planted.

    Only among empty lines nobody can tell which of them is missing, or whether it is a copy.
    """
    source = expected.sources[key]
    lost = {seq for seq in lost if not source.is_blank(seq)}
    repeated = {seq for seq in repeated - lost if not source.is_blank(seq)}
    lines: list[bytes] = []
    for seq, line in enumerate(lines_of(expected, source.key)):
        lines += [line] * ((seq not in lost) + (seq in repeated))
    verdict = verdict_of(expected, {PLACES[source.key]: lines})

    found = (verdict.lost, verdict.twice, verdict.out_of_order, verdict.corrupt, verdict.invented)
    assert found == (len(lost), len(repeated), 0, 0, 0), verdict.explain()
