"""Events of several lines in what commands print: a stack trace is shown, or left out, as a whole.
What is printed is the lines as they are; only their text is looked at, by the rules of
`logpipeline.multiline`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from logpipeline import cri, json_text
from logpipeline.multiline import EVENT_BYTES_MAX, Joiner, Rules, chosen
from logpipeline_cli.following import Line

# A longer line of a file need not fit into memory; its pieces are taken for lines.
LINE_BYTES_MAX = EVENT_BYTES_MAX
# Files whose events are followed at once. The one that wrote longest ago is forgotten first: its
# event ends there.
SOURCES_MAX = 10_000

_Key = tuple[str, str, str, str]


def event_rules(args: argparse.Namespace) -> tuple[Rules, ...]:
    """Return the rules that `--multiline` and `--multiline-begin` ask for; none: each line is an
    event.
    """
    if not args.multiline and args.multiline_begin is None:
        return ()
    return chosen(args.multiline or (), args.multiline_begin)


class FollowedEvents:
    """The events of lines that are followed as they pass, those of one stream."""

    def __init__(self, rules: Sequence[Rules]) -> None:
        self._rules = rules
        self._joiners: dict[_Key, Joiner] = {}
        self._open: dict[_Key, list[Line]] = {}
        # Those of `_open` to which a line came since the last look.
        self._fresh: set[_Key] = set()

    def add(self, line: Line) -> Iterator[list[Line]]:
        """Yield the events that *line* ends, or completes."""
        if not self._rules or line.is_damaged or not line.source:
            # A line without a source is of another client: nothing says what it continues.
            yield [line]
            return
        key = line.host, line.source, line.generation, line.stream
        joiner = self._joiners.pop(key, None) or Joiner(self._rules)
        self._joiners[key] = joiner
        if joiner.begins(line.text.decode(errors="replace")) and key in self._open:
            yield self._open.pop(key)
        self._open.setdefault(key, []).append(line)
        self._fresh.add(key)
        if len(self._joiners) > SOURCES_MAX:
            oldest = next(iter(self._joiners))
            del self._joiners[oldest]
            if oldest in self._open:
                yield self._open.pop(oldest)

    def looked(self) -> Iterator[list[Line]]:
        """Yield the events that did not grow since this was last called: programs write a trace at
        once.
        """
        for key in [key for key in self._open if key not in self._fresh]:
            yield self._open.pop(key)
        self._fresh.clear()


def matching(
    chunks: Iterable[bytes], pattern: re.Pattern[bytes], rules: Sequence[Rules]
) -> Iterator[bytes]:
    """Return the events of a collected file in which *pattern* finds something; *chunks* are the
    file's bytes. No *rules*: each line is an event.
    """
    return (event for event in _events(chunks, rules) if pattern.search(event.removesuffix(b"\n")))


def _events(chunks: Iterable[bytes], rules: Sequence[Rules]) -> Iterator[bytes]:
    joiner = Joiner(rules)
    event: list[bytes] = []
    for line in _lines(chunks):
        if joiner.begins(_text_of(line)) and event:
            yield b"".join(event)
            event = []
        event.append(line)
    if event:
        yield b"".join(event)


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines with their ends; one that is larger than `LINE_BYTES_MAX` in pieces."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line + b"\n" for line in lines)
        if len(rest) > LINE_BYTES_MAX:
            yield rest
            rest = b""
    if rest:
        yield rest


def _text_of(line: bytes) -> str:
    """Return what the program wrote, whichever output format the collectors' files have."""
    text = line.removesuffix(b"\n")
    if text.startswith(b'{"time":'):
        with suppress(ValueError, KeyError, TypeError):
            return str(json_text.parse(text)["message"])
    return b"".join(each.text for each in cri.join(text)).decode(errors="replace")
