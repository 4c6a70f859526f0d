"""A file of which other bytes are sent than it has: it is known again by its own bytes, and what
travels fits together by those that were sent.
"""

from __future__ import annotations

import os
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from components.log_chain import Folder, append, joined
from logpipeline.checksum import NOTHING, extend
from logpipeline.redaction import Redactor

CARDS = Redactor(["card"])
LINES = b"".join(b"%d paid with 4111111111111111\n%d nothing\n" % (n, n) for n in range(60))
FRAGMENTS = b"".join(
    b"2026-11-21T10:00:00.%09dZ stdout P %d paid with 41111111\n"
    b"2026-11-21T10:00:00.%09dZ stdout F 11111111\n" % (n, n, n)
    for n in range(40)
)


@pytest.mark.parametrize("batch_bytes", [100, 1000, 4096])
@pytest.mark.parametrize("is_cri", [False, True])
def test_checksums_that_travel_are_those_of_what_is_sent(
    tmp_path: Path, batch_bytes: int, is_cri: bool
) -> None:
    """One goes on where the one before ends, and so it does where a range is sent again."""
    folder = Folder(tmp_path, cri=is_cri, redactor=CARDS, batch_bytes=batch_bytes)
    data = FRAGMENTS if is_cri else LINES
    append(folder.live, data)
    chunks = folder.drain()

    assert joined(chunks) == CARDS.redact(data, "cri" if is_cri else "plain") != data
    assert chunks[0].checksums.before == NOTHING
    for former, latter in pairwise(chunks):
        assert former.checksums.after == latter.checksums.before
    for chunk in chunks:
        assert extend(chunk.checksums.before, chunk.data) == chunk.checksums.after
        (again,) = folder.again(chunk.generation, chunk.start, chunk.end)
        assert (again.data, again.checksums) == (chunk.data, chunk.checksums)


@pytest.mark.parametrize("later", [CARDS, Redactor(), Redactor(expressions=["[0-9]+ nothing"])])
@pytest.mark.parametrize("rotated", ["", "renamed", "copied"])
def test_file_is_known_again_whatever_the_rules_are_now(
    tmp_path: Path, later: Redactor, rotated: str
) -> None:
    """After a restart, though it was rotated meanwhile: nothing of it is sent again."""
    folder = Folder(tmp_path, redactor=CARDS)
    append(folder.live, LINES)
    former = folder.drain()[-1]
    saved = folder.chain.saved()
    folder.chain.release()
    old = folder.live.with_name("app.log.1")
    if rotated == "renamed":
        folder.live.rename(old)
    elif rotated == "copied":
        shutil.copy2(folder.live, old)
        os.truncate(folder.live, 0)
    append(old if rotated == "renamed" else folder.live, b"4111111111111111 and more\n")

    again = Folder(tmp_path, saved=saved, redactor=later)
    chunks = again.drain()

    assert joined(chunks) == later.redact(b"4111111111111111 and more\n", "plain")
    if rotated != "copied":
        assert chunks[0].generation == former.generation
        assert chunks[0].checksums.before == former.checksums.after
