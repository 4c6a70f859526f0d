"""The sides of an audit that are in pods: the program that runs there beside the files, its client
here, and the JSON between the two.

The program is started as ``python -m logpipeline_cli.auditing.remote``. It reads a request, one
line of JSON, and answers with lines of JSON, of which the last says that the answer is complete.
Keys of blocks and lines are written as hexadecimal digits.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from logpipeline import json_text
from logpipeline.spec import load
from logpipeline.statefile import StateBroken
from logpipeline_cli.auditing.line_blocks import Left, Line
from logpipeline_cli.auditing.sides import (
    Counts,
    LocalCollectorFiles,
    NodeFiles,
    NoLine,
    Pace,
    Survey,
    Where,
)
from logpipeline_cli.cluster.agent_client import AgentPod, rows_of
from logpipeline_cli.cluster.remote_agent import REQUEST_BYTES_MAX, folders_of
from logpipeline_cli.errors import CliError
from logpipeline_shipper.checkpoint import Key
from logpipeline_shipper.config import host_of, hosts_of, redactor_of
from logpipeline_shipper.files.listing import SourceId

PROGRAM = ("python3", "-m", "logpipeline_cli.auditing.remote")

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RemoteNode:
    """A `sides.Node`: the log files that the shipper in *pod* reads."""

    pod: AgentPod
    rate: int
    kept_ns: int

    def survey(self) -> Iterator[Survey]:
        """See `sides.Node`.

        Raises:
            CliError: the pod, or the state of its shipper, cannot be read.
        """
        yield from map(_survey, self._asked("survey", {}))

    def left(self, groups: Sequence[tuple[Sequence[Key], Counts]]) -> Iterator[Left]:
        """See `sides.Node`."""
        yield from map(_left, self._asked("left", {"groups": _groups_row(groups)}))

    def _asked(self, ask: str, more: dict[str, Any]) -> list[Any]:
        request = {"ask": ask, "rate": self.rate, "kept_ns": self.kept_ns, **more}
        return rows_of(self.pod, PROGRAM, {**self.pod.folders, **request})


@dataclass(frozen=True, slots=True)
class RemoteCollectorFiles:
    """A `sides.CollectorFiles`: the files of the collectors in *pod*."""

    pod: AgentPod
    group: str
    output: str
    rate: int

    def count(self, wanted: Sequence[tuple[Where, Counts]]) -> Iterator[Counts]:
        """See `sides.CollectorFiles`.

        Raises:
            CliError: the pod, or the files, cannot be read.
        """
        yield from self._asked("count", wanted)

    def count_left(self, wanted: Sequence[tuple[Where, Counts, Counts]]) -> Iterator[Counts]:
        """See `sides.CollectorFiles`."""
        yield from self._asked("count-left", wanted)

    def _asked(self, ask: str, wanted: Sequence[tuple[Any, ...]]) -> Iterator[Counts]:
        request = {
            **self.pod.folders,
            "ask": ask,
            "rate": self.rate,
            "group": self.group,
            "output": self.output,
            "places": _places_row(wanted),
        }
        yield from map(_counts, rows_of(self.pod, PROGRAM, request))


def main(stdin: BinaryIO, stdout: BinaryIO) -> int:
    """Answer one request, in the pod; return an exit code."""
    request = json_text.parse(stdin.readline(REQUEST_BYTES_MAX))
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
        yield from map(_survey_row, _node(request, pace).survey())
    elif request["ask"] == "left":
        groups = _groups(request["groups"])
        yield from map(_left_row, _node(request, pace).left(groups))
    else:
        folders = list(folders_of(request).values())
        files = LocalCollectorFiles(folders, request["group"], request["output"], pace)
        ask = files.count if request["ask"] == "count" else files.count_left
        yield from map(_counts_row, ask(_places(request["places"])))


def _node(request: dict[str, Any], pace: Pace) -> NodeFiles:
    pipeline = load(Path(request["file"]))
    (shipper,) = [each for each in pipeline.spec.local.shippers if each.name == request["name"]]
    # The pod's environment names its node.
    host = os.environ.get("NODE_NAME") or host_of(shipper)
    hosts = hosts_of(pipeline, shipper, host)
    redactor = redactor_of(pipeline.spec.redaction)
    return NodeFiles(hosts, Path(request["data"]), request["kept_ns"], pace, redactor)


# Each pair below turns a value into a row of JSON, and back.
def _counts_row(counts: Counts) -> dict[str, int]:
    return {key.hex(): times for key, times in counts.items()}


def _counts(row: Mapping[str, int]) -> dict[bytes, int]:
    return {bytes.fromhex(key): times for key, times in row.items()}


def _survey_row(survey: Survey) -> Row:
    return {
        **survey._asdict(),
        "id": asdict(survey.id),
        "blocks": _counts_row(survey.blocks),
        "troubles": dict(survey.troubles),
    }


def _survey(row: Row) -> Survey:
    return Survey(**{**row, "id": SourceId(**row["id"]), "blocks": _counts(row["blocks"])})


def _left_row(left: Left) -> Row:
    rows = [
        (key.hex(), line.times, line.size, base64.b64encode(line.first).decode())
        for key, line in left.lines.items()
    ]
    return {"lines": rows, "untold": left.untold}


def _left(row: Row) -> Left:
    lines = {
        bytes.fromhex(key): Line(times, size, base64.b64decode(first))
        for key, times, size, first in row["lines"]
    }
    return Left(lines, row["untold"])


def _groups_row(groups: Sequence[tuple[Sequence[Key], Counts]]) -> list[Any]:
    return [([tuple(key) for key in keys], _counts_row(same)) for keys, same in groups]


def _groups(rows: Sequence[Any]) -> list[tuple[list[Key], Counts]]:
    return [([Key(*key) for key in keys], _counts(same)) for keys, same in rows]


def _places_row(places: Sequence[tuple[Any, ...]]) -> list[Any]:
    return [(tuple(where), *map(_counts_row, more)) for where, *more in places]


def _places(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [(Where(*where), *map(_counts, more)) for where, *more in rows]


if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer, sys.stdout.buffer))
