"""``logpipeline audit``: whether what stands in the log files stands in the archive as well."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from logpipeline.quantity import QuantityError, parse_bytes, parse_duration
from logpipeline.spec import LogPipeline
from logpipeline.statefile import StateBroken
from logpipeline_cli.auditing.archived import NoLine
from logpipeline_cli.auditing.node import Source, Spend, sources_of
from logpipeline_cli.auditing.pipeline import Audit, Finding, Result
from logpipeline_cli.errors import CliError
from logpipeline_cli.exits import EXIT_FAILED, EXIT_OK
from logpipeline_cli.local.layout import Layout
from logpipeline_cli.moments import time_text
from logpipeline_cli.output import bytes_text, escaped, print_json
from logpipeline_cli.target import find_pipeline
from logpipeline_shipper import positions
from logpipeline_shipper.config import host_of, hosts_of

FINDINGS_TOLD_MAX = 20


@dataclass(slots=True)
class Pace:
    """Lets no more than *rate* bytes a second be read; 0 means as fast as it goes."""

    rate: int
    _due_s: float = 0.0

    def spend(self, size: int) -> None:
        """Wait until *size* more bytes may be read."""
        if not self.rate:
            return
        now_s = time.monotonic()
        time.sleep(max(self._due_s - now_s, 0.0))
        self._due_s = max(self._due_s, now_s) + size / self.rate


def run(args: argparse.Namespace) -> int:
    """Compare once, or again and again."""
    pipeline, layout = find_pipeline(file=args.file, data=args.data)
    if pipeline.spec.batch.message == "line":
        raise CliError(
            "lines of this pipeline (spec.batch.message: line) do not say which file they are of; "
            "they cannot be compared with it"
        )
    pace = Pace(_parsed("--rate", args.rate, parse_bytes))
    every_s = _parsed("--every", args.every, parse_duration) / 1e9
    code = EXIT_OK
    while True:
        result = _audit(pipeline, layout, pace.spend)
        print_json(_fields(result)) if args.output == "json" else _print(result)
        code = code if result.is_clean else EXIT_FAILED
        if not every_s:
            return code
        time.sleep(every_s)


def _audit(pipeline: LogPipeline, layout: Layout, spend: Spend) -> Result:
    sources = list(_sources(pipeline, layout))
    try:
        return Audit(pipeline, layout.collectors(), spend).run(sources)
    except NoLine as error:
        raise CliError(
            f"{error}; files that were written before spec.collectors.output was changed cannot be "
            "compared"
        ) from error


def _sources(pipeline: LogPipeline, layout: Layout) -> Iterator[Source]:
    for shipper in pipeline.spec.local.shippers:
        hosts = hosts_of(pipeline, shipper, host_of(shipper))
        try:
            records = positions.peek(layout.shipper(shipper.name))
        except (StateBroken, OSError) as error:
            raise CliError(f"what shipper {shipper.name} knows cannot be read: {error}") from error
        yield from sources_of(hosts, records)


def _print(result: Result) -> None:
    counts = f"{result.files} files of {result.sources} sources"
    print(
        f"{bytes_text(result.compared)} of {bytes_text(result.size)} compared ({counts}), "
        f"{bytes_text(result.differing)} differ, up to {time_text(result.time_ns)}"
    )
    for finding in result.findings[:FINDINGS_TOLD_MAX]:
        print(_sentence(finding))
    if len(result.findings) > FINDINGS_TOLD_MAX:
        print(f"and {len(result.findings) - FINDINGS_TOLD_MAX} more: see -o json")
    for path, reason in result.troubles.items():
        print(f"{escaped(bytes(path))} was not read to its end: {reason}")


def _sentence(finding: Finding) -> str:
    missing = finding.missing
    names = ", ".join(sorted({source.id.source for source in finding.sources})[:3])
    host = finding.sources[0].id.host
    untold = f", and up to {missing.untold} more that were too many to look for"
    text = (
        f"{host} {names}: {missing.lines} lines ({bytes_text(missing.size)}) are not archived"
        f"{untold if missing.untold else ''}; the first begins {missing.first!r}"
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
        "notRead": {str(path): reason for path, reason in result.troubles.items()},
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "host": finding.sources[0].id.host,
        "sources": sorted({source.id.source for source in finding.sources}),
        "lines": finding.missing.lines,
        "bytes": finding.missing.size,
        "untoldLines": finding.missing.untold,
        "first": finding.missing.first.decode("utf-8", "backslashreplace"),
    }


def _parsed(option: str, text: str | None, parse: Any) -> int:
    if text is None:
        return 0
    try:
        return int(parse(text))
    except QuantityError as error:
        raise CliError(f"{option} {text!r}: {error}") from error
