"""``logpipeline audit``: whether what stands in the log files stands in the archive as well."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

from logpipeline.quantity import QuantityError, parse_bytes, parse_duration
from logpipeline.spec import LogPipeline
from logpipeline.statefile import StateBroken
from logpipeline_cli.auditing.pipeline import Audit, Finding, Result
from logpipeline_cli.auditing.sides import ArchivedFiles, Node, NodeFiles, NoLine, Pace
from logpipeline_cli.errors import CliError
from logpipeline_cli.exits import EXIT_FAILED, EXIT_OK
from logpipeline_cli.moments import time_text
from logpipeline_cli.output import bytes_text, escaped, print_json
from logpipeline_cli.target import find_pipeline
from logpipeline_shipper.config import host_of, hosts_of

FINDINGS_TOLD_MAX = 20
SOURCES_TOLD_MAX = 3


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
        )
        for shipper in pipeline.spec.local.shippers
    ]
    archive = ArchivedFiles(layout.collectors(), collectors.group, collectors.output, pace)
    return repeat(Audit(pipeline, [archive]), nodes, args)


def check_comparable(pipeline: LogPipeline) -> None:
    """Check that the lines of *pipeline* say which file they are of.

    Raises:
        CliError: they do not.
    """
    if pipeline.spec.batch.message == "line":
        raise CliError(
            "lines of this pipeline (spec.batch.message: line) do not say which file they are of; "
            "they cannot be compared with it"
        )


def repeat(audit: Audit, nodes: Sequence[Node], args: argparse.Namespace) -> int:
    """Compare once, or again and again; print what comes of it, and return the exit code."""
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
            raise CliError(f"what a shipper knows cannot be read: {error}") from error
        if args.output == "json":
            print_json(_fields(result))
        else:
            _print(result)
        code = code if result.is_clean else EXIT_FAILED
        if not every_s:
            return code
        time.sleep(every_s)


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
        name = escaped(path.encode("utf-8", "surrogateescape"))
        print(f"{name} was not read to its end: {reason}")


def _sentence(finding: Finding) -> str:
    missing = finding.missing
    names = ", ".join(finding.sources[:SOURCES_TOLD_MAX])
    untold = f", and up to {missing.untold} more that were too many to look for"
    text = (
        f"{finding.host} {names}: {missing.lines} lines ({bytes_text(missing.size)}) are not "
        f"archived{untold if missing.untold else ''}; the first begins {missing.first!r}"
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


def parsed(option: str, text: str | None, parse: Callable[[object], int]) -> int:
    """Return what *text*, which was given with *option*, means; 0 where it was not given.

    Raises:
        CliError: it means nothing.
    """
    if text is None:
        return 0
    try:
        return parse(text)
    except QuantityError as error:
        raise CliError(f"{option} {text!r}: {error}") from error
