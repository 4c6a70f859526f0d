"""The sides of an audit that are in pods: they are asked through a program that runs there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from logpipeline_cli.auditing import words
from logpipeline_cli.auditing.comparing import Left
from logpipeline_cli.auditing.sides import Counts, Survey, Where
from logpipeline_cli.cluster.remote import FarEnd, rows_of
from logpipeline_shipper.checkpoint import Key

PROGRAM = ("python3", "-m", "logpipeline_cli.auditing.far")


@dataclass(frozen=True, slots=True)
class FarNode:
    """See `sides.Node`: the log files that the shipper at *end* reads."""

    end: FarEnd
    rate: int
    kept_ns: int

    def survey(self) -> Iterator[Survey]:
        """See `sides.Node`.

        Raises:
            CliError: the pod, or what its shipper knows, cannot be read.
        """
        yield from map(words.survey, self._asked("survey", {}))

    def left(self, groups: Sequence[tuple[Sequence[Key], Counts]]) -> Iterator[Left]:
        """See `sides.Node`."""
        yield from map(words.left, self._asked("left", {"groups": words.of_groups(groups)}))

    def _asked(self, ask: str, more: dict[str, Any]) -> list[Any]:
        request = {"ask": ask, "rate": self.rate, "kept_ns": self.kept_ns, **more}
        return rows_of(self.end, PROGRAM, {**self.end.folders, **request})


@dataclass(frozen=True, slots=True)
class FarArchive:
    """See `sides.Archive`: the files of the collectors at *end*."""

    end: FarEnd
    group: str
    output: str
    rate: int

    def count(self, wanted: Sequence[tuple[Where, Counts]]) -> Iterator[Counts]:
        """See `sides.Archive`.

        Raises:
            CliError: the pod, or the files, cannot be read.
        """
        yield from self._asked("count", wanted)

    def count_left(self, wanted: Sequence[tuple[Where, Counts, Counts]]) -> Iterator[Counts]:
        """See `sides.Archive`."""
        yield from self._asked("count-left", wanted)

    def _asked(self, ask: str, wanted: Sequence[tuple[Any, ...]]) -> Iterator[Counts]:
        request = {
            **self.end.folders,
            "ask": ask,
            "rate": self.rate,
            "group": self.group,
            "output": self.output,
            "places": words.of_places(wanted),
        }
        yield from map(words.counts, rows_of(self.end, PROGRAM, request))
