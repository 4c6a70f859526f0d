"""The two sides of an audit where their files are: the log files of a node, and what collectors
made of them. Each says what stands there by the keys of blocks and lines, so that little travels.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from logpipeline_cli.auditing.archived import lines_of
from logpipeline_cli.auditing.comparing import Block, Left, blocks_of, count, count_left, left
from logpipeline_cli.auditing.node import Source, sources_of
from logpipeline_cli.auditing.pace import Pace
from logpipeline_cli.committed import Reading
from logpipeline_shipper import positions
from logpipeline_shipper.files.sources import HostSources, SourceId
from logpipeline_shipper.intents import Key

Counts = Mapping[bytes, int]


class Where(NamedTuple):
    """Where lines are archived: of *host*, in the files whose names match *glob*."""

    host: str
    glob: str
    is_cri: bool


class Survey(NamedTuple):
    """What stands in the *files* of one source: bytes, those that are *compared* since collectors
    have confirmed them, the blocks of these, and which files could not be read to their ends, and
    why.
    """

    id: SourceId
    files: int
    size: int
    compared: int
    blocks: Counts
    troubles: Mapping[str, str]


class Node(Protocol):
    """The log files of one shipper."""

    def survey(self) -> Iterator[Survey]:
        """Yield what stands in the files of each source."""

    def left(self, groups: Sequence[tuple[Sequence[Key], Counts]]) -> Iterator[Left]:
        """Yield for each group of sources the lines outside of the blocks that both sides have."""


class Archive(Protocol):
    """The archived files of some collectors."""

    def count(self, wanted: Sequence[tuple[Where, Counts]]) -> Iterator[Counts]:
        """Yield for each place how often the wanted blocks stand there."""

    def count_left(self, wanted: Sequence[tuple[Where, Counts, Counts]]) -> Iterator[Counts]:
        """Yield for each place how often the wanted lines, the last ones, stand there outside of
        the blocks that both sides have.
        """


@dataclass(slots=True)
class NodeFiles:
    """The files of a shipper that keeps its positions in *folder*; those that were not written for
    *kept_ns* are left out, since the archive may have removed their lines for their age.
    """

    hosts: Sequence[HostSources]
    folder: Path
    kept_ns: int
    pace: Pace

    def survey(self) -> Iterator[Survey]:
        """See `Node`.

        Raises:
            StateBroken, OSError: what the shipper knows cannot be read.
        """
        for source in self._sources():
            blocks = count(blocks_of(source.lines(self.pace.spend)))
            troubles = {str(path): reason for path, reason in source.troubles.items()}
            files, compared = len(source.parts), source.compared
            yield Survey(source.id, files, source.size, compared, blocks, troubles)

    def left(self, groups: Sequence[tuple[Sequence[Key], Counts]]) -> Iterator[Left]:
        """See `Node`."""
        sources = {Key(each.id.host, each.id.source): each for each in self._sources()}
        for keys, same in groups:
            there = (sources[key] for key in keys if key in sources)
            blocks = (b for each in there for b in blocks_of(each.lines(self.pace.spend)))
            yield left(blocks, same)

    def _sources(self) -> Iterator[Source]:
        since_ns = time.time_ns() - self.kept_ns
        for source in sources_of(self.hosts, positions.peek(self.folder)):
            source.leave_out_before(since_ns)
            yield source


@dataclass(slots=True)
class ArchivedFiles:
    """The files of the collectors in *folders*, of one group, in the form *output*."""

    folders: Sequence[Path]
    group: str
    output: str
    pace: Pace

    def count(self, wanted: Sequence[tuple[Where, Counts]]) -> Iterator[Counts]:
        """See `Archive`.

        Raises:
            CliError: the files cannot be read.
            NoLine: they are of another form.
        """
        for where, keys in wanted:
            yield count(self._blocks(where), keys)

    def count_left(self, wanted: Sequence[tuple[Where, Counts, Counts]]) -> Iterator[Counts]:
        """See `Archive`."""
        for where, same, keys in wanted:
            yield count_left(self._blocks(where), same, keys)

    def _blocks(self, where: Where) -> Iterator[Block]:
        reading = Reading(self.folders, where.host, where.glob, group=self.group)
        for chunks in reading.files():
            yield from blocks_of(lines_of(self.output, self._paced(chunks), is_cri=where.is_cri))

    def _paced(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.pace.spend(len(chunk))
            yield chunk


def added(counts: Sequence[Counts]) -> Counter[bytes]:
    """Return what *counts* say together."""
    total: Counter[bytes] = Counter()
    for each in counts:
        total.update(each)
    return total
