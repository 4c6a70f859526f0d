"""A source with thousands of rotated files costs no more for each of them than one with a few."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.log_chain import Folder, append
from logpipeline_shipper.files.generation import Generation
from logpipeline_shipper.files.generations import with_hidden

FILES = 300


@contextmanager
def comparisons_counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[None]]:
    """Yield a list that grows with each comparison of two generations, as a search in a list makes
    it.
    """
    counted: list[None] = []

    def compare(one: Generation, other: object) -> bool:
        counted.append(None)
        return one is other

    with monkeypatch.context() as patch:
        patch.setattr(Generation, "__eq__", compare)
        yield counted


def one_by_one(listed: Sequence[Generation], every: Sequence[Generation]) -> list[Generation]:
    """Put each generation of *every* that is not there yet behind the last one before it."""
    order = list(listed)
    for index, each in enumerate(every):
        if each not in order:
            before = [order.index(other) for other in every[:index]]
            order.insert(max(before, default=-1) + 1, each)
    return order


@given(st.data())
def test_hidden_generations_keep_their_places(data: st.DataObject) -> None:
    """Each stands behind all that came before it, and before what is listed behind these."""
    known = [Generation(str(number)) for number in range(data.draw(st.integers(0, 8)))]
    new = [Generation(f"new {number}") for number in range(data.draw(st.integers(0, 3)))]
    shown = data.draw(st.lists(st.sampled_from(known), unique=True)) if known else []
    listed = data.draw(st.permutations([*shown, *new]))

    found = with_hidden(listed, known)

    assert [each.id for each in found] == [each.id for each in one_by_one(listed, known)]


def test_the_cost_of_many_rotated_files_rises_with_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While they are there, and when all of them vanish at once."""
    folder = Folder(tmp_path, open_files=3 * FILES)
    for number in range(FILES):
        append(tmp_path / f"app.log.{number + 1}", b"%d\n" % number)
    append(folder.live, b"the newest\n")
    folder.drain()
    folder.now_s += 60
    folder.drain()

    with comparisons_counted(monkeypatch) as counted:
        folder.read()
        assert len(counted) <= 10 * FILES
        counted.clear()
        for path in tmp_path.iterdir():
            path.unlink()
        folder.look()
        folder.now_s += 60
        folder.read()

    assert len(counted) <= 10 * FILES
    saved = folder.chain.saved()
    assert (len(saved["generations"]), len(saved["past"])) == (0, FILES + 1)
    assert (folder.chain.unseen_generations, folder.chain.missing_bytes) == (0, 0)
