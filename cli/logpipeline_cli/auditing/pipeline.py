"""One audit of the pipeline on this machine: what is archived where, and what differs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from logpipeline.partition import partition_of
from logpipeline.spec import LogPipeline
from logpipeline_cli.auditing.archived import lines_of
from logpipeline_cli.auditing.comparing import Block, Missing, blocks_of, missing_of
from logpipeline_cli.auditing.node import Source, Spend
from logpipeline_cli.committed import Reading
from logpipeline_collector.archive.naming import Origin, Template
from logpipeline_shipper.files.sources import SourceId


@dataclass(frozen=True, slots=True)
class Where:
    """Where lines are archived: of *host*, in the files whose names match *glob*."""

    host: str
    glob: str
    is_cri: bool


@dataclass(slots=True)
class Finding:
    """Sources that are archived together, and what is *missing* of them there."""

    sources: list[Source]
    missing: Missing
    lost: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Result:
    """What an audit of files of so much *size* found out until *time_ns*; *due* of them collectors
    say that they have. All in bytes.
    """

    time_ns: int
    sources: int = 0
    files: int = 0
    size: int = 0
    due: int = 0
    compared: int = 0
    findings: list[Finding] = field(default_factory=list)
    troubles: dict[Path, str] = field(default_factory=dict)

    @property
    def differing(self) -> int:
        """Bytes of lines that are not archived, although collectors say so."""
        return sum(finding.missing.size for finding in self.findings)

    @property
    def is_clean(self) -> bool:
        """Whether nothing differs, and everything could be read."""
        return not self.findings and not self.troubles


class Audit:
    """Compares *sources* with what is archived in *folders*, at most *spend* lets it read."""

    def __init__(
        self, pipeline: LogPipeline, folders: Sequence[Path], spend: Spend = lambda size: None
    ) -> None:
        self._pipeline = pipeline
        self._folders = folders
        self._spend = spend
        age_ns = pipeline.spec.collectors.retention.max_age_ns
        self._kept_since_ns = time.time_ns() - age_ns

    def run(self, sources: Sequence[Source]) -> Result:
        """Return what differs.

        Raises:
            CliError: the archive cannot be read.
            NoLine: it is of another form than the pipeline says.
        """
        result = Result(time.time_ns())
        groups: dict[Where, list[Source]] = {}
        for source in sources:
            source.leave_out_before(self._kept_since_ns)
            result.sources += 1
            result.files += len(source.parts)
            result.size += source.size
            result.due += source.due
            if source.due:
                groups.setdefault(self._where(source.id), []).append(source)
        for where, group in groups.items():
            finding = self._compare(where, group)
            result.compared += sum(source.due for source in group)
            for source in group:
                result.troubles |= source.troubles
            if finding.missing.lines or finding.missing.untold:
                result.findings.append(finding)
        return result

    def _compare(self, where: Where, sources: list[Source]) -> Finding:
        finding = Finding(sources, Missing())
        output = self._pipeline.spec.collectors.output

        def here() -> Iterator[Block]:
            for source in sources:
                yield from blocks_of(source.lines(self._spend))

        def there() -> Iterator[Block]:
            reading = Reading(self._folders, where.host, where.glob)
            for chunks in reading.files():
                paced = self._paced(chunks)
                yield from blocks_of(lines_of(output, paced, is_cri=where.is_cri))
            finding.lost = reading.lost

        finding.missing = missing_of(here, there)
        return finding

    def _paced(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._spend(len(chunk))
            yield chunk

    def _where(self, id: SourceId) -> Where:
        spec = self._pipeline.spec
        is_cri = id.format == "cri"
        text = spec.collectors.path if is_cri else spec.collectors.file_path
        partition = partition_of(id.host, spec.partitions)
        template = Template(text, cluster=spec.cluster, partition=partition)
        origin = Origin(id.host, id.namespace, id.pod, id.container, id.source)
        return Where(id.host, template.glob(origin), is_cri)
