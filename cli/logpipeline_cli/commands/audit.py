"""``logpipeline audit``: compare the lines of log files with those of the collectors' files."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from logpipeline.origin import Origin
from logpipeline.partition import partition_of
from logpipeline.quantity import parse_bytes, parse_duration
from logpipeline.spec import LogPipeline
from logpipeline.statefile import StateBroken
from logpipeline_cli.auditing.line_blocks import Missing
from logpipeline_cli.auditing.sides import (
    CollectorFiles,
    Counts,
    LocalCollectorFiles,
    Node,
    NodeFiles,
    NoLine,
    Pace,
    Survey,
    Where,
    added,
)
from logpipeline_cli.errors import EXIT_FAILED, EXIT_OK, CliError
from logpipeline_cli.output import bytes_text, escaped, print_json
from logpipeline_cli.target import find_pipeline
from logpipeline_cli.time_arguments import parsed, time_text
from logpipeline_collector.files.naming import Template
from logpipeline_shipper.checkpoint import Key
from logpipeline_shipper.config import host_of, hosts_of, redactor_of
from logpipeline_shipper.files.listing import SourceId

FINDINGS_SHOWN_MAX = 20
SOURCES_SHOWN_MAX = 3


def run(args: argparse.Namespace) -> int:
    """Compare once, or again and again."""
    pipeline, layout = find_pipeline(file=args.file, data=args.data)
    check_comparable(pipeline)
    pace = Pace(parsed("--rate", args.rate, parse_bytes))
    collectors = pipeline.spec.collectors
    nodes = [
        NodeFiles(
            hosts_of(pipeline, shipper, host_of(shipper)),
            layout.shipper(shipper.name),
            collectors.retention.max_age_ns,
            pace,
            redactor_of(pipeline.spec.redaction),
        )
        for shipper in pipeline.spec.local.shippers
    ]
    files = LocalCollectorFiles(layout.collectors(), collectors.group, collectors.output, pace)
    return repeat(Audit(pipeline, [files]), nodes, args)


def check_comparable(pipeline: LogPipeline) -> None:
    """Check that the collected lines of *pipeline* can be compared with their log files.

    Raises:
        CliError: they cannot.
    """
    if pipeline.spec.batch.message == "line":
        raise CliError(
            "lines of this pipeline (spec.batch.message: line) do not name the file that they are "
            "from, so that they cannot be compared with it"
        )


def repeat(audit: Audit, nodes: Sequence[Node], args: argparse.Namespace) -> int:
    """Compare once, or again and again; print each result, and return the exit code."""
    every_s = parsed("--every", args.every, parse_duration) / 1e9
    code = EXIT_OK
    while True:
        try:
            result = audit.run(nodes)
        except NoLine as error:
            raise CliError(
                f"{error}; files that were written before spec.collectors.output was changed "
                "cannot be compared"
            ) from error
        except (StateBroken, OSError) as error:
            raise CliError(f"the state of a shipper cannot be read: {error}") from error
        if args.output == "json":
            print_json(_fields(result))
        else:
            _print(result)
        if not (result.is_clean and result.sources):
            code = EXIT_FAILED
        if not every_s:
            return code
        # A service's output is kept back until there is much of it.
        sys.stdout.flush()
        time.sleep(every_s)


def _print(result: Result) -> None:
    if not result.sources:
        print("no log file was found, and nothing compared: see what the shippers include")
    counts = f"{result.files} files of {result.sources} sources"
    print(
        f"{bytes_text(result.compared)} of {bytes_text(result.size)} compared ({counts}), "
        f"{bytes_text(result.differing)} differ, up to {time_text(result.time_ns)}"
    )
    for finding in result.findings[:FINDINGS_SHOWN_MAX]:
        print(_sentence(finding))
    if len(result.findings) > FINDINGS_SHOWN_MAX:
        print(f"and {len(result.findings) - FINDINGS_SHOWN_MAX} more: see -o json")
    for path, reason in result.troubles.items():
        name = escaped(path.encode("utf-8", "surrogateescape"))
        print(f"{name} was not read to its end: {reason}")


def _sentence(finding: Finding) -> str:
    missing = finding.missing
    names = ", ".join(finding.sources[:SOURCES_SHOWN_MAX])
    more = f", and up to {missing.untold} more, too many to search for"
    text = (
        f"{finding.host} {names}: {missing.lines} lines ({bytes_text(missing.size)}) are not "
        f"collected{more if missing.untold else ''}; the first begins {missing.first!r}"
    )
    return escaped(text.encode("utf-8", "surrogateescape"))


def _fields(result: Result) -> dict[str, Any]:
    return {
        "time": time_text(result.time_ns),
        "sources": result.sources,
        "files": result.files,
        "bytes": result.size,
        "comparedBytes": result.compared,
        "differingBytes": result.differing,
        "findings": [_finding(finding) for finding in result.findings],
        "notRead": result.troubles,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "host": finding.host,
        "sources": finding.sources,
        "lines": finding.missing.lines,
        "bytes": finding.missing.size,
        "untoldLines": finding.missing.untold,
        "first": finding.missing.first.decode("utf-8", "backslashreplace"),
    }


# Places in one request: a request is held in memory as a whole.
GROUPS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Finding:
    """Sources of one host that are collected in the same files, and their lines that are missing
    there.
    """

    host: str
    sources: tuple[str, ...]
    missing: Missing


@dataclass(slots=True)
class Result:
    """The result of an audit of the time *time_ns*: the numbers of *sources* and *files*, their
    *size* and how much of it was *compared*, in bytes; and *troubles*, the files that could not be
    read completely, with the reasons.
    """

    time_ns: int
    sources: int = 0
    files: int = 0
    size: int = 0
    compared: int = 0
    findings: list[Finding] = field(default_factory=list)
    troubles: dict[str, str] = field(default_factory=dict)

    @property
    def differing(self) -> int:
        """Bytes of lines that are not collected, although collectors have confirmed them."""
        return sum(finding.missing.size for finding in self.findings)

    @property
    def is_clean(self) -> bool:
        """Whether nothing differs, and everything could be read."""
        return not self.findings and not self.troubles


@dataclass(slots=True)
class _Group:
    """Sources that are collected at one place, with their blocks, and those that are collected."""

    where: Where
    sources: list[Key] = field(default_factory=list)
    blocks: Counter[bytes] = field(default_factory=Counter)
    same: Counts = field(default_factory=Counter)


class Audit:
    """Compares the files of nodes with the files of *collectors*, which together are all."""

    def __init__(self, pipeline: LogPipeline, collectors: Sequence[CollectorFiles]) -> None:
        self._pipeline = pipeline
        self._collectors = collectors

    def run(self, nodes: Sequence[Node]) -> Result:
        """Return the differences; nodes are read one after the other.

        Raises:
            CliError: files cannot be read.
            NoLine: the collectors' files have another output format than the pipeline now.
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
        found = [list(files.count(wanted)) for files in self._collectors]
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
        counts = [list(files.count_left(lines)) for files in self._collectors]
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
