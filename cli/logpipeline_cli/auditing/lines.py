"""Cuts bytes that come in chunks into lines, as the programs wrote them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from logpipeline import cri


class Lines:
    """Takes chunks, and yields lines without their ends; with *is_cri* those that a container
    runtime wrote, without its words and with their fragments joined.
    """

    def __init__(self, *, is_cri: bool) -> None:
        self._is_cri = is_cri
        self._held = b""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that *chunk* completes."""
        held = self._held + chunk
        cut = cri.last_cut(held) if self._is_cri else held.rfind(b"\n") + 1
        self._held = held[cut:]
        if self._is_cri:
            yield from (line.text for line in cri.join(held[:cut]))
        elif cut:
            yield from held[: cut - 1].split(b"\n")

    def rest(self) -> Iterator[bytes]:
        """Yield what has no end."""
        held, self._held = self._held, b""
        if self._is_cri:
            yield from (line.text for line in cri.join(held))
        elif held:
            yield held

    def forget(self) -> None:
        """Drop what has no end: what comes next does not continue it."""
        self._held = b""


def lines_in(chunks: Iterable[bytes], *, is_cri: bool) -> Iterator[bytes]:
    """Yield all lines of *chunks*, the last one whether it has an end or not."""
    lines = Lines(is_cri=is_cri)
    for chunk in chunks:
        yield from lines.feed(chunk)
    yield from lines.rest()
