"""Runs where files are, in the pod of a shipper or of a collector, and says what stands in them.

It is started as ``python -m logpipeline_cli.auditing.far``, takes one line of JSON, and answers
with lines of JSON, of which the last says that it was all.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from logpipeline.spec import load
from logpipeline.statefile import StateBroken
from logpipeline_cli.auditing import words
from logpipeline_cli.auditing.sides import ArchivedFiles, NodeFiles, NoLine, Pace
from logpipeline_cli.cluster.far import REQUEST_BYTES_MAX, folders_of
from logpipeline_cli.errors import CliError
from logpipeline_shipper.config import host_of, hosts_of


def main(stdin: BinaryIO, stdout: BinaryIO) -> int:
    """Answer one request; return an exit code."""
    request = json.loads(stdin.readline(REQUEST_BYTES_MAX))
    last: dict[str, Any] = {"done": True}
    try:
        for row in _answers(request):
            stdout.write(json.dumps(row).encode() + b"\n")
    except (CliError, NoLine, StateBroken, OSError) as error:
        last = {"failed": str(error)}
    stdout.write(json.dumps(last).encode() + b"\n")
    return 0


def _answers(request: dict[str, Any]) -> Iterator[Any]:
    pace = Pace(request["rate"])
    if request["ask"] == "survey":
        yield from map(words.of_survey, _node(request, pace).survey())
    elif request["ask"] == "left":
        groups = words.groups(request["groups"])
        yield from map(words.of_left, _node(request, pace).left(groups))
    else:
        folders = list(folders_of(request).values())
        archive = ArchivedFiles(folders, request["group"], request["output"], pace)
        ask = archive.count if request["ask"] == "count" else archive.count_left
        yield from map(words.of_counts, ask(words.places(request["places"])))


def _node(request: dict[str, Any], pace: Pace) -> NodeFiles:
    pipeline = load(Path(request["file"]))
    (shipper,) = [each for each in pipeline.spec.local.shippers if each.name == request["name"]]
    # The pod's own words name its node.
    host = os.environ.get("NODE_NAME") or host_of(shipper)
    hosts = hosts_of(pipeline, shipper, host)
    return NodeFiles(hosts, Path(request["data"]), request["kept_ns"], pace)


if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer, sys.stdout.buffer))
