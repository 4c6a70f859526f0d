"""Finds for the log files of each node where they are archived, and compares the two."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from logpipeline.partition import partition_of
from logpipeline.spec import LogPipeline
from logpipeline_cli.auditing.comparing import Missing
from logpipeline_cli.auditing.sides import Archive, Counts, Node, Survey, Where, added
from logpipeline_collector.files.naming import Origin, Template
from logpipeline_shipper.checkpoint import Key
from logpipeline_shipper.files.listing import SourceId

# Places that are asked for at once: a question travels as a whole.
GROUPS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Finding:
    """Sources of one host that are archived in the same files, and their lines that these lack."""

    host: str
    sources: tuple[str, ...]
    missing: Missing


@dataclass(slots=True)
class Result:
    """What an audit of files of so much *size* found out until *time_ns*, in bytes."""

    time_ns: int
    sources: int = 0
    files: int = 0
    size: int = 0
    compared: int = 0
    findings: list[Finding] = field(default_factory=list)
    troubles: dict[str, str] = field(default_factory=dict)

    @property
    def differing(self) -> int:
        """Bytes of lines that are not archived, although collectors say so."""
        return sum(finding.missing.size for finding in self.findings)

    @property
    def is_clean(self) -> bool:
        """Whether nothing differs, and everything could be read."""
        return not self.findings and not self.troubles


@dataclass(slots=True)
class _Group:
    """Sources that are archived at one place, with their blocks."""

    where: Where
    sources: list[Key] = field(default_factory=list)
    blocks: Counter[bytes] = field(default_factory=Counter)
    same: Counts = field(default_factory=Counter)


class Audit:
    """Compares the files of nodes with those of *archives*, which together are all there are."""

    def __init__(self, pipeline: LogPipeline, archives: Sequence[Archive]) -> None:
        self._pipeline = pipeline
        self._archives = archives

    def run(self, nodes: Sequence[Node]) -> Result:
        """Return what differs; one node after the other is read.

        Raises:
            CliError: files cannot be read.
            NoLine: the archive is of another form than the pipeline says.
        """
        result = Result(time.time_ns())
        for node in nodes:
            groups = iter(self._surveyed(node, result).values())
            while batch := list(islice(groups, GROUPS_AT_ONCE)):
                result.findings += self._compared(node, batch)
        return result

    def _surveyed(self, node: Node, result: Result) -> dict[Where, _Group]:
        groups: dict[Where, _Group] = {}
        for survey in node.survey():
            _add(result, survey)
            if survey.compared:
                where = self._where(survey.id)
                group = groups.setdefault(where, _Group(where))
                group.sources.append(Key(survey.id.host, survey.id.source))
                group.blocks.update(survey.blocks)
        return groups

    def _compared(self, node: Node, groups: list[_Group]) -> Iterator[Finding]:
        wanted = [(group.where, group.blocks) for group in groups]
        found = [list(archive.count(wanted)) for archive in self._archives]
        for number, group in enumerate(groups):
            group.same = group.blocks & added([each[number] for each in found])
        differing = [group for group in groups if group.same != group.blocks]
        if not differing:
            return
        lefts = list(node.left([(group.sources, group.same) for group in differing]))
        lines = [
            (group.where, group.same, dict.fromkeys(left.lines, 1))
            for group, left in zip(differing, lefts, strict=True)
        ]
        counts = [list(archive.count_left(lines)) for archive in self._archives]
        for number, (group, left) in enumerate(zip(differing, lefts, strict=True)):
            missing = left.missing(added([each[number] for each in counts]))
            if missing.lines or missing.untold:
                names = tuple(sorted(key.source for key in group.sources))
                yield Finding(group.where.host, names, missing)

    def _where(self, id: SourceId) -> Where:
        spec = self._pipeline.spec
        is_cri = id.format == "cri"
        text = spec.collectors.path if is_cri else spec.collectors.file_path
        partition = partition_of(id.host, spec.partitions)
        template = Template(text, cluster=spec.cluster, partition=partition)
        origin = Origin(id.host, id.namespace, id.pod, id.container, id.source)
        return Where(id.host, template.glob(origin), is_cri)


def _add(result: Result, survey: Survey) -> None:
    result.sources += 1
    result.files += survey.files
    result.size += survey.size
    result.compared += survey.compared
    result.troubles |= survey.troubles
